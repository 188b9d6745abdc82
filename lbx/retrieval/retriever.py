"""A way to retrieve: how large chunks are and how they are ranked, under a name that says both.

What the authors of the benchmarks do:

    LongBench v1    ``LongBench/retrieval`` of THUDM/LongBench: chunks of 500 words for BM25 (``BM25/BM25.sh``), 200 for
                    embedding models (``contriever/mContriever.sh``, ``embedding/``); the best 3 or 7 (``--top_k`` of
                    ``retrieval/pred.py``) are joined without anything between them, the best first
    LongBench v2    ``pred.py --rag N``: the best N in the document's order; the chunks come from a file that is not
                    published, so their size is the user's choice here
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from lbx.retrieval.chunks import Piece, split
from lbx.retrieval.ranking import Retrieved, Tokenize, best, bm25, cosine
from lbx.retrieval.words import words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lbx.retrieval.ranking import Scores

BM25_SIZE = 500
EMBEDDING_SIZE = 200

Index = Callable[[Sequence[str], str], Callable[[str], "Scores"]]


class Embed(Protocol):
    """What an embedding model does: shape (texts, dimensions), float32."""

    def __call__(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]: ...


class Retriever:
    """Splits documents, ranks their chunks by questions, and keeps the last document's index for the next question.

    Args:
        name: identifies it, e.g. "bm25/500 words": chunks kept under a name are what it would retrieve again.
        size: of a chunk, in words.
        index: from chunks' texts and their language to a function that scores them by a question.
    """

    def __init__(self, name: str, size: int, index: Index) -> None:
        self.name = name
        self.size = size
        self._index = index
        self._last: tuple[tuple[str, str], list[Piece], Callable[[str], Scores]] | None = None

    def retrieve(self, document: str, query: str, language: str, n: int) -> list[Retrieved]:
        """The n chunks that fit the query best, in the document's order; [] for an empty document.

        Args:
            language: "en" or "zh".

        Raises:
            UsageError: n is less than 1.
        """
        pieces, score = self._indexed(document, language)
        return best(pieces, score(query) if pieces else (), n)

    def _indexed(self, document: str, language: str) -> tuple[list[Piece], Callable[[str], Scores]]:
        key = (document, language)
        if self._last is None or self._last[0] != key:
            self._last = None  # should the next line fail, nothing stale is left, nor two indices at once
            pieces = split(document, self.size)
            self._last = (key, pieces, self._index([piece.text for piece in pieces], language))
        return self._last[1:]


def bm25_retriever(
    size: int = BM25_SIZE, *, tokenizers: dict[str, Tokenize] | None = None, tokenizer_name: str = ""
) -> Retriever:
    """A retriever by BM25.

    Args:
        size: of a chunk, in words.
        tokenizers: by language, where ``words`` (lower-cased words, single Chinese characters) is not wanted.
        tokenizer_name: for the retriever's name; to be given with tokenizers.

    Raises:
        ValueError: one of tokenizers and tokenizer_name was given without the other.
    """
    if bool(tokenizers) != bool(tokenizer_name):
        raise ValueError("tokenizers and tokenizer_name go together")
    known = tokenizers or {}
    name = f"bm25({tokenizer_name})" if tokenizer_name else "bm25"
    return Retriever(f"{name}/{size} words", size, lambda texts, language: bm25(texts, known.get(language, words)))


def embedding_retriever(embed: Embed, name: str, fingerprint: str, size: int = EMBEDDING_SIZE) -> Retriever:
    """A retriever by an embedding model.

    Args:
        embed: its function, e.g. ``Embedder.embed``.
        name, fingerprint: of ``EmbedderInfo``.
        size: of a chunk, in words; what a model cannot read of a chunk, it ignores.
    """

    def index(texts: Sequence[str], _language: str) -> Callable[[str], Scores]:
        vectors = embed(texts) if texts else None

        def score(query: str) -> Scores:
            assert vectors is not None  # no query is scored against no chunks
            return cosine(embed([query], query=True)[0], vectors)

        return score

    return Retriever(f"embedding:{name}:{fingerprint}/{size} words", size, index)
