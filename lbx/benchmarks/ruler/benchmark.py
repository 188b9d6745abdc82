"""RULER (NVIDIA, 2024): 13 synthetic tasks at 4k to 128k tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from lbx.base.layout import Bundle
from lbx.base.records import PLAIN, Chunk, GroupScore, Mode, Prompt, Sample, Score, ScoredSample, Task, TaskScore
from lbx.benchmarks.base.benchmark import Benchmark, ScoringRules, TaskCatalogue
from lbx.benchmarks.base.sources import DataSource
from lbx.benchmarks.ruler.aggregates import aggregate, cluster_of, groups, score
from lbx.benchmarks.ruler.predictions import PREDICTIONS
from lbx.benchmarks.ruler.results import RESULTS
from lbx.benchmarks.ruler.tables import BOARDS, PAPER, PUBLISHED
from lbx.benchmarks.ruler.tasks import LENGTHS, TASKS, split_task, task_name

_NAMES = tuple(task_name(base, length) for length in LENGTHS for base in TASKS)


class _Catalogue(TaskCatalogue):
    """Tasks at the standard lengths; any other length counts, too."""

    def has_task(self, task: str) -> bool:
        return bool(PREDICTIONS.sort_tasks([task]))


class Ruler(Benchmark):
    name = "ruler"
    metric_version = 1
    data = DataSource("bundle/ruler.toml", ())
    catalogue = _Catalogue(_NAMES, length_groups={task: split_task(task)[0] for task in _NAMES})
    scoring = ScoringRules(average_of="mean of lengths", cluster_name="question")
    predictions = PREDICTIONS
    results = RESULTS
    paper = PAPER
    boards = BOARDS
    published_figures = PUBLISHED

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        return []

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        return iter(())

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        raise NotImplementedError

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        return score(sample, output)

    def cluster(self, sample: Sample, document: str) -> str:
        return cluster_of(sample)

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        return aggregate(task, rows)

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[GroupScore]:
        return groups(tasks, averages_only=averages_only)
