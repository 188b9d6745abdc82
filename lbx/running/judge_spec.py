"""What a judge is asked, as one value: a run whose questions are other runs' answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.base.outputs import write_whole
from lbx.planning.selection import SampleChoice
from lbx.running.spec import JUDGE_MARK, RunSpec, read_values
from lbx.store import Store
from lbx.store.copies import copy_database

OFFICIAL = "leval"
QUESTIONS = ("llm", "human", "both", "open")
ORDERS = ("both", "given")
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec(RunSpec):
    """A judge's work. Every field is the option of ``lbx judge`` that has its name; see ``RunSpec`` for the others.

    Attributes:
        model: the judge's card, ``--judge``.
        tasks: whose answers, of those that the runs have; patterns as of ``lbx run``.
        limit: the first so many questions of each task, with all their rounds.
        answers: results files that hold the answers; where several hold a run, the first.
        runs: whose answers are judged.
        against: the run whose answers they are compared with; None for a rubric that rates one alone.
        questions: of L-Eval those marked for the judge ("llm"), for people ("human"), or "both"; "open" all that are
            not closed, of whatever benchmark. None: "llm" by the official rubric, else "open".
        rubric: "leval", the official one, or a TOML file.
        orders: "both", or "given": the judged answer first.

    Raises:
        UsageError: as of ``RunSpec``.
    """

    tasks: tuple[str, ...] = ("all",)
    answers: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    against: str | None = None
    questions: str | None = None
    rubric: str = OFFICIAL
    orders: str = "both"

    def __post_init__(self) -> None:
        for name in ("answers", "runs"):
            if isinstance(given := getattr(self, name), str | os.PathLike | list):
                texts = [given] if isinstance(given, str | os.PathLike) else given
                object.__setattr__(self, name, tuple(os.fspath(text) for text in texts))
        RunSpec.__post_init__(self)
        for option, value, known in (("questions", self.asked_about, QUESTIONS), ("orders", self.orders, ORDERS)):
            if value not in known:
                raise UsageError(f"--{option} is one of {', '.join(known)}, not {value!r}.")
        if not self.answers or not self.runs:
            raise UsageError("A judge needs a results file, and --run to say whose answers in it are judged.")
        if self.against in self.runs:
            raise UsageError(f"--against {self.against} is one of the judged runs: a run cannot be its own opponent.")
        if self.rag or self.summaries or self.both_kinds or self.cot or self.no_context:
            raise UsageError("--rag, --summaries, --both-kinds, --cot and --no-context are not for judges.")

    @property
    def choice(self) -> SampleChoice:
        """Every round: ``limit`` counts questions, not rounds."""
        return SampleChoice(ids=self.ids)

    @property
    def asked_about(self) -> str:
        """``questions``, or what it is where nothing is said."""
        return self.questions or ("llm" if self.rubric == OFFICIAL else "open")

    def carried(self, folder: Path, seen_as: str) -> JudgeSpec:
        """See ``RunSpec.carried``: a copy of the answers can be read whatever is written to the results files."""
        answers = []
        for number, path in enumerate(self.answers):
            answers.append(f"answers-{number}.duckdb")
            with Store(Path(path), read_only=True):  # nobody writes to it meanwhile
                copy_database(Path(path), folder / answers[-1])
        rubric = self.rubric
        if rubric != OFFICIAL:
            write_whole(folder / Path(rubric).name, read_input(Path(rubric), SMALL))
            rubric = f"{seen_as}/{Path(rubric).name}"
        return replace(self, answers=tuple(f"{seen_as}/{name}" for name in answers), rubric=rubric)

    def settled(self) -> Self:
        """See ``RunSpec.settled``."""
        rubric = self.rubric if self.rubric == OFFICIAL else str(Path(self.rubric).absolute())
        answers = tuple(str(Path(path).absolute()) for path in self.answers)
        return replace(RunSpec.settled(self), rubric=rubric, answers=answers)

    def to_json(self) -> dict[str, Any]:
        """What differs from the defaults, and that this is a judge."""
        return {JUDGE_MARK: _FORMAT, **RunSpec.to_json(self)}


def spec_of(values: object, source: str) -> RunSpec:
    """A run's spec or a judge's, from what ``to_json`` gave. Raises UsageError as ``RunSpec.from_json``."""
    kind = JudgeSpec if isinstance(values, Mapping) and JUDGE_MARK in values else RunSpec
    return kind.from_json(values, source)


def read_spec(path: Path) -> RunSpec:
    """The same from a JSON file. Raises UsageError: it cannot be read, or is no spec."""
    return spec_of(read_values(path), str(path))
