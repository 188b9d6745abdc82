"""L-Eval's leaderboard: tables with a row a model, as a submission has to have them.

Source: "How to Submit" in README.md of
https://github.com/OpenLMLab/LEval/tree/cd34b050269148aed75acbbe4a599873ad0f37e9; the files are named as in Leaderboard/
of 2a14858bd40de8be863010de3a09c4ee120c14bf. No script writes them: auto_eval.py prints a task's number, which stands
here with two decimals.

Two more hold what judges made of it against turbo and Claude, three columns for each judge.

``Length`` is the mean number of words of the answers. What a run's settings do not tell is its metadata's, by the
column's name; keys that are no column become one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from lbx.base.records import GroupScore, TaskScore
from lbx.benchmarks.base.predictions import file_part
from lbx.benchmarks.base.results import Judged, ScoredRun, table
from lbx.benchmarks.leval.judge import published_run_id
from lbx.benchmarks.leval.tasks import BASELINE, KINDS

_OF_METADATA = ("Max-Ctx", "Tokens", "Ret.", "PE", "IDD", "Chunking")
_OTHER_NAMES = {"context length": "Max-Ctx", "retrieval": "Ret.", "in-domain data": "IDD", "prompt engineering": "PE"}
_ROUGE = ("rouge1", "rouge2", "rougeL")
_TABLES: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "exam": ("Avg", "closed", "", ("exact_match",)),
    "f1": ("F1 avg", "open", "f1", ("f1",)),
    "rouge": ("ROUGE avg", "open", "rouge", _ROUGE),
}
"""{file: (its average's column, the grouping of that average, the kind of its tasks, metrics of a cell)}."""
_AGAINST = {
    "llm": (published_run_id(BASELINE), "turbo16k"),
    "vsClaude": (published_run_id("claude-100k"), "Claude100k"),
}
"""{file: (whose answers a run was compared with, by either protocol, and what the table calls them)}."""


def result_files(
    run: ScoredRun, numbers: Mapping[str, Mapping[str, TaskScore]], groups: Sequence[GroupScore]
) -> dict[str, str]:
    """The tables of which the run has a task.

    Args:
        numbers: task -> metric -> its number.
        groups: the averages.
    """
    averages = {(one.grouping, one.metric): one.official for one in groups}
    rows = {
        name: _row(run, name, numbers, averages) for name in _TABLES if any(task in numbers for task in _tasks(name))
    }
    for name, (opponent, called) in _AGAINST.items():
        if judged := [one for one in run.judged if one.against_run_id.removesuffix("-no-length-hint") == opponent]:
            rows[name] = _judged_row(run, judged, called)
    return {f"{name}_LEval_leaderboard.csv": table([row]) for name, row in rows.items()}


def _judged_row(run: ScoredRun, judged: Sequence[Judged], called: str) -> dict[str, str]:
    row = {"Model": file_part(run.model)}
    for one in judged:
        rate = "" if one.win_rate is None else f"{100 * one.win_rate:.2f}"
        cells = {"n_wins": str(one.n_wins), "n_draws": str(one.n_draws), f"win % vs {called}": rate}
        row |= {f"[{one.judge}] {column}": value for column, value in cells.items()}
    return row | columns_told(run.settings, run.metadata, made=run.made)


def _tasks(name: str) -> list[str]:
    wanted = _TABLES[name][2]
    return [task for task, kind in KINDS.items() if (kind if kind in ("f1", "rouge") else "") == wanted]


def _row(
    run: ScoredRun,
    name: str,
    numbers: Mapping[str, Mapping[str, TaskScore]],
    averages: Mapping[tuple[str, str], float | None],
) -> dict[str, str]:
    average, grouping, kind, metrics = _TABLES[name]
    row = {"Model": file_part(run.model)}
    for task in _tasks(name):
        results = numbers.get(task, {})
        row[task] = _cell([results[metric].official if metric in results else None for metric in metrics])
    row[average] = _cell([averages.get((grouping, metric)) for metric in metrics])
    if kind:
        words = [len(line.output.split()) for line in run.lines if line.scored.sample.task in _tasks(name)]
        row["Length"] = f"{fmean(words):.2f}"
    return row | columns_told(run.settings, run.metadata, made=run.made)


def _cell(figures: Sequence[float | None]) -> str:
    """ "45.36", or "45.90/15.60/23.64"; "" where one is missing."""
    return "/".join(f"{figure:.2f}" for figure in figures if figure is not None) if None not in figures else ""


def columns_told(settings: Mapping[str, Any], metadata: Mapping[str, str], *, made: bool) -> dict[str, str]:
    """The columns on how a model was asked: as a run's settings say, if it was made here, and as its metadata does."""
    known = {"Max-Ctx": settings.get("context_window"), "Tokens": settings.get("max_prompt_tokens")} if made else {}
    if made:
        known["Ret."] = "yes" if settings.get("rag") else "no"
    columns = {name.casefold(): name for name in _OF_METADATA} | _OTHER_NAMES
    renamed = {columns.get(key.casefold(), key): value for key, value in metadata.items()}
    return {name: "" if (value := known.get(name)) is None else str(value) for name in _OF_METADATA} | renamed
