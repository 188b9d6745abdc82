"""The one recomputation: from a file's answers to every number that lbx makes of them, in plain Python.

Scores are the benchmarks' own functions of each answer; everything after that is made here once more, by the official
rules of each family and the formulas of docs/intervals.md, and by none of lbx's code that adds up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lbx.benchmarks.registry import BENCHMARKS
from tests.consistency.official_rules import Number, average, group_numbers, headline, task_numbers
from tests.consistency.stored_file import Answer, File


def _metrics_if(benchmark: str, metrics: Iterable[str], value: float) -> dict[str, float]:
    made = dict.fromkeys(metrics, value)
    return made | {"empty": 0.0} if benchmark == "longbench_v2" else made


@dataclass
class Numbers:
    """A run's numbers of one benchmark; ``added_up``: whether the run has ended: it has others than of tasks then."""

    file: File
    run: str
    benchmark: str

    @cached_property
    def generations(self) -> dict[str, list[Answer]]:
        return self.file.of(self.run, self.benchmark)

    @cached_property
    def version(self) -> dict[str, int]:
        """{task: the metric version that counts}."""
        return {key[2]: version for key, version in self.file.scores if key[:2] == (self.run, self.benchmark)}

    @cached_property
    def scored(self) -> dict[str, list[Answer]]:
        """{task: its scored answers in the data's order}, tasks in their paper's order."""
        family = BENCHMARKS[self.benchmark]
        found: dict[str, list[Answer]] = {}
        known = list(family.catalogue.names)
        order = {task: (known.index(task) if task in known else len(known), task) for task in self.version}
        for task in sorted(self.version, key=order.__getitem__):
            rows = [self._scored(row, self.version[task]) for row in self.generations[task] if not row.failed]
            if rows := [row for row in rows if row.scores]:
                found[task] = rows
        return found

    def _scored(self, row: Answer, version: int) -> Answer:
        key = (self.run, *row.sample.key[:3], row.iteration)
        stored = self.file.scores.get((key, version), {})
        family = BENCHMARKS[self.benchmark]
        if version != family.metric_version or not self.file.again:  # an older lbx's, of which nobody knows more
            first = sorted(stored.items(), key=lambda one: not one[1]["headline"])
            scores = {metric: one["score"] for metric, one in first}
            return replace(
                row, scores=scores, partial=any(one["partial"] for one in stored.values()),
                error=any(one["error"] for one in stored.values()),
                unextracted=any(one["headline"] and one["extracted"] == "" for one in stored.values()),
                loose=next((one["loose"] for one in stored.values() if one["headline"]), None),
            )  # fmt: skip
        similarity = stored["similarity"]["score"] if "similarity" in stored else None
        made = family.score(row.sample, row.row["output"] or "", similarity=similarity)
        return replace(
            row, scores={one.metric: one.score for one in made}, partial=any(one.partial for one in made),
            error=any(one.error for one in made), unextracted=bool(made) and made[0].extracted == "",
            loose=made[0].loose if made else None,
        )  # fmt: skip

    @cached_property
    def failed(self) -> dict[str, list[Answer]]:
        return {task: held for task, rows in self.generations.items() if (held := [row for row in rows if row.failed])}

    @cached_property
    def counts(self) -> dict[str, int]:
        """{task: its samples in the bundle}, where the file knows."""
        told = json.loads(self.file.runs[self.run]["task_samples"] or "{}")
        prefix = f"{self.benchmark}/"
        return {name.removeprefix(prefix): count for name, count in told.items() if name.startswith(prefix)}

    def times(self, task: str) -> int:
        """How often each sample was to be asked."""
        return 1 + max(row.iteration for row in self.generations[task])

    def is_whole(self, task: str) -> bool:
        """Whether every sample of the bundle has a score, as often as any was asked."""
        return task not in self.counts or len(self.scored[task]) >= self.counts[task] * self.times(task)

    def missing(self, task: str) -> list[Answer]:
        """Failures, and of a run (not an import) the iterations that it has not asked yet of what it asked before."""
        rows = self.generations[task]
        if task not in self.counts:
            return self.failed.get(task, [])
        first = {row.name: row for row in rows}
        held = {(row.name, row.iteration) for row in rows}
        return self.failed.get(task, []) + [
            replace(row, row={**row.row, "iteration": at, "error": "not asked"}, scores={})
            for name, row in first.items()
            for at in range(self.times(task))
            if (name, at) not in held
        ]

    def asked(self, task: str) -> int:
        rows = self.generations[task]
        return len({row.name for row in rows}) * self.times(task) if task in self.counts else len(rows)

    def _filled(self, task: str, value: float) -> list[Answer]:
        """What does not count as all wrong, or as all right; else as it is."""
        rows = self.scored.get(task, [])
        metrics = dict.fromkeys(metric for row in rows for metric in row.scores)
        counted = [
            replace(row, scores=_metrics_if(self.benchmark, metrics, value)) if row.is_empty else row for row in rows
        ]
        family = BENCHMARKS[self.benchmark]
        lost = []
        missing = self.missing(task)
        for row in missing:
            known = [*rows, *(one for one in missing if not one.named_alone)]
            if row.named_alone and known:
                sample = replace(known[0].sample, sample_id=row.sample.sample_id)
                lost.append((replace(row, sample=sample, document=""), metrics))
            elif own := [one.metric for one in family.score(row.sample, "")]:
                lost.append((row, metrics or own))
        return counted + [replace(row, scores=_metrics_if(self.benchmark, some, value)) for row, some in lost]

    def _holds_all_failures(self, one: Number) -> bool:
        """Whether failures of which only the name is known have a part in a number, wherever they belong."""
        unnamed = {task for task, rows in self.failed.items() if any(row.named_alone for row in rows)}
        for part in one.parts if unnamed else ():
            counts: dict[str, set[str]] = {}
            for sample, _, _ in part.rows:
                counts.setdefault(sample.partition("/")[0], set()).add(sample)
            asked = {task: len({row.name for row in self.generations[task]}) for task in counts}
            if any(task in unnamed and len(some) < asked[task] for task, some in counts.items()):
                return False
        return True

    @cached_property
    def lost(self) -> list[str]:
        """Tasks of which every answer failed."""
        return [task for task, rows in self.generations.items() if all(row.failed for row in rows)]

    def _is_cut_otherwise(self, task: str) -> bool:
        """Whether a prompt has other tokens than the authors leave, by more than 8."""
        limit = BENCHMARKS[self.benchmark].scoring.prompt_limits.get(task)
        rows = [row.row for row in self.generations[task]]
        left = [row["original_tokens"] - row["tokens_cut"] for row in rows if row["truncated"]]
        sent = [row["prompt_tokens"] or 0 for row in rows]
        return limit is not None and (min(left, default=limit) < limit - 8 or max(sent, default=0) > limit + 8)

    @cached_property
    def tasks(self) -> dict[tuple[str, str], dict[str, Any]]:
        """{(task, metric): the number's columns}."""
        found = {}
        for task, rows in self.scored.items():
            whole, head = self.is_whole(task), headline(self.benchmark, task, rows)
            ends = [{one.metric: one for one in task_numbers(self.benchmark, task, self._filled(task, value))}
                    for value in (0.0, 1.0)]  # fmt: skip
            for place, one in enumerate(task_numbers(self.benchmark, task, rows)):
                official = one.official if whole and not self._is_cut_otherwise(task) else None
                shown = replace(one, official=official, partial=one.partial or not whole)
                found[task, one.metric] = self._columns(shown, [end[one.metric] for end in ends]) | {
                    "headline": head is not None and one.metric == head.metric, "position": place,
                }  # fmt: skip
        return found

    @cached_property
    def groups(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        """{(grouping, name, metric): the number's columns}."""
        # A number is official where it is the same without the tasks that lack samples, or were cut in another way.
        whole = group_numbers(self.benchmark, {task: r for task, r in self.scored.items() if self.is_whole(task)})
        cut = {task: rows for task, rows in self.scored.items() if not self._is_cut_otherwise(task)}
        as_cut = group_numbers(self.benchmark, cut)
        ends = [
            group_numbers(self.benchmark, {task: self._filled(task, value) for task in (*self.scored, *self.lost)})
            for value in (0.0, 1.0)
        ]
        # Nor is one to which a task belongs that has only failures.
        lost = {task: self._filled(task, 0.0) for task in self.lost}
        with_lost = group_numbers(self.benchmark, {**self.scored, **lost})
        found = {}
        for place, one in group_numbers(self.benchmark, self.scored).items():
            sure = place in whole and whole[place].n == one.n == with_lost[place].n
            shown = one if sure else replace(one, official=None, partial=True)
            if place not in as_cut or as_cut[place].n != one.n:
                shown = replace(shown, official=None)
            found[place] = self._columns(shown, [end[place] for end in ends])
        return found

    def _columns(self, one: Number, ends: Sequence[Number]) -> dict[str, Any]:
        columns = {"n": one.n, "score": one.score, "official": one.official, "partial": one.partial}
        columns |= one.sure(self.benchmark) | dict.fromkeys(("answered", "asked", "failed_as_0", "failed_as_1"))
        if one.parts and all(map(self._holds_all_failures, ends)):
            columns |= {"answered": len(one.answers), "asked": len(ends[0].answers | ends[1].answers)}
            columns |= {"failed_as_0": ends[0].score, "failed_as_1": ends[1].score}
        return columns

    @cached_property
    def heads(self) -> dict[str, dict[str, Any]]:
        return {task: row for (task, _), row in self.tasks.items() if row["headline"]}

    @cached_property
    def mean(self) -> dict[str, Any] | None:
        """What the leaderboard shows: the average of everything that the family has, else the mean of the headlines."""
        for (grouping, _, _), row in self.groups.items():
            if grouping == "overall":
                counted = sum(one["n"] for one in self.heads.values())
                return {name: value for name, value in row.items() if name not in ("official", "partial")} | {
                    "n": counted
                }
        heads = [headline(self.benchmark, task, rows) for task, rows in self.scored.items()]
        made = average([one for one in heads if one], whole=False)
        if not made:
            return None
        lost = [self.asked(task) for task in self.lost]
        tasks = len(self.heads) + len(lost)
        known = all(row["asked"] is not None for row in self.heads.values())
        lowest, highest = (
            sum(row[end] for row in self.heads.values()) if known else math.nan
            for end in ("failed_as_0", "failed_as_1")
        )
        asked = [row["asked"] or self.asked(task) for task, row in self.heads.items()]
        return {
            "n": made[0].n, "score": made[0].score, **made[0].sure(self.benchmark),
            "answered": sum(row["answered"] or 0 for row in self.heads.values()),
            "asked": sum(asked) + sum(lost),
            "failed_as_0": lowest / tasks if known else None,
            "failed_as_1": (highest + len(lost)) / tasks if known else None,
        }  # fmt: skip

    @cached_property
    def lengths(self) -> dict[tuple[str, str, int | None], dict[str, Any]]:
        """{(task, unit, length up to): the headline there}."""
        found = {}
        for task, rows in self.scored.items():
            units = {rows[0].sample.length_unit: [row.sample.length for row in rows]}
            if any(row.row["original_tokens"] for row in rows):
                units["prompt tokens"] = [row.row["original_tokens"] or 0 for row in rows]
            for unit, lengths in units.items():
                bins: dict[int | None, list[Answer]] = {}
                for row, length in zip(rows, lengths, strict=True):
                    bins.setdefault(2 ** math.ceil(math.log2(length)) if length > 0 else None, []).append(row)
                for up_to, held in bins.items():
                    for one in task_numbers(self.benchmark, task, held):
                        if self.tasks.get((task, one.metric), {}).get("headline"):
                            told = {"metric": one.metric, "n": one.n, "score": one.score}
                            found[task, unit, up_to] = told | one.sure(self.benchmark)
        return found


def marks(rows: Sequence[Answer]) -> dict[str, int | None]:
    """Counts of the report ``guards``; None of what is known of no answer."""

    def known(column: str, holds: Callable[[Any], bool], *, some: Callable[[Any], bool] | None = None) -> int | None:
        held = [row.row for row in rows if (some(row.row) if some else row.row[column] is not None)]
        return sum(bool(holds(row)) for row in held) if held else None

    def thought(row: Any) -> bool:
        return row["reasoning_closed"] is not None or row["stop_in_reasoning"] is not None

    of_length = sum(row.row["finish_reason"] == "length" and row.row["reasoning_closed"] is not False for row in rows)
    return {
        "n": len(rows),
        "empty_prompts": sum(row.row["error_type"] == "EmptyPromptError" for row in rows),
        "failed": sum(row.failed and row.row["error_type"] != "EmptyPromptError" for row in rows),
        "doubled_bos": known("bos_tokens", lambda row: row["bos_tokens"] > 1),
        "reasoning_unclosed": known("", lambda row: row["reasoning_closed"] is False, some=thought),
        "answers_cut": of_length if any(row.row["finish_reason"] is not None for row in rows) else None,
        "empty_answers": sum(
            not row.failed and row.row["reasoning_closed"] is not False and not (row.row["output"] or "").strip()
            for row in rows
        ),
        "stop_in_reasoning": known("stop_in_reasoning", lambda row: row["stop_in_reasoning"]),
        "truncated": known("truncated", lambda row: row["truncated"]),
        "tokens_cut": sum(row.row["tokens_cut"] or 0 for row in rows)
        if any(row.row["truncated"] is not None for row in rows)
        else None,
        "reference_cut": sum(bool(row.row["reference_cut"]) for row in rows)
        if any(row.row["truncated"] is not None for row in rows)
        else None,
    }


def every(file: File) -> Iterator[Numbers]:
    """The numbers of each run and benchmark that models answered."""
    for run, benchmark in file.pairs:
        yield Numbers(file, run, benchmark)
