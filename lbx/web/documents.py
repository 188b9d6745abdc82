"""Long documents, which are displayed in blocks that a browser lays out lazily, and searched on the server.

A browser's own search and layout take seconds per megabyte. Blocks outside the visible area are free.
"""

from __future__ import annotations

import functools
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lbx.base.errors import UsageError
from lbx.base.visible import visible
from lbx.web import limits

BLOCK = 4_000
"""Approximate number of characters per block."""
MOST_HITS = 2_000
"""Maximum number of marked hits. All hits are counted."""
_KEPT = 32


@dataclass(frozen=True, slots=True)
class Hits:
    """Hits of a search.

    Attributes:
        total: number of hits.
        places: block and offset of the start, block and offset of the end of the first ``MOST_HITS`` hits. Offsets are
            in UTF-16 units of the block's text.
    """

    total: int
    places: list[tuple[int, int, int, int]]


class SearchableDocument:
    """Searchable text, split into blocks.

    Attributes:
        key: name of the document in URLs.
        blocks: displayed blocks, which together are the text with invisible characters made visible.
    """

    def __init__(self, key: str, text: str) -> None:
        self.key = key
        self._text = _displayed_text(text)
        self.blocks = blocks_of(self._text)
        self._starts = [0, *accumulate(map(len, self.blocks))]
        self._folded_text = _FoldedText(self._text)  # not lazily: the first search should be as fast as later ones
        self._plain = [max(block, default="") < "\U00010000" for block in self.blocks]

    def find(self, query: str) -> Hits:
        """Find non-overlapping hits of a text, ignoring case and differences of compatible forms (NFKC)."""
        total, spans = self._folded_text.find(_displayed_text(query))
        return Hits(total, [(*self._block_offset(start), *self._block_offset(end - 1, 1)) for start, end in spans])

    def _block_offset(self, at: int, more: int = 0) -> tuple[int, int]:
        block = bisect_right(self._starts, at) - 1
        if self._plain[block]:
            return block, at + more - self._starts[block]
        before = self._text[self._starts[block] : at + more]
        return block, len(before.encode("utf-16-le")) // 2


def _displayed_text(text: str) -> str:
    return visible(text.replace("\r\n", "\n"))


def blocks_of(text: str) -> list[str]:
    """Split a text into blocks for lazy layout, after line breaks if possible, else after spaces."""
    blocks, at = [], 0
    while len(text) - at > BLOCK:
        cut = text.rfind("\n", at + BLOCK // 2, at + BLOCK) + 1 or text.rfind(" ", at + BLOCK // 2, at + BLOCK) + 1
        cut = cut or at + BLOCK
        blocks.append(text[at:cut])
        at = cut
    return [*blocks, text[at:]]


@functools.cache
def _fold(character: str) -> str:
    """Fold a character to the decomposed characters (NFKD), so that "é" also matches "e" with a combining accent."""
    folded = unicodedata.normalize("NFKD", character).casefold()
    return unicodedata.normalize("NFKD", folded)


class _FoldedText:
    """Folded text with a mapping back to offsets of the original text."""

    def __init__(self, text: str) -> None:
        self._original = text
        folds = {character: _fold(character) for character in set(text)}
        longer = {character for character, fold in folds.items() if len(fold) != 1}
        self._text = (
            text.lower()
            if text.isascii()
            else text.translate({ord(character): fold for character, fold in folds.items()})
        )
        self._ends = array("L", accumulate(len(folds[character]) for character in text)) if longer else None
        self._has_combining = any(map(unicodedata.combining, folds))
        self._inside = {part for character in longer for part in folds[character]}

    def find(self, query: str) -> tuple[int, list[tuple[int, int]]]:
        """Count hits and locate the first hits in the original text. Only whole characters match: "e" is not in "é"."""
        folded = "".join(map(_fold, query))
        spans: list[tuple[int, int]] = []
        total = 0
        # Hits of a simple text cannot begin or end inside a character, so the rest can be counted at once.
        simple = not self._has_combining and not self._inside & {*folded[:1], *folded[-1:]}
        at = self._text.find(folded) if folded.strip() else -1
        while at >= 0:
            start, end = self._original_offset(at), self._original_offset(at + len(folded))
            is_whole = start is not None and end is not None and not self._is_continued(end)
            if is_whole and total < MOST_HITS:
                spans.append((start, end))  # type: ignore[arg-type]  # neither is None
            elif is_whole and simple:
                return total + self._text.count(folded, at), spans
            total += is_whole
            at = self._text.find(folded, at + (len(folded) if is_whole else 1))
        return total, spans

    def _is_continued(self, end: int) -> bool:
        return end < len(self._original) and unicodedata.combining(self._original[end]) != 0

    def _original_offset(self, at: int) -> int | None:
        """Map a folded offset to the original text, or to None for an offset inside an original character."""
        if self._ends is None or at == 0:
            return at
        before = bisect_left(self._ends, at)
        return before + 1 if self._ends[before] == at else None


class Documents:
    """Documents of a site, read on first use.

    Args:
        read: returns a document's text by key, or None if it does not exist.
    """

    def __init__(self, read: Callable[[str], str | None]) -> None:
        self._get = functools.lru_cache(_KEPT)(
            lambda key: None if (text := read(key)) is None else SearchableDocument(key, text)
        )

    def get(self, key: str) -> SearchableDocument | None:
        """Return a document by key, or None if it does not exist or ``key`` is ""."""
        return self._get(key) if key else None

    @property
    def routes(self) -> list[Route]:
        """Search route ``/documents/KEY/find?q=TEXT``, which returns ``Hits`` as JSON."""
        return [Route("/documents/{key}/find", self._find)]

    def _find(self, request: Request) -> Response:
        document = self.get(request.path_params["key"])
        if document is None:
            raise UsageError("This document does not exist.")
        hits = document.find(request.query_params.get("q", "")[: limits.SEARCH_CHARACTERS])
        return JSONResponse({"total": hits.total, "places": hits.places})
