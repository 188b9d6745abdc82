"""Retrieval: a document is split into chunks, they are ranked by a question, and the best stand in its place.

No model is run here: an embedding model comes in as a function from texts to vectors.
"""

from __future__ import annotations

from lbx.retrieval.chunks import Piece, split
from lbx.retrieval.ranking import Retrieved, best, bm25, cosine
from lbx.retrieval.retriever import Embed, Retriever, bm25_retriever, embedding_retriever
from lbx.retrieval.words import word_spans, words

__all__ = [
    "Embed",
    "Piece",
    "Retrieved",
    "Retriever",
    "best",
    "bm25",
    "bm25_retriever",
    "cosine",
    "embedding_retriever",
    "split",
    "word_spans",
    "words",
]
