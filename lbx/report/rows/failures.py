"""The report ``failures``: samples without an answer, with their errors."""

from __future__ import annotations

from lbx.base.columns import Column
from lbx.report.report import TASK, WHO, Report

FAILURES = Report(
    name="failures",
    title="Failed samples",
    order="benchmark, task, sample_id, iteration, RANK",
    columns=(*TASK, Column("sample_id", "sample"), *WHO, Column("error", "error")),
    empty="No sample failed.",
    default=7,
    next_step=5,
)
