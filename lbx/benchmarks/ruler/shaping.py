"""Form of a finished sample: its lines, and where its answer prefix begins."""

from __future__ import annotations


def join_lines(text: str) -> str:
    """Join lines and tabs by single blanks, like ``--remove_newline_tab``."""
    return " ".join(text.replace("\n", " ").replace("\t", " ").strip().split())


def split_answer_prefix(text: str, prefix: str) -> tuple[str, str]:
    """Split a sample before its answer prefix, found from the end by its first ten characters, as officially."""
    at = text.rfind(prefix[:10])
    return text[:at], text[at:]
