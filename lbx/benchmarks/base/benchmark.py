"""What a benchmark family is: data in the bundle, prompts, metrics, and the official way to add up.

A family is a folder: ``benchmark.py`` holds its subclass of ``Benchmark``, ``predictions.py`` the format of its
official prediction files, ``paper.py`` and ``board.py`` its tables, ``published.py`` what others published of models,
``tasks.py`` what all know of its tasks. Entering the class in ``lbx.benchmarks.BENCHMARKS`` is all that makes it known:
everything else about it is said in the class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from lbx.base.commands import as_command
from lbx.base.errors import NoDataError
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
from lbx.benchmarks.base.board import Boards
from lbx.benchmarks.base.columns import ScoredRows
from lbx.benchmarks.base.curves import LengthCurve
from lbx.benchmarks.base.paper import Paper
from lbx.benchmarks.base.predictions import PredictionFormat
from lbx.benchmarks.base.published import PublishedFigures
from lbx.benchmarks.base.results import ScoredRun
from lbx.retrieval.retriever import RetrievalRules

WINDOWS_OF_128K = range(128_000, 131_073)
"""Context windows, in tokens, of what people call a model of 128k: from 128 x 1000 to 128 x 1024."""


def named_apart(samples: Iterable[Sample]) -> Iterator[Sample]:
    """The samples; one with the id of an earlier one gets "-2", the next "-3"."""
    seen: dict[str, int] = {}
    for sample in samples:
        seen[sample.sample_id] = times = seen.get(sample.sample_id, 0) + 1
        yield sample if times == 1 else replace(sample, sample_id=f"{sample.sample_id}-{times}")


class Benchmark(ABC):
    """One benchmark family. Instances hold no state beyond caches of what the bundle says."""

    name: str
    metric_version: int
    """Raised whenever a change of code can change a score; stored beside every score."""
    recipe: ClassVar[str] = ""
    """What to bundle for it; "" where it needs no data."""
    repositories: ClassVar[tuple[str, ...]] = ()
    """Names that its dataset has, or had, on the hub."""
    known_tasks: ClassVar[tuple[str, ...]] = ()
    """Every task it has, in its paper's order, whether or not a bundle holds the data; () where it makes its own."""
    selections: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    """What ``--tasks`` calls parts of it, where that is not all of it under its own name."""
    embedding_tasks: ClassVar[tuple[str, ...]] = ()
    """Tasks that an embedding model scores half of (``compared``)."""
    predictions: PredictionFormat | None = None
    """The format of its official prediction files; None where there is none."""
    paper: ClassVar[Paper] = Paper()
    """The tables of its paper."""
    boards: ClassVar[Boards] = Boards()
    """The tables and charts of its leaderboards."""
    published: ClassVar[PublishedFigures] = PublishedFigures()
    """What is published of models."""
    unit: ClassVar[float] = 100
    """What a score of 1 is in its official numbers: 100 where they are percents."""
    growing_result: ClassVar[str] = ""
    """A file of ``result_files`` that keeps what is in it already."""
    results_hold_predictions: ClassVar[bool] = False
    """Whether its authors want the prediction files beside the results, in a folder with the model's name."""
    iterations: ClassVar[int] = 1
    """How often its authors ask each sample."""
    modes: ClassVar[frozenset[str]] = frozenset()
    """Which of "cot", "no_context", "length_hint" and "rag" it knows. Thinking is the model's matter: all take it."""
    average_of: ClassVar[str] = "mean of tasks"
    """What its one score is, which ``averages`` has under "overall": a mean of tasks, where its authors have none."""
    clustered_by: ClassVar[str] = "document"
    """What ``cluster`` goes by, in a word."""
    retrieval: ClassVar[RetrievalRules] = RetrievalRules()
    """What its authors retrieve with."""
    open_tasks: ClassVar[tuple[str, ...] | None] = None
    """Tasks that are answered in words of one's own, which people or a judge can rate; None for all."""

    def knows(self, task: str) -> bool:
        """Whether it has such a task: a file from elsewhere may hold others."""
        return not self.known_tasks or task in self.known_tasks

    def bundled(self, bundle: Bundle) -> bool:
        """Whether "all" means this family's tasks, too; not where it makes its samples, and nobody bundled it."""
        return True

    def no_data(self, bundle: Bundle, what: str) -> NoDataError:
        """The error for a bundle without ``what``, this benchmark's data or official settings."""
        return NoDataError(
            f"The bundle at {bundle.root} does not hold {what}.",
            fix="Bundle it on a connected machine.",
            command=as_command("lbx", "bundle", self.recipe),
        )

    def official_file(self, bundle: Bundle, place: str) -> Path:
        """A file that its authors' prompts and settings are read from. Raises NoDataError where it is not there."""
        path = bundle.file(place)
        if path is None:
            raise self.no_data(bundle, f"data/files/{place}, which has official settings of {self.name}")
        return path

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

    def judged(self, bundle: Bundle) -> Iterator[tuple[Sample, str]]:
        """Each question for a judge or people in the official runners' order: its sample, and who judges it.

        A question that both judge is two. Raises BundleError: there is no open task.
        """
        return iter(())

    def is_open(self, task: str) -> bool:
        """Whether a task is one of ``open_tasks``."""
        return self.open_tasks is None or task in self.open_tasks

    def check_mode(self, task: str, mode: Mode) -> None:
        """Whether this task can be asked so, beyond what ``modes`` says of its family; before a model is loaded.

        Raises:
            UsageError: it cannot; says which can.
        """
        return

    def chance(self, sample: Sample) -> float:
        """What guessing scores on average, in 0..1: of four choices 0.25."""
        return 0.0

    @abstractmethod
    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """The official prompt of one sample. Raises BundleError where the bundle lacks the template.

        Args:
            chunks: with ``mode.rag``, what was retrieved, in document order.
        """

    def rubric_file(self, bundle: Bundle) -> Path | None:
        """The file with a rubric that a bundle brings for answers to it, which ``read_rubric`` reads; None for none."""
        return None

    def follow_up(self, bundle: Bundle, sample: Sample, mode: Mode, output: str) -> Prompt | None:
        """The prompt of a second step, given the first one's output; None where the first answer is the answer."""
        return None

    def final_answer(self, sample: Sample, mode: Mode, outputs: Sequence[str]) -> str:
        """The answer that is stored and scored, given every step's output: the last, but where authors join them."""
        return outputs[-1]

    def query(self, sample: Sample, bundle: Bundle) -> str:
        """What to retrieve chunks by. Raises BundleError where it has official words that the bundle lacks."""
        return sample.question

    def evidence(self, sample: Sample) -> Sequence[str]:
        """Texts of which at least one stands in the document where its answer does.

        The engine looks whether truncation cut away the only place of them. () where references are letters or
        summaries, which say nothing about that.
        """
        return ()

    def compared(self, sample: Sample, output: str) -> Compared | None:
        """What an embedding model has to compare before ``score`` can give a whole score; None for nothing."""
        return None

    @abstractmethod
    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """The official metrics of one output, the headline first; never raises on any output.

        Args:
            similarity: the largest cosine between the texts of ``compared``; None where no embedding model was asked.
        """

    def cluster(self, sample: Sample, document: str) -> str:
        """What questions share that depend on each other: by default their document. "" where nobody knows.

        Args:
            document: its hash; "" where an imported file does not hold it.
        """
        return document

    def across_lengths(self, task: str) -> str:
        """What a task and those that ask the same in documents of other lengths are together: by default itself."""
        return task

    def counts(self, row: ScoredSample) -> bool:
        """Whether the official number counts an answer at all."""
        return True

    def scores_if(self, metrics: Iterable[str], value: float) -> dict[str, float]:
        """The metrics of an answer that is not there, were it wholly wrong (0.0) or wholly right (1.0)."""
        return dict.fromkeys(metrics, value)

    @abstractmethod
    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        """The task's numbers as the official script prints them, from rows in the data's order.

        The first is the headline that averages are made of. Rows of failed generations are left out by the caller.
        """

    def headline(self, task: str, rows: Sequence[ScoredSample]) -> TaskScore | None:
        """The first number of ``aggregate``, which may be made without the others; None without any."""
        return next(iter(self.aggregate(task, rows)), None)

    def prints(self, metric: str, headline: str) -> bool:
        """Whether a task's metric stands in the paper's tables: the headline and its parts, "accuracy/easy"."""
        return metric == headline or metric.startswith(f"{headline}/")

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]]) -> list[GroupScore]:
        """Numbers over several tasks, in the order of the paper's table.

        Args:
            tasks: the rows of each task that has any, as ``aggregate`` takes them.
        """
        return []

    def averages(self, tasks: Mapping[str, Sequence[ScoredSample]]) -> list[GroupScore]:
        """Those of ``groups`` that two runs are compared by, without others of the same samples beside them."""
        return self.groups(tasks)

    def curves(self, tasks: Mapping[str, ScoredRows]) -> Mapping[str, LengthCurve]:
        """Scores by length that its authors draw and no script prints, by the group of their lines."""
        return {}

    def result_files(self, run: ScoredRun) -> dict[str, str]:
        """What the official scorer writes of a run's prediction file, by its place; {} where it writes nothing.

        Numbers are over the answers that are there, as its own are over the rows of a file.

        Raises:
            UsageError: the scorer would stop, or the run lacks what its numbers are made of.
        """
        return {}

    def joined_results(self, place: str, first: str, second: str) -> str | None:
        """Two runs' texts for one place as one; None where such a file is about one run."""
        return None
