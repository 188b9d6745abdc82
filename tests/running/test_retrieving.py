"""Chunks in place of documents: found once, kept, and given back in the document's order."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from lbx.backends.embedding import EmbedderInfo
from lbx.base.bundle_folder import HUB, Bundle, repo_folder
from lbx.base.errors import BackendError, BundleError, UsageError
from lbx.base.records import Chunk, Sample, Task
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.longbench.benchmark import LongBench
from lbx.benchmarks.longbench_v2 import LongBenchV2
from lbx.benchmarks.registry import BENCHMARKS
from lbx.benchmarks.retrieval.chunks import ChunkTokenizer
from lbx.benchmarks.retrieval.retriever import RetrievalRules
from lbx.options.run_spec import RetrievalOptions, RunSettings
from lbx.options.sample_selection import EVERYTHING
from lbx.results import Store
from lbx.results.file.caches import find_chunks
from lbx.running.retrieving import ChunkFinder, StoredChunks, common_retrieval_rules, retrieve_all
from tests.running.engine_parts import longbench_bundle, longbench_row, make_work, run, scripted, v2_bundle, v2_row

V2 = LongBenchV2()
DEMO_TOKENIZER = Path(__file__).resolve().parents[2] / "models" / "demo" / "hf" / "tokenizer.json"


class Letters:
    """An embedding model that anyone can check: how often a text has each letter. Counts its calls."""

    info = EmbedderInfo("letters", "sentence_transformers", "1", "0123456789abcdef", 26, 512)

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool]] = []
        self.closed = False

    def embed(self, texts: Sequence[str], *, query: bool = False) -> np.ndarray:
        self.calls.append((len(texts), query))
        counts = [[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts]
        rows = np.array(counts, dtype=np.float32).reshape(len(texts), 26)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)

    def close(self) -> None:
        self.closed = True


class Counting(ChunkFinder):
    """Counts what it is asked, and fails at one of them."""

    def __init__(self, bundle: Bundle, best: int, words: int, fail_at: int | None = None) -> None:
        super().__init__(bundle, RetrievalOptions(rag=best, chunk_words=words))
        self.asked: list[str] = []
        self.fail_at = fail_at

    def find(self, benchmark: Benchmark, sample: Sample) -> Sequence[Chunk]:
        self.asked.append(sample.sample_id)
        if len(self.asked) == self.fail_at:
            raise BackendError("the embedding model ran out of memory")
        return super().find(benchmark, sample)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.duckdb") as opened:
        yield opened


def questions(folder: Path, count: int) -> tuple[Bundle, list[tuple[Benchmark, Task]], list[Sample]]:
    bundle = v2_bundle(folder / "bundle", [v2_row(number) for number in range(count)])
    (task,) = V2.tasks(bundle)
    return bundle, [(V2, task)], list(V2.samples(bundle, task.name))


def test_what_is_found_is_kept_and_comes_back_in_document_order(tmp_path: Path, store: Store) -> None:
    bundle, tasks, samples = questions(tmp_path, 3)
    finder, seen = ChunkFinder(bundle, RetrievalOptions(rag=4, chunk_words=10)), []
    retrieve_all(store, finder, bundle, tasks, progress=lambda *state: seen.append(state))
    assert seen == [("longbench_v2/mcq", done, 3) for done in (1, 2, 3)]
    for sample in samples:
        direct = finder.find(V2, sample)
        kept = StoredChunks(store, finder.name)(V2, sample)
        assert [(c.index, c.rank, c.score, c.text) for c in kept] == [
            (c.index, c.rank, c.score, c.text) for c in direct
        ]
        assert [chunk.index for chunk in kept] == sorted(chunk.index for chunk in kept)
        assert sorted(chunk.rank for chunk in kept) == [0, 1, 2, 3]
        best = min(kept, key=lambda chunk: chunk.rank)
        assert f"House {sample.sample_id[1:]} is" in best.text
    assert StoredChunks(store, "bm25/11 words, best 4")(V2, samples[0]) == ()


def test_the_same_is_not_searched_twice(tmp_path: Path, store: Store) -> None:
    bundle, tasks, samples = questions(tmp_path, 5)
    first = Counting(bundle, 2, 10)
    retrieve_all(store, first, bundle, tasks, selection=EVERYTHING.first([tasks[0][1]], 3))
    assert first.asked == ["q0", "q1", "q2"]
    again = Counting(bundle, 2, 10)
    retrieve_all(store, again, bundle, tasks)
    assert again.asked == ["q3", "q4"]
    for best, words in ((3, 10), (2, 11)):
        other = Counting(bundle, best, words)
        retrieve_all(store, other, bundle, tasks)
        assert len(other.asked) == 5
    assert find_chunks(store, again.name, samples[4])


@pytest.mark.parametrize("count", [5, 40])
def test_what_was_found_before_a_failure_is_kept(tmp_path: Path, store: Store, count: int) -> None:
    bundle, tasks, _ = questions(tmp_path, count)
    broken = Counting(bundle, 2, 10, fail_at=count - 1)
    with pytest.raises(BackendError, match="out of memory"):
        retrieve_all(store, broken, bundle, tasks)
    assert store.query("SELECT count(DISTINCT sample_id) FROM retrievals").rows == [(count - 2,)]
    rest = Counting(bundle, 2, 10)
    retrieve_all(store, rest, bundle, tasks)
    assert rest.asked == [f"q{count - 2}", f"q{count - 1}"]


def test_more_samples_than_the_task_was_said_to_have(tmp_path: Path, store: Store) -> None:
    bundle, [(_, task)], _ = questions(tmp_path, 4)
    for samples in (2, 9):
        retrieve_all(
            store,
            ChunkFinder(bundle, RetrievalOptions(rag=samples, chunk_words=10)),
            bundle,
            [(V2, Task(V2.name, task.name, (), samples))],
        )
    assert store.query("SELECT retriever, count(DISTINCT sample_id) FROM retrievals GROUP BY 1 ORDER BY 1").rows == [
        ("bm25/10 words, best 2", 4),
        ("bm25/10 words, best 9", 4),
    ]


def test_an_empty_document_has_no_chunks(tmp_path: Path, store: Store) -> None:
    bundle = v2_bundle(tmp_path / "bundle", [v2_row(0, context=""), v2_row(1)])
    (task,) = V2.tasks(bundle)
    finder = ChunkFinder(bundle, RetrievalOptions(rag=2, chunk_words=10))
    retrieve_all(store, finder, bundle, [(V2, task)])
    empty, full = V2.samples(bundle, task.name)
    assert StoredChunks(store, finder.name)(V2, empty) == ()
    assert len(StoredChunks(store, finder.name)(V2, full)) == 2


def test_names_tell_settings_apart(tmp_path: Path) -> None:
    model, bundle = Letters(), v2_bundle(tmp_path / "bundle", [v2_row(0)])
    names = [
        ChunkFinder(bundle, RetrievalOptions(rag=3)).name,
        ChunkFinder(bundle, RetrievalOptions(rag=7)).name,
        ChunkFinder(bundle, RetrievalOptions(rag=3, chunk_words=200)).name,
        ChunkFinder(bundle, RetrievalOptions(rag=3, retriever="letters"), model).name,
        ChunkFinder(bundle, RetrievalOptions(rag=3, retriever="letters", chunk_words=500), model).name,
    ]
    assert names[0] == "bm25/500 words, best 3"
    assert names[3] == "embedding:letters:0123456789ab/200 words, best 3"
    assert len(set(names)) == 5


def test_families_that_retrieve_differently_are_asked_apart() -> None:
    one, two, leval = (BENCHMARKS[name] for name in ("longbench", "longbench_v2", "leval"))
    plain = RetrievalRules()
    assert (
        common_retrieval_rules([one], RetrievalOptions(rag=3))
        == common_retrieval_rules([one, two], RetrievalOptions(rag=3))
        == plain
    )
    assert common_retrieval_rules([leval, leval], RetrievalOptions(rag=3)) == leval.protocol.retrieval
    assert common_retrieval_rules([one, leval], RetrievalOptions(rag=3, retriever="letters", chunk_words=9)) == plain
    for families, how in (
        ([one, leval], RetrievalOptions(rag=3)),
        ([one, two], RetrievalOptions(rag=3, chunk_tokens=128)),
    ):
        with pytest.raises(UsageError, match="use different chunks and rankings"):
            common_retrieval_rules(families, how)
    with pytest.raises(UsageError, match="both set the size"):
        RetrievalOptions(rag=3, chunk_words=5, chunk_tokens=5)


def with_tokenizer(bundle: Bundle, repo: str) -> Bundle:
    """The bundle with the demo's tokenizer under a repository's name."""
    folder = bundle.root / HUB / repo_folder("model", repo)
    (folder / "snapshots" / "1").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("1")
    shutil.copy(DEMO_TOKENIZER, folder / "snapshots" / "1" / "tokenizer.json")
    return bundle


def test_chunks_of_tokens(tmp_path: Path, store: Store) -> None:
    pytest.importorskip("tokenizers", reason="needs lbx[hf]")
    bundle, tasks, samples = questions(tmp_path, 2)
    rules = V2.protocol.retrieval
    with pytest.raises(BundleError, match="lacks zai-org/glm-4-9b-chat-hf") as caught:
        ChunkFinder(bundle, RetrievalOptions(rag=2, chunk_tokens=16), rules=rules)
    assert caught.value.command == "lbx bundle bundle/longbench_v2_retrieval.toml"
    with pytest.raises(UsageError, match="their chunks are measured in words"):
        ChunkFinder(bundle, RetrievalOptions(rag=2, chunk_tokens=16))
    finder = ChunkFinder(with_tokenizer(bundle, rules.tokenizer), RetrievalOptions(rag=2, chunk_tokens=16), rules=rules)
    assert re.fullmatch(r"bm25/16 tokens of glm-4-9b-chat-hf:[0-9a-f]{12}, best 2", finder.name)
    retrieve_all(store, finder, bundle, tasks)
    counts = ChunkTokenizer(DEMO_TOKENIZER).counts
    for sample in samples:
        kept = StoredChunks(store, finder.name)(V2, sample)
        assert len(kept) == 2
        assert all(chunk.text in sample.context for chunk in kept)
        assert max(counts([chunk.text for chunk in kept])) <= 17  # a chunk's beginning may be cut in another way alone


def test_l_eval_has_chunks_and_bm25_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs lbx[hf]")
    rules = BENCHMARKS["leval"].protocol.retrieval
    bundle = with_tokenizer(v2_bundle(tmp_path / "bundle", [v2_row(0)]), rules.tokenizer)
    names = {
        how: ChunkFinder(bundle, how, rules=rules).name
        for how in (
            RetrievalOptions(rag=4),
            RetrievalOptions(rag=4, chunk_tokens=64),
            RetrievalOptions(rag=4, chunk_words=9),
            RetrievalOptions(rag=4, retriever="bm25-characters"),
        )
    }
    assert [name.split(":")[0] for name in names.values()] == [
        "bm25-elasticsearch/1024 tokens of gpt2",
        "bm25-elasticsearch/64 tokens of gpt2",
        "bm25-elasticsearch/9 words, best 4",
        "bm25-characters/1024 tokens of gpt2",
    ]
    (bundle.root / HUB / repo_folder("model", rules.tokenizer) / "snapshots" / "1" / "tokenizer.json").write_text("{}")
    with pytest.raises(BundleError, match=r"tokenizer\.json cannot be read"):
        ChunkFinder(bundle, RetrievalOptions(rag=4), rules=rules)


def test_an_embedding_model_ranks_by_cosine(tmp_path: Path, store: Store) -> None:
    bundle, tasks, samples = questions(tmp_path, 2)
    model = Letters()
    finder = ChunkFinder(bundle, RetrievalOptions(rag=3, retriever="letters", chunk_words=10), model)
    retrieve_all(store, finder, bundle, tasks)
    for sample in samples:
        kept = StoredChunks(store, finder.name)(V2, sample)
        (asked,) = model.embed([V2.query(sample, bundle)], query=True)
        for chunk in kept:
            (vector,) = model.embed([chunk.text])
            assert chunk.score == pytest.approx(float(vector @ asked), abs=1e-6)
    before = len(model.calls)
    retrieve_all(store, finder, bundle, tasks)
    assert len(model.calls) == before, "chunks that are kept need no model"
    finder.close()
    assert model.closed


def test_a_run_reads_the_chunks(tmp_path: Path, store: Store) -> None:
    """LongBench v2 has them in document order, LongBench v1 the best first."""
    two = v2_bundle(tmp_path / "two", [v2_row(0)])
    one = longbench_bundle(tmp_path / "one", {"qasper": [longbench_row(0, "qasper")]})
    _, backend = scripted(tmp_path / "model", {"*": "The correct answer is (A)"})
    for number, (benchmark, bundle) in enumerate(((LongBenchV2(), two), (LongBench(), one))):
        (task,) = benchmark.tasks(bundle)
        finder = ChunkFinder(bundle, RetrievalOptions(rag=2, chunk_words=10))
        retrieve_all(store, finder, bundle, [(benchmark, task)])
        stored = StoredChunks(store, finder.name)
        settings = RunSettings(rag=2, retriever=finder.name)
        work = make_work(bundle, [task], backend, settings, f"r{number}", chunks=stored)
        assert run(store, work).answered == 1
        (sample,) = benchmark.samples(bundle, task.name)
        prompt = benchmark.prompt(bundle, sample, work.mode, finder.find(benchmark, sample))
        request = work.prompter.request(sample.key, prompt, settings.sampling_for(prompt, 0))
        made = store.query("SELECT prompt_sha256 FROM generations WHERE run_id = ?", [f"r{number}"]).rows
        assert made == [(request.prompt_sha256,)]
        order = [chunk.rank if number else chunk.index for chunk in finder.find(benchmark, sample)]
        places = [prompt.document.index(chunk.text.strip()) for chunk in finder.find(benchmark, sample)]
        assert [place for _, place in sorted(zip(order, places, strict=True))] == sorted(places)
