"""Which tokens end an answer: the same in every format of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbx.backends import load, resolve_model
from lbx.backends.endings import named_ends


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
    assert named_ends(tokens) == ends


def with_tokens(tmp_path: Path, texts: list[str]) -> tuple[Path, Path]:
    """The tiny model with further control tokens, in both formats; its end of sequence is ``</s>``."""
    import torch
    from tiny import export_gguf, make_tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": texts}, replace_extra_special_tokens=False)
    torch.manual_seed(3)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
            max_position_embeddings=256, bos_token_id=0, eos_token_id=1, tie_word_embeddings=False,
        )
    )  # fmt: skip
    folder = tmp_path / "hf"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, export_gguf(folder, tmp_path / "model.gguf", "f32")


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
