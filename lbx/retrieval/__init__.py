"""Retrieval: a document is split into chunks, they are ranked by a question, and the best stand in its place.

No model is run here: an embedding model comes in as a function from texts to vectors.
"""
