"""Attestations of results files: signed statements that bind every row of a run, and the check of a file by them."""
