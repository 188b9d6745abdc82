"""Formats of other evaluation programs: evaluation harnesses, and formats for sharing results."""
