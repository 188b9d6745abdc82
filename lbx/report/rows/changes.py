"""The report ``changes``: answers that differ between two runs."""

from __future__ import annotations

from lbx.base.columns import Column
from lbx.base.marks import MARKS_BY_SEVERITY
from lbx.report.pairs import known_differences, select_pairs
from lbx.report.query import ReportQuery
from lbx.report.report import Report
from lbx.report.rows.comparison import cautions
from lbx.results import Store, Table
from lbx.results.read.stored_answers import resolve_tasks
from lbx.results.views import HEADS


def table(store: Store, query: ReportQuery) -> Table:
    """Build the report ``changes``: samples with different scores or outputs in two runs, with their questions.

    Each row also names the known differences between the runs.

    Raises:
        UsageError: a run or task does not exist, or there are too many runs without a baseline.
    """
    pairs, tasks = select_pairs(store, query), resolve_tasks(store, query.tasks)
    answers = store.query(
        f"""
        WITH pairs AS (SELECT unnest(?::VARCHAR[]) AS run_a, unnest(?::VARCHAR[]) AS run_b),
        heads AS ({HEADS.format(scores="scores")}),
        scored AS (FROM scores SEMI JOIN heads USING (run_id, benchmark, task, metric)),
        answers AS (
            SELECT run_id, benchmark, task, sample_id, iteration, score, metric, md5_number(output) AS output
            FROM generations JOIN scored USING (run_id, benchmark, task, sample_id, iteration)
            WHERE run_id IN (SELECT unnest([run_a, run_b]) FROM pairs)
                AND (len(?) = 0 OR list_contains(?::VARCHAR[], benchmark || '/' || task))
        ),
        shown AS MATERIALIZED (  -- without texts, which are read for these rows only
            SELECT run_a, run_b, x.benchmark, x.task, x.sample_id, x.iteration, x.score AS score_a, y.score AS score_b,
                   y.score - x.score AS difference
            FROM pairs
            JOIN answers x ON x.run_id = run_a
            JOIN answers y ON y.run_id = run_b AND (x.benchmark, x.task, x.sample_id, x.iteration, x.metric)
                                                 = (y.benchmark, y.task, y.sample_id, y.iteration, y.metric)
            WHERE x.score <> y.score OR x.output <> y.output
            ORDER BY abs(difference) DESC, run_a, run_b, x.benchmark, x.task, x.sample_id, x.iteration
            LIMIT ?
        )
        SELECT shown.*, s.question, s."references", a.output AS output_a, b.output AS output_b,
               {_flags("a")} AS flags_a, {_flags("b")} AS flags_b
        FROM shown
        JOIN generations a ON (a.run_id, a.benchmark, a.task, a.sample_id, a.iteration)
                            = (run_a, shown.benchmark, shown.task, shown.sample_id, shown.iteration)
        JOIN generations b ON (b.run_id, b.benchmark, b.task, b.sample_id, b.iteration)
                            = (run_b, shown.benchmark, shown.task, shown.sample_id, shown.iteration)
        LEFT JOIN samples s ON (s.benchmark, s.task, s.sample_id) = (shown.benchmark, shown.task, shown.sample_id)
        ORDER BY abs(difference) DESC, run_a, run_b, shown.benchmark, shown.task, shown.sample_id, shown.iteration
        """,  # noqa: S608 (our own names)
        [[a for a, _ in pairs], [b for _, b in pairs], tasks, tasks, query.limit],
    )
    unlike = known_differences(store, query)
    cautions = {(a, b): "; ".join(unlike(a, b)) or None for a, b in pairs}
    return Table([*answers.columns, "caution"], [(*row, cautions[row[0], row[1]]) for row in answers.rows])


def _flags(row: str) -> str:
    """SQL expression that joins the words for an answer's marks, NULL for an answer without marks."""
    marks = (
        f"CASE WHEN {mark.answer_test_sql(row)} THEN '{mark.label}' END"
        for mark in MARKS_BY_SEVERITY
        if not mark.tests_score
    )
    return f"nullif(concat_ws(', ', {', '.join(marks)}), '')"


CHANGES = Report(
    name="changes",
    title="Answers that differ between two runs: largest score difference first, then equal scores, different outputs",
    columns=(
        Column("run_a", "first run"),
        Column("run_b", "second run"),
        Column("benchmark", "benchmark"),
        Column("task", "task"),
        Column("sample_id", "sample"),
        Column("score_a", "first", "percent"),
        Column("score_b", "second", "percent"),
        Column("difference", "points", "points"),
        Column("question", "question", rank=3),
        Column("references", "references"),
        Column("output_a", "first output"),
        Column("output_b", "second output"),
        Column("flags_a", "first marks", optional=True, rank=1),
        Column("flags_b", "second marks", optional=True, rank=1),
    ),
    notes=cautions,
    empty="No two runs differ in an answer to a common sample.",
    takes=("--baseline", "--baseline-file", "--allow-different-settings", "--tasks", "--rows"),
    rows=table,
    needs_texts=True,
)
