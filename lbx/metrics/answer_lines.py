"""LongBench Pro's answers: one item a line, after a marker, compared in lower case with white space folded.

Source: caskcsg/longcontext, LongBench-Pro/modules/utils.py at 88fbeb85. Nothing here fails on any text.
"""

from __future__ import annotations

from collections.abc import Sequence

from lbx.metrics.f1 import f_measure

MARKERS = ("[Answer]", "[答案]")


def answer_area(text: str) -> str:
    """What follows the last "[Answer]", or where there is none the last "[答案]"; the whole text without either.

    The English marker wins wherever the two stand, also in a Chinese answer.
    """
    for marker in MARKERS:
        _, marker_seen, rest = text.rpartition(marker)
        if marker_seen:
            return rest.strip()
    return text.strip()


def folded(text: str) -> str:
    """In lower case, each run of white space as one space, none at the ends."""
    return " ".join(text.lower().split())


def answer_lines(output: str) -> list[str]:
    """The answer area's lines, folded; blank ones stay, and count. An output without any text is one blank line."""
    return [" ".join(line.split()) for line in answer_area(output).lower().split("\n")]


def accuracy(references: Sequence[str], lines: Sequence[str]) -> float:
    """Whether the first line is the first reference; both folded."""
    return float(bool(references) and bool(lines) and references[0] == lines[0])


def set_f1(references: Sequence[str], lines: Sequence[str]) -> float:
    """F1 of the two as sets: repeated lines count once, in no order."""
    expected, answers = set(references), set(lines)
    return f_measure(len(expected & answers), len(answers), len(expected))


def substring_match(references: Sequence[str], lines: Sequence[str]) -> float:
    """The share of references that are a line of their own ("SubEM"). A reference that repeats counts each time."""
    if not references:
        return 0.0
    lines_given = set(lines)
    return sum(reference in lines_given for reference in references) / len(references)
