"""A benchmark family: data in the bundle, prompts, metrics, and the official way to add up.

A family is a folder with a subclass of ``Benchmark`` in ``benchmark.py``. It states its data, tasks, ways of asking and
rules of scoring as values, and implements the methods that need code. ``predictions.py`` has the format of its official
files, ``tables.py`` its tables, boards and published figures. Its entry in
``lbx.benchmarks.BENCHMARKS`` is the only other place that names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from lbx.base.layout import Bundle
from lbx.base.records import (
    PLAIN,
    Chunk,
    Compared,
    GroupScore,
    Mode,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    Task,
    TaskScore,
)
from lbx.benchmarks.base.columns import ScoredRows
from lbx.benchmarks.base.layout import Boards, LengthCurve, Paper, PublishedFigures
from lbx.benchmarks.base.predictions import PredictionFormat
from lbx.benchmarks.base.results import ResultFormat
from lbx.benchmarks.base.sources import DataSource
from lbx.retrieval.retriever import RetrievalRules

WINDOWS_OF_128K = range(128_000, 131_073)
"""Context windows, in tokens, that are called 128k: from 128 x 1000 to 128 x 1024."""


def with_unique_ids(samples: Iterable[Sample]) -> Iterator[Sample]:
    """The samples; a repeated id gets "-2", then "-3"."""
    seen: dict[str, int] = {}
    for sample in samples:
        seen[sample.sample_id] = times = seen.get(sample.sample_id, 0) + 1
        yield sample if times == 1 else replace(sample, sample_id=f"{sample.sample_id}-{times}")


@dataclass(frozen=True, slots=True)
class TaskCatalogue:
    """The tasks of a family, whether or not a bundle has their data.

    Attributes:
        names: every task in the paper's order; () for a family that defines its tasks in the bundle.
        selections: names that ``--tasks`` has for some of them.
        embedding: tasks that an embedding model scores half of (``Benchmark.compared``).
        open: tasks with free-text answers, which people or a judge can rate; None for all.
        length_groups: the name of a task together with those that ask the same in documents of other lengths.
    """

    names: tuple[str, ...] = ()
    selections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    embedding: tuple[str, ...] = ()
    open: tuple[str, ...] | None = None
    length_groups: Mapping[str, str] = field(default_factory=dict)

    def has(self, task: str) -> bool:
        """Whether the family may have this task; a file from elsewhere may hold others."""
        return not self.names or task in self.names

    def is_open(self, task: str) -> bool:
        return self.open is None or task in self.open


def _allow_mode(task: str, mode: Mode) -> None:
    return


@dataclass(frozen=True, slots=True)
class AskingProtocol:
    """How a family's authors ask.

    Attributes:
        modes: of "cot", "no_context", "length_hint" and "rag". Any family can be asked with thinking.
        iterations: how often each sample is asked.
        retrieval: what the authors retrieve with.
        check_mode: raises UsageError for a task that cannot be asked in a mode that ``modes`` allows.
    """

    modes: frozenset[str] = frozenset()
    iterations: int = 1
    retrieval: RetrievalRules = field(default_factory=RetrievalRules)
    check_mode: Callable[[str, Mode], None] = _allow_mode


def _without_curves(tasks: Mapping[str, ScoredRows]) -> Mapping[str, LengthCurve]:
    return {}


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """What a family's scores mean, and which of them its official numbers are made of.

    Attributes:
        unit: the official number of a score of 1: 100 for percent.
        average_of: what the benchmark's overall score is a mean of.
        cluster_name: what ``Benchmark.cluster`` returns, in a word.
        uncounted_metric: metric that is 1 for an answer that the official number leaves out; "" for none.
        prints_all_metrics: whether the paper's tables have every metric of a task, not only the headline and its parts.
        curves: scores by length that the authors draw and no script prints, by the group of their lines.
    """

    unit: float = 100
    average_of: str = "mean of tasks"
    cluster_name: str = "document"
    uncounted_metric: str = ""
    prints_all_metrics: bool = False
    curves: Callable[[Mapping[str, ScoredRows]], Mapping[str, LengthCurve]] = _without_curves

    def counts(self, row: ScoredSample) -> bool:
        """Whether the official number counts an answer. A reasoned answer always counts."""
        return row.reasoned or not row.scores.get(self.uncounted_metric)

    def missing_scores(self, metrics: Iterable[str], value: float) -> dict[str, float]:
        """The metrics of a missing answer, counted as wholly wrong (0.0) or wholly right (1.0)."""
        scores = dict.fromkeys(metrics, value)
        return {**scores, self.uncounted_metric: 0.0} if self.uncounted_metric else scores

    def is_printed(self, metric: str, headline: str) -> bool:
        """Whether the paper's tables have a task's metric: the headline and its parts, "accuracy/easy"."""
        return self.prints_all_metrics or metric == headline or metric.startswith(f"{headline}/")


class Benchmark(ABC):
    """One benchmark family. Instances hold no state beyond caches of the bundle's content."""

    name: str
    metric_version: int
    """Raised whenever a change of code can change a score; stored beside every score."""
    data: ClassVar[DataSource] = DataSource()
    catalogue: ClassVar[TaskCatalogue] = TaskCatalogue()
    protocol: ClassVar[AskingProtocol] = AskingProtocol()
    scoring: ClassVar[ScoringRules] = ScoringRules()
    predictions: PredictionFormat | None = None
    """The format of its official prediction files."""
    results: ClassVar[ResultFormat | None] = None
    """The files that its official scorer writes."""
    paper: ClassVar[Paper] = Paper()
    """The tables of its paper."""
    boards: ClassVar[Boards] = Boards()
    """The tables and charts of its leaderboards."""
    published: ClassVar[PublishedFigures] = PublishedFigures()
    """Published figures of models."""

    @abstractmethod
    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """The tasks this bundle has data for, in the benchmark's own order; [] when it has none.

        Args:
            names: where given, no other task need be looked at: counting samples may take unpacking gigabytes.
                Tasks of other names may be in the answer.
        """

    @abstractmethod
    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """The task's samples in the data's order; questions on one document follow each other.

        Raises:
            BundleError: a data file is damaged; names file and line.
        """

    @abstractmethod
    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """The official prompt of one sample. Raises BundleError where the bundle lacks the template.

        Args:
            chunks: with ``mode.rag``, the retrieved chunks, in document order.
        """

    def next_step(self, bundle: Bundle, sample: Sample, mode: Mode, outputs: Sequence[str]) -> Prompt | str:
        """The prompt of the next step after these outputs, or the final answer, which is stored and scored."""
        return outputs[-1]

    def query(self, sample: Sample, bundle: Bundle) -> str:
        """The query for chunks. Raises BundleError where it has official words that the bundle lacks."""
        return sample.question

    def evidence(self, sample: Sample) -> Sequence[str]:
        """Texts of which at least one is in the document where its answer is.

        The engine checks whether truncation removed the only place of them. () where references are letters or
        summaries, which do not tell that.
        """
        return ()

    def chance(self, sample: Sample) -> float:
        """The mean score of guessing, in 0..1: of four choices 0.25."""
        return 0.0

    def compared(self, sample: Sample, output: str) -> Compared | None:
        """Texts that an embedding model has to compare before ``score`` can give a whole score; None for none."""
        return None

    @abstractmethod
    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """The official metrics of one output, the headline first; never raises on any output.

        Args:
            similarity: the largest cosine between the texts of ``compared``; None without an embedding model.
        """

    def cluster(self, sample: Sample, document: str) -> str:
        """What questions share that depend on each other: by default their document. "" where it is unknown.

        Args:
            document: its hash; "" where an imported file does not hold it.
        """
        return document

    @abstractmethod
    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        """The task's numbers as the official script prints them, from rows in the data's order.

        The first is the headline that averages are made of. Rows of failed generations are left out by the caller.
        """

    def headline(self, task: str, rows: Sequence[ScoredSample]) -> TaskScore | None:
        """The first number of ``aggregate``, which may be made without the others; None without any."""
        return next(iter(self.aggregate(task, rows)), None)

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[GroupScore]:
        """Numbers over several tasks, in the order of the paper's table.

        Args:
            tasks: the rows of each task that has any, as ``aggregate`` takes them.
            averages_only: numbers that two runs are compared by, without others of the same samples.
        """
        return []
