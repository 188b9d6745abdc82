"""Answers from a model, whichever library runs it: shared prefixes, batches, decoding, sampling, and the seams that backends fill."""
