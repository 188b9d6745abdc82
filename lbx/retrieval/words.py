"""What counts as a word when chunks are measured and matched, as LongBench v1's retrieval code counts.

A word is a Chinese character, or a run of letters, digits and underscores between other characters. The rule is that of
``get_word_list`` in ``LongBench/retrieval/splitter.py`` of THUDM/LongBench, and serves texts that mix languages.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where each word begins and ends, in characters."""
    return [match.span() for match in _WORD.finditer(text)]


def words(text: str) -> list[str]:
    """The text's words in lower case."""
    return _WORD.findall(text.lower())
