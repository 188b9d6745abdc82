"""The report ``estimates``: estimated and actual times of sessions."""

from __future__ import annotations

from lbx.base.columns import Column
from lbx.report.report import Report

ESTIMATES = Report(
    name="estimates",
    title="Estimated and actual time of each session (ratio: actual seconds per estimated second)",
    order="started_at, run_id, session",
    columns=(
        Column("run_id", "run"),
        Column("session", "session", "count"),
        Column("status", "status", rank=3),
        Column("workers", "workers", "count", rank=9),
        Column("planned_samples", "samples planned", "count", rank=4),
        Column("samples", "done", "count"),
        Column("planned_distinct_tokens", "distinct tokens planned", "count", rank=8),
        Column("computed_prompt_tokens", "computed", "count", rank=7),
        Column("planned_new_tokens", "answer tokens expected", "count", rank=6),
        Column("output_tokens", "answer tokens", "count", rank=5),
        Column("estimated_s", "estimated s", "quantity"),
        Column("wall_s", "took s", "quantity"),
        Column("ratio", "ratio", "quantity"),
        Column("estimate_basis", "estimate based on", rank=10),
    ),
    empty="This file has no sessions of lbx run. Imported runs have none.",
)
