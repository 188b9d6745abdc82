"""Smallest difference between models that the questions of a run can detect, computed before the run (``lbx plan``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median_low
from typing import Any

from lbx.base.units import format_count
from lbx.report.pairs import ComparisonSide
from lbx.report.rows.comparison import compare_averages
from lbx.results import Store
from lbx.results.read.runs import run_names
from lbx.results.scoring.score_columns import find_benchmark, read_scores
from lbx.running.jobs import TaskQuestions
from lbx.statistics.differences import (
    ASSUMED_CORRELATION,
    ASSUMED_VARIANCE,
    assumed_difference,
    clusters_to_detect,
    detectable_difference,
    fewest_clusters,
)
from lbx.statistics.estimates import Interval

_MOST_RUNS = 6
ASSUMPTION = (
    f"assumption: the difference between two models' scores of a question has a variance of {ASSUMED_VARIANCE:g} (only "
    "one of them is right on one question in five), and differences on one document correlate by "
    f"{ASSUMED_CORRELATION:g}"
)


@dataclass(frozen=True, slots=True)
class Resolution:
    """Smallest difference of models' averages that a benchmark's questions can detect, and documents for a margin.

    Attributes:
        benchmark: name of the benchmark.
        samples, documents: number of questions, and of documents that they are about.
        detectable: difference in points that a comparison finds in four of five cases, or None for too few documents.
        least_documents: least number of documents on which a difference of the margin is found in four of five cases.
        basis: origin of the spread of differences.
    """

    benchmark: str
    samples: int
    documents: int
    detectable: float | None
    least_documents: int | None
    basis: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def resolutions(
    questions: Sequence[TaskQuestions], models: int, margin: float, history: Path | None
) -> Iterator[Resolution]:
    """Yield the resolution of each benchmark of the questions.

    Args:
        models: number of models. All pairs of models are compared, and p values corrected for the number of pairs
            (Holm).
        margin: in points.
        history: results file whose runs determine the spread of differences, which is assumed for a benchmark without
            two runs in the file.
    """
    tests = models * (models - 1) / 2
    for benchmark in dict.fromkeys(task.benchmark for task in questions):
        tasks = [task for task in questions if task.benchmark == benchmark and task.samples]
        documents = len({document for task in tasks for document in task.documents})
        spread, basis = _spread_in_history(history, benchmark, [task.task for task in tasks])
        if spread is None:
            spread, basis = assumed_difference([(task.samples, len(task.documents)) for task in tasks]), ASSUMPTION
        found = None if spread is None else detectable_difference(spread, documents, tests)
        is_enough = documents >= fewest_clusters(tests)
        yield Resolution(
            benchmark,
            sum(task.samples for task in tasks),
            documents,
            None if found is None or not is_enough else 100 * found,
            None if spread is None else clusters_to_detect(spread, margin / 100, tests),
            basis,
        )


def _spread_in_history(history: Path | None, benchmark: str, tasks: Sequence[str]) -> tuple[Interval | None, str]:
    """Compute the median spread between the averages of a file's runs on these tasks."""
    family = find_benchmark(benchmark)
    if history is None or not history.exists() or family is None:
        return None, ""
    with Store(history, read_only=True) as store:
        runs = run_names(store)[:_MOST_RUNS]
        scored = read_scores(store, runs, [benchmark])
        sides = [ComparisonSide(family, scored[run, benchmark]) for run in runs if (run, benchmark) in scored]
        sides = [side.on_tasks(tasks) for side in sides if side.tasks.keys() >= {*tasks}]
        differences = [compare_averages(*pair) for pair in combinations(sides, 2)]
    spreads = {d.interval.se**2 * d.interval.clusters: d.interval for d in differences if d and d.interval.se}
    if not spreads:
        return None, ""
    return spreads[median_low(spreads)], f"{format_count(len(differences), 'pair')} of runs of {history}"
