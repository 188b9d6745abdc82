"""Base class of benchmark families: data in the bundle, prompts, metrics and official aggregates.

A family is a module, or a folder, with a subclass of ``Benchmark``. The subclass defines data, tasks, asking protocol,
scoring rules, the format of official files, tables, boards and published scores as values, and implements the methods
that need code. Only ``lbx.benchmarks.registry.BENCHMARKS`` names the family elsewhere.

The module also defines the marks of questions that a model or people should judge. Official files contain a question
with both marks twice. lbx asks the question once, and each copy counts by itself.

``UnloadedModel`` is for families with samples that depend on the tokenizer of the model that a run asks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.number import Number, NumberKey
from lbx.base.records import (
    Chunk,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    SimilarityInput,
    Task,
)
from lbx.benchmarks.base.aggregates import ScoredRows
from lbx.benchmarks.base.paper_tables import Boards, LengthCurve, Paper, PublishedScoreFormat
from lbx.benchmarks.base.predictions import PredictionFormat, ResultFormat
from lbx.benchmarks.base.rubric import FamilyRubrics
from lbx.benchmarks.base.sources import DataSource
from lbx.benchmarks.retrieval.retriever import RetrievalRules
from lbx.engine.wrapping import Tokenizer
from lbx.options.asking import PLAIN, Mode

LLM, HUMAN = MARKS = ("LLM", "human")
"""Marks of questions for a judge or for people, in the order of a question's copies."""
MARKS_BY_NAME: Mapping[str, tuple[str, ...]] = {"llm": (LLM,), "human": (HUMAN,), "both": MARKS}
"""Marks by the value of the option ``--questions``."""


def marks_in(meta: object) -> tuple[str, ...]:
    """Marks in a sample's ``meta``. It may come from any file, so values of other types are ignored."""
    fields = meta if isinstance(meta, Mapping) else {}
    copy_marks = fields.get("judged_by")
    values = [fields.get("evaluation"), *(copy_marks if isinstance(copy_marks, list | tuple) else ())]
    return tuple(mark for mark in MARKS if mark in values)


def has_copies(marks: Sequence[str]) -> bool:
    return len(marks) == len(MARKS)


def copy_marks(marks: Sequence[str], index: int) -> tuple[str, ...]:
    """Mark of a question's copy with this index, or () after the last copy."""
    return tuple(marks[index : index + 1])


def row_count(marks: Sequence[str], asked_marks: Collection[str]) -> int:
    """Number of rows of an official file for a question with these marks, at least one."""
    return sum(mark in asked_marks for mark in marks) or 1


def copy_pairs(
    marks: Sequence[str], answers: Collection[int], opponent_answers: Collection[int]
) -> dict[tuple[int, int], tuple[str, ...]]:
    """Pair two runs' answers to a question: {(iteration, opponent's iteration): marks of the copies it is for}.

    If a run answered each copy, each answer makes a pair. If a run was asked once, one pair counts for both copies.
    """
    pairs: dict[tuple[int, int], tuple[str, ...]] = {}
    for index, mark in enumerate(marks):
        pair = (
            index if index in answers else min(answers),
            index if index in opponent_answers else min(opponent_answers),
        )
        pairs[pair] = (*pairs.get(pair, ()), mark)
    return pairs


class ModelTokenizer(NamedTuple):
    """Tokenizer of a model, loaded without the weights.

    Attributes:
        sha256: hash of the tokenizer's definition. For a GGUF file it covers the header's tokenizer keys, so that all
            quantisations of a model share the hash.
        wrapping_tokens: tokens that the card's chat template adds to a user's message, BOS included, with the reasoning
            on or off, whichever adds more, or 0 without a template.
        count: returns the number of tokens of a text, without BOS and with control tokens as single tokens.
    """

    tokenizer: Tokenizer
    sha256: str
    wrapping_tokens: int
    count: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class UnloadedModel:
    """Context window and tokenizer of a model before its weights are loaded. Can be pickled.

    Attributes:
        context_window: number of tokens, or None if only the loaded model, or its server, knows the number.
        load_tokenizer: loads the tokenizer, which takes seconds with a large vocabulary. Raises UsageError if the card
            has no tokenizer, and BackendError if the tokenizer's files are damaged.
    """

    context_window: int | None
    load_tokenizer: Callable[[], ModelTokenizer]


WINDOWS_OF_128K = range(128_000, 131_073)
"""Context windows, in tokens, that are called 128k: from 128 x 1000 to 128 x 1024."""


