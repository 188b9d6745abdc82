"""What a benchmark family is: data in the bundle, prompts, metrics, and the official way to add up.

One file per family holds one class of this shape and is entered in ``lbx.benchmarks.BENCHMARKS``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lbx.layout import Bundle
from lbx.records import Prompt, Sample, Score, Task, TaskScore


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """A sample beside its metrics' values {metric: score}, as ``aggregate`` takes them."""

    sample: Sample
    scores: Mapping[str, float]


class Benchmark(Protocol):
    """One benchmark family. Instances hold no state beyond caches of what the bundle says."""

    name: str
    metric_version: int
    """Raised whenever a change of code can change a score; stored beside every score."""

    def tasks(self, bundle: Bundle) -> list[Task]:
        """The tasks this bundle has data for, in the benchmark's own order; [] when it has none."""
        ...

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """The task's samples in the data's order; questions on one document follow each other.

        Raises:
            BundleError: a data file is damaged; names file and line.
        """
        ...

    def prompt(self, bundle: Bundle, sample: Sample) -> Prompt:
        """The official prompt of one sample. Raises BundleError where the bundle lacks the template."""
        ...

    def score(self, sample: Sample, output: str) -> list[Score]:
        """The official metrics of one output; never raises on any output."""
        ...

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        """The task's numbers as the official script prints them, from rows in the data's order.

        The first is the headline that averages are made of. Rows of failed generations are left out by the caller.
        """
        ...
