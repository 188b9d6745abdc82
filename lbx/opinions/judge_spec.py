"""Spec of a judge run over other runs' answers."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.base.outputs import write_file
from lbx.options.common import LIMIT, NAME, RUN, TASKS, WHICH_QUESTIONS
from lbx.options.option import OptionField, fields_of, option_of, question_option
from lbx.options.run_spec import JUDGE_MARK, RunSpec, SampleOptions, read_values

OFFICIAL = "leval"
"""Benchmark of the default rubric. It is a literal, so that help and completion load no benchmark."""
_Questions = Literal["llm", "human", "both", "open"]
_Orders = Literal["both", "given"]
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class JudgeSpec(RunSpec):
    """Spec of a judge: the options of ``lbx judge``, including the run options that it shares.

    Patterns in ``tasks`` work as in ``lbx run``. ``limit`` counts questions of each task.

    Attributes:
        answers: results files with the answers. If several files contain a run, the first file is used.

    Raises:
        UsageError: see ``RunSpec``.
    """

    model: Annotated[str, replace(option_of(RunSpec, "model"), names=("--judge", "-j"))]
    runs: Annotated[
        tuple[str, ...],
        RUN.with_help(
            "Run to judge (its name, a prefix of it, or its model's name), or a model with published answers in the "
            "bundle: claude-100k, gpt4-32k, llama2-13b-chat-4k. Can be repeated.",
            panel="What to ask",
        ),
    ] = ()
    against: Annotated[
        str | None, question_option("Opponent; officially turbo-16k-0613.", "RUN", completion="runs")
    ] = None
    questions: Annotated[
        _Questions | None,
        WHICH_QUESTIONS.with_help(
            "L-Eval's questions for the judge (llm: 96), for people (human: 85) or both; open: all open questions "
            "of any benchmark. Default: llm; open if you pass your own rubric.",
            panel="What to ask",
        ),
    ] = None
    rubric: Annotated[str, question_option("leval, a benchmark's (helmet_narrativeqa) or a TOML file.", "FILE")] = (
        OFFICIAL
    )
    orders: Annotated[
        _Orders, question_option("both: each pair in both orders (official); given: the judged run first.", "WHICH")
    ] = "both"
    tasks: Annotated[
        tuple[str, ...], TASKS.with_help("Only answers to these benchmarks or tasks.", panel="Which samples")
    ] = ("all",)
    limit: Annotated[
        int | None,
        LIMIT.with_help("Only the first N samples of each task, with all their rounds.", panel="Which samples"),
    ] = None
    name: Annotated[
        str | None,
        NAME.with_help("Name of the judge; default: derived from model, backend, bundle and rubric.", panel="Output"),
    ] = None
    answers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("answers", "runs"):
            if isinstance(path_value := getattr(self, name), str | os.PathLike | list):
                texts = [path_value] if isinstance(path_value, str | os.PathLike) else path_value
                object.__setattr__(self, name, tuple(os.fspath(text) for text in texts))
        RunSpec.__post_init__(self)
        for option, value, kind in (("questions", self.question_set, _Questions), ("orders", self.orders, _Orders)):
            if value not in (allowed_values := get_args(kind)):
                raise UsageError(f"--{option} must be one of {', '.join(allowed_values)}, not {value!r}.")
        if not self.answers or not self.runs:
            raise UsageError("A judge needs a results file and a run to judge. Pass --run.")
        if self.against in self.runs:
            raise UsageError(
                f"--against {self.against} is also a run to judge: a run cannot be its own opponent.",
                fix="Pass another run with one of the two options.",
            )
        refused = [field for field in fields_of(RunSpec).values() if field.option and field.option.judges is False]
        if any(getattr(self, field.name) != field.default for field in refused):
            *names, last = (field.option_name for field in refused)
            raise UsageError(
                f"{', '.join(names)} and {last} do not apply to judges.",
                fix="Remove them: a judge reads answers, with the prompts of its rubric.",
            )

    @classmethod
    def command_line_fields(cls) -> Mapping[str, OptionField]:
        """Return the bundle, the fields of this class, and options of runs that judges share."""
        fields = {name: field for name, field in fields_of(cls).items() if field.option}
        shared = (name for name, field in fields.items() if field.option and field.option.judges)
        return {
            name: fields[name]
            for name in dict.fromkeys(["bundle", *JudgeSpec.__annotations__, *shared])
            if name in fields
        }

    @property
    def choice(self) -> SampleOptions:
        """Choice of rounds only by ``ids``. ``limit``, which counts questions, was applied before."""
        return SampleOptions(ids=self.ids)

    @property
    def question_set(self) -> str:
        """Value of ``questions``, or the default."""
        return self.questions or ("llm" if self.rubric == OFFICIAL else "open")

    @property
    def rubric_path(self) -> Path | None:
        """Path of the rubric's file, or None for the name of a rubric in the bundle."""
        from lbx.benchmarks.registry import RATING_RUBRICS  # slow, and --help does not need it

        is_named = self.rubric == OFFICIAL or self.rubric in RATING_RUBRICS
        return None if is_named else Path(self.rubric)

    def copy_inputs(self, folder: Path, mount_path: str) -> Self:
        """Copy the results files with answers, which stay readable during writes (see ``RunSpec.copy_inputs``)."""
        from lbx.results import Store
        from lbx.results.whole import commit_copies

        answers = []
        for number, path in enumerate(self.answers):
            answers.append(f"answers-{number}.duckdb")
            with Store(Path(path), read_only=True):  # no writer during the copy
                commit_copies.copy_database(Path(path), folder / answers[-1])
        rubric = self.rubric
        if self.rubric_path:
            write_file(folder / self.rubric_path.name, read_input(self.rubric_path, SMALL))
            rubric = f"{mount_path}/{self.rubric_path.name}"
        return replace(self, answers=tuple(f"{mount_path}/{name}" for name in answers), rubric=rubric)

    def with_absolute_paths(self) -> Self:
        rubric = str(self.rubric_path.absolute()) if self.rubric_path else self.rubric
        answers = tuple(str(Path(path).absolute()) for path in self.answers)
        return replace(RunSpec.with_absolute_paths(self), rubric=rubric, answers=answers)

    def to_json(self) -> dict[str, Any]:
        """Return the values that differ from the defaults, with a mark for judges."""
        return {JUDGE_MARK: _FORMAT, **RunSpec.to_json(self)}


def spec_of(values: object, source: str) -> RunSpec:
    """Parse the ``to_json`` values of a run or judge spec. Raises the UsageErrors of ``RunSpec.from_json``."""
    kind = JudgeSpec if isinstance(values, Mapping) and JUDGE_MARK in values else RunSpec
    return kind.from_json(values, source)


def read_spec(path: Path) -> RunSpec:
    """Read a run or judge spec from a JSON file. Raises UsageError if it is unreadable or not a spec."""
    return spec_of(read_values(path), str(path))
