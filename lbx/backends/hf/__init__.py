"""Hugging Face transformers, and sentence-transformers for embeddings."""
