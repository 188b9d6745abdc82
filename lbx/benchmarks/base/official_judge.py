"""What a benchmark says of judging: its authors' rubric and judge, their files, and the answers that they published."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from lbx.base.layout import Bundle
from lbx.base.records import Sample
from lbx.benchmarks.base.prediction_lines import Content, PredictionLine
from lbx.benchmarks.base.predictions import Prediction
from lbx.benchmarks.base.rubric import Rubric

OFFICIAL = "leval"
"""Whose rubric a judge goes by where none is named."""
PUBLISHED = "published-"
"""What names of runs of published answers begin with."""
NO_ANSWER = "$ERROR$"
"""What scripts keep as a judgement where the server gave none."""
ERROR = "error"
"""The winner of a judgement that names none."""


def published_run_id(model: str, *, length_hint: bool = True) -> str:
    """The run of a model's published answers, told how many words the reference has or not."""
    return f"{PUBLISHED}{model}" + ("" if length_hint else "-no-length-hint")


class Asked(NamedTuple):
    """What a judge's prompt shows."""

    question: str
    reference: str
    answers: tuple[str, str]


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """A row of a file of judgements: one question, judged in both orders.

    Attributes:
        prompts, judgements, winners: of both rounds; a winner is 0 (the judged model), 1 (the other), "tie", "error".
        names: of both models.
        prompt_name: of the template, where rows name one.
        told: what both prompts show, where that can be told.
    """

    line: PredictionLine
    judge: str
    prompts: tuple[str, str]
    judgements: tuple[str, str]
    winners: tuple[int | str, int | str]
    names: tuple[str, str] = ("", "")
    prompt_name: str = ""
    note: str = ""
    told: Asked | None = None


@dataclass(frozen=True, slots=True)
class JudgeFile:
    """A file's runs of a judge, one behind the other, each with at least one row."""

    path: Path
    attempts: Sequence[Sequence[JudgedPair]]
    content: Content
    sha256: str
    rubric: Rubric


class JudgeForm(ABC):
    """A form of files of judgements.

    Attributes:
        name: of the format.
        benchmark: whose questions are judged.
    """

    name: ClassVar[str]
    benchmark: ClassVar[str]
    by_rubric: ClassVar[bool] = False
    """Whether the script judges by the official rubric, so that what a judge of lbx said can be such a file."""

    @abstractmethod
    def read(self, path: Path, bundle: Bundle | None = None) -> JudgeFile:
        """A file, its rows with what their prompts show.

        Args:
            bundle: brings the official rubric, by which prompts are taken apart.

        Raises:
            UsageError: something is wrong with the file; names the line.
            BundleError: the bundle's rubric is not the one that lbx was written for.
        """

    @abstractmethod
    def samples(self, asked: Sequence[tuple[str, str]]) -> list[Prediction]:
        """(question, reference) as rows of a file for a judge that nobody has answered."""

    @abstractmethod
    def numbers(self, rows: Sequence[JudgedPair]) -> list[str]:
        """What its script prints of its rows, line by line."""

    def pair(
        self, judge: str, names: tuple[str, str], prompts: tuple[str, str], said: tuple[str, str], at: float
    ) -> JudgedPair:
        """A row as the script writes it; ``at`` in seconds since 1970."""
        raise NotImplementedError

    def lines_behind(self, rows: Sequence[JudgedPair]) -> list[str]:
        """What the script writes behind its rows."""
        return []


class OfficialJudge(ABC):
    """How a benchmark's authors had answers judged."""

    benchmark: ClassVar[str]
    title: ClassVar[str]
    """The benchmark, to people."""
    source: ClassVar[str]
    """Where a bundle has the rubric."""
    baseline: ClassVar[str]
    """The model that every other one is judged against."""
    forms: ClassVar[Sequence[JudgeForm]]
    """Their files of judgements."""
    answer_files: ClassVar[Mapping[str, tuple[str, ...]]]
    """Their files of answers for a judge, and which marks of questions each means."""

    @abstractmethod
    def rubric(self, path: Path) -> Rubric:
        """The official one in a file. Raises BundleError: it is not the one that lbx was written for."""

    @abstractmethod
    def published(self, bundle: Bundle, *, length_hint: bool = True) -> Mapping[str, Sequence[str]]:
        """{model: the bundle's files with its judged answers}, sorted.

        Args:
            length_hint: those that were told how many words the reference has, else those that were not.
        """

    @abstractmethod
    def settings_of(self, lines: Sequence[PredictionLine]) -> Mapping[str, Any]:
        """What rows for a judge tell of how they were asked, as settings of a run."""

    @abstractmethod
    def row(self, model: str, sample: Sample, mark: str, prompt: str, output: str) -> dict[str, Any]:
        """A row of ``answer_files``."""
