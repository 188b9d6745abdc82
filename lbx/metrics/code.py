"""Edit similarity of one line of code: LongBench's lcc and repobench-p.

Source: code_sim_score of
https://github.com/THUDM/LongBench/blob/2e00731f8d0bff23dc4325161044d0ed8af94c1e/LongBench/metrics.py ,
with the ratio of fuzzywuzzy 0.18.0 where no Levenshtein package is installed, which is what the official
requirements give: difflib's, and cydifflib is the same, compiled. (With python-Levenshtein the numbers are others; they
are not mixed here.)
"""

from __future__ import annotations

from collections.abc import Sequence

from cydifflib import SequenceMatcher  # type: ignore[import-untyped]


def edit_similarity(line: str, references: Sequence[str]) -> float:
    """Similarity in whole hundredths, 0..1, of the best reference; 0 without any.

    Args:
        line: the answer's ``code_line``.
        references: the expected lines as the data holds them.
    """
    return max((_percent(line, reference) / 100 for reference in references), default=0.0)


def code_line(output: str) -> str:
    r"""The first line without ` or # or //, after leading "\n"; "" where there is none. A line of spaces counts."""
    for line in output.lstrip("\n").split("\n"):
        if "`" not in line and "#" not in line and "//" not in line:
            return line
    return ""


def _percent(line: str, reference: str) -> int:
    if line == reference:
        return 100
    if not line or not reference:
        return 0
    # Argument order and difflib's default autojunk (a reference of 200 characters or more) are part of the number.
    ratio: float = SequenceMatcher(None, line, reference).ratio()
    return round(100 * ratio)
