"""Answers asked again alone, beside the stored ones that were made together with others."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Any, NamedTuple

from lbx.base.records import SampleKey
from lbx.store.inserting import insert
from lbx.store.rows import TableRow
from lbx.store.store import Store


@dataclass(frozen=True, slots=True)
class VerificationRow(TableRow):
    """One row of ``verifications``: a prompt asked again alone.

    Attributes:
        step: which of the sample's prompts, from 0; only a chain of thought has two.
        equal: whether tokens, text, reasoning, ending and number of tokens are the stored ones; of an answer stored
            without its tokens, all but those.
        first_difference: index of the first differing token; None where they are equal or not stored.
        logit_gap: by how much the token chosen alone was ahead of the stored one, as seen alone; None where there is
            no first difference, and for sampled answers.
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


@dataclass(slots=True)
class Verification:
    """What asking answers again alone has found.

    Attributes:
        checked: samples asked again, by this call and earlier ones.
        flips: prompts whose answer alone is another one.
        prompts: how many were asked again; a chain of thought has two.
        median_gap, max_gap: of the flips with a logit gap; None without any.
        by_text: of those checked, how many were stored without their tokens, so that only their text was compared.
        problems: of samples that could not be asked again, in words.
    """

    checked: int = 0
    prompts: int = 0
    flips: int = 0
    by_text: int = 0
    median_gap: float | None = None
    max_gap: float | None = None
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"{self.checked:,} answers asked again alone: "
        if not self.flips:
            text += "all the same" if self.checked else "none could be"
        else:
            text += f"{self.flips:,} of {self.prompts:,} differ ({100 * self.flips / self.prompts:.2g}%)"
        if self.median_gap is not None:
            text += f"; logit gap at the flip: median {self.median_gap:.3g}, largest {self.max_gap:.3g}"
        if self.by_text:
            text += f"; {self.by_text:,} were stored without token ids, and only their text was compared"
        if self.problems:
            text += f"; {len(self.problems)} could not be asked again: {self.problems[0]}"
        return text


class StoredStep(NamedTuple):
    """One prompt's stored answer.

    ``finish_reason`` is None where the row does not say it of this step, ``output_ids`` where they are not stored.
    """

    output: str
    reasoning: str | None
    finish_reason: str | None
    output_tokens: int
    prompt_sha256: str
    output_ids: Sequence[int] | None


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
        "SELECT output, reasoning, finish_reason, output_tokens, prompt_sha256, output_ids, steps FROM generations "
        "WHERE run_id = ? AND benchmark = ? AND task = ? AND sample_id = ? AND iteration = ?",
        [run_id, *key],
    ).dicts()[0]
    earlier = [
        StoredStep(*(step.get(name) for name in StoredStep._fields)) for step in json.loads(row["steps"] or "[]")
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
            row["output_ids"],
        ),
    ]


def keep_verifications(store: Store, rows: Sequence[VerificationRow]) -> None:
    """Commit rows, all or none; one of the same prompt replaces the old one."""
    with store.transaction() as connection:
        insert(connection, "verifications", rows)


def summary(store: Store, run_id: str, chosen: Collection[SampleKey], problems: Sequence[str]) -> Verification:
    """Of the chosen samples, whenever they were asked again."""
    rows = store.query(
        "SELECT v.benchmark, v.task, v.sample_id, v.iteration, v.equal, v.logit_gap, g.output_ids IS NULL "
        "FROM verifications v JOIN generations g USING (run_id, benchmark, task, sample_id, iteration) "
        "WHERE v.run_id = ?",
        [run_id],
    ).rows
    wanted = set(chosen)
    mine = [row for row in rows if SampleKey(*row[:4]) in wanted]
    gaps = [row[5] for row in mine if row[5] is not None]
    return Verification(
        checked=len({row[:4] for row in mine}),
        prompts=len(mine),
        flips=sum(not row[4] for row in mine),
        by_text=len({row[:4] for row in mine if row[6]}),
        median_gap=median(gaps) if gaps else None,
        max_gap=max(gaps, default=None),
        problems=list(problems),
    )
