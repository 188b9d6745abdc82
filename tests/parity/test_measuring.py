"""Two models on the same prompts: one in two formats, one and its quantisation, two strangers."""

from __future__ import annotations

import ctypes
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from lbx.backends import Backend, load, read_card
from lbx.base.records import Sampling
from lbx.engine.batching import complete
from lbx.engine.prompter import Prompter
from lbx.running import parity
from lbx.running.parity import Parity, ParityModel, ParityPrompt, built_in_prompts, compare_models, forced_logits
from tests.running.engine_parts import scripted

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
F32 = 'cache_type_k = "f32"\ncache_type_v = "f32"\n'


def card(folder: Path, backend: str, weights: Path, options: str = "") -> Path:
    path = folder / f"{weights.stem}-{backend}.toml"
    path.write_text(
        f'name = "{weights.stem}"\nbackend = "{backend}"\n[weights]\npath = "{weights}"\n[options]\n{options}'
    )
    return path


class Loads:
    """Makes loaders of sides, and remembers which models were in memory at once."""

    def __init__(self) -> None:
        self.held = self.most = 0

    def __call__(self, path: Path) -> Callable[[], ParityModel]:
        def loaded() -> ParityModel:
            backend = load(read_card(path))
            self.held += 1
            self.most = max(self.most, self.held)
            close = backend.close

            def closing() -> None:
                self.held -= 1
                close()

            backend.close = closing  # type: ignore[method-assign]
            return side(backend)

        return loaded


def side(backend: Backend, **limits: int) -> ParityModel:
    return ParityModel(backend, Prompter(backend.tokenizer, context_window=backend.info.context_window, **limits))


def short() -> list[ParityPrompt]:
    """The built-in prompts but the long ones, with short answers."""
    chosen = [one for one in built_in_prompts() if one.sample is None or one.sample.length <= 256]
    return [dataclasses.replace(one, prompt=dataclasses.replace(one.prompt, max_new_tokens=16)) for one in chosen]


