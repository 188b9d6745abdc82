"""The letter a model chose: LongBench v2.

Source: extract_answer of
https://github.com/THUDM/LongBench/blob/2e00731f8d0bff23dc4325161044d0ed8af94c1e/pred.py
"""

from __future__ import annotations

import re

LETTERS = ("A", "B", "C", "D")

_PARENTHESISED = re.compile(r"The correct answer is \(([A-D])\)")
_BARE = re.compile(r"The correct answer is ([A-D])")


def chosen_letter(output: str) -> str | None:
    """A, B, C or D, or None where the answer does not say so in the words asked for.

    A parenthesised letter anywhere beats a bare one before it, and a bare one may begin a word ("is Apple" is A).
    """
    plain = output.strip().replace("*", "")
    match = _PARENTHESISED.search(plain) or _BARE.search(plain)
    return match.group(1) if match else None
