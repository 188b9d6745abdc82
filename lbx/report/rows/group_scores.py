"""The report ``group_scores``: numbers over several tasks."""

from __future__ import annotations

from lbx.base.columns import Column
from lbx.report.report import COVERAGE, WHO, Report

GROUP_SCORES = Report(
    name="group_scores",
    title="Scores over several tasks (percent; official: as the benchmark's own script prints it)",
    order="benchmark, RANK, position",
    columns=(
        *WHO,
        Column("benchmark", "benchmark"),
        Column("grouping", "by"),
        Column("name", "group"),
        Column("metric", "metric"),
        Column("n", "scored", "count", rank=4),
        COVERAGE,
        Column("score", "score", "percent", interval=True),
        Column("official", "official", "number"),
        Column("partial", "partial", rank=8),
    ),
    empty="No benchmark has a number over several tasks yet.",
    reads="numbers",
)
