"""Splitting a document into chunks at the ends of sentences.

The rules are those of LongBench v1's retrieval variant (``split_long_sentence`` in
``LongBench/retrieval/splitter.py`` of THUDM/LongBench): a sentence ends with a line break or one of "。？！；.!?;", and
the white space after it; sentences are put together while they have at most ``size`` words. Two things differ. Nothing
is lost or added (the official code puts a space between two ends of sentences that touch), so that a chunk can be found
in its document. And a sentence longer than a chunk is cut between words; the official code leaves it whole, and one
table can then fill a whole prompt.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise

from lbx.errors import UsageError
from lbx.retrieval.words import word_spans

_SENTENCE_END = re.compile(r"[。？！；\n.!?;]\s*")


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of a document: ``text == document[start:end]``.

    Attributes:
        index: its place among the document's chunks, from 0.
        start, end: in characters.
    """

    index: int
    start: int
    end: int
    text: str


def split(text: str, size: int) -> list[Piece]:
    """Chunks of at most ``size`` words (see ``lbx.retrieval.words``), in the document's order.

    Put together they are the text again, to the character. An empty text has none; one without a word has one.

    Raises:
        UsageError: size is less than 1.
    """
    if size < 1:
        raise UsageError(f"A chunk of {size} words holds nothing.", fix="Take at least 1.")
    if not text:
        return []
    bounds = [0, *_cuts(text, size), len(text)]
    return [Piece(n, a, b, text[a:b]) for n, (a, b) in enumerate(pairwise(bounds))]


def _cuts(text: str, size: int) -> list[int]:
    """Where chunks end inside the text."""
    starts = [start for start, _ in word_spans(text)]
    ends = [match.end() for match in _SENTENCE_END.finditer(text)] or [len(text)]
    if ends[-1] != len(text):
        ends.append(len(text))
    cuts: list[int] = []
    first, last_end, words_before_it = 0, 0, 0  # the chunk's first word; the end of the sentences it holds so far
    for end in ends:
        count = bisect_left(starts, end)  # words up to here
        if count - first > size and words_before_it > first:
            cuts.append(last_end)
            first = words_before_it
        while count - first > size:  # a sentence longer than a chunk
            first += size
            cuts.append(starts[first])
        last_end, words_before_it = end, count
    return cuts
