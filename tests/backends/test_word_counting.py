"""Token counts by words equal those of whole texts, for each kind of tokenizer that is accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.backends.hf import tokenizer as word_counting
from lbx.backends.hf.tokenizer import WordCounter, can_count_words

tokenizers = pytest.importorskip("tokenizers", reason="needs lbx[hf]")

LLAMA3, QWEN = (
    rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
    for digits in (r"\p{N}{1,3}", r"\p{N}")
)
CORPUS = [
    "The grass is green. The sky is blue; it's 1,234 o'clock (or 5 am).\nHere we go, there and back again.",
    "  two spaces, a\ttab and été über naïve 北京 <s> word word words wording, one-two_three 42 424 4242",
] * 20
PIECES = [
    "a", "The", "word", "words", " ", "  ", "\n", "\r\n", "\t", " \n", "\n ", "1", "23", "4567", "'s", "'", ".", "(",
    '"', "é", "e\u0301", "\u0301", "北", "\u3000", "\xa0", "\x1c", "\u2028", "<s>", "</s>", "\u2581", "-", "_",
    "\u200b", "ﬁ", "🙂",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"]), max_size=40).map("".join)


def train(kind: str) -> Any:
    """A byte-level or SentencePiece-like BPE, with two added tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    special = ["<s>", "</s>"]
    if kind == "sentencepiece":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        # Trained word by word, as SentencePiece does; used without a pre-tokenizer, as Llama 2 is.
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        bytes_ = [f"<0x{number:02X}>" for number in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>", *special, *bytes_], show_progress=False)
        tokenizer.train_from_iterator(CORPUS, trainer)
        tokenizer.pre_tokenizer = None
        steps = [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        tokenizer.normalizer = normalizers.Sequence(steps)
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        table = json.loads(tokenizer.to_str())
        table["added_tokens"] = [token for token in table["added_tokens"] if token["content"] in ("<unk>", *special)]
        return Tokenizer.from_str(json.dumps(table))
    tokenizer = Tokenizer(models.BPE())
    own_pattern = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind in ("llama3", "qwen"):
        split = pre_tokenizers.Split(Regex(LLAMA3 if kind == "llama3" else QWEN), "isolated")
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, last])
        tokenizer.normalizer = normalizers.NFC() if kind == "qwen" else None
    elif kind == "digits":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), own_pattern])
    else:
        tokenizer.pre_tokenizer = own_pattern
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


TOKENIZERS = {kind: train(kind) for kind in ("gpt2", "digits", "llama3", "qwen", "sentencepiece")}


def counter(kind: str) -> tuple[WordCounter, Callable[[str], int]]:
    tokenizer = TOKENIZERS[kind]
    table = json.loads(tokenizer.to_str())
    assert can_count_words(table)

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return WordCounter(table, count), count


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=300, deadline=None)
@given(data=st.lists(texts, min_size=5, max_size=8))
def test_counts_by_words_are_exact(kind: str, data: list[str]) -> None:
    words, count = counter(kind)
    for text in data * 2:  # words that return are counted by another way
        assert words.count(text) == count(text), text


def test_known_words_are_not_encoded_again() -> None:
    words, count = counter("llama3")
    text = "The grass is green. " * 50 + "needle"
    assert [words.count(text) for _ in range(word_counting._CHECKED_TEXTS)] == [count(text)] * 3
    calls = []
    words._count = lambda part: calls.append(part) or count(part)
    assert words.count(text + " haystack") == count(text + " haystack")
    assert sum(map(len, calls)) < 30, calls


def test_another_count_of_a_text_stops_counting_by_words(caplog: pytest.LogCaptureFixture) -> None:
    table = json.loads(TOKENIZERS["llama3"].to_str())
    words = WordCounter(table, len)  # spaces count as well, as in no such tokenizer
    words._anchor_tokens = 3
    assert [words.count("two words"), words.count("two words again")] == [9, 15]
    assert "every text is encoded instead" in caplog.text


def changed(kind: str, **changes: Any) -> dict[str, Any]:
    table = json.loads(TOKENIZERS[kind].to_str())
    for path, value in changes.items():
        *keys, last = path.split("__")
        part: Any = table
        for key in keys:
            part = part[int(key)] if key.isdigit() else part[key]
        part[int(last) if last.isdigit() else last] = value
    return table


@pytest.mark.parametrize(
    "table",
    [
        changed("llama3", model__type="Unigram"),
        changed("llama3", model__dropout=0.1),
        changed("llama3", model__end_of_word_suffix="</w>"),
        changed("llama3", added_tokens__0__lstrip=True),
        changed("llama3", added_tokens__0__rstrip=True),
        changed("llama3", added_tokens__0__single_word=True),
        changed("llama3", added_tokens__0__content="two words"),
        changed("llama3", normalizer={"type": "NFKC"}),
        changed("llama3", pre_tokenizer__pretokenizers__0__pattern={"Regex": r"\s+|\S+ \S+"}),
        changed("llama3", pre_tokenizer__pretokenizers__0__behavior="MergedWithNext"),
        changed("gpt2", pre_tokenizer__add_prefix_space=True),
        changed("gpt2", pre_tokenizer={"type": "Whitespace"}),
        changed("sentencepiece", normalizer=None),
        changed("sentencepiece", normalizer={"type": "Lowercase"}),
        changed("sentencepiece", model__vocab={"\u2581": 0, "a\u2581b": 1}),
        # Without <unk>, characters are dropped and spaces meet. A part may be in the vocabulary where a text is not.
        changed("sentencepiece", model__unk_token=None),
        changed("sentencepiece", model__ignore_merges=True),
        changed("sentencepiece", added_tokens__0__content="two\u2581words"),
    ],
)
def test_other_tokenizers_are_refused(table: dict[str, Any]) -> None:
    assert not can_count_words(table)
