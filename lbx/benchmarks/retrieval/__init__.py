"""Retrieval: split a document into chunks, rank them by a question, and replace the document by the best ones.

This package runs no model: an embedding model is passed as a function from texts to vectors.
"""

BM25_ELASTICSEARCH = "bm25-elasticsearch"
"""L-Eval's ranking. The other two without an embedding model are values of an option, in ``lbx.options.asking``."""
