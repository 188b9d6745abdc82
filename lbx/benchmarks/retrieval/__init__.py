"""Retrieval of chunks: documents are split into chunks, and a question's best chunks replace the document.

This package runs no model: an embedding model is passed as a function from texts to vectors.
"""

BM25_ELASTICSEARCH = "bm25-elasticsearch"
"""Name of L-Eval's ranking. The names of the other BM25 rankings are values of ``--rag-ranking``."""
