"""Retrieval: split a document into chunks, rank them by a question, and replace the document by the best ones.

This package runs no model: an embedding model is passed as a function from texts to vectors.
"""

# Rankings without an embedding model: lbx's, LongBench v1's own script, L-Eval's.
BM25 = "bm25"
BM25_CHARACTERS = "bm25-characters"
BM25_ELASTICSEARCH = "bm25-elasticsearch"
