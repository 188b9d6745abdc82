"""Chinese words against jieba itself, token for token."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from lbx.base.errors import LbxError
from lbx.metrics import chinese
from lbx.metrics.segmentation import Lexicon, Segmenter


@cache
def jieba_package() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jieba as package
    package.setLogLevel(logging.ERROR)
    return package


@cache
def jieba() -> Any:
    tokenizer = jieba_package().Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())  # leaves no cache file
    tokenizer.initialized = True
    return tokenizer


@cache
def fragments() -> tuple[str, ...]:
    """All 498,113 words and beginnings of words."""
    return tuple(jieba().FREQ)


def words_of_the_dictionary() -> st.SearchStrategy[str]:
    return st.integers(0, len(fragments()) - 1).map(lambda number: fragments()[number])


HAN = st.characters(min_codepoint=0x4E00, max_codepoint=0x9FD5)
SIGNS = st.sampled_from(
    [*"aZ09.%+-_#& \t\r\n，。《、\u3000\u00a0①٣１Ａ𠀀\ud840\udc00\x00\x1c\x85龥鿕鿖", "\r\n", "3.5%", "C++"]
)
MIXED = st.lists(
    st.one_of(st.deferred(words_of_the_dictionary), HAN, SIGNS, st.characters(codec=None, exclude_categories=())),
    max_size=60,
).map("".join)


def same(text: str) -> None:
    assert chinese.words(text) == list(jieba().cut(text))


@settings(max_examples=examples(600))
@given(MIXED)
def test_mixed_text(text: str) -> None:
    same(text)


@settings(max_examples=examples(300))
@given(st.lists(st.deferred(words_of_the_dictionary), min_size=1, max_size=80).map("".join))
def test_words_of_the_dictionary(text: str) -> None:
    same(text)


@settings(max_examples=examples(300))
@given(st.text(HAN, max_size=200))
def test_any_han(text: str) -> None:
    """Mostly characters that begin no word: the hidden Markov model's part."""
    same(text)


@pytest.mark.parametrize("size", [2, 63, 64, 65, 66, 1000])
@pytest.mark.parametrize("unit", ["的", "龘", "中国", "研究生命起源", "a", "1.5%", "鿕龥"])
def test_repetition(unit: str, size: int) -> None:
    """Ties everywhere, on both sides of the length up to which blocks are remembered."""
    same((unit * size)[:size])


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


@pytest.mark.parametrize("model", ["llama3-8b-instruct", "llama2-7b-chat-4k"])
def test_published_answers(model: str, shared: Callable[[str], Path]) -> None:
    """Every tenth line of the Chinese tasks."""
    compared = 0
    for task in ("dureader", "vcsum", "multifieldqa_zh", "lsht", "passage_retrieval_zh"):
        lines = (shared("data/predictions/longbench") / model / f"{task}.jsonl").read_text("utf-8").split("\n")
        for line in filter(None, lines[::10]):
            for text in strings(json.loads(line)):
                same(text)
                compared += bool(re.search("[\u4e00-\u9fff]", text))
    assert compared > 150


@settings(max_examples=examples(1500))
@given(
    st.lists(
        st.tuples(st.text("甲乙丙", min_size=1, max_size=3), st.sampled_from([0, 1, 2, 3, 6, 8, 12, 30])), max_size=10
    ),
    st.sampled_from([60, 64, 90]),
    st.text("甲乙丙", min_size=1, max_size=9),
)
def test_small_dictionaries(entries: list[tuple[str, int]], total: int, text: str) -> None:
    """Words of frequency 0, words listed twice, characters that only begin words, and ties but for the rounding."""
    rest = max(total - sum(frequency for _, frequency in entries), 1)
    lines = "".join(f"{word} {frequency} n\n" for word, frequency in [*entries, ("x", rest)])
    official = jieba_package().Tokenizer()
    official.FREQ, official.total = official.gen_pfdict(BytesIO(lines.encode()))
    official.initialized = True
    assert Segmenter(Lexicon(lines), chinese._segmenter()._hmm).cut(text) == list(official.cut(text))


def test_a_dictionary_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Lexicon("one two\n")


def test_without_jieba_s_data_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chinese, "find_spec", lambda name: None)
    chinese._segmenter.cache_clear()
    try:
        with pytest.raises(LbxError, match=r"not installed.*pip install jieba==0\.42\.1"):
            chinese.load()
    finally:
        chinese._segmenter.cache_clear()
