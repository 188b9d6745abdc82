"""Results files of a few answers, each said in a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lbx.base.records import Sample
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store


@dataclass(frozen=True)
class Answer:
    """An answer, its sample and its scores; ``values`` are columns of ``generations``."""

    name: str
    scores: Mapping[str, float]
    run: str = "a"
    benchmark: str = "longbench"
    task: str = "qasper"
    iteration: int = 0
    document: str = ""
    length: int = 1000
    question: str = "Where?"
    language: str = "en"
    unit: str = "words"
    meta: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    partial: str | None = None


def make(path: Path, answers: Iterable[Answer]) -> Path:
    """A file of these answers; a task's samples are in the order in which they first come."""
    answers = list(answers)
    with Store(path) as store:
        for run in dict.fromkeys(one.run for one in answers):
            store.begin_run(RunRow(run, f"model {run}", "scripted", "1", {}, "digest", {"seed": run}, {}, "0.1"))
            rows = [one for one in answers if one.run == run]
            store.write(
                samples=[SampleRow(_sample(one), at) for at, one in enumerate(answers) if one.run == run],
                generations=[_generation(one) for one in rows],
                scores=[score for one in rows for score in _scores(one)],
            )
    return path


def _sample(one: Answer) -> Sample:
    return Sample(
        one.benchmark, one.task, one.name, one.document, one.question, ("here",), one.language, one.length, one.unit,
        one.meta,
    )  # fmt: skip


def _generation(one: Answer) -> GenerationRow:
    values = {"output": "here", **one.values}
    return GenerationRow(one.run, one.benchmark, one.task, one.name, one.iteration, **values)


def _scores(one: Answer) -> list[ScoreRow]:
    key = (one.run, one.benchmark, one.task, one.name, one.iteration)
    return [
        ScoreRow(*key, metric, 1, value, None, headline=at == 0, partial=one.partial)
        for at, (metric, value) in enumerate(one.scores.items())
    ]
