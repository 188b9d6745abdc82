"""Backends on Hugging Face transformers, and on sentence-transformers for embeddings."""
