"""Blocks of reasoning in imported answers, found without knowing the model or its marks."""

from __future__ import annotations

import re
from dataclasses import replace

from lbx.base.records import sha256_text
from lbx.benchmarks.base.predictions import PredictionFormat
from lbx.exchange.prediction_files import PredictionFiles
from lbx.prompting.control_tokens import KNOWN, Marks
from lbx.prompting.reasoning import opening_end, split_reasoning

_OPENING = re.compile(r"\s*(<([\w:-]{0,20}(?:think|thought|reason)[\w:-]{0,20})>)", re.IGNORECASE)
_MOST = 100
"""Blocks that are taken out of one answer."""


def split_blocks(text: str) -> tuple[str | None, str, bool | None]:
    """(reasoning, answer, whether the reasoning closed): the first block of a text, and those that begin where it ends,
    taken out of it; (None, text, None) without any."""
    blocks: list[str] = []
    closed, marks = None, _marks_in(text)
    while marks and len(blocks) < _MOST:
        closed = marks.close in text
        reasoning, text = split_reasoning(text, marks=marks)
        blocks.append(reasoning or "")
        marks = _opening(text)
    return ("\n\n".join(filter(None, blocks)), text, closed) if blocks else (None, text, None)


def count_blocks(reading: PredictionFiles) -> int:
    """How many answers hold a block."""
    return sum(_marks_in(prediction.output or "") is not None for prediction in reading.rows)


def strip_reasoning(form: PredictionFormat, reading: PredictionFiles) -> PredictionFiles:
    """The same predictions with their blocks as reasoning; another content, which makes another run.

    Raises:
        UsageError: an answer without its block cannot be scored.
    """
    tasks = {task: [form.apart(row, split_blocks) for row in rows] for task, rows in reading.tasks.items()}
    return replace(
        reading, tasks=tasks, content_sha256=sha256_text(f"{reading.content_sha256} without reasoning"), stripped=True
    )


def _marks_in(text: str) -> Marks | None:
    """The marks of the text's first block."""
    known = (marks for marks in KNOWN if split_reasoning(text, marks=marks)[0] is not None)
    return _opening(text) or next(known, None)


def _opening(text: str) -> Marks | None:
    """The marks of a block that the text begins with."""
    if opening := _OPENING.match(text):
        return Marks(opening[1], f"</{opening[2]}>")
    return next((marks for marks in KNOWN if opening_end(text, marks.open)), None)
