"""L-Eval's files of pairwise judgements: what Evaluation/llm_eval.py (cd34b05) writes.

Its rows are those of FastChat, whose code it took over, without names of models: a winner is a name, "tie" or "error",
and "judge" a text. Behind its rows it writes its numbers as plain lines, and a second run of it behind those.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from lbx.base.layout import Bundle
from lbx.benchmarks.base.judge_files import (
    ERROR,
    WINNERS,
    Asked,
    JudgedPair,
    JudgeForm,
    asked,
    checked,
    lines_of,
    row_of,
    text_of,
    winner_in,
    winning_names,
)
from lbx.benchmarks.base.prediction_lines import Content, PredictionLine, split, wrong
from lbx.benchmarks.base.rubric import TIE, Rubric
from lbx.benchmarks.base.templates import template_fields
from lbx.benchmarks.leval.rubric import NAME, SCRIPT, official_rubric

_NUMBERS = re.compile(r"n_draws = (\d+) n_error = (\d+)|win rate of (.*) = (\d+(?:\.\d+)?(?:e-\d+)?)")
_ENDING = re.compile(r"(\.pred)?(\.judge)?(\.jsonl)?$")


class LEvalJudgeForm(JudgeForm):
    """The form "leval_judge"."""

    name = "leval_judge"
    benchmark = NAME
    by_rubric = True

    def content(self, path: Path, data: bytes) -> Content:
        return split(path, data, plain=_NUMBERS.fullmatch)

    def rows(self, path: Path, lines: Sequence[PredictionLine]) -> list[JudgedPair]:
        return _leval_rows(path, lines)

    def understood(self, rows: Sequence[JudgedPair], bundle: Bundle | None) -> tuple[Rubric, Sequence[Asked | None]]:
        """The bundle's rubric where all prompts are made by it."""
        script = bundle.file(SCRIPT) if bundle else None
        if script is not None:
            official = official_rubric(script)
            words, names = [""], []
            for text, name in template_fields(official.user):
                words[-1] += text
                if name is not None:
                    names.append(name)
                    words.append("")
            told = [asked(words, names, row.prompts) for row in rows]
            if all(told):
                return official, told
        return JudgeForm.understood(self, rows, bundle)

    def pair(
        self, judge: str, names: tuple[str, str], prompts: tuple[str, str], said: tuple[str, str], at: float
    ) -> JudgedPair:
        """See ``JudgeForm.pair``."""
        winners = winner_in(said[0], first=0), winner_in(said[1], first=1)
        told = [names[winner] if isinstance(winner, int) else winner for winner in winners]
        row = {"g1_winner": told[0], "g2_winner": told[1], "judge": judge, "g1_user_prompt": prompts[0]}
        row |= {"g1_judgment": said[0], "g2_user_prompt": prompts[1], "g2_judgment": said[1]}
        line = PredictionLine("", 0, json.dumps({**row, "tstamp": at}), row)
        return JudgedPair(line, judge, prompts, said, winners, names)

    def attempts(self, rows: list[JudgedPair]) -> list[list[JudgedPair]]:
        return [part for segment in _segments(rows) for part in _attempts(segment)]


def _leval_rows(path: Path, lines: Sequence[PredictionLine]) -> list[JudgedPair]:
    rows = [row_of(line, line.text("judge")) for line in lines]
    winners: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for row in rows:
        for key, winner in zip(WINNERS, row.winners, strict=True):
            if isinstance(winner, int) and (said := text_of(row.line, key)) not in (TIE, ERROR):
                winners[winner].setdefault(said, row.line.where)
    for several in winners:
        if len(several) > 1:
            (first, place), (second, other) = list(several.items())[:2]
            why = f"{second!r} wins where {first!r} does in {place.rpartition(', ')[2]}: a file is about two models"
            raise wrong(other, why)
    # A model that never wins is named nowhere in the file, but the judged one is in its name.
    judged, against = (next(iter(several), "") for several in winners)
    names = judged or _ENDING.sub("", path.name) or "judged", against or "baseline"
    return [checked(replace(row, names=names), names) for row in rows]


def _segments(rows: Iterable[JudgedPair]) -> list[list[JudgedPair]]:
    """The rows up to each place where the script wrote its numbers."""
    found: list[list[JudgedPair]] = [[]]
    for row in rows:
        found[-1].append(row)
        if _numbers_behind(row):
            found.append([])
    return [rows for rows in found if rows]


def _numbers_behind(row: JudgedPair) -> list[re.Match[str]]:
    return [match for text in row.line.raw.splitlines() if (match := _NUMBERS.fullmatch(text.strip()))]


def _attempts(rows: list[JudgedPair]) -> list[list[JudgedPair]]:
    """The script numbers what it judged since its start: rows before are of one that was killed, and began alike."""
    told = {match[0] for match in _numbers_behind(rows[-1])}
    begin, counts = 0, Counter({TIE: 0, ERROR: 0})
    for place in reversed(range(len(rows)) if told else ()):
        counts.update(winning_names(rows[place]))
        if rows[place].prompts == rows[0].prompts and told <= set(lines_of(counts)):
            begin = place
    return [part for part in (rows[:begin], rows[begin:]) if part]
