"""What ranks chunks where no embedding model does."""

BM25 = "bm25"
BM25_CHARACTERS = "bm25-characters"
"""As LongBench v1's own script ranks."""
BM25_ELASTICSEARCH = "bm25-elasticsearch"
"""As L-Eval's does."""
