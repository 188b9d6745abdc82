"""Retrieval: a document is split into chunks, they are ranked by a question, and the best stand in its place.

No model is run here: an embedding model comes in as a function from texts to vectors.
"""

from __future__ import annotations

from lbx.retrieval.chunks import split, split_as_published, split_between_words
from lbx.retrieval.ranking import best, bm25, bm25_characters, bm25_elasticsearch, cosine
from lbx.retrieval.retriever import (
    BM25_ELASTICSEARCH,
    Cut,
    RetrievalRules,
    bm25_retriever,
    cut_words,
    embedding_retriever,
)
from lbx.retrieval.tokens import ChunkTokenizer
from lbx.retrieval.words import word_spans, words

__all__ = [
    "BM25_ELASTICSEARCH",
    "ChunkTokenizer",
    "Cut",
    "RetrievalRules",
    "best",
    "bm25",
    "bm25_characters",
    "bm25_elasticsearch",
    "bm25_retriever",
    "cosine",
    "cut_words",
    "embedding_retriever",
    "split",
    "split_as_published",
    "split_between_words",
    "word_spans",
    "words",
]
