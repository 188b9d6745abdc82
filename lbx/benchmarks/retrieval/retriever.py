"""Retrievers, which combine a rule to split documents and a ranking of chunks.

The benchmarks' authors use these methods:

    LongBench v1    ``LongBench/retrieval`` of THUDM/LongBench: chunks of 500 words for BM25 (``BM25/BM25.sh``) and for
                    OpenAI's embeddings (``embedding/openai_embedding.sh``), 200 for contriever
                    (``contriever/mContriever.sh``). The best 3 or 7 (``--top_k`` of ``retrieval/pred.py``) are joined
                    without a separator, the best first. BM25 is by single characters (``bm25_characters``)
    LongBench v2    ``pred.py --rag N``: the best N in the document's order; chunks of 128 tokens of GLM-4's tokenizer,
                    ranked by an embedding model of Zhipu's with only an API (``utils/retrieve.py`` of
                    THUDM/LongCite, named in the README; the query text for it is not published)
    L-Eval          ``Baselines/turbo4k-retrieve-test.py`` of OpenLMLab/LEval: chunks of 1,024 tokens of GPT-2's
                    tokenizer, cut at spaces; BM25 by Elasticsearch or OpenAI's embeddings; the best 4, the best first
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lbx.base.errors import UsageError
from lbx.base.records import Chunk
from lbx.benchmarks.retrieval import BM25_ELASTICSEARCH
from lbx.benchmarks.retrieval.chunks import split, split_like_longbench, words
from lbx.options.asking import BM25, BM25_CHARACTERS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float64]

BM25_SIZE = 500
EMBEDDING_SIZE = 200

Index = Callable[[Sequence[str]], Callable[[str], "Scores"]]


@dataclass(frozen=True, slots=True)
class RetrievalRules:
    """Default retrieval method of a benchmark family, from its authors.

    Attributes:
        tokenizer: model repository with the tokenizer.json for chunks in tokens, or "" if chunks are in words.
        tokens: number of tokens per chunk, or None if chunks are in words.
        between_words: whether chunks of tokens end at spaces.
        bm25: name of the BM25 ranking.
        recipe: recipe that bundles the tokenizer.
    """

    tokenizer: str = ""
    tokens: int | None = None
    between_words: bool = False
    bm25: str = BM25
    recipe: str = ""


class ChunkingRule(NamedTuple):
    """Rule to split documents, with a name that includes the size of chunks."""

    name: str
    split: Callable[[str], list[str]]


class EmbedFunction(Protocol):
    """Function from texts to float32 vectors, shape (texts, dimensions)."""

    def __call__(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]: ...


class Retriever:
    """Retriever of a document's best chunks for a question. The index of the last document is cached.

    Args:
        ranking: name of the ranking, e.g. "bm25". Chunks stored under one name must be reproducible.
        index: function from chunks' texts to a function that scores them by a question.
        later_first: see ``best_chunks``.
    """

    def __init__(self, ranking: str, chunking: ChunkingRule, index: Index, *, later_first: bool = False) -> None:
        self.name = f"{ranking}/{chunking.name}"
        self._split = chunking.split
        self._index = index
        self._later_first = later_first
        self._last: tuple[str, list[str], Callable[[str], Scores]] | None = None

    def retrieve(self, document: str, query: str, n: int) -> list[Chunk]:
        """Retrieve the n best chunks for a query, in the document's order, or [] for an empty document.

        Raises:
            UsageError: n is less than 1.
        """
        if self._last is None or self._last[0] != document:
            self._last = None  # frees the old index first, and leaves no stale one if the next line fails
            texts = self._split(document)
            self._last = (document, texts, self._index(texts))
        texts, score = self._last[1:]
        return best_chunks(texts, score(query) if texts else (), n, later_first=self._later_first)


def word_chunking(size: int, ranking: str = BM25) -> ChunkingRule:
    """Rule for chunks of ``size`` words. For the ranking of LongBench's script, chunks are split as in the script."""
    return ChunkingRule(
        f"{size} words", partial(split_like_longbench if ranking == BM25_CHARACTERS else split, size=size)
    )


