"""Answers asked again alone, beside the stored ones that were made together with others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from lbx.records import SampleKey
from lbx.store.inserting import insert
from lbx.store.rows import Row
from lbx.store.store import Store


@dataclass(frozen=True, slots=True)
class VerificationRow(Row):
    """One row of ``verifications``: a prompt asked again alone.

    Attributes:
        step: which of the sample's prompts, from 0; only a chain of thought has two.
        equal: whether text, reasoning, ending and number of tokens are the stored ones.
        first_difference: index of the first differing token; None where they are equal, or equal texts are made of
            other tokens.
        logit_gap: by how much the token chosen alone was ahead of the one that continues the stored answer, as seen
            alone; None where they are equal, for sampled answers, and where no such token was found.
    """

    run_id: str
    benchmark: str
    task: str
    sample_id: str
    iteration: int
    step: int
    equal: bool
    first_difference: int | None
    logit_gap: float | None
    output_alone: str
    checked_at: datetime


class StoredStep(NamedTuple):
    """One prompt's stored answer. ``finish_reason`` is None where the row does not say it of this step."""

    output: str
    reasoning: str | None
    finish_reason: str | None
    output_tokens: int
    prompt_sha256: str


def answered(store: Store, run_id: str) -> list[SampleKey]:
    """What a run has answered, in the data's order within each task."""
    rows = store.query(
        "SELECT g.benchmark, g.task, g.sample_id, g.iteration FROM generations g "
        "JOIN samples s USING (benchmark, task, sample_id) "
        "WHERE g.run_id = ? AND g.error IS NULL ORDER BY g.benchmark, g.task, s.position, g.sample_id, g.iteration",
        [run_id],
    ).rows
    return [SampleKey(*row) for row in rows]


def verified(store: Store, run_id: str) -> set[SampleKey]:
    """What was asked again, every step of it."""
    rows = store.query(
        "SELECT DISTINCT benchmark, task, sample_id, iteration FROM verifications WHERE run_id = ?", [run_id]
    ).rows
    return {SampleKey(*row) for row in rows}


def stored_steps(store: Store, run_id: str, key: SampleKey) -> list[StoredStep]:
    """What the run stored for each prompt of one sample."""
    row: dict[str, Any] = store.query(
        "SELECT output, reasoning, finish_reason, output_tokens, prompt_sha256, steps FROM generations "
        "WHERE run_id = ? AND benchmark = ? AND task = ? AND sample_id = ? AND iteration = ?",
        [run_id, *key],
    ).dicts()[0]
    earlier = [
        StoredStep(
            step["output"], step["reasoning"], step["finish_reason"], step["output_tokens"], step["prompt_sha256"]
        )
        for step in json.loads(row["steps"] or "[]")
    ]
    # The row's own finish_reason is "length" if any step's is; its prompt's hash is the first step's.
    known = all(step.finish_reason == "stop" for step in earlier)
    return [
        *earlier,
        StoredStep(
            row["output"] or "",
            row["reasoning"],
            row["finish_reason"] if known else None,
            (row["output_tokens"] or 0) - sum(step.output_tokens for step in earlier),
            "" if earlier else row["prompt_sha256"],
        ),
    ]


def keep_verifications(store: Store, rows: Sequence[VerificationRow]) -> None:
    """Commit rows, all or none; one of the same prompt replaces the old one."""
    with store.transaction() as connection:
        insert(connection, "verifications", rows)
