"""L-Eval's judge, GPT-4 by the rubric of ``lbx.benchmarks.leval.rubric``, and its raters: files, published answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lbx.base.layout import FILES, Bundle
from lbx.base.records import Sample
from lbx.benchmarks.base.marks import HUMAN, LLM, MARKS
from lbx.benchmarks.base.official_judge import OfficialJudge
from lbx.benchmarks.base.prediction_lines import PredictionLine
from lbx.benchmarks.base.rating_files import RatingForm
from lbx.benchmarks.leval.files import FORMAT, read
from lbx.benchmarks.leval.judge_lines import LEvalJudgeForm
from lbx.benchmarks.leval.rubric import NAME, SCRIPT, official_rubric
from lbx.benchmarks.leval.tasks import BASELINE

_PUBLISHED = {True: "OpenLMLab/LEval/Predictions", False: "OpenLMLab/LEval-cd1cfc3/Predictions"}
_ENDING = ".pred.jsonl"
_FILES: Mapping[str, tuple[str, ...]] = {
    "llm_gpt4_eval": (LLM,),
    "human_eval": (HUMAN,),
    "llm_turbo_eval": MARKS,
}


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
    told = any(
        not isinstance(prompt, str) or re.search(rf"(?<!\d){len(str(gt).split())}(?!\d)", prompt)
        for prompt, gt in prompts
    )
    return {} if told else {"length_hint": False}


def _row(model: str, sample: Sample, mark: str, prompt: str, output: str) -> dict[str, Any]:
    row = {"query": sample.question, "gt": sample.references[0], "prompt": prompt}
    return {**row, f"{model}_pred": output, "evaluation": mark}


def _ratings() -> tuple[Callable[..., Any], Callable[..., dict[str, str]]]:
    from lbx.benchmarks.leval.export import export_ratings
    from lbx.benchmarks.leval.ratings import import_ratings

    return import_ratings, export_ratings


JUDGE = OfficialJudge(
    benchmark=NAME,
    title="L-Eval",
    source=SCRIPT,
    baseline=BASELINE,
    form=LEvalJudgeForm(),
    answer_files=_FILES,
    rubric=official_rubric,
    published=_published,
    settings_of=_settings_of,
    row=_row,
)
RATINGS = RatingForm(FORMAT, read, _ratings)
