r"""RULER's metrics, which count the references that a prediction contains.

Source: postprocess_pred of
https://github.com/NVIDIA/RULER/blob/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a/scripts/eval/evaluate.py
and string_match_all and string_match_part of
https://github.com/NVIDIA/RULER/blob/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a/scripts/eval/synthetic/constants.py

A reference counts if its text in lower case is anywhere in the prediction in lower case: "art" in "party", 1234567 in
12345678. ``str.lower`` is not ``casefold`` ("ß" differs from "ss"), and characters are compared without normalisation.
Order and further text do not matter. An empty reference is in every prediction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_CONTROL = re.compile(r"[\x00-\x1f]")


def clean_prediction(prediction: str) -> str:
    """Replace the control characters U+0000 to U+001F by line feeds, without white space (Unicode's) at both ends."""
    return _CONTROL.sub("\n", prediction.strip()).strip()


def string_match_all(prediction: str, references: Sequence[str]) -> float:
    """Share of the references that a cleaned prediction contains, or 0.0 without references."""
    matches = _matches(prediction, references)
    return sum(matches) / len(matches) if matches else 0.0


def string_match_part(prediction: str, references: Sequence[str]) -> float:
    """Score 1.0 if a cleaned prediction contains any of the references, or else 0.0."""
    return max(_matches(prediction, references), default=0.0)


def _matches(prediction: str, references: Sequence[str]) -> list[float]:
    text = prediction.lower()
    return [1.0 if reference.lower() in text else 0.0 for reference in references]
