"""Which tokens end an answer: the same in every format of a model."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from lbx.backends import load, resolve_model
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import complete
from lbx.engine.sampling_settings import find_end_tokens
from tests.backends.tiny import with_tokens


@pytest.mark.parametrize(
    ("tokens", "ends"),
    [
        ({"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "<repo_name>": 3, "<reponame>": 4}, {0, 2}),
        ({"<|end_of_text|>": 1, "<|eom_id|>": 8, "<|eot_id|>": 9, "<|start_header_id|>": 6}, {1, 8, 9}),
        ({"<eos>": 1, "<start_of_turn>": 105, "<end_of_turn>": 106}, {1, 106}),
        ({"<|fim_pad|>": 1, "<|file_sep|>": 2, "<|repo_name|>": 3, "<think>": 4, "</think>": 5}, set()),
        ({"<|end|>": 7, "<|assistant|>": 1}, {7}),
        ({"<|end|>": 7, "<|return|>": 2, "<|call|>": 12, "<|channel|>": 5}, {2, 12}),  # an answer of several messages
    ],
    ids=["smollm2", "llama3", "gemma", "gaps", "phi", "gpt-oss"],
)
def test_names_that_end_and_names_that_do_not(tokens, ends):
    assert find_end_tokens(tokens) == ends


def test_both_backends_end_at_the_same_tokens(tmp_path):
    """Llama.cpp takes ``<reponame>`` and its like for ends by their names, and transformers none but the declared."""
    for library in ("torch", "transformers", "llama_cpp", "gguf"):
        pytest.importorskip(library, reason="needs lbx[llama,hf,dev]")
    texts = ["<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<reponame>", "<|file_sep|>", "<|fim_pad|>", "<end_of_turn>"]
    folder, gguf = with_tokens(tmp_path, texts)
    found = {}
    for place in (folder, gguf):
        backend = load(resolve_model(str(place)))
        tokens = {number: text for text, number in backend.tokenizer.control_tokens.items()}
        found[place.name] = {tokens[number] for number in backend.eos_ids}
        assert backend.info.settings["eos_ids"] == sorted(backend.eos_ids)
        backend.close()
    ends = {"</s>", "<|end|>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>"}
    assert found == {"hf": ends, "model.gguf": ends}


def test_a_real_model_ends_at_turns_and_texts_alone(smollm2):
    backend = load(resolve_model(str(smollm2("gguf"))))
    tokens = {number: text for text, number in backend.tokenizer.control_tokens.items()}
    assert {tokens[number] for number in backend.eos_ids} == {"<|endoftext|>", "<|im_end|>"}
    backend.close()


KEY = "tokenizer.ggml."
ORDINARY, ENDS_AT_IT = 11, "ends answers at the ordinary token 11"
"""llama.cpp's default for the end of sequence of such a vocabulary."""
FAULTS = {
    "no key": ({"without": [f"{KEY}eos_token_id"]}, "lacks tokenizer.ggml.eos_token_id"),
    "a number beyond the vocabulary": ({"added": {f"{KEY}eos_token_id": 1 << 30}}, "lacks tokenizer.ggml.eos_token_id"),
    "an ordinary token": ({"added": {f"{KEY}eos_token_id": ORDINARY}}, ENDS_AT_IT),
    "an ordinary end of turn": ({"added": {f"{KEY}eot_token_id": ORDINARY}}, ENDS_AT_IT),
    "an ordinary end of message": (
        {"added": {f"{KEY}eom_token_id": ORDINARY}},
        "ends answers at the ordinary token 11",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_only_control_tokens_end_an_answer_of_llama_cpp(fault, demo_gguf, tmp_path):
    from tests.gguf_copy import gguf_copy

    changes, words = FAULTS[fault]
    sound = load(resolve_model(str(demo_gguf)))
    assert "tokenizer_gaps" not in sound.info.settings
    backend = load(resolve_model(str(gguf_copy(demo_gguf, tmp_path / "m.gguf", **changes))))
    assert backend.eos_ids == sound.eos_ids and ORDINARY not in backend.eos_ids
    assert backend.tokenizer.eos_token in ("", sound.tokenizer.eos_token)
    assert backend.info.settings["tokenizer_gaps"] == ["eos_token_id"]
    (note,) = [note for note in backend.info.notes if words in note]
    assert sound.tokenizer.eos_token in note
    for opened in (sound, backend):
        opened.close()


def test_a_common_token_at_the_number_of_the_default_ends_no_answer(demo_gguf, shared, tmp_path):
    """As the comma of GPT-2's and Qwen's vocabularies."""
    from tests.gguf_copy import gguf_copy

    sound = load(resolve_model(str(demo_gguf)))
    row = json.loads((shared("cases/bench") / "t.jsonl").read_text("utf-8").splitlines()[0])
    text = f"{row['document']}\n\nQuestion: {row['question']}\nAnswer:"
    ids = [sound.tokenizer.bos_id, *sound.tokenizer.encode(text, special=False)]
    request = Request(SampleKey("a", "b", "c"), tuple(ids), 12)
    expected = complete(sound, request)
    common = expected.output_ids[-2]
    assert common not in (*sound.eos_ids, ORDINARY)
    swap = {ORDINARY: common, common: ORDINARY}
    path = gguf_copy(demo_gguf, tmp_path / "m.gguf", without=[f"{KEY}eos_token_id"], swapped=(ORDINARY, common))
    backend = load(resolve_model(str(path)))
    answer = complete(backend, replace(request, token_ids=tuple(swap.get(i, i) for i in ids)))
    assert answer.output_ids == tuple(swap.get(i, i) for i in expected.output_ids)
    for opened in (sound, backend):
        opened.close()


@pytest.mark.parametrize("adds", [True, False])
def test_a_default_bos_is_not_put_before_prompts(adds, demo_gguf, tmp_path):
    from tests.gguf_copy import gguf_copy

    more = {f"{KEY}add_bos_token": adds}
    path = gguf_copy(demo_gguf, tmp_path / "m.gguf", without=[f"{KEY}bos_token_id"], added=more)
    backend = load(resolve_model(str(path)))
    tokenizer = backend.tokenizer
    assert (tokenizer.bos_id, tokenizer.bos_token, tokenizer.prefix_ids) == (None, "", ())
    assert backend.info.settings.get("tokenizer_gaps") == (["bos_token_id"] if adds else None)
    assert any("prompts have no BOS token" in note for note in backend.info.notes) == adds
    backend.close()


@pytest.mark.parametrize("pre", [None, "default"])
def test_a_file_without_its_pre_tokenizer_is_announced(pre, demo_gguf, tmp_path):
    from tests.gguf_copy import gguf_copy

    path = gguf_copy(demo_gguf, tmp_path / "m.gguf", without=[f"{KEY}pre"], added={f"{KEY}pre": pre} if pre else None)
    backend = load(resolve_model(str(path)))
    assert backend.info.settings["tokenizer_gaps"] == ["pre"]
    assert any("tokenizer.ggml.pre" in note and "Convert the model again" in note for note in backend.info.notes)
    backend.close()


def test_a_file_without_types_of_tokens_is_announced(demo_gguf, tmp_path):
    from tests.gguf_copy import gguf_copy

    backend = load(resolve_model(str(gguf_copy(demo_gguf, tmp_path / "m.gguf", without=[f"{KEY}token_type"]))))
    assert backend.info.settings["tokenizer_gaps"] == ["token_type"]
    assert backend.tokenizer.eos_token in ("</s>", "<|im_end|>", "<|endoftext|>")
    backend.close()


def unflagged(folder, *, ends: dict[str, object], without: tuple[str, ...] = ()):
    """The folder with other ends of sequence in its files: {file: value of eos_token_id}."""
    for name, value in ends.items():
        table = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(table | {"eos_token_id": value}))
    for name in without:
        table = json.loads((folder / name).read_text())
        for key in ("eos_token_id", "eos_token"):
            table.pop(key, None)
        (folder / name).write_text(json.dumps(table))
    return folder


FILES = ("config.json", "generation_config.json", "tokenizer_config.json")
HF_FAULTS = {
    "an ordinary token": ({"generation_config.json": [1, 200]}, (), "generation_config.json and config.json ends"),
    "an ordinary token, in config.json": ({"config.json": 200}, (), ""),
    "in no file": ({}, FILES, "No file of the model has an eos_token_id"),
}


@pytest.mark.parametrize("fault", HF_FAULTS)
def test_only_control_tokens_end_an_answer_of_transformers(fault, tiny_hf, tmp_path):
    ends, without, words = HF_FAULTS[fault]
    folder = unflagged(shutil.copytree(tiny_hf, tmp_path / "m"), ends=ends, without=without)
    backend = load(resolve_model(str(folder)))
    texts = {number: text for text, number in backend.tokenizer.control_tokens.items()}
    assert {texts[number] for number in backend.eos_ids} == {"</s>", "<|end|>"}
    assert backend.info.settings.get("tokenizer_gaps") == (["eos_token_id"] if words else None)
    assert not words or any(words in note for note in backend.info.notes), backend.info.notes
    backend.close()
