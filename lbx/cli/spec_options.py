"""Options of the commands that take a whole run: ``lbx run``, ``plan``, ``prompts`` and ``submit``."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from lbx.base.errors import UsageError
from lbx.cli.command_builder import SpecValues, import_object
from lbx.options.common import RUN, RUN_FORMS
from lbx.options.option import question_option
from lbx.options.run_spec import RunSpec

_NO_VALUES = SpecValues(RunSpec)


@dataclass(frozen=True, kw_only=True)
class SpecOptions:
    """A run, and the file that it may be read from.

    Attributes:
        spec: spec in the file with changes by the command line, or without a file the spec on the command line.

    Raises:
        UsageError: a required option is missing, or the spec refuses a value.
    """

    BRIEF: ClassVar[Sequence[str]] = ("bundle", "model", "tasks", "limit", "name")

    spec_values: SpecValues[RunSpec] = _NO_VALUES
    spec_file: Annotated[
        Path | None,
        question_option(
            "Read the run from this file of `lbx submit` or results file; other options override it.",
            "FILE",
            ("--spec",),
        ),
    ] = None
    stored: Annotated[str | None, RUN.with_help(f"The run of --spec RESULTS: {RUN_FORMS}.", panel="What to ask")] = None
    spec: RunSpec = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", self._make_spec())

    def _make_spec(self) -> RunSpec:
        values, make = self.spec_values.values, self.spec_values.spec
        if self.spec_file is not None:  # which goes before the environment
            overrides = {name: value for name, value in values.items() if name not in self.spec_values.environment}
            read_spec: Callable[[Path, str | None], RunSpec] = import_object("running.resolved_run:read_any_spec")
            return dataclasses.replace(read_spec(self.spec_file, self.stored), **overrides)
        if self.stored:
            raise UsageError("--run selects a run of --spec RESULTS.", fix="To name a new run, pass --name.")
        for name, field in make.command_line_fields().items():
            if field.default is MISSING and name not in values:
                spelled = " / ".join(field.names)
                raise UsageError(
                    f"Missing option {spelled}.", fix="A run needs a bundle, a model and tasks, or --spec."
                )
        return make(**values)
