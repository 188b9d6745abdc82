"""Which chunks fit a question: BM25 over words, or the cosine of vectors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lbx.errors import UsageError
from lbx.records import Chunk
from lbx.retrieval.chunks import Piece
from lbx.retrieval.words import words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float64]

Tokenize = Callable[[str], list[str]]
K1, B = 1.5, 0.75


@dataclass(frozen=True, slots=True)
class Retrieved(Chunk):
    """A chunk with its score: ``text == document[start:end]``.

    Attributes:
        start, end: in characters.
    """

    start: int
    end: int


def bm25(texts: Sequence[str], tokenize: Tokenize = words) -> Callable[[str], Scores]:
    """Index texts; the function that comes back scores each of them by a question.

    Lucene's BM25 with k1 = 1.5 and b = 0.75, as the library bm25s computes it, in float64. A word that a question
    repeats counts each time. A text without a word of the question scores 0.

    Args:
        texts: the chunks.
        tokenize: a text's terms, the same for chunks and questions. LongBench's own code passes strings to a library
            that expects lists of words, and so ranks by single characters: a slip that is not repeated here.
    """
    import numpy as np

    terms = [tokenize(text) for text in texts]
    index = _bm25_index(terms) if any(terms) else None  # the library cannot divide by an average length of 0

    def score(question: str) -> Scores:
        asked = tokenize(question)
        if index is None or not asked:
            return np.zeros(len(texts))
        found: Scores = index.get_scores(asked)
        return found

    return score


def _bm25_index(terms: list[list[str]]) -> Any:
    import bm25s  # type: ignore[import-untyped, unused-ignore]

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it asks for its own debug lines
    index = bm25s.BM25(k1=K1, b=B, method="lucene", dtype="float64", backend="numpy", csc_backend="numpy")
    index.index(terms, show_progress=False)
    return index


def cosine(question: NDArray[np.float32], vectors: NDArray[np.float32]) -> Scores:
    """Cosine between a question's vector, shape (d,), and chunks' vectors, shape (n, d); 0 where one is zero."""
    import numpy as np

    left, right = question.astype(np.float64), vectors.astype(np.float64)
    lengths = np.linalg.norm(left) * np.linalg.norm(right, axis=1)
    found: Scores = right @ left / np.where(lengths > 0, lengths, 1)
    return found


def best(pieces: Sequence[Piece], scores: Sequence[float] | Scores, n: int) -> list[Retrieved]:
    """The n pieces with the largest scores, in the document's order.

    Of equal ones the earlier ranks first. Fewer pieces than n are all returned.

    Raises:
        UsageError: n is less than 1.
    """
    if n < 1:
        raise UsageError(f"{n} chunks cannot be retrieved.", fix="Ask for at least 1.")
    if len(pieces) != len(scores):
        raise ValueError(f"{len(scores)} scores for {len(pieces)} pieces")
    by_score = sorted(range(len(pieces)), key=lambda i: (-scores[i], i))[:n]
    found = [
        Retrieved(pieces[i].index, rank, float(scores[i]), pieces[i].text, pieces[i].start, pieces[i].end)
        for rank, i in enumerate(by_score)
    ]
    return sorted(found, key=lambda chunk: chunk.index)
