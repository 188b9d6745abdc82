"""The report ``truncation``: number of prompts and answers that were cut."""

from __future__ import annotations

from lbx.base.columns import Column
from lbx.report.report import TASK, WHO, PagePlace, Report, has_any_of

TRUNCATION = Report(
    name="truncation",
    title="Truncation",
    order="benchmark, task, RANK",
    columns=(
        *TASK,
        *WHO,
        Column("n", "answered", "count"),
        Column("truncated", "prompts cut", "count", unknown=True),
        Column("share", "share %", "percent", unknown=True),
        Column("mean_tokens_cut", "tokens cut, mean", "count", unknown=True, rank=4),
        Column("longest_prompt", "longest prompt", "count", unknown=True, rank=3),
        Column("longest_prompt_sent", "as sent", "count", unknown=True, rank=3),
        Column("answers_cut", "answers at their limit", "count", unknown=True, rank=2),
    ),
    empty="No run has answers yet.",
    is_informative=has_any_of("truncated", "longest_prompt", "longest_prompt_sent", "answers_cut"),
    page=PagePlace("Length", 14),
    default=6,
)