def with_unique_ids(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield the samples with unique ids: a repeated id gets the suffix "-2", then "-3"."""
    seen: dict[str, int] = {}
    for sample in samples:
        seen[sample.sample_id] = times = seen.get(sample.sample_id, 0) + 1
        yield sample if times == 1 else replace(sample, sample_id=f"{sample.sample_id}-{times}")


def _accept_no_task(task: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class TaskCatalogue:
    """Tasks of a family, whether or not a bundle contains data for these tasks.

    Attributes:
        names: every task in the paper's order, or () for a family with tasks defined in the bundle.
        selections: names of groups of tasks for ``--tasks``.
        embedding_tasks: tasks whose score is one half similarity, by an embedding model
            (``Benchmark.similarity_input``).
        open_tasks: tasks with free-text answers, which people or a judge can rate. None means all tasks.
        has_marks: whether the authors mark questions for judges and people (``MARKS``).
        length_groups: {task: name of the group of tasks that ask the same about documents of other lengths}.
        accepts: whether the family contains a task that ``names`` lacks, for example of another length. Patterns match
            ``names`` only.
    """

    names: tuple[str, ...] = ()
    selections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    embedding_tasks: tuple[str, ...] = ()
    open_tasks: tuple[str, ...] | None = None
    has_marks: bool = False
    length_groups: Mapping[str, str] = field(default_factory=dict)
    accepts: Callable[[str], bool] = _accept_no_task

    def has_task(self, task: str) -> bool:
        """Whether the family may contain this task. Imported files may contain other tasks."""
        return not self.names or task in self.names or self.accepts(task)

    def is_open(self, task: str) -> bool:
        return self.open_tasks is None or task in self.open_tasks


def _allow_mode(task: str, mode: Mode) -> None:
    return


@dataclass(frozen=True, slots=True)
class AskingProtocol:
    """Protocol by which the authors of a family ask questions.

    Attributes:
        modes: supported options of ``PromptOptions``, such as "cot" and "rag". Every family supports thinking.
        iterations: number of times that each sample is asked.
        check_mode: raises UsageError for a task that cannot be asked in a mode that ``modes`` allows.
    """

    modes: frozenset[str] = frozenset()
    iterations: int = 1
    retrieval: RetrievalRules = field(default_factory=RetrievalRules)
    check_mode: Callable[[str, Mode], None] = _allow_mode


def _without_curves(tasks: Mapping[str, ScoredRows]) -> Mapping[str, LengthCurve]:
    return {}


def _is_of_known_tasks(key: NumberKey) -> bool:
    return False


MEAN_OF_QUESTIONS = "mean of questions"


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """Unit and meaning of a family's scores, and rules for its official numbers.

    Attributes:
        unit: the official number of a score of 1: 100 for percent.
        average_of: description of the numbers that the benchmark's overall score averages.
        cluster_name: noun for a value of ``Benchmark.cluster``.
        uncounted_metric: metric that is 1 for an answer that the official number leaves out, or "" if unused.
        prints_all_metrics: whether the paper's tables list every metric of a task, not only the headline and metrics
            such as "accuracy/easy".
        curves: scores by length that the authors draw and no script prints, by grouping.
        prompt_limits: {task: number of tokens to which the authors cut a prompt}. A task with a prompt that was cut to
            fewer, or has more, has no official number.
        missing_metrics: official metrics that lbx lacks, with the reason, or "".
        is_of_any_tasks: whether a number over tasks (``Benchmark.groups``) is official for any tasks, and so not for a
            run that ended before one of its tasks. Other numbers are official if certain tasks are complete.
    """

    unit: float = 100
    average_of: str = "mean of tasks"
    cluster_name: str = "document"
    uncounted_metric: str = ""
    prints_all_metrics: bool = False
    curves: Callable[[Mapping[str, ScoredRows]], Mapping[str, LengthCurve]] = _without_curves
    prompt_limits: Mapping[str, int] = field(default_factory=dict)
    missing_metrics: str = ""
    is_of_any_tasks: Callable[[NumberKey], bool] = _is_of_known_tasks

    def is_counted(self, row: ScoredSample) -> bool:
        """Whether the official number counts an answer. An answer after reasoning always counts."""
        return row.reasoned or not row.scores.get(self.uncounted_metric)

    def missing_scores(self, metrics: Iterable[str], value: float) -> dict[str, float]:
        """Scores of a missing answer: ``value`` (0.0 for wrong, 1.0 for right) in every metric."""
        scores = dict.fromkeys(metrics, value)
        return {**scores, self.uncounted_metric: 0.0} if self.uncounted_metric else scores

    def is_in_paper(self, metric: str, headline: str) -> bool:
        """Whether the paper's tables list a task's metric: the headline, and e.g. "accuracy/easy" below it."""
        return self.prints_all_metrics or metric == headline or metric.startswith(f"{headline}/")


class Benchmark(ABC):
    """Benchmark family. Instances keep no state except caches of the bundle's content."""

    name: str
    metric_version: int
    """Version of the scoring code, stored with every score and raised whenever a change of code can change a score."""
    data: ClassVar[DataSource] = DataSource()
    catalogue: ClassVar[TaskCatalogue] = TaskCatalogue()
    protocol: ClassVar[AskingProtocol] = AskingProtocol()
    scoring: ClassVar[ScoringRules] = ScoringRules()
    predictions: PredictionFormat | None = None
    """Format of the family's official prediction files."""
    results: ClassVar[ResultFormat | None] = None
    """Files that the official scorer writes."""
    paper: ClassVar[Paper] = Paper()
    """Tables of the family's paper."""
    boards: ClassVar[Boards] = Boards()
    """Tables and charts of the family's leaderboards."""
    published_scores: ClassVar[PublishedScoreFormat] = PublishedScoreFormat()
    """Layout and checks of the family's published scores."""
    rubrics: ClassVar[FamilyRubrics] = FamilyRubrics()
    """The authors' rubrics, by which a judge rates single answers."""

    def for_model(self, model: UnloadedModel, mode: Mode) -> Benchmark:
        """Return the family with samples for a model, which is ``self`` unless samples depend on the model.

        In a family that overrides this method, ``samples`` raises ``no_model_error`` until it is called. The result is
        pickled for worker processes, which only call ``prompt``, ``later_prompts``, ``next_step`` and ``evidence``, so
        its state must contain neither caches nor the loaded tokenizer.

        Args:
            mode: options of the run. With ``both_kinds``, two runs share the samples, so ``thinking`` is then False.

        Raises:
            UsageError: no samples can be made for this model in this mode.
        """
        return self

    @abstractmethod
    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return the tasks that this bundle contains data for, in the benchmark's own order.

        A family whose samples depend on the model may leave out tasks that do not fit the model, unless they are in
        ``names``.

        Args:
            names: the only tasks that need to be looked up: counting samples may take unpacking gigabytes. The result
                may include other tasks. None for the whole family.
        """

    @abstractmethod
    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield the task's samples in the data's order, with questions on one document after one another.

        Raises:
            BundleError: a data file is damaged. The message names file and line.
            UsageError: the samples depend on a model, which is not set (``no_model_error``).
        """

    @abstractmethod
    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Fill in the official prompt for one sample. Raises BundleError if the bundle lacks the template.

        Args:
            chunks: the retrieved chunks in document order, or () without ``mode.rag``.
        """

    def later_prompts(self, bundle: Bundle, sample: Sample, mode: Mode) -> Sequence[Prompt]:
        """Prompts of later steps that no output changes, for plans. ``next_step`` returns the same prompts."""
        return ()

    def next_step(self, bundle: Bundle, sample: Sample, mode: Mode, outputs: Sequence[str]) -> Prompt | str:
        """Prompt of the next step, given the outputs of earlier steps, or the final answer, which lbx stores."""
        return outputs[-1]

    def query(self, sample: Sample, bundle: Bundle) -> str:
        """Query that retrieves chunks for a sample. Raises BundleError if the bundle lacks the official wording."""
        return sample.question

    def evidence(self, sample: Sample) -> Sequence[str]:
        """Texts that locate the answer in the document. At least one of them occurs in it.

        The engine searches for these texts to see whether truncation removed the only occurrence. Returns () if the
        references are letters or summaries, which cannot be searched for.
        """
        return ()

    def chance(self, sample: Sample) -> float:
        """Mean score of guessing, in 0..1: 0.25 for four choices."""
        return 0.0

    def similarity_input(self, sample: Sample, output: str) -> SimilarityInput | None:
        """Texts that an embedding model compares for a complete score, or None if the score needs no similarity."""
        return None

    @abstractmethod
    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score one output by the official metrics, the headline first. No output raises an exception.

        Args:
            similarity: largest cosine between the texts of ``similarity_input``, or None without an embedding model.
        """

    def cluster(self, sample: Sample, document: str) -> str:
        """Name of a sample's cluster, shared by questions that depend on each other, or "" if it is unknown.

        By default the cluster is the document.

        Args:
            document: hash of the document, or "" if an imported file does not contain the document.
        """
        return document

    @abstractmethod
    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        """Aggregate rows in the data's order into the task's numbers, as the official script prints them.

        The first number is the headline, which averages use. The caller leaves out rows of failed generations.
        """

    def headline(self, task: str, rows: Sequence[ScoredSample]) -> Number | None:
        """First number of ``aggregate``. Subclasses may compute it without the other numbers."""
        return next(iter(self.aggregate(task, rows)), None)

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Aggregate tasks into numbers of groups of tasks, such as a category, in the order of the paper's table.

        Args:
            tasks: non-empty rows by task, as for ``aggregate``.
            averages_only: whether to return only the averages by which two runs are compared, and leave out other
                numbers of the same samples.
        """
        return []


def needs_model(family: Benchmark) -> bool:
    """Whether the samples of a family depend on the model (``Benchmark.for_model``)."""
    return type(family).for_model is not Benchmark.for_model


def no_model_error(name: str) -> UsageError:
    """Error for a command without ``--model`` that needs the samples of a family that depend on the model."""
    return UsageError(
        f"The samples of {name} depend on the tokenizer of the model that is asked, and this command does not have it.",
        fix="Use a command that makes the samples of its --model: `lbx run`, `lbx plan` or `lbx prompts`.",
    )
