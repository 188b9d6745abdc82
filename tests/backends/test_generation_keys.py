"""Keys of generation_config.json that change greedy answers: applied as ``generate`` does, or announced."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lbx.backends import load, resolve_model
from lbx.base.errors import BackendError
from lbx.base.records import Request, SampleKey, Sampling
from lbx.engine.batching import complete, complete_all

PROMPTS = [(0, *range(20, 20 + length)) for length in (400, 300, 130)] + [(0, *range(30, 300))]
"""Three share a prefix."""
ODD = list(range(11, 468, 2))
APPLIED: dict[str, dict[str, Any]] = {
    "suppressed": {"suppress_tokens": ODD},
    "suppressed at the beginning": {"begin_suppress_tokens": ODD},
    "both": {"suppress_tokens": list(range(0, 300)), "begin_suppress_tokens": ODD},
    "ids beyond the vocabulary": {"suppress_tokens": [*ODD, 1 << 40, -1]},
    "without effect": {"forced_bos_token_id": 70, "renormalize_logits": True, "suppress_tokens": []},
    "neutral values": {
        "num_beams": 1, "min_new_tokens": 0, "no_repeat_ngram_size": 0, "guidance_scale": 1.0, "sequence_bias": None,
        "typical_p": 0.5, "epsilon_cutoff": 0.1,
    },
}  # fmt: skip
ANNOUNCED: dict[str, dict[str, Any]] = {
    "n-grams": {"no_repeat_ngram_size": 1},
    "n-grams of the prompt": {"encoder_no_repeat_ngram_size": 1},
    "words": {"bad_words_ids": [[number] for number in ODD]},
    "bias": {"sequence_bias": [[[number], 30.0] for number in ODD]},
    "penalty": {"encoder_repetition_penalty": 3.0},
    "length": {"min_new_tokens": 8, "min_length": 900, "exponential_decay_length_penalty": [1, 1.5]},
    "the last token": {"forced_eos_token_id": 1},
    "guidance": {"guidance_scale": 5.0},
    "beams": {"num_beams": 4},
    "sampling": {"do_sample": True, "typical_p": 0.9, "eta_cutoff": 0.1},
}


def model_with(tiny_hf: Path, folder: Path, keys: dict[str, Any]) -> Path:
    """The tiny model with more keys in its generation_config.json."""
    shutil.copytree(tiny_hf, folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))
    return folder


def generate(backend: Any, prompt: tuple[int, ...], **more: Any) -> list[int]:
    import torch

    ids = torch.tensor([prompt])
    with torch.inference_mode():
        out = backend._model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=1, **more
        )
    return [int(number) for number in out[0, len(prompt) :]]


def requests(sampling: Sampling = Sampling()) -> list[Request]:  # noqa: B008
    return [Request(SampleKey("a", "b", str(n)), prompt, 12, sampling=sampling) for n, prompt in enumerate(PROMPTS)]


@pytest.fixture(scope="module")
def plain_answers(tiny_hf: Path) -> list[list[int]]:
    backend = load(resolve_model(str(tiny_hf)))
    answers = [generate(backend, prompt) for prompt in PROMPTS]
    backend.close()
    return answers


@pytest.mark.parametrize("case", APPLIED)
def test_answers_are_those_of_generate(
    case: str, tiny_hf: Path, plain_answers: list[list[int]], tmp_path: Path
) -> None:
    keys = APPLIED[case]
    backend = load(resolve_model(str(model_with(tiny_hf, tmp_path / "m", keys))))
    expected = [generate(backend, prompt) for prompt in PROMPTS]
    assert (expected != plain_answers) == any(keys.get(name) for name in ("suppress_tokens", "begin_suppress_tokens"))
    assert [list(complete(backend, request).output_ids) for request in requests()] == expected
    for batching in (False, True):
        found = dict(complete_all(backend, requests(), batching=batching))
        assert [list(found[n].output_ids) for n in range(len(PROMPTS))] == expected
        assert max(found[n].cached_tokens for n in found) > 100
    for name in ("suppress_tokens", "begin_suppress_tokens"):
        ids = [number for number in keys.get(name, ()) if 0 <= number < 468]
        assert backend.info.settings.get(name, []) == ids
    assert "generation_keys_left_out" not in backend.info.hardware
    assert not any("do not" in note or "does not apply" in note for note in backend.info.notes)
    backend.close()


@pytest.mark.parametrize("case", ANNOUNCED)
def test_what_is_not_applied_is_announced(
    case: str, tiny_hf: Path, plain_answers: list[list[int]], tmp_path: Path
) -> None:
    keys = ANNOUNCED[case]
    backend = load(resolve_model(str(model_with(tiny_hf, tmp_path / "m", keys))))
    named = {name: value for name, value in keys.items() if name != "do_sample"}
    assert backend.info.hardware["generation_keys_left_out"] == named
    (note,) = [note for note in backend.info.notes if "does not apply this" in note]
    assert all(name in note for name in named)
    found = dict(complete_all(backend, requests(), batching=True))
    assert [list(found[n].output_ids) for n in range(len(PROMPTS))] == plain_answers
    if case != "sampling":
        assert [generate(backend, prompt) for prompt in PROMPTS] != plain_answers, "generate applies it"
    backend.close()


def test_a_suppressed_token_is_not_drawn(tiny_hf: Path, tmp_path: Path) -> None:
    backend = load(resolve_model(str(model_with(tiny_hf, tmp_path / "m", {"suppress_tokens": ODD}))))
    hot = Sampling(temperature=2.0, seed=1)
    for _, answer in complete_all(backend, requests(hot), batching=True):
        assert answer.output_ids and not set(answer.output_ids) & set(ODD)
    backend.close()


@pytest.mark.parametrize("key", ["suppress_tokens", "begin_suppress_tokens", "eos_token_id"])
@pytest.mark.parametrize("value", ["12", 1.5, True, [1.5], [[1]], [True], {"1": 2}], ids=str)
def test_a_token_that_is_no_whole_number_is_refused(key: str, value: object, tiny_hf: Path, tmp_path: Path) -> None:
    folder = model_with(tiny_hf, tmp_path / "m", {key: value})
    with pytest.raises(BackendError, match=rf"generation_config.json has {key} = .*token ids are whole numbers"):
        load(resolve_model(str(folder)))


def test_a_gguf_files_suppressed_tokens_are_applied(tiny_hf: Path, tiny_gguf: Path, tmp_path: Path) -> None:
    """Llama.cpp's own programs give them a logit of minus infinity."""
    from tests.gguf_copy import gguf_copy

    path = gguf_copy(tiny_gguf, tmp_path / "m.gguf", added={"tokenizer.ggml.suppress_tokens": ODD})
    backend = load(resolve_model(str(path)))
    reference = load(resolve_model(str(model_with(tiny_hf, tmp_path / "m", {"suppress_tokens": ODD}))))
    found = dict(complete_all(backend, requests(), batching=True))
    assert [list(found[n].output_ids) for n in found] == [
        list(complete(reference, requests()[n]).output_ids) for n in found
    ]
    assert backend.info.settings["suppress_tokens"] == ODD
    for opened in (backend, reference):
        opened.close()
