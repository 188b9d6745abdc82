r"""Ratings from the JSON objects in a judge's replies, by formulas of the objects' fields.

Source: scripts/eval_gpt4_longqa.py and eval_gpt4_summ.py of
https://github.com/princeton-nlp/HELMET/tree/4526dfbdc512bd9ff721da336bff4e3e75ecfd27 . Details of that code:

- The last "{...}" without inner braces counts. For summaries, a block "```json" is read if that text is not JSON.
- Of an answer, fluency (0 or 1) times correctness (0 to 3) counts.
- Of a summary, fluency times the F1 of recall and precision counts. A judge may find more points than there are, so
  that recall is above 1, and F1, too. Recall without key points and precision without sentences are 0.

The scripts stop at an object without the fields, and count numbers outside the scale. Here, both are no rating.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

ANSWER_FORMULA = "fluency * correctness"
SUMMARY_FORMULA = "fluency * F1(recall / {points}, precision / sentence_count)"
"""Formula with the number of key points as {points}."""
MAX_CORRECTNESS = 3
_SUMMARY = re.compile(re.escape(SUMMARY_FORMULA).replace(r"\{points\}", r"(\d{1,6})"))
_FENCE = "```"


class SummaryScores(NamedTuple):
    """Scores of a summary. ``f1`` includes the fluency."""

    fluency: float
    recall: float
    precision: float
    f1: float


def is_formula(pattern: str) -> bool:
    return pattern == ANSWER_FORMULA or _SUMMARY.fullmatch(pattern) is not None


def rate(formula: str, text: str) -> float | None:
    """Rate an answer by a formula, or return None if a field is missing or outside of the scale.

    Args:
        text: the judge's reply, or for a summary, the three replies as a JSON list.
    """
    if not (summary := _SUMMARY.fullmatch(formula)):
        return answer_score(text)
    replies = _parse_json(text)
    if not isinstance(replies, list) or len(replies) != 3 or not all(isinstance(reply, str) for reply in replies):
        return None
    scores = summary_scores(replies, int(summary[1]))
    return None if scores is None else scores.f1


def answer_score(reply: str) -> float | None:
    """Fluency times correctness, 0 to 3, or None without a valid object."""
    fields = last_object(reply)
    fluency, correctness = _number(fields, "fluency", 1), _number(fields, "correctness", MAX_CORRECTNESS)
    return None if fluency is None or correctness is None else fluency * correctness


def summary_scores(replies: Sequence[str], points: int) -> SummaryScores | None:
    """Scores from the replies on fluency, recall and precision, or None if one has no valid object.

    Args:
        points: number of key points.
    """
    objects = [last_object(reply, has_block=True) for reply in replies]
    fluency = _number(objects[0], "fluency", 1)
    found = _number(objects[1], "recall", math.inf)
    sentences = _number(objects[2], "sentence_count", math.inf)
    supported = _number(objects[2], "precision", sentences or math.inf)
    if fluency is None or found is None or sentences is None or supported is None:
        return None
    recall = found / points if points > 0 else 0.0
    precision = supported / sentences if sentences > 0 else 0.0
    f1 = fluency * 2 * (recall * precision) / (recall + precision) if recall + precision > 0 else 0.0
    return SummaryScores(fluency, recall, precision, f1)


def last_object(text: str, *, has_block: bool = False) -> dict[str, Any] | None:
    """Last JSON object without inner objects, or None if that text is not valid.

    Args:
        has_block: whether a block "```json" counts instead if the text is not valid.
    """
    last, at = "", 0
    while (start := text.find("{", at)) >= 0 and (end := text.find("}", start)) >= 0:
        last, at = text[start : end + 1], end + 1
    fields = _parse_json(last)
    if last and fields is None and has_block:
        _, _, block = text.partition(f"{_FENCE}json")
        fields = _parse_json(block.rpartition(_FENCE)[0])
    return fields if isinstance(fields, dict) else None


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _number(fields: dict[str, Any] | None, name: str, maximum: float) -> float | None:
    value = None if fields is None else fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value <= min(maximum, _MAX_COUNT) else None


_MAX_COUNT = 1_000_000
"""Bound of counts in replies, so that no ratio overflows."""
