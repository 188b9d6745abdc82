"""Splitting a document into chunks.

``split`` is lbx's own way, at the ends of sentences. Its rules are those of LongBench v1's retrieval variant
(``split_long_sentence`` in ``LongBench/retrieval/splitter.py`` of THUDM/LongBench): a sentence ends with a line break
or one of "。？！；.!?;", and the white space after it; sentences are put together while they have at most ``size``
words. Two things differ. Nothing is lost or added (the official code puts a space between two ends of sentences that
touch), so that a chunk can be found in its document. And a sentence longer than a chunk is cut between words; the
official code leaves it whole, and one table can then fill a whole prompt. ``split_as_published`` is that code's way to
the letter, for its own ranking.

``split_between_words`` and ``split_tokens`` count tokens, as L-Eval's retrieval and LongBench v2's do.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from lbx.errors import UsageError
from lbx.retrieval.words import word_spans, words

if TYPE_CHECKING:
    from lbx.retrieval.tokens import ChunkTokenizer

_SENTENCE_END = re.compile(r"[。？！；\n.!?;]\s*")
_NO_SPACES = re.compile("[^ ]+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of a document. ``text == document[start:end]``, but for white space where authors change it.

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


def split_as_published(text: str, size: int) -> list[Piece]:
    """``split_long_sentence`` of THUDM/LongBench: a sentence longer than ``size`` stays whole, and an empty text
    between two ends of sentences becomes a space.
    """
    parts = re.split(f"({_SENTENCE_END.pattern})", text)
    pieces: list[Piece] = []
    chunk, start, held = "", 0, 0
    for part, end in zip(parts, accumulate(map(len, parts)), strict=True):
        count = len(words(part))
        if chunk and held + count <= size:
            chunk, held = chunk + (part or " "), held + count
            continue
        if chunk:
            pieces.append(Piece(len(pieces), start, end - len(part), chunk))
        chunk, start, held = part, end - len(part), count
    return [*pieces, Piece(len(pieces), start, len(text), chunk)] if chunk else pieces


def split_between_words(text: str, size: int, tokenizer: ChunkTokenizer) -> list[Piece]:
    """Chunks of at most ``size`` tokens, cut at spaces, as langchain's ``CharacterTextSplitter`` cuts for L-Eval.

    Each word's tokens are counted apart, and each space between two words as one more. Several spaces become one, white
    space around a chunk is dropped, and a word longer than a chunk is a chunk.
    """
    spans = [match.span() for match in _NO_SPACES.finditer(text)]
    counts = tokenizer.counts([text[start:end] for start, end in spans])
    space = tokenizer.counts([" "])[0]
    groups: list[list[tuple[int, int]]] = []
    total = 0
    for span, count in zip(spans, counts, strict=True):
        if groups and total + space + count <= size:
            groups[-1].append(span)
            total += space + count
        else:
            groups.append([span])
            total = count
    texts = [(" ".join(text[a:b] for a, b in group).strip(), group[0][0], group[-1][1]) for group in groups]
    return [Piece(n, start, end, chunk) for n, (chunk, start, end) in enumerate(one for one in texts if one[0])]


def split_tokens(text: str, size: int, tokenizer: ChunkTokenizer) -> list[Piece]:
    """Chunks of ``size`` tokens, wherever that cuts, as ``text_split`` in ``utils/retrieve.py`` of THUDM/LongCite.

    A character whose tokens lie in two chunks is in neither: U+FFFD stands there.
    """
    found = tokenizer.windows(text, size)
    return [Piece(n, start, end, chunk) for n, (chunk, start, end) in enumerate(found)]