@pytest.fixture(scope="module")
def gguf(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return card(tmp_path_factory.mktemp("gguf"), "llamacpp", demo_gguf, F32)


@pytest.fixture(scope="module")
def q4(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model with matrices of four bits, made by llama.cpp."""
    from lbx.backends.llama.library import load_llama_cpp

    llama_cpp, made = load_llama_cpp(), tmp_path_factory.mktemp("q4") / "demo-q4.gguf"
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, 1
    source = str(demo_gguf).encode()
    assert llama_cpp.llama_model_quantize(source, str(made).encode(), ctypes.byref(params)) == 0
    return card(made.parent, "llamacpp", made, F32)


def test_one_model_in_two_formats(gguf: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    loads, prompts = Loads(), short()
    hf = card(tmp_path, "hf", DEMO / "hf")
    found = compare_models(prompts, (loads(hf), loads(gguf)), positions=8, folder=tmp_path)
    *_, whole = parity.summarise_by_task(found)
    assert (found.same_vocabulary, found.not_compared, loads.most, loads.held) == (True, (), 1, 0)
    assert whole.same_ids == whole.same_prompts == whole.same_outputs == whole.compared == len(prompts)
    assert whole.logits.max_abs < 0.01
    assert whole.logits.kl < 1e-6
    assert whole.logits.top_agreement == 1
    assert whole.logits.positions == sum(min(9, tokens) for tokens in answer_lengths(gguf, prompts))
    assert parity.explain_excess(found, 0.01) == ""
    assert "largest logit difference" in parity.explain_excess(found, 1e-9)
    assert not list(tmp_path.glob("*.npy"))


def answer_lengths(path: Path, prompts: Sequence[ParityPrompt]) -> list[int]:
    """Of the answers in tokens, their end included."""
    one = Loads()(path)()
    try:
        requests = [one.prompter.request(p.key, p.prompt, Sampling()) for p in prompts]
        return [len(complete(one.backend, request).output_ids) for request in requests]
    finally:
        one.backend.close()


def test_what_a_quantisation_costs(gguf: Path, q4: Path, tmp_path: Path) -> None:
    prompts = short()
    found = compare_models(prompts, (Loads()(gguf), Loads()(q4)), positions=8, folder=tmp_path)
    *tasks, whole = parity.summarise_by_task(found)
    assert whole.same_ids == whole.compared == len(prompts)
    assert 0.1 < whole.logits.mean_abs < whole.logits.max_abs
    assert 0 < whole.logits.kl < whole.logits.max_kl
    assert whole.same_outputs < len(prompts)
    assert whole.max_gap is not None
    assert 0 < whole.max_gap < whole.logits.max_abs
    assert {task.metric for task in tasks} == {"recall", ""}
    assert all(
        0 <= task.score_first <= 1 and task.difference == task.score_second - task.score_first
        for task in tasks
        if task.metric
    )
    assert "largest logit difference" in parity.explain_excess(found, 0.1)
    check_by_hand(found, gguf, q4)
    told = json.loads(json.dumps(parity.to_json(found)))
    assert told["all"]["logits"]["max_abs"] == whole.logits.max_abs
    assert len(told["prompts"]) == len(prompts)


def check_by_hand(found: Parity, first: Path, second: Path) -> None:
    """Each prompt once more, with all logits of both models in memory."""
    rows: dict[Path, dict[int, tuple[list[int], np.ndarray]]] = {first: {}, second: {}}
    chosen = [*[n for n, one in enumerate(found.prompts) if one.first_difference][:3], 0]
    assert len(chosen) > 1
    for path in (first, second):
        one = Loads()(path)()
        for number in chosen:
            prompt = found.prompts[number].prompt
            request = one.prompter.request(prompt.key, prompt.prompt, Sampling())
            own = complete(one.backend, request).output_ids
            followed = rows[first][number][0] if path == second else list(own)
            logits = np.stack(list(forced_logits(one.backend, request.token_ids, followed[:-1])))
            rows[path][number] = (list(own), logits)
        one.backend.close()
    for number in chosen:
        (tokens, a), (others, b) = rows[first][number], rows[second][number]
        measured = found.prompts[number]
        assert measured.logits.positions == min(9, len(tokens))
        apart = np.abs(a.astype(np.float64) - b)[:9]
        assert measured.logits.max_abs == pytest.approx(apart.max(), rel=1e-4)
        assert measured.logits.mean_abs == pytest.approx(apart.mean(), rel=1e-4)
        assert measured.logits.same_top == int((a.argmax(1) == b.argmax(1))[:9].sum())
        assert measured.same_output == (tokens == others)
        if measured.first_difference:
            place = next(n for n, (x, y) in enumerate(zip(tokens, others, strict=False)) if x != y)
            assert measured.first_difference.position == place
            assert measured.first_difference.gap == pytest.approx(
                b[place, others[place]] - b[place, tokens[place]], abs=1e-4
            )


def test_strangers_are_compared_as_far_as_they_can_be(gguf: Path, tiny: Path, tmp_path: Path) -> None:
    prompts = short()[:6] + [one for one in built_in_prompts() if one.sample and one.sample.length == 1024][:1]
    other = card(tmp_path, "llamacpp", tiny / "tiny.gguf")
    found = compare_models(prompts, (Loads()(gguf), Loads()(other)), positions=4, folder=tmp_path)
    *_, whole = parity.summarise_by_task(found)
    assert found.same_vocabulary is False
    (reason,) = found.not_compared
    assert "different vocabularies" in reason
    assert (whole.same_ids, whole.logits.positions, whole.compared) == (0, 0, len(prompts) - 1)
    assert all(one.first_id_difference is not None and not one.same_prompt for one in found.prompts)
    assert "context window is 2048" in found.prompts[-1].problem
    assert "were not answered by both" in parity.explain_excess(found, 100)


def test_a_backend_without_logits(gguf: Path, tmp_path: Path) -> None:
    prompts = short()[:3]
    said = {str(one.key): f"It is {one.sample.references[0]}." for one in prompts if one.sample}
    scripted(tmp_path / "m", said)
    found = compare_models(
        prompts, (Loads()(tmp_path / "m" / "model.toml"), Loads()(gguf)), positions=4, folder=tmp_path
    )
    task, _ = parity.summarise_by_task(found)
    assert "the backend scripted of scripted does not return them" in found.not_compared[0]
    assert (task.logits.positions, task.compared, task.score_first) == (0, 3, 1.0)
    assert [one.outputs[0] for one in found.prompts if one.outputs] == list(said.values())
    same = compare_models(
        prompts,
        (Loads()(tmp_path / "m" / "model.toml"), Loads()(tmp_path / "m" / "model.toml")),
        positions=4,
        folder=tmp_path,
    )
    *_, whole = parity.summarise_by_task(same)
    assert (same.same_vocabulary, whole.same_outputs) == (True, 3)
    assert parity.explain_excess(same, 1.0) == "no logits could be compared"


def test_a_smaller_window_is_fed_the_same_ids(gguf: Path, tmp_path: Path) -> None:
    """What a run would cut for the second model is a difference of prompts, not of tokenizers or weights."""
    small = tmp_path / "small.toml"
    small.write_text(f"context_window = 160\n{gguf.read_text()}")
    prompts = [one for one in built_in_prompts() if one.sample and one.sample.length <= 256][:4]
    found = compare_models(prompts, (Loads()(gguf), Loads()(small)), positions=4, folder=tmp_path)
    fitting = [one for one in found.prompts if not one.problem]
    assert [one.same_ids for one in found.prompts] == [True] * 4
    assert 0 < len(fitting) < 4
    assert all(one.same_prompt and one.logits.max_abs == 0 and one.same_output for one in fitting)
    assert all("context window is 160" in one.problem for one in found.prompts if one.problem)
