"""What a format of prediction files is: which files it has, what a row means, and how lbx writes such rows itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from lbx.base.records import Sample, canonical_json, sha256_text
from lbx.benchmarks.base.prediction_lines import PredictionLine

NOT_TEXT = "not_text"
"""finish_reason of an imported answer that is no text in its file (null, a number): "" stands in its place."""

NO_TASK = "judged"
"""Stands for the task of a judged question in a file that says none, and of which no bundle tells it."""

UNMATCHED = "unmatched-"
"""What names of samples begin with that a file tells of and its bundle does not have."""


def judged_sample(benchmark: str, question: str, reference: str, mark: str) -> Sample:
    """A judged question that no bundle tells of, whatever file it stands in: the same name for the same question."""
    name = sha256_text(canonical_json([question, reference, mark, None]))[:16]
    return Sample(benchmark, NO_TASK, name, "", question, (reference,), meta={"evaluation": mark})


SplitReasoning = Callable[[str], tuple[str | None, str, bool | None]]
"""From an output to its reasoning, the answer, and whether the reasoning closed; (None, output, None) without any."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One row of a prediction file, understood.

    Attributes:
        line: where it stands, verbatim.
        task, sample_id, iteration: the key of its generation.
        position: the sample's place in the data; without a bundle, the row's in its file, from 0.
        sample: what it answers; None where the file says nothing about that (an error's row).
        output: the answer; None where there is none.
        error: why there is no answer, as the file says.
        reasoning, reasoning_closed: what the model reasoned before its answer, and whether that ended.
        judged: what the file says about the answer, right or wrong; None where it says nothing.
        note: a sentence on how the row was taken, where that is not as it stands.
    """

    line: PredictionLine
    task: str
    sample_id: str
    position: int
    sample: Sample | None
    output: str | None = None
    error: str | None = None
    iteration: int = 0
    reasoning: str | None = None
    reasoning_closed: bool | None = None
    finish_reason: str | None = None
    steps: Sequence[Mapping[str, Any]] | None = None
    judged: bool | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One stored answer, as export takes it.

    ``position`` is the sample's place in the data, ``source_row`` the line that an imported one was read from.
    """

    sample: Sample
    position: int
    iteration: int
    output: str
    reasoning: str | None = None
    steps: Sequence[Mapping[str, Any]] = ()
    source_row: str = "{}"


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file as export writes it: ``name`` may have folders; ``left_out`` counts answers by why they are not in it."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PredictionFormat(ABC):
    """One format.

    Attributes:
        name: of the benchmark whose authors made it.
        known_tasks: the tasks that there can be files of.
    """

    name: str
    known_tasks: tuple[str, ...]

    folder: ClassVar[bool]
    """Whether it is a folder with a file a task, else one file."""
    array: ClassVar[bool] = False
    """Whether its scorer reads a file that is one JSON array, too."""
    appends: ClassVar[bool] = False
    """Whether its script appends to a file that is there, and its scorer counts every row: a question that is answered
    again is then a further iteration."""
    stands_alone: ClassVar[bool] = True
    """Whether a row says enough to be scored where no bundle has its sample."""
    reasoning_key: ClassVar[str] = "reasoning"
    scored: ClassVar[tuple[str, ...]] = ()
    """Keys of ``Sample.meta`` that scores depend on: samples that differ in one of them are not the same."""
    filled_in: ClassVar[frozenset[str]] = frozenset()
    """Those of ``scored`` that a file may leave out where somebody else knows them."""

    def task_of(self, stem: str, *, e: bool) -> str:
        """The task of a folder format's file by its name up to the first dot; it may be an unknown one."""
        return stem

    @abstractmethod
    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """A file's rows, each with the sample that it tells of. Raises UsageError naming file and line."""

    @abstractmethod
    def identity(self, sample: Sample) -> object:
        """What a file's sample and the bundle's have in common if they are the same."""

    def for_judges(self, line: PredictionLine) -> bool:
        """Whether a row is in a file for a judge, which holds several tasks and is named after its model."""
        return False

    def read_judged(self, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """Such a file's rows, as ``read``; a sample's ``meta["evaluation"]`` says who judges it."""
        raise NotImplementedError

    def unmatched_name(self, sample: Sample) -> str:
        """Of a sample that the bundle does not have: the same for equal ones, whatever file tells of them."""
        scored = [sample.meta.get(key) for key in self.scored]
        content = [self.identity(sample), sample.question, sample.references, sample.length, scored]
        return f"{UNMATCHED}{sha256_text(canonical_json(content))[:16]}"

    def free_standing(self, prediction: Prediction) -> bool:
        """Whether a row that answers no sample of the bundle is taken nevertheless."""
        return prediction.sample is None

    def same_place(self, prediction: Prediction, sample: Sample) -> bool:
        """Whether a row may answer the sample at its place in the data, though ``identity`` says otherwise.

        Asked only where a file's rows do not match, and believed only where it holds for every row of the file.
        """
        return False

    def apart(self, prediction: Prediction, split: SplitReasoning) -> Prediction:
        """The row with its reasoning apart from its answer."""
        reasoning, answer, closed = split(prediction.output or "")
        if reasoning is None:
            return prediction
        reasoning = "\n\n".join(filter(None, (prediction.reasoning, reasoning)))
        return replace(prediction, output=answer, reasoning=reasoning, reasoning_closed=closed)

    def contradiction(self, prediction: Prediction, sample: Sample) -> str | None:
        """Why the file's own mark of the answer cannot be had with this sample, or None."""
        return None

    def place(self, model: str, task: str | None, name: str) -> str:
        """Where an imported file goes when it is exported again."""
        return name

    def label(self, model: str, settings: Mapping[str, Any]) -> str:
        """What the files call a model that was asked with these settings of a run."""
        return model

    @abstractmethod
    def file_name(self, model: str, task: str) -> str:
        """Where a task's answers go; in a format of one file the same for every task."""

    @abstractmethod
    def row(self, model: str, task: str, answer: StoredAnswer) -> dict[str, Any]:
        """One answer as its scorer reads it."""

    def written(self, model: str, task: str, answer: StoredAnswer) -> dict[str, Any]:
        """The row with lbx's reasoning, under a key that scorers never read: official files hold the answer alone."""
        row = self.row(model, task, answer)
        return row if answer.reasoning is None else {**row, self.reasoning_key: answer.reasoning}

    def left_out(self, answer: StoredAnswer) -> str:
        """Why an answer has no row in a file, as a count of such is told; "" where it has one."""
        return "further iterations" if answer.iteration else ""

    def export(self, model: str, task: str, answers: Sequence[StoredAnswer]) -> ExportedFile:
        """A task's answers as a file, the first of each question; rows for the same file are put behind each other.

        Args:
            answers: in the data's order, then by iteration.
        """
        chosen = [answer for answer in answers if not self.left_out(answer)]
        rows = [self.written(model, task, answer) for answer in chosen]
        others = Counter(why for answer in answers if (why := self.left_out(answer)))
        return ExportedFile(self.file_name(model, task), rows, others)

    def answered(self, line: PredictionLine, place: int, sample: Sample, key: str) -> Prediction:
        """The prediction of a row that has its answer under ``key``; what is no text is "" and marked."""
        output = line.need(key)
        answer = (output, None) if isinstance(output, str) else ("", NOT_TEXT)
        return Prediction(line, sample.task, sample.sample_id, place, sample, answer[0], finish_reason=answer[1])


def differences(mine: Sample, known: Sample, scored: Sequence[str], filled_in: Collection[str] = frozenset()) -> str:
    """Names of what two samples of one name disagree on, of what both know and scoring reads; "" for nothing.

    Args:
        scored: keys of ``meta``; one that is missing counts as null.
        filled_in: those that may be missing from ``mine``.
    """
    mismatches = [
        name
        for name in ("references", "question", "length")
        if getattr(mine, name) and getattr(known, name) and not _same(getattr(mine, name), getattr(known, name))
    ]
    scored = [key for key in scored if key in mine.meta or key not in filled_in]
    mismatches += [key for key in scored if not _same(mine.meta.get(key), known.meta.get(key))]
    return ", ".join(mismatches)


def file_part(model: str) -> str:
    """A model's name as a part of a path, as the official scripts take it: what follows the last slash."""
    return model.rstrip("/").rpartition("/")[2].strip(".") or "model"


def _same(mine: object, known: object) -> bool:
    # The results file cannot hold a lone surrogate; what it made of one is no difference.
    return _stored(mine) == _stored(known)


def _stored(value: object) -> str:
    return canonical_json(value).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
