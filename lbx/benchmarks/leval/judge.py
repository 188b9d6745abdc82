"""L-Eval's judge, GPT-4: the rubric, files of judgements and of answers for it, published answers.

The rubric is that of Evaluation/llm_eval.py (cd34b05), which a bundle brings along; lbx ships none of it. The script is
parsed and never run: both texts stand in a dict beside what is no literal. Its judge reads the question, the reference
and two answers, and never the document; temperature 0, at most 2,048 new tokens.

The rows that it writes are those of FastChat, whose code it took over, without names of models: a winner is a name,
"tie" or "error", and "judge" a text. Behind its rows it writes its numbers as plain lines, and a second run of it
behind those.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lbx.base.layout import FILES, Bundle
from lbx.base.records import Sample
from lbx.benchmarks.base.files import damaged, read_text
from lbx.benchmarks.base.judge_files import (
    ERROR,
    VERDICTS,
    WINNERS,
    JudgedPair,
    JudgeForm,
    Shown,
    asked,
    checked,
    lines_of,
    row_of,
    text_of,
    winner_in,
    winning_names,
)
from lbx.benchmarks.base.judged_by import HUMAN, LLM, MARKS
from lbx.benchmarks.base.literals import texts_of_keys
from lbx.benchmarks.base.official_judge import OfficialJudge
from lbx.benchmarks.base.prediction_lines import Content, PredictionLine, split, wrong
from lbx.benchmarks.base.rubric import PAIR, TIE, Rubric
from lbx.benchmarks.base.templates import template_fields
from lbx.benchmarks.leval.tasks import BASELINE, NAME, judged_samples

SCRIPT = "OpenLMLab/LEval/Evaluation/llm_eval.py"

_KEYS = ("system_prompt", "prompt_template", "output_format")
_FIELDS = {"question": "question", "ref_answer": "reference", "answer_a": "a", "answer_b": "b"}
_NUMBERS = re.compile(r"n_draws = (\d+) n_error = (\d+)|win rate of (.*) = (\d+(?:\.\d+)?(?:e-\d+)?)")
_FILE_ENDING = re.compile(r"(\.pred)?(\.judge)?(\.jsonl)?$")
_PUBLISHED = {True: "OpenLMLab/LEval/Predictions", False: "OpenLMLab/LEval-cd1cfc3/Predictions"}
_ENDING = ".pred.jsonl"
_FILES: Mapping[str, tuple[str, ...]] = {
    "llm_gpt4_eval": (LLM,),
    "human_eval": (HUMAN,),
    "llm_turbo_eval": MARKS,
}


def official_rubric(path: Path) -> Rubric:
    """The script's rubric.

    Raises:
        BundleError: the file is not the one that lbx was written for.
    """
    where = str(path)
    system, template, form = texts_of_keys(read_text(path), where, "judge_prompts", _KEYS).values()
    if form != VERDICTS[0][0]:
        raise damaged(where, f"its judge's verdicts are read as {form!r}, not as {VERDICTS[0][0]!r}")
    return Rubric(NAME, PAIR, system, _our_names(template, where), VERDICTS, source=SCRIPT)


def _our_names(template: str, where: str) -> str:
    """The template with our names of its fields, each of which it has."""
    try:
        pieces = list(template_fields(template))
    except ValueError as exc:
        raise damaged(where, f"its judge's prompt is no template: {exc}") from exc
    if {name for _, name in pieces if name is not None} != set(_FIELDS):
        raise damaged(where, f"its judge's prompt has other fields than {', '.join(_FIELDS)}")
    literal = (text.replace("{", "{{").replace("}", "}}") for text, _ in pieces)
    return "".join(
        text + (f"{{{_FIELDS[name]}}}" if name else "") for text, (_, name) in zip(literal, pieces, strict=True)
    )


class LEvalJudgeForm(JudgeForm):
    """The form "leval_judge"."""

    name = "leval_judge"
    benchmark = NAME
    by_rubric = True
    taken_for = b""

    def content(self, path: Path, data: bytes) -> Content:
        return split(path, data, plain=_NUMBERS.fullmatch)

    def rows(self, path: Path, lines: Sequence[PredictionLine]) -> list[JudgedPair]:
        return _leval_rows(path, lines)

    def understood(self, rows: Sequence[JudgedPair], bundle: Bundle | None) -> tuple[Rubric, Sequence[Shown | None]]:
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
            verdicts = [asked(words, names, row.prompts) for row in rows]
            if all(verdicts):
                return official, verdicts
        return JudgeForm.understood(self, rows, bundle)

    def pair(
        self, judge: str, names: tuple[str, str], prompts: tuple[str, str], outputs: tuple[str, str], at: float
    ) -> JudgedPair:
        winners = winner_in(outputs[0], first=0), winner_in(outputs[1], first=1)
        names_of_winners = [names[winner] if isinstance(winner, int) else winner for winner in winners]
        row = {
            "g1_winner": names_of_winners[0],
            "g2_winner": names_of_winners[1],
            "judge": judge,
            "g1_user_prompt": prompts[0],
        }
        row |= {"g1_judgment": outputs[0], "g2_user_prompt": prompts[1], "g2_judgment": outputs[1]}
        line = PredictionLine("", 0, json.dumps({**row, "tstamp": at}), row)
        return JudgedPair(line, judge, prompts, outputs, winners, names)

    def attempts(self, rows: list[JudgedPair]) -> list[list[JudgedPair]]:
        return [part for segment in _segments(rows) for part in _attempts(segment)]


def _leval_rows(path: Path, lines: Sequence[PredictionLine]) -> list[JudgedPair]:
    rows = [row_of(line, line.text("judge")) for line in lines]
    winners: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for row in rows:
        for key, winner in zip(WINNERS, row.winners, strict=True):
            if isinstance(winner, int) and (verdict := text_of(row.line, key)) not in (TIE, ERROR):
                winners[winner].setdefault(verdict, row.line.where)
    for several in winners:
        if len(several) > 1:
            (first, place), (second, other) = list(several.items())[:2]
            why = f"{second!r} wins where {first!r} does in {place.rpartition(', ')[2]}: a file is about two models"
            raise wrong(other, why)
    # A model that never wins is named nowhere in the file, but the judged one is in its name.
    judged, against = (next(iter(several), "") for several in winners)
    names = judged or _FILE_ENDING.sub("", path.name) or "judged", against or "baseline"
    return [checked(replace(row, names=names), names) for row in rows]


def _segments(rows: Iterable[JudgedPair]) -> list[list[JudgedPair]]:
    """The rows up to each place where the script wrote its numbers."""
    segments: list[list[JudgedPair]] = [[]]
    for row in rows:
        segments[-1].append(row)
        if _numbers_behind(row):
            segments.append([])
    return [rows for rows in segments if rows]


def _numbers_behind(row: JudgedPair) -> list[re.Match[str]]:
    return [match for text in row.line.raw.splitlines() if (match := _NUMBERS.fullmatch(text.strip()))]


def _attempts(rows: list[JudgedPair]) -> list[list[JudgedPair]]:
    """The script numbers what it judged since its start: rows before are of one that was killed, and began alike."""
    numbers = {match[0] for match in _numbers_behind(rows[-1])}
    begin, counts = 0, Counter({TIE: 0, ERROR: 0})
    for place in reversed(range(len(rows)) if numbers else ()):
        counts.update(winning_names(rows[place]))
        if rows[place].prompts == rows[0].prompts and numbers <= set(lines_of(counts)):
            begin = place
    return [part for part in (rows[:begin], rows[begin:]) if part]


def _published(bundle: Bundle, length_hint: bool) -> dict[str, list[str]]:
    """Of a model in two files, one for each mark, or in one for both."""
    root = _PUBLISHED[length_hint]
    folders: dict[str, list[str]] = {}
    for folder in _FILES:
        for path in (bundle.root / FILES / root / folder).glob(f"*{_ENDING}"):
            folders.setdefault(path.name.removesuffix(_ENDING), []).append(folder)
    *halves, _ = _FILES
    return {
        name: [f"{root}/{folder}/{name}{_ENDING}" for folder in (halves if {*halves} <= {*held} else held[-1:])]
        for name, held in sorted(folders.items())
    }


def _settings_of(lines: Sequence[PredictionLine]) -> dict[str, Any]:
    """That no prompt says how many words its reference has, where every row has one."""
    prompts = [(line.values.get("prompt"), line.values.get("gt")) for line in lines]
    swapped = any(
        not isinstance(prompt, str) or re.search(rf"(?<!\d){len(str(gt).split())}(?!\d)", prompt)
        for prompt, gt in prompts
    )
    return {} if swapped else {"length_hint": False}


def _row(model: str, sample: Sample, mark: str, prompt: str, output: str) -> dict[str, Any]:
    row = {"query": sample.question, "gt": sample.references[0], "prompt": prompt}
    return {**row, f"{model}_pred": output, "evaluation": mark}


JUDGE = OfficialJudge(
    benchmark=NAME,
    title="L-Eval",
    name="GPT-4",
    source=SCRIPT,
    baseline=BASELINE,
    win_rates={"claude-100k": 60.94, "gpt4-32k": 54.16, "llama2-13b-chat-4k": 42.44},
    ordered=(("claude-100k", "llama2-13b-chat-4k"), ("gpt4-32k", "llama2-13b-chat-4k")),
    questions=96,
    mark=LLM,
    form=LEvalJudgeForm(),
    answer_files=_FILES,
    rubric=official_rubric,
    samples=judged_samples,
    published=_published,
    settings_of=_settings_of,
    row=_row,
)
"""The win rates are those of figs/overall.png of OpenLMLab/LEval, cd34b05. Of Claude and GPT-4-32k no order is known:
their win rates lie within one another's intervals.
"""
