"""The report ``flips``: answers with different scores in two runs, by depth of the evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lbx.base.columns import Column
from lbx.base.records import EVIDENCE_DEPTH
from lbx.report.pairs import select_pairs
from lbx.report.query import ReportQuery
from lbx.report.report import Report
from lbx.report.rows.comparison import compare_pairs
from lbx.results import Store, Table
from lbx.results.read.stored_answers import resolve_tasks
from lbx.results.scoring.score_columns import RowsByTask, as_table, read_scores

COLUMNS = ("run_a", "run_b", "benchmark", "depth", "n", "wins", "losses", "caution")
_DEPTHS = [EVIDENCE_DEPTH, "depth"]


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report: one for each pair of runs, benchmark and depth.

    It includes every benchmark with samples that state the depth of the evidence in ``meta``: ``evidence_depth``, or
    the ``depth`` that was chosen for a sample, from 0 to 1.
    """
    sql = "SELECT DISTINCT benchmark FROM samples WHERE len(json_keys(meta).list_intersect(?)) > 0 ORDER BY ALL"
    benchmarks = [benchmark for (benchmark,) in store.query(sql, [_DEPTHS]).rows]
    pairs = select_pairs(store, query) if benchmarks else []
    # Cautions are those of the average, which a query of some tasks would leave out.
    whole = ReportQuery(
        runs=query.runs, baseline=query.baseline, allow_different_settings=query.allow_different_settings
    )
    lines, refused = compare_pairs(store, whole, level="benchmark") if benchmarks else ([], [])
    cautions = {(line.run_a, line.run_b, line.benchmark): line.caution or None for line in lines}
    cautions |= {(pair.run_a, pair.run_b, pair.benchmark): pair.reason for pair in refused}
    tasks = set(resolve_tasks(store, query.tasks)) if benchmarks else set()
    is_refused = {(pair.run_a, pair.run_b, pair.benchmark) for pair in refused}
    answers = read_scores(store, {run for pair in pairs for run in pair}, benchmarks) if pairs else {}
    if tasks:
        answers = {
            key: chosen
            for key, rows in answers.items()
            if (chosen := {task: of_task for task, of_task in rows.items() if f"{key[1]}/{task}" in tasks})
        }
    return as_table(
        COLUMNS,
        [
            {"run_a": first, "run_b": second, "benchmark": benchmark}
            | {"caution": cautions.get((first, second, benchmark))}
            | row
            for first, second in pairs
            for benchmark in benchmarks
            if (first, benchmark) in answers and (second, benchmark) in answers
            for row in (
                [{}]
                if (first, second, benchmark) in is_refused
                else _count_flips(answers[first, benchmark], answers[second, benchmark])
            )
        ],
    )


def _count_flips(first: RowsByTask, second: RowsByTask) -> Iterator[dict[str, Any]]:
    before, after = _by_answer(first), _by_answer(second)
    counts: dict[float, dict[str, int]] = {}
    for key, (depth, score) in before.items():
        if key in after:
            count = counts.setdefault(depth, {"n": 0, "wins": 0, "losses": 0})
            count["n"] += 1
            count["wins"] += after[key][1] > score
            count["losses"] += after[key][1] < score
    yield from ({"depth": depth, **counts[depth]} for depth in sorted(counts))


def _by_answer(tasks: RowsByTask) -> dict[tuple[str, str, int], tuple[float, float]]:
    """{(task, sample, iteration): (depth, headline score)} of samples that state a depth."""
    return {
        (task, row.sample.sample_id, row.iteration): (float(depth), next(iter(row.scores.values())))
        for task, rows in tasks.items()
        for row in rows
        if isinstance(row.sample.meta, dict)
        and isinstance(depth := row.sample.meta.get(EVIDENCE_DEPTH, row.sample.meta.get("depth")), int | float)
        and not isinstance(depth, bool)
        and 0 <= depth <= 1
    }


FLIPS = Report(
    name="flips",
    title="Answers with a higher (wins) or lower (losses) score than the baseline's, by depth of the evidence",
    columns=(
        Column("run_a", "baseline"),
        Column("run_b", "run"),
        Column("benchmark", "benchmark"),
        Column("depth", "depth %", "share"),
        Column("n", "answers", "count"),
        Column("wins", "wins", "count"),
        Column("losses", "losses", "count"),
        Column("caution", "caution", optional=True),
    ),
    empty="No two runs have answers to questions that state the depth of their evidence.",
    takes=("--baseline", "--allow-different-settings", "--tasks"),
    rows=table,
)
