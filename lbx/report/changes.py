"""The report ``changes``: the answers behind a comparison, largest difference first, then those that score alike."""

from __future__ import annotations

from lbx.base.marks import WORST_FIRST
from lbx.report.pairs import chosen_pairs, runs_unlike
from lbx.report.shapes import ReportQuery
from lbx.store import Store, Table
from lbx.store.answers import tasks_named
from lbx.store.views import HEADS


def table(store: Store, query: ReportQuery) -> Table:
    """Answers that two runs score or word differently, with question, references, both outputs, and in each row what
    else the runs are known to differ in.

    Raises:
        UsageError: there is no such run, or no such task; without a baseline there are too many runs.
    """
    pairs, tasks = chosen_pairs(store, query), tasks_named(store, query.tasks)
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
        shown AS MATERIALIZED (  -- by numbers alone: texts are read of these rows only
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
    unlike = runs_unlike(store)
    cautions = {(a, b): "; ".join(unlike(a, b)) or None for a, b in pairs}
    return Table([*answers.columns, "caution"], [(*row, cautions[row[0], row[1]]) for row in answers.rows])


def _flags(row: str) -> str:
    """What marks an answer, in words; NULL for nothing."""
    marks = (f"CASE WHEN {mark.of(row)} THEN '{mark.words}' END" for mark in WORST_FIRST if not mark.of_score)
    return f"nullif(concat_ws(', ', {', '.join(marks)}), '')"