def bm25_retriever(chunking: int | ChunkingRule = BM25_SIZE, ranking: str = BM25) -> Retriever:
    """Build a retriever with a BM25 variant.

    Args:
        chunking: a rule, or a number of words.
        ranking: a key of ``_INDICES``.
    """
    if isinstance(chunking, int):
        chunking = word_chunking(chunking, ranking)
    return Retriever(ranking, chunking, _INDICES[ranking], later_first=ranking == BM25_CHARACTERS)


def embedding_retriever(
    embed: EmbedFunction, name: str, fingerprint: str, chunking: int | ChunkingRule = EMBEDDING_SIZE
) -> Retriever:
    """Build a retriever with an embedding model.

    Args:
        name, fingerprint: values from ``EmbedderInfo``.
        chunking: a rule, or a number of words. The model ignores the end of chunks that are too long for it.
    """

    def index(texts: Sequence[str]) -> Callable[[str], Scores]:
        vectors = embed(texts) if texts else None

        def score(query: str) -> Scores:
            assert vectors is not None  # an empty document is never scored
            return cosine_scores(embed([query], query=True)[0], vectors)

        return score

    return Retriever(
        f"embedding:{name}:{fingerprint}", word_chunking(chunking) if isinstance(chunking, int) else chunking, index
    )


Tokenize = Callable[[str], list[str]]
K1, B = 1.5, 0.75


def bm25(texts: Sequence[str], tokenize: Tokenize = words) -> Callable[[str], Scores]:
    """Index texts and return a function that scores each text by a question.

    Scores are Lucene's BM25 with k1 = 1.5 and b = 0.75, as the library bm25s computes it in float64. Repeated words of
    a question count each time. A text without a word of the question scores 0.

    Args:
        tokenize: function that splits chunks and questions into terms.
    """
    import numpy as np

    terms = [tokenize(text) for text in texts]
    index = _bm25_index(terms) if any(terms) else None  # the library cannot divide by an average length of 0

    def score(question: str) -> Scores:
        terms = tokenize(question)
        if index is None or not terms:
            return np.zeros(len(texts))
        scores: Scores = index.get_scores(terms)
        return scores

    return score


def _bm25_index(terms: list[list[str]]) -> Any:
    import bm25s  # type: ignore[import-untyped, unused-ignore]

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it enables its own debug lines
    index = bm25s.BM25(k1=K1, b=B, method="lucene", dtype="float64", backend="numpy", csc_backend="numpy")
    index.index(terms, show_progress=False)
    return index


def bm25_characters(texts: Sequence[str]) -> Callable[[str], Scores]:
    """Index texts by single characters, and return a function that scores each text by a question.

    The index is that of LongBench v1's ``retrieval/BM25/generate_BM25.py``.

    The script passes strings to ``BM25Okapi`` of rank_bm25, which expects lists of words. Scores equal the library's
    to the bit: k1 = 1.5, b = 0.75, a quarter of the mean idf for characters in more than half of the chunks.
    """
    import numpy as np

    term_counts = [Counter(text) for text in texts]
    lengths = np.array([len(text) for text in texts])
    idf = _okapi_idf(term_counts)
    norm = K1 * (1 - B + B * lengths / (lengths.sum() / max(1, len(texts)) or 1))

    def score(question: str) -> Scores:
        terms: dict[str, Scores] = {}
        for term in dict.fromkeys(question):
            scores = np.array([counts[term] for counts in term_counts])
            terms[term] = idf.get(term, 0.0) * (scores * (K1 + 1) / (scores + norm))
        total = np.zeros(len(texts))
        for term in question:  # sequentially: float sums depend on their order, and ties on the last bit
            total += terms[term]
        return total

    return score


def _okapi_idf(term_counts: Sequence[Counter[str]]) -> dict[str, float]:
    having = Counter(term for counts in term_counts for term in counts)
    idf = {term: math.log(len(term_counts) - n + 0.5) - math.log(n + 0.5) for term, n in having.items()}
    floor = 0.25 * (sum(idf.values()) / max(1, len(idf)))
    return {term: floor if value < 0 else value for term, value in idf.items()}


