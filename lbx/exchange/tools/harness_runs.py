"""Answers of an evaluation harness to LongBench, with the harness's scores and a verdict for each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from lbx.benchmarks.base.predictions import PredictionFormat
from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.prediction_files import PredictionFiles
from lbx.results.file.imports import Harness, HarnessTask, Verdict

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HarnessRun:
    """Answers read from a harness's files, with the prediction format that matches them with a bundle's samples."""

    prediction_format: PredictionFormat
    prediction_files: PredictionFiles
    harness: Harness
    notes: Sequence[str] = ()


def judge_task(
    task: HarnessTask,
    *,
    obstacles: Sequence[str] = (),
    gaps: Sequence[str] = (),
    differences: Sequence[str] = (),
    unknowns: Sequence[str] = (),
    remarks: Sequence[str] = (),
) -> HarnessTask:
    """Add the verdict and the reasons to a task.

    Args:
        obstacles: reasons why the task's numbers are not comparable.
        gaps: missing facts without which there is no verdict.
        differences: known differences from the official script.
        unknowns: facts that the files do not record, and that the verdict leaves open.
        remarks: further reasons for a difference between the scores of the harness and of lbx.
    """
    verdict: Verdict = (
        "not comparable" if obstacles else "unknown" if gaps else "differs" if differences else "comparable"
    )
    reasons = [*obstacles, *gaps, *differences, *remarks]
    return replace(task, verdict=verdict, reasons=reasons, unknowns=list(unknowns))


def sort_tasks(tasks: Mapping[str, T]) -> dict[str, T]:
    """Sort LongBench's tasks in the paper's order."""
    return {name: tasks[name] for name in BENCHMARKS["longbench"].catalogue.names if name in tasks}
