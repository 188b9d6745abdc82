"""A results file read once, with no code of lbx: runs, answers beside their samples, scores, what people said."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from lbx.base.records import Sample

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Answer:
    """A generation beside its sample; ``scores`` is empty where it failed, or is for a judge, ``judged`` but of one.

    ``named_alone``: of an imported failure nobody knows more than its name.
    """

    run_id: str
    sample: Sample
    position: int
    document: str
    row: Mapping[str, Any]
    judged: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    partial: bool = False
    error: bool = False
    unextracted: bool = False
    loose: bool | None = None
    named_alone: bool = False

    @property
    def failed(self) -> bool:
        return self.row["error"] is not None

    @property
    def is_empty(self) -> bool:
        """Whether the model wrote no character, reasoning included, which LongBench v2 does not count."""
        return bool(self.scores.get("empty")) and self.row["reasoning_closed"] is None

    @property
    def iteration(self) -> int:
        return int(self.row["iteration"])

    @property
    def name(self) -> str:
        return f"{self.sample.task}/{self.sample.sample_id}"

    @property
    def cluster(self) -> str:
        """What depends on each other: questions on one document; of LV-Eval and of qa the question, at all lengths."""
        if self.sample.benchmark == "ruler":
            base = self.sample.task.rpartition("_")[0]
            return f"{base if base.startswith('qa') else self.sample.task}/{self.sample.sample_id}"
        return self.sample.question if self.sample.benchmark == "lveval" else self.document

    @property
    def order(self) -> Key:
        return self.position, self.sample.sample_id, self.iteration


@dataclass
class File:
    """A results file, read once, with no code of lbx."""

    runs: dict[str, dict[str, Any]]
    answers: list[Answer]
    scores: dict[tuple[Key, int], dict[str, dict[str, Any]]]
    ratings: list[dict[str, Any]]
    sets: dict[str, dict[str, Any]]
    items: dict[tuple[str, int], dict[str, Any]]
    again: bool = True
    """Whether answers are scored anew."""

    def of(self, run: str, benchmark: str) -> dict[str, list[Answer]]:
        """{task: its generations in the data's order}."""
        found: dict[str, list[Answer]] = {}
        for one in self.answers:
            if (one.run_id, one.sample.benchmark) == (run, benchmark):
                found.setdefault(one.sample.task, []).append(one)
        return {task: sorted(rows, key=lambda one: one.order) for task, rows in found.items()}

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """(run, benchmark) of all that models answered."""
        return sorted({(one.run_id, one.sample.benchmark) for one in self.answers if one.sample.benchmark != "judge"})


def read_file(path: Path, *, again: bool = True) -> File:
    with duckdb.connect(str(path), read_only=True) as connection:

        def rows(table: str) -> list[dict[str, Any]]:
            cursor = connection.execute(f'FROM "{table}"')
            names = [item[0] for item in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        samples = {(row["benchmark"], row["task"], row["sample_id"]): row for row in rows("samples")}
        rounds = {("judge", row["rubric"], row["round_id"]): row for row in rows("rounds")}
        keyed = [((row["benchmark"], row["task"], row["sample_id"]), row) for row in rows("generations")]
        answers = [_answer(row, samples.get(key), rounds.get(key, {})) for key, row in keyed]
        scores: dict[tuple[Key, int], dict[str, dict[str, Any]]] = {}
        for row in rows("scores"):
            key = (row["run_id"], row["benchmark"], row["task"], row["sample_id"], row["iteration"])
            scores.setdefault((key, row["metric_version"]), {})[row["metric"]] = row
        return File(
            {row["run_id"]: row for row in rows("runs")},
            answers,
            scores,
            rows("ratings"),
            {row["set_id"]: row for row in rows("rating_sets")},
            {(row["set_id"], row["item"]): row for row in rows("rating_items")},
            again,
        )


def _answer(row: Mapping[str, Any], sample: Mapping[str, Any] | None, judged: Mapping[str, Any]) -> Answer:
    if sample is None:
        unknown = Sample(row["benchmark"], row["task"], row["sample_id"], "", "", ())
        return Answer(row["run_id"], unknown, sys.maxsize, "", row, named_alone=True)
    made = Sample(
        row["benchmark"], row["task"], row["sample_id"], "", sample["question"],
        tuple(json.loads(sample["references"])), sample["language"], sample["length"], sample["length_unit"],
        json.loads(sample["meta"]),
    )  # fmt: skip
    document = sample["context_sha256"]
    return Answer(row["run_id"], made, sample["position"], document or "", row, judged)
