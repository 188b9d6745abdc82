"""Chunks: nothing lost, sizes kept, cut where sentences end, and the official splitter's cuts where it cuts too."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.errors import UsageError
from lbx.benchmarks.retrieval.chunks import split, word_spans, words

TEXT = st.text(alphabet="ab 9_.!?;\n\t,'小船。？！；，\u3000é\ud83d\U0001f6f6", max_size=120)


@given(TEXT, st.integers(1, 12))
def test_chunks_put_together_are_the_text(text, size):
    chunks = split(text, size)
    assert "".join(chunks) == text
    for chunk in chunks:
        assert chunk
        assert len(words(chunk)) <= size
    assert sum(len(words(chunk)) for chunk in chunks) == len(words(text))


@given(TEXT, st.integers(1, 12))
def test_no_two_neighbours_that_end_sentences_would_fit_together(text, size):
    """Greedy as the official code is: a chunk ends only where the next sentence does not fit."""
    for left, right in pairwise(split(text, size)):
        sentence = re.split(r"(?<=[。？！；\n.!?;])(?![\s])", right, maxsplit=1)[0]
        assert len(words(left)) + len(words(sentence)) > size or len(words(right)) == 0


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("", 5, []),
        ("   \n ", 5, ["   \n "]),
        ("one", 5, ["one"]),
        ("One two. Three four. Five six.", 4, ["One two. Three four. ", "Five six."]),
        ("One two. Three four. Five six.", 5, ["One two. Three four. ", "Five six."]),
        ("One two. Three four. Five six.", 6, ["One two. Three four. Five six."]),
        ("One two three four five. Six.", 2, ["One two ", "three four ", "five. Six."]),
        ("Short. One two three four five.", 3, ["Short. ", "One two three ", "four five."]),
        ("a line\nanother line\n\n\nthe last", 4, ["a line\nanother line\n\n\n", "the last"]),
        ("小船在清晨。傍晚才回来！", 5, ["小船在清晨。", "傍晚才回来！"]),
        ("小船在清晨离开港口", 4, ["小船在清", "晨离开港", "口"]),
        ("他说 hello world。再见", 4, ["他说 hello world。", "再见"]),
    ],
)
def test_where_chunks_end(text, size, expected):
    assert split(text, size) == expected


def test_a_chunk_needs_a_size():
    with pytest.raises(UsageError, match="at least 1"):
        split("text", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's 3.14, don't!", ["it", "s", "3", "14", "don", "t"]),
        ("snake_case été", ["snake_case", "été"]),
        ("小船 sails 远", ["小", "船", "sails", "远"]),
        ("…—", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected
    assert len(word_spans(text)) == len(expected)


def test_a_document_of_two_million_words_is_split_in_one_pass():
    text = "Word by word it goes on. " * 350_000
    chunks = split(text, 500)
    assert len(chunks) == 350_000 * 6 // 498 + 1
    assert "".join(chunks) == text


def official_cuts(text: str, size: int) -> list[str]:
    """The rule of the official splitter, told anew: pieces between ends of sentences, joined while they fit."""
    pieces = re.split(r"([。？！；\n.!?;]\s*)", text)
    chunks: list[str] = []
    for piece in pieces:
        if chunks and len(words(chunks[-1])) + len(words(piece)) <= size:
            chunks[-1] += piece
        elif piece:
            chunks.append(piece)
    return chunks


def test_real_documents_are_cut_where_the_official_code_cuts_them(documents):
    """Outside of sentences longer than a chunk, which the official code leaves whole."""
    compared = 0
    for row in documents("multi_news")[:40] + documents("multifieldqa_zh")[:40]:
        theirs = official_cuts(row["context"], 200)
        if max(len(words(chunk)) for chunk in theirs) <= 200:
            assert split(row["context"], 200) == theirs
            compared += 1
    assert compared > 30
