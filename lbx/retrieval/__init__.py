"""Retrieval: a document is split into chunks, they are ranked by a question, and the best stand in its place.

No model is run here: an embedding model comes in as a function from texts to vectors.
"""

# Rankings without an embedding model: of lbx, of LongBench v1's own script, of L-Eval's.
BM25 = "bm25"
BM25_CHARACTERS = "bm25-characters"
BM25_ELASTICSEARCH = "bm25-elasticsearch"
