"""Answers from a model, whichever library runs it: shared prefixes, batches, decoding, and the seams of backends."""
