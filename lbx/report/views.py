"""The reports by name: which view of the results file, which columns, in which order, shown how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lbx.errors import UsageError
from lbx.store import Store, Table


@dataclass(frozen=True, slots=True)
class Column:
    """One column as people see it.

    Attributes:
        name: in the view.
        heading: in the table.
        kind: "text", "count", "percent" (0..1 shown as 0..100), "points" (a difference of percents), "number".
    """

    name: str
    heading: str
    kind: str = "text"


@dataclass(frozen=True, slots=True)
class View:
    """One report. ``pivot`` names (column, value): one table column for each of the column's values."""

    title: str
    sql: str
    columns: Sequence[Column]
    pivot: tuple[str, Column] | None = None
    run_columns: Sequence[str] = ("run_id",)
    """The columns that ``--run`` filters by."""


_WHO = (Column("model", "model"), Column("backend", "backend"))
_TASK = (Column("benchmark", "benchmark"), Column("task", "task"))

VIEWS: dict[str, View] = {
    "leaderboard": View(
        "Leaderboard (mean of the tasks' headline scores, percent)",
        "SELECT * FROM leaderboard ORDER BY benchmark, score DESC NULLS LAST, model, backend, run_id",
        (
            *_WHO,
            Column("benchmark", "benchmark"),
            Column("tasks", "tasks", "count"),
            Column("n", "scored", "count"),
            Column("score", "score", "percent"),
            Column("failed", "failed", "count"),
            Column("truncated", "truncated", "count"),
            Column("status", "run"),
        ),
    ),
    "task_scores": View(
        "Scores by task (percent; official: as the benchmark's own script prints it)",
        "SELECT * FROM task_scores ORDER BY benchmark, task, position, metric, model, backend, run_id",
        (
            *_TASK,
            Column("metric", "metric"),
            *_WHO,
            Column("n", "scored", "count"),
            Column("score", "score", "percent"),
            Column("official", "official", "number"),
        ),
    ),
    "length_curve": View(
        "Score by length of the document (percent; a column holds lengths up to its heading)",
        "SELECT * FROM length_curve ORDER BY benchmark, task, model, backend, run_id, length_up_to",
        (*_TASK, Column("length_unit", "unit"), *_WHO),
        pivot=("length_up_to", Column("score", "score", "percent")),
    ),
    "truncation": View(
        "Truncation",
        "SELECT * FROM truncation ORDER BY benchmark, task, model, backend, run_id",
        (
            *_TASK,
            *_WHO,
            Column("n", "answered", "count"),
            Column("truncated", "prompts cut", "count"),
            Column("share", "share %", "percent"),
            Column("mean_tokens_cut", "tokens cut, mean", "count"),
            Column("longest_prompt", "longest prompt", "count"),
            Column("answers_cut", "answers at their limit", "count"),
        ),
    ),
    "failures": View(
        "Failed samples",
        "SELECT * FROM failures ORDER BY benchmark, task, sample_id, iteration, model, backend, run_id",
        (*_TASK, Column("sample_id", "sample"), *_WHO, Column("error", "error")),
    ),
    "comparison": View(
        "Runs side by side, on the samples that both answered (percent; points: second less first)",
        "SELECT * FROM comparison ORDER BY run_a, run_b, benchmark, task",
        (
            Column("run_a", "first run"),
            Column("run_b", "second run"),
            *_TASK,
            Column("n", "samples", "count"),
            Column("score_a", "first", "percent"),
            Column("score_b", "second", "percent"),
            Column("difference", "points", "points"),
            Column("same_outputs", "same outputs", "count"),
        ),
        run_columns=("run_a", "run_b"),
    ),
}


def read(store: Store, name: str, runs: Sequence[str] = ()) -> Table:
    """The rows of one view, of all runs or of those named.

    Raises:
        UsageError: there is no such run.
    """
    view = VIEWS[name]
    if not runs:
        return store.query(view.sql)
    known = [row[0] for row in store.query("SELECT run_id FROM runs ORDER BY ALL").rows]
    for run in runs:
        if run not in known:
            raise UsageError(f"There is no run {run!r} in {store.path}.", fix=f"Its runs are: {', '.join(known)}.")
    marks = ", ".join("?" for _ in runs)
    where = " AND ".join(f"{column} IN ({marks})" for column in view.run_columns)
    order = view.sql.index(" ORDER BY ")
    sql = f"{view.sql[:order]} WHERE {where}{view.sql[order:]}"
    return store.query(sql, [*runs] * len(view.run_columns))
