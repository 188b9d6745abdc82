"""Vocabularies made in a test, each as a Hugging Face folder and as a GGUF file without tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

SENTENCES = [
    "The harbour of Kelm froze in 1709, and the grey ship stayed until spring.",
    "A user asks: who is the assistant? <think about it> think, table, tables</p>.",
    "def harvest(rows):\n    return [row for row in rows if row]\n\n",
    "小船在清晨离开港口，傍晚才回来。",
]
CONTROLS = ("<s>", "</s>", "<|end|>")
ROLES = ("<｜User｜>", "<｜Assistant｜>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<think>", "</think>", "｜DSML｜")
"""Control tokens that their file does not flag as special, as those of DeepSeek, Command R+, Aya and Qwen."""
TEXTS = ("\n\n\n", "\t\t", "<table>", "</td>", "港口")
"""Added tokens that shorten texts, as Gemma's."""


class Vocabulary(NamedTuple):
    """The same tokens in both formats."""

    folder: Path
    gguf: Path


def make_byte_level(folder: Path) -> Vocabulary:
    """GPT-2's splitting; roles and texts are added tokens without the special flag."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    raw.decoder = decoders.ByteLevel()
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=list(CONTROLS), initial_alphabet=alphabet, show_progress=False
    )
    raw.train_from_iterator(SENTENCES * 4, trainer)
    raw.add_tokens([AddedToken(text, special=False, normalized=False) for text in (*ROLES, *TEXTS)])
    _save(raw, folder)
    table = json.loads(raw.to_str())
    merges = [" ".join(pair) for pair in table["model"]["merges"]]
    return Vocabulary(folder, _write_gguf(folder, table, "gpt2", merges=merges))


def make_sentencepiece(folder: Path, *, scheme: str = "always", rstrip: bool = True) -> Vocabulary:
    """Llama 2's kind of vocabulary with Phi-3's marks, which take the white space behind them.

    Args:
        scheme: where a text gets a leading space: "always", or "first" at the begin of a prompt only.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pieces = ["▁", *sorted({*"".join(SENTENCES), *"abcdefghijklmnopqrstuvwxyz<>|/_｜"} - {" ", "\n"})]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("k", ">"), ("▁", "<"), ("<", "/"), ("s", ">"), ("e", "r")]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    tokens += [left + right for left, right in merges]
    vocab = {token: number for number, token in enumerate(tokens)}
    raw = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    raw.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
    raw.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    raw.add_special_tokens([AddedToken(text, normalized=False) for text in tokens[:3]])
    marks = ("<|endoftext|>", "<|user|>", "<|end|>", "<|assistant|>")  # llama.cpp looks for the first in every Phi-3
    raw.add_special_tokens([AddedToken(text, normalized=False, rstrip=rstrip) for text in marks])
    raw.add_tokens([AddedToken("<think>", normalized=False)])
    _save(raw, folder)
    table = json.loads(raw.to_str())
    return Vocabulary(folder, _write_gguf(folder, table, "llama", name="Phi-3 made small" if rstrip else "made"))


def _save(raw: Any, folder: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>").save_pretrained(folder)


def _write_gguf(folder: Path, table: Any, model: str, *, merges: list[str] | None = None, name: str = "made") -> Path:
    import gguf

    added = {token["id"]: token for token in table["added_tokens"]}
    texts = {number: text for text, number in table["model"]["vocab"].items()}
    texts |= {number: token["content"] for number, token in added.items()}
    tokens = [texts[number] for number in range(len(texts))]
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    for number, token in added.items():
        kinds[number] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    path = folder / "vocabulary.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_tokenizer_model(model)
    if merges is None:
        n_pairs = len(table["model"]["merges"])
        plain = [number for number in range(len(tokens)) if number not in added]
        scores = dict.fromkeys(range(len(tokens)), -1e4) | {n: -1.0 - i for i, n in enumerate(plain[-n_pairs:])}
        writer.add_token_scores([scores[number] for number in range(len(tokens))])
        for number, text in enumerate(tokens):
            if text.startswith("<0x"):
                kinds[number] = gguf.TokenType.BYTE
        kinds[0] = gguf.TokenType.UNKNOWN
    else:
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_merges(merges)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(table["model"]["vocab"]["<s>"])
    writer.add_eos_token_id(table["model"]["vocab"]["</s>"])
    writer.add_add_bos_token(merges is not None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
