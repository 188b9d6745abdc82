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


def letter_said(output: str, letters: str) -> str | None:
    """The one of ``letters`` that a free answer chooses, or None.

    lbx's own rule, for answers in no words that were asked for: the letter that the answer begins with ("B", "(B)",
    "B. Paris"), else the last one after "answer", "option" or "choice", else the only one in brackets or by itself. A
    bare "A" or "I" between words is taken for a word.
    """
    plain, one = output.replace("*", "").strip(), f"[{re.escape(letters)}]"
    if not letters:
        return None
    if begins := re.match(rf"[\s(\[（\"']*({one})(?=\s*\Z|[.．):：,，、\])）\"'\n])", plain):
        return begins[1]
    after = rf"(?:(?i:answer|option|choice)|答案|选项?)\s*(?:(?i:is)|是|为)?\s*[:：]?\s*[(\[（\"']*({one})(?![A-Za-z])"
    if matches := re.findall(after, plain):
        return str(matches[-1])
    bracketed = set(re.findall(rf"[(\[（]({one})[)\]）]", plain))
    alone = bracketed or set(re.findall(rf"(?<![A-Za-z0-9'])({one})(?![A-Za-z0-9'])", plain)) - {"A", "I"}
    return alone.pop() if len(alone) == 1 else None
