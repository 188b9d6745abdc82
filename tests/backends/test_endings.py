"""Which tokens end an answer: the same in every format of a model."""

from __future__ import annotations

import pytest
from tiny import with_tokens

from lbx.backends import load, resolve_model
from lbx.inference.sampling import ends_by_name


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
    assert ends_by_name(tokens) == ends


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
