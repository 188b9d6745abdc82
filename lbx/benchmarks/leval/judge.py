"""L-Eval's judge, GPT-4: its rubric, its win rates of published answers, and the files of answers for it.

The rubric is from Evaluation/llm_eval.py (cd34b05), which is in the bundle; lbx ships none of it. The script is
parsed and never run: its texts are in a dict next to values that are not literals. The judge reads the question, the
reference and two answers, and never the document; temperature 0, at most 2,048 new tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lbx.base.layout import FILES, Bundle
from lbx.base.records import Sample
from lbx.benchmarks.base.files import damaged_file_error, read_text
from lbx.benchmarks.base.judge_marks import HUMAN, LLM, MARKS
from lbx.benchmarks.base.literals import texts_of_keys
from lbx.benchmarks.base.prediction_lines import PredictionLine
from lbx.benchmarks.base.rubric import FIRST, PAIR, SECOND, TIE, Rubric
from lbx.benchmarks.base.templates import template_fields
from lbx.benchmarks.leval.tasks import BASELINE, NAME

BENCHMARK = NAME
TITLE, JUDGE = "L-Eval", "GPT-4"
SCRIPT = "OpenLMLab/LEval/Evaluation/llm_eval.py"
JUDGEMENT_FORMAT = "leval_judge"
VERDICTS = (("[[A]]", FIRST), ("[[B]]", SECOND), ("[[C]]", TIE))
"""Verdicts in the order that the script searches for them."""
ANSWER_FILES: Mapping[str, tuple[str, ...]] = {
    "llm_gpt4_eval": (LLM,),
    "human_eval": (HUMAN,),
    "llm_turbo_eval": MARKS,
}
"""Folders of files with answers for a judge, and the marks of their questions."""

WIN_RATES = {"claude-100k": 60.94, "gpt4-32k": 54.16, "llama2-13b-chat-4k": 42.44}
"""The judge's win rates of published answers against the baseline's, in percent: figs/overall.png, cd34b05."""
ORDERED = (("claude-100k", "llama2-13b-chat-4k"), ("gpt4-32k", "llama2-13b-chat-4k"))
"""(better, worse). Claude and GPT-4-32k have no known order: both win rates are in the other's interval."""
COMPARED_QUESTIONS, COMPARED_MARK = 96, LLM
"""Number and mark of each model's questions that were compared."""

PUBLISHED = "published-"
"""Prefix of the runs of published answers."""
_PUBLISHED_FOLDERS = {True: "OpenLMLab/LEval/Predictions", False: "OpenLMLab/LEval-cd1cfc3/Predictions"}
_ENDING = ".pred.jsonl"
_KEYS = ("system_prompt", "prompt_template", "output_format")
_FIELDS = {"question": "question", "ref_answer": "reference", "answer_a": "a", "answer_b": "b"}


def published_run_id(model: str, *, length_hint: bool = True) -> str:
    """Return the id of a model's run of published answers; a length hint states the reference's number of words."""
    return f"{PUBLISHED}{model}" + ("" if length_hint else "-no-length-hint")


BASELINE_MODEL, BASELINE_RUN = BASELINE, published_run_id(BASELINE)
PUBLISHED_RUNS = {model: published_run_id(model) for model in WIN_RATES}


def published_files(bundle: Bundle, *, length_hint: bool) -> dict[str, list[str]]:
    """Return the bundle's files with each model's published answers: two, one for each mark, or one for both."""
    root = _PUBLISHED_FOLDERS[length_hint]
    folders: dict[str, list[str]] = {}
    for folder in ANSWER_FILES:
        for path in (bundle.root / FILES / root / folder).glob(f"*{_ENDING}"):
            folders.setdefault(path.name.removesuffix(_ENDING), []).append(folder)
    *halves, _ = ANSWER_FILES
    return {
        model: [
            f"{root}/{folder}/{model}{_ENDING}"
            for folder in (halves if {*halves} <= {*model_folders} else model_folders[-1:])
        ]
        for model, model_folders in sorted(folders.items())
    }


def parse_rubric(path: Path) -> Rubric:
    """Parse the script's rubric.

    Raises:
        BundleError: the file differs from the supported version.
    """
    location = str(path)
    system, template, form = texts_of_keys(read_text(path), location, "judge_prompts", _KEYS).values()
    if form != VERDICTS[0][0]:
        raise damaged_file_error(location, f"its judge's verdict format is {form!r} instead of {VERDICTS[0][0]!r}")
    return Rubric(NAME, PAIR, system, _convert_fields(template, location), VERDICTS, source=SCRIPT)


def _convert_fields(template: str, location: str) -> str:
    try:
        pieces = list(template_fields(template))
    except ValueError as exc:
        raise damaged_file_error(location, f"its judge's prompt is not a valid template: {exc}") from exc
    if {name for _, name in pieces if name is not None} != set(_FIELDS):
        raise damaged_file_error(location, f"the fields of its judge's prompt differ from {', '.join(_FIELDS)}")
    literal = (text.replace("{", "{{").replace("}", "}}") for text, _ in pieces)
    return "".join(
        text + (f"{{{_FIELDS[name]}}}" if name else "") for text, (_, name) in zip(literal, pieces, strict=True)
    )


def answer_row(model: str, sample: Sample, mark: str, prompt: str, output: str) -> dict[str, Any]:
    """Return an answer as a row of ``ANSWER_FILES``, for a judge or for people."""
    row = {"query": sample.question, "gt": sample.references[0], "prompt": prompt}
    return {**row, f"{model}_pred": output, "evaluation": mark}


def settings_of_rows(lines: Sequence[PredictionLine]) -> dict[str, Any]:
    """Detect run settings in rows of ``answer_row``.

    There is no length hint if no prompt has its reference's number of words.
    """
    prompts = [(line.values.get("prompt"), line.values.get("gt")) for line in lines]
    unknown = any(
        not isinstance(prompt, str) or re.search(rf"(?<!\d){len(str(gt).split())}(?!\d)", prompt)
        for prompt, gt in prompts
    )
    return {} if unknown else {"length_hint": False}
