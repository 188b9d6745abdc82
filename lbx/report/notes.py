"""Sentences below tables that their rows call for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lbx.base.units import counted

if TYPE_CHECKING:  # the command line asks for reports' names, and is not to load DuckDB
    from lbx.store import Table


def leaderboard(made: Table) -> list[str]:
    """What missing answers leave open, and what places are."""
    notes = [
        f"{row.get('label') or row['model']}, {row['benchmark']}: {row['answered']:,} of {row['asked']:,} samples "
        f"answered; with the others all wrong or all right the score is {100 * row['failed_as_0']:.1f} to "
        f"{100 * row['failed_as_1']:.1f}."
        for row in made.dicts()
        if None not in (row["answered"], row["asked"], row["failed_as_0"], row["failed_as_1"])
        and row["answered"] < row["asked"]
    ]
    if any(row.get("place") for row in made.dicts()):
        notes.append("A place is a range where other runs are not significantly better or worse (Holm, 5%).")
    return notes


def board(made: Table, further: str) -> list[str]:
    """What the intervals of a board's numbers are, and the board's own note."""
    from lbx.report.cells import interval_notes

    lows = [at for at, name in enumerate(made.columns) if name.endswith("_low")]
    by = made.columns.index("cluster_by") if lows else 0
    bounds = [(next((row[at] for at in lows if row[at] is not None), None), row[by]) for row in made.rows]
    intervals = interval_notes(replace(made, columns=["low", "cluster_by"], rows=bounds)) if lows else []
    return [*intervals, *filter(None, [further])]


def comparison(made: Table) -> list[str]:
    """Which tests are corrected for what, and what of the runs is not alike or not known."""
    rows = made.dicts()
    pairs = {(row["run_a"], row["run_b"]) for row in rows}
    texts = (
        "A benchmark's average is one test, uncorrected" if len(pairs) == 1 else "Averages are corrected for the pairs"
    )
    lines = [
        "Samples are paired, each with the mean of its answers. "
        f"{texts}; tasks and groups are corrected for their number (Holm). Verdicts are at the 5% level."
    ]
    return [*lines, *changes(made)]


def changes(made: Table) -> list[str]:
    """What of the runs is not alike or not known."""
    return [f"Caution: {text}." for text in dict.fromkeys(row["caution"] for row in made.dicts()) if text]


def truncation_effect(made: Table) -> list[str]:
    """What the lines can say, and what they cannot."""
    parts = {row["prompts"] for row in made.dicts()}
    notes = []
    if "whole less cut, unpaired" in parts:
        notes.append("The cut prompts are the longer ones: whole less cut is not due to the cut alone.")
    if "second less first, paired" in parts:
        notes.append("Pairs: the run's score less that of the run against, on samples whose prompt neither cut.")
    return notes


def effective_context(made: Table) -> list[str]:
    """What is kept of what, and which tasks are compared."""
    rows = made.dicts()
    notes = [
        f"Effective: the longest length at which it and all shorter ones have {rule}; retained and lost: by each "
        "length's 95% interval. Compared are lengths with 30 samples, on tasks that have 10 at each of them."
        for rule in dict.fromkeys(row["rule"] for row in rows)
    ]
    if any(row["why"] for row in rows):
        notes.append(
            "No length is claimed of which more than 5% of the prompts were cut, or may have been, and none whose "
            "score is not significantly above guessing (where that is less, above 10)."
        )
    for row in rows:
        where = f"{row['benchmark']}, {row['length_unit']}"
        left = f"; left out, with fewer at some length: {row['left_out']}" if row["left_out"] else ""
        notes.append(
            f"{where}: {row['task_names']}{left}."
            if row["tasks"]
            else f"{where}: no two lengths can be compared on the same tasks."
        )
    return list(dict.fromkeys(notes))


def guards(made: Table) -> list[str]:
    """What the rates are of."""
    sure = any(value is not None for row in made.dicts() for name, value in row.items() if name.endswith("_low"))
    return ["Beside rates stand 95% intervals. JSON and csv have counts, too."] if sure else []


def cost(made: Table) -> list[str]:
    """What can be compared, and what cannot."""
    rows, notes = made.dicts(), []
    if any(row["unbeaten"] is not None for row in rows):
        notes.append(
            "Unbeaten: no other run on the same tasks scores as much in fewer seconds an answer. Seconds on different "
            "hardware are no comparison."
        )
    if any(row["benchmark"] == "judge" for row in rows):
        notes.append("A judge has no score, so a correct answer has no price.")
    if untimed := {row["run_id"] for row in rows if row["untimed_sessions"]}:
        notes.append(f"Of {len(untimed):,} runs hours are a lower bound: a session was killed or is still running.")
    return notes


def judge_results(made: Table) -> list[str]:
    """Which judges are not to be believed, and why."""
    rows = made.dicts()
    notes = list(dict.fromkeys(f"{row['label_judge']} is {row['fitness']}: {row['why']}." for row in rows))
    if any(row["same_family"] for row in rows):
        notes.append(
            "Same family: the judge has the judged model's architecture and tokenizer, and may prefer its own."
        )
    if any(row["many_errors"] for row in rows):
        notes.append("Many errors: more than 5% of the rounds hold no verdict; no win rate and no mean counts them.")
    cut: dict[tuple[object, ...], int] = {}
    for row in rows:  # a judge's rows of a run: their sum, then its tasks and marks
        key = tuple(row[name] for name in ("judge_id", "benchmark", "run_id", "against_run_id"))
        cut[key] = max(row["n_cut"], cut.get(key, 0))
    if total := sum(cut.values()):
        notes.append(
            f"{counted(total, 'text reached its', 'texts reached their')} token limit before a verdict. "
            "Ask for the verdict alone, or allow more: max_new_tokens of a rubric, --max-new-tokens."
        )
    if any(row["win_rate_agreeing"] is not None for row in rows):
        notes.append("Both orders agreeing: a win only where both orders say so, everything else a tie.")
    return notes


def judge_bias(made: Table) -> list[str]:
    """What is tested."""
    return [
        "p tests for no preference: each question counts for the side that won more of its rounds (exact sign test). "
        "A judge that looks only at the answers is consistent and has the first win half of the time."
    ]


def agreement(made: Table) -> list[str]:
    """What was compared how."""
    rows = made.dicts()
    notes = ["Beside alpha (Krippendorff's) stand 95% intervals of a bootstrap over documents."]
    if any(row["kind"] == "score" for row in rows):
        notes.append(
            "For scores, kappa weighs disagreements by the square of their distance, and alpha takes them as ranks."
        )
    if any(row["between"] == "judge and people" for row in rows):
        notes.append(
            "A judge's verdict on a question is the one of both orders, else a tie; people's is the majority's."
        )
    return notes