_UNICODE_WORD = re.compile(
    r"[\u3400-\u9fff\u3040-\u309f]|(?:(?![\u3400-\u9fff\u3040-\u309f])\w)+"
    r"(?:(?:(?<=[^\W\d])['’.:](?=[^\W\d])|(?<=\d)[.,'’;](?=\d))(?:(?![\u3400-\u9fff\u3040-\u309f])\w)+)*"
)


def bm25_elasticsearch(texts: Sequence[str]) -> Callable[[str], Scores]:
    """Index texts like Elasticsearch, and return a function that scores each text by a question.

    L-Eval's baseline uses Elasticsearch through langchain's ``ElasticSearchBM25Retriever``.

    Scores are BM25 with k1 = 2 and b = 0.75, over words by Unicode's rules ("3.5" and "don't" are one word, each
    Chinese character is one), with lengths that Lucene stores in a byte, above 40 rounded down to four binary digits.
    This ranking reproduces the published BM25 rows (see ``tests/retrieval/test_leval_retrieval.py``).
    """
    import numpy as np

    def terms(text: str) -> list[str]:
        return _UNICODE_WORD.findall(text.lower())

    term_counts = [Counter(terms(text)) for text in texts]
    lengths = [counts.total() for counts in term_counts]
    mean = sum(lengths) / max(1, len(lengths)) or 1
    having = Counter(term for counts in term_counts for term in counts)
    norm = np.array([2 * (0.25 + 0.75 * _lucene_length(length) / mean) for length in lengths])

    def score(question: str) -> Scores:
        total = np.zeros(len(texts))
        for term, times in Counter(terms(question)).items():
            scores = np.array([counts[term] for counts in term_counts])
            idf = math.log(1 + (len(texts) - having[term] + 0.5) / (having[term] + 0.5))
            total += times * idf * (scores / (scores + norm))
        return total

    return score


def _lucene_length(length: int) -> int:
    """Length of a text as Lucene stores it, by ``SmallFloat.intToByte4``."""
    beyond = length - 24
    shift = max(0, beyond.bit_length() - 4) if beyond > 0 else 0
    return 24 + (beyond >> shift << shift)


def cosine_scores(query: NDArray[np.float32], vectors: NDArray[np.float32]) -> Scores:
    """Cosines between a query's vector, shape (d,), and chunks' vectors, shape (n, d), or 0 for a zero vector."""
    import numpy as np

    direction, rows = query.astype(np.float64), vectors.astype(np.float64)
    lengths = np.linalg.norm(direction) * np.linalg.norm(rows, axis=1)
    scores: Scores = rows @ direction / np.where(lengths > 0, lengths, 1)
    return scores


def best_chunks(
    texts: Sequence[str], scores: Sequence[float] | Scores, n: int, *, later_first: bool = False
) -> list[Chunk]:
    """Select the n chunks with the largest scores, or all chunks if there are fewer, in the document's order.

    Args:
        texts: all chunks of the document.
        later_first: whether of chunks with equal scores the later ones are selected, as in rank_bm25.

    Raises:
        UsageError: n is less than 1.
    """
    if n < 1:
        raise UsageError(f"Cannot retrieve {n} chunks.", fix="Use at least 1.")
    if len(texts) != len(scores):
        raise ValueError(f"{len(scores)} scores for {len(texts)} chunks")
    by_score = sorted(range(len(texts)), key=lambda i: (-scores[i], -i if later_first else i))[:n]
    chunks = [Chunk(i, rank, float(scores[i]), texts[i]) for rank, i in enumerate(by_score)]
    return sorted(chunks, key=lambda chunk: chunk.index)


_INDICES: dict[str, Index] = {
    BM25: bm25,
    BM25_CHARACTERS: bm25_characters,
    BM25_ELASTICSEARCH: bm25_elasticsearch,
}
