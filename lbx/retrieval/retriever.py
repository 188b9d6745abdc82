"""A way to retrieve: how documents are cut and how chunks are ranked, under a name that says both.

What the authors of the benchmarks do:

    LongBench v1    ``LongBench/retrieval`` of THUDM/LongBench: chunks of 500 words for BM25 (``BM25/BM25.sh``) and for
                    OpenAI's embeddings (``embedding/openai_embedding.sh``), 200 for contriever
                    (``contriever/mContriever.sh``); the best 3 or 7 (``--top_k`` of ``retrieval/pred.py``) are joined
                    without anything between them, the best first. BM25 is by single characters (``bm25_characters``)
    LongBench v2    ``pred.py --rag N``: the best N in the document's order; chunks of 128 tokens of GLM-4's tokenizer,
                    ranked by an embedding model of Zhipu's that is behind an interface only (``utils/retrieve.py`` of
                    THUDM/LongCite, named in the README; the question it is asked with is not published)
    L-Eval          ``Baselines/turbo4k-retrieve-test.py`` of OpenLMLab/LEval: chunks of 1,024 tokens of GPT-2's
                    tokenizer, cut at spaces; BM25 by Elasticsearch or OpenAI's embeddings; the best 4, the best first
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lbx.base.records import Chunk
from lbx.retrieval.chunks import split, split_as_published
from lbx.retrieval.ranking import (
    BM25,
    BM25_CHARACTERS,
    BM25_ELASTICSEARCH,
    best,
    bm25,
    bm25_characters,
    bm25_elasticsearch,
    cosine,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lbx.retrieval.ranking import Scores

BM25_SIZE = 500
EMBEDDING_SIZE = 200

Index = Callable[[Sequence[str]], Callable[[str], "Scores"]]

_INDICES: dict[str, Index] = {
    BM25: bm25,
    BM25_CHARACTERS: bm25_characters,
    BM25_ELASTICSEARCH: bm25_elasticsearch,
}


@dataclass(frozen=True, slots=True)
class RetrievalRules:
    """What a family's authors retrieve with, where the user says nothing else.

    Attributes:
        tokenizer: a model repository whose tokenizer.json measures chunks; "" where only words do.
        tokens: of a chunk; None: chunks are measured in words.
        between_words: chunks of tokens end at spaces; otherwise anywhere.
        bm25: which BM25, a retriever's name.
        recipe: what bundles the tokenizer.
    """

    tokenizer: str = ""
    tokens: int | None = None
    between_words: bool = False
    bm25: str = BM25
    recipe: str = ""


class Cut(NamedTuple):
    """How documents are cut; the name says it, size included."""

    name: str
    split: Callable[[str], list[str]]


class Embed(Protocol):
    """What an embedding model does: shape (texts, dimensions), float32."""

    def __call__(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]: ...


class Retriever:
    """Splits documents, ranks their chunks by questions, and keeps the last document's index for the next question.

    Args:
        ranking: what ranks them, e.g. "bm25": chunks kept under a name are what it would retrieve again.
        index: from chunks' texts to a function that scores them by a question.
        later_first: see ``best``.
    """

    def __init__(self, ranking: str, cut: Cut, index: Index, *, later_first: bool = False) -> None:
        self.name = f"{ranking}/{cut.name}"
        self._split = cut.split
        self._index = index
        self._later_first = later_first
        self._last: tuple[str, list[str], Callable[[str], Scores]] | None = None

    def retrieve(self, document: str, query: str, n: int) -> list[Chunk]:
        """The n chunks that fit the query best, in the document's order; [] for an empty document.

        Raises:
            UsageError: n is less than 1.
        """
        texts, score = self._indexed(document)
        return best(texts, score(query) if texts else (), n, later_first=self._later_first)

    def _indexed(self, document: str) -> tuple[list[str], Callable[[str], Scores]]:
        if self._last is None or self._last[0] != document:
            self._last = None  # should the next line fail, nothing stale is left, nor two indices at once
            texts = self._split(document)
            self._last = (document, texts, self._index(texts))
        return self._last[1:]


def cut_words(size: int, ranking: str = BM25) -> Cut:
    """Chunks of so many words; with the ranking of LongBench's script they are cut as it cuts them."""
    return Cut(f"{size} words", partial(split_as_published if ranking == BM25_CHARACTERS else split, size=size))


def bm25_retriever(cut: int | Cut = BM25_SIZE, ranking: str = BM25) -> Retriever:
    """A retriever by a kind of BM25.

    Args:
        cut: a number means words.
        ranking: a key of ``_INDICES``.
    """
    if isinstance(cut, int):
        cut = cut_words(cut, ranking)
    return Retriever(ranking, cut, _INDICES[ranking], later_first=ranking == BM25_CHARACTERS)


def embedding_retriever(embed: Embed, name: str, fingerprint: str, cut: int | Cut = EMBEDDING_SIZE) -> Retriever:
    """A retriever by an embedding model.

    Args:
        embed: its function, e.g. ``Embedder.embed``.
        name, fingerprint: of ``EmbedderInfo``.
        cut: a number means words; what a model cannot read of a chunk, it ignores.
    """

    def index(texts: Sequence[str]) -> Callable[[str], Scores]:
        vectors = embed(texts) if texts else None

        def score(query: str) -> Scores:
            assert vectors is not None  # no query is scored against no chunks
            return cosine(embed([query], query=True)[0], vectors)

        return score

    return Retriever(f"embedding:{name}:{fingerprint}", cut_words(cut) if isinstance(cut, int) else cut, index)
