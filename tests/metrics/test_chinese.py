"""Chinese words against jieba as it comes, token for token."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.errors import LbxError
from lbx.benchmarks.metrics import chinese
from tests.profiles import examples


@cache
def tokenizer() -> Any:
    chinese.words("")  # imports jieba in silence
    from jieba import Tokenizer

    fresh = Tokenizer()
    fresh.FREQ, fresh.total = fresh.gen_pfdict(fresh.get_dict_file())  # leaves no cache file
    fresh.initialized = True
    return fresh


@cache
def viterbi() -> Any:
    """jieba's own search for the states of characters, from its module run anew: lbx puts another in its place."""
    spec = find_spec("jieba.finalseg")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a package that is older than this Python
        spec.loader.exec_module(module)
    return module.viterbi


def official(text: str) -> list[str]:
    cut = tokenizer().cut
    with patch("jieba.finalseg.viterbi", viterbi()):
        return list(cut(text))


@cache
def fragments() -> tuple[str, ...]:
    """All 498,113 words and beginnings of words."""
    return tuple(tokenizer().FREQ)


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
    assert chinese.words(text) == official(text)


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


@pytest.mark.parametrize("size", [2, 3, 65, 1000])
@pytest.mark.parametrize("unit", ["的", "龘", "中国", "研究生命起源", "a", "1.5%", "鿕龥"])
def test_repetition(unit: str, size: int) -> None:
    """Ties everywhere."""
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


def test_it_is_not_jieba_s_own_search_that_is_compared() -> None:
    assert chinese.words("龘龥") == official("龘龥")
    from jieba import finalseg

    assert finalseg.viterbi is chinese._viterbi
    assert viterbi() is not chinese._viterbi


def test_without_jieba_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    chinese._tokenizer.cache_clear()
    try:
        with pytest.raises(LbxError, match=r"jieba.*pip install jieba==0\.42\.1"):
            chinese.words("我")
    finally:
        chinese._tokenizer.cache_clear()
