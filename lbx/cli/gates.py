"""Command ``lbx check``."""

from __future__ import annotations

import json
import math

import typer

from lbx.base.columns import Column
from lbx.base.errors import UsageError
from lbx.base.exit_codes import ExitCode
from lbx.cli.command_builder import split_names
from lbx.cli.output import answer, answer_json
from lbx.cli.read_options import CheckOptions
from lbx.cli.table_output import show_table
from lbx.options.option import parse_key_values
from lbx.report.format.table_cells import cells
from lbx.report.gates import CheckedRun, GateVerdict, check_run
from lbx.report.query import ALL, ReportQuery
from lbx.report.report import Report
from lbx.results import Table
from lbx.results.scoring.reading import open_with_numbers

_EXIT_CODES = {GateVerdict.FAILED: ExitCode.FAILED, GateVerdict.UNDECIDED: ExitCode.UNDECIDED}


def check(options: CheckOptions) -> None:
    """Carry out ``lbx check``."""
    texts = parse_key_values("--at-least", options.at_least, "leval/tpo=45")
    least_scores = {name: _percent(name, text) for name, text in texts.items()}
    if len(least_scores) < len(options.at_least):
        raise UsageError("--at-least names a task twice.", fix="Give each task once.")
    if not least_scores and not options.not_worse_than:
        raise UsageError("There is nothing to check.", fix="Pass --at-least TASK=SCORE or --not-worse-than RUN.")
    for option, value in (("--margin", options.margin), ("--tasks", options.tasks)):
        if value and not options.not_worse_than:
            raise UsageError(f"{option} needs --not-worse-than RUN.")
    query = ReportQuery(
        tasks=split_names("--tasks", options.tasks),
        margin=ALL.margin if options.margin is None else options.margin,
        baseline_file=options.baseline_file,
        allow_different_settings=options.allow_different_settings,
    )
    others = [options.baseline_file] if options.baseline_file else []
    with open_with_numbers(options.results, allowed_files=others) as store:
        outcome = check_run(store, options.run, least_scores, options.not_worse_than, query)
    _show(outcome, as_json=options.as_json)
    if outcome.verdict in _EXIT_CODES:
        raise typer.Exit(_EXIT_CODES[outcome.verdict])


def _percent(name: str, text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not (score == 0 or 1 <= score <= 100):
        raise UsageError(
            f"--at-least {name}={text}: the score must be in percent: 0, or from 1 to 100.",
            fix=f"For example: {name}=45.",
        )
    return score


def _show(outcome: CheckedRun, *, as_json: bool) -> None:
    if as_json:
        conditions = [condition.to_json() for condition in outcome.conditions]
        answer_json(json.dumps({"run": outcome.run, "verdict": outcome.verdict, "conditions": conditions}))
        return
    rows = [
        (
            one.task, one.condition, one.n, one.clusters, *(x and x / 100 for x in (one.value, one.low, one.high)),
            one.verdict, one.reason or None,
        )
        for one in outcome.conditions
    ]  # fmt: skip
    names = ["task", "condition", "n", "clusters", "value", "low", "high", "verdict", "reason"]
    show_table(outcome.run, cells(Report("", outcome.run, _COLUMNS), Table(names, rows)))
    answer("Scores in percent and differences in points are followed by 90% intervals.")
    for caution in dict.fromkeys(condition.caution for condition in outcome.conditions if condition.caution):
        answer(f"Caution: {caution}.")
    answer(outcome.verdict.capitalize())


_COLUMNS = (
    Column("task", "task"),
    Column("condition", "condition"),
    Column("n", "samples", "count"),
    Column("clusters", "documents", "count"),
    Column("value", "score or difference", "percent", interval=True, decimals=2),
    Column("verdict", "verdict"),
    Column("reason", "reason", optional=True),
)
