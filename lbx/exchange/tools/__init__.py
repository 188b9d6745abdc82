"""Formats of other evaluation tools: evaluation harnesses, and formats for sharing results."""
