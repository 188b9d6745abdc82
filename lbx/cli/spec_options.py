"""Options of a run, derived from the fields of its spec and shared by ``lbx run``, ``plan`` and ``submit``."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_origin

import typer

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, expand_user, read_file_or_pipe
from lbx.cli.loading import REQUIRED, CombinedOption, TyperParameter, completion, import_object
from lbx.cli.options import BUNDLE_VARIABLE, RUN_FORMS
from lbx.opinions.judge_spec import JudgeSpec
from lbx.options.option import SpecField, fields_of
from lbx.options.run_spec import RunSpec

SpecFile = Annotated[
    Path | None,
    typer.Option(
        "--spec",
        metavar="FILE",
        rich_help_panel="What to ask",
        help="Read the run from this file of `lbx submit` or results file; other options override it.",
    ),
]


_COMPLETIONS = {"tasks": "tasks", "model": "models", "embedding": "models", "runs": "runs", "against": "runs"}
"""{field: function of ``lbx.cli.completing`` with the shell completions of its values}."""


def spec_option(name: str) -> Any:
    """Return the Typer option of a field of ``RunSpec``, for another command."""
    return _option(fields_of(RunSpec)[name])


def _option(field: SpecField) -> Any:
    option = field.option
    assert option is not None
    return typer.Option(
        *field.names, metavar=option.metavar, min=field.minimum, help=option.help, rich_help_panel=option.panel,
        envvar=BUNDLE_VARIABLE if field.name == "bundle" else None,
        autocompletion=completion(_COMPLETIONS[field.name]) if field.name in _COMPLETIONS else None,
    )  # fmt: skip


def _typer_parameter(field: SpecField, *, required: bool) -> TyperParameter:
    """Convert a field to a Typer parameter; the default of lists and of optional fields without default is None."""
    listed = get_origin(field.kind) is tuple
    kind = Path if field.option and field.option.path else list[str] if listed else field.kind
    if listed or (field.default is MISSING and not required):
        return Annotated[kind | None, _option(field)], None
    return Annotated[kind, _option(field)], REQUIRED if field.default is MISSING else field.default


def _judge_fields() -> Iterator[SpecField]:
    """Options of a judge: the bundle, fields of ``JudgeSpec``, and options of runs that judges share."""
    fields = {name: field for name, field in fields_of(JudgeSpec).items() if field.option}
    taken = (name for name, field in fields.items() if field.option and field.option.judges)
    return (fields[name] for name in dict.fromkeys(["bundle", *JudgeSpec.__annotations__, *taken]) if name in fields)


def given_values(names: Mapping[str, object], values: Mapping[str, Any], context: typer.Context) -> dict[str, Any]:
    """Select values given by the user; a spec file takes precedence over environment variables."""
    default_sources = ("DEFAULT", "ENVIRONMENT") if values.get("spec_file") else ("DEFAULT",)
    given_names = [
        name for name in names if str(getattr(context.get_parameter_source(name), "name", "")) not in default_sources
    ]
    return {name: sample_names(values[name]) if name == "ids" else values[name] for name in given_names}


def run_options(spec: type[RunSpec]) -> CombinedOption:
    options = {name: _typer_parameter(field, required=False) for name, field in fields_of(spec).items()}

    def make(values: Mapping[str, Any], context: typer.Context) -> RunSpec:
        overrides = given_values(options, values, context)
        if (file := values["spec_file"]) is not None:
            read_spec: Callable[[Path, str | None], RunSpec] = import_object("running.resolved_run:read_any_spec")
            return dataclasses.replace(read_spec(file, values["stored"]), **overrides)
        if values["stored"]:
            raise UsageError("--run selects a run of --spec RESULTS.", fix="To name a new run, pass --name.")
        for name, field in fields_of(spec).items():
            if field.default is MISSING and name not in overrides:
                spelled = " / ".join(field.names)
                raise UsageError(
                    f"Missing option {spelled}.", fix="A run needs a bundle, a model and tasks, or --spec."
                )
        return spec(**overrides)

    return CombinedOption(options, make)


_JUDGE_OPTIONS = {field.name: _typer_parameter(field, required=True) for field in _judge_fields()}
JudgeSpecOptions = Annotated[
    Mapping[str, Any],
    CombinedOption(_JUDGE_OPTIONS, lambda values, context: given_values(_JUDGE_OPTIONS, values, context)),
]
"""Given options of a ``JudgeSpec``; its other values depend on them, so no defaults are filled in here."""


@dataclass(frozen=True, kw_only=True)
class SpecOptions:
    """Options of every command that takes a whole spec."""

    BRIEF: ClassVar[Sequence[str]] = ("bundle", "model", "tasks", "limit", "name", "output")

    spec: Annotated[RunSpec, run_options(RunSpec)]
    spec_file: SpecFile = None
    stored: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="RUN",
            rich_help_panel="What to ask",
            autocompletion=completion("runs"),
            help=f"The run of --spec RESULTS: {RUN_FORMS}.",
        ),
    ] = None


def sample_names(values: Sequence[str] | None) -> tuple[str, ...]:
    """Read the sample names of --ids.

    Raises:
        UsageError: --ids names no sample, or a file of names cannot be read.
    """
    names = tuple(name for text in values or () for name in _names(text))
    if values and not names:
        raise UsageError("--ids names no sample.", fix="Give names, or @FILE with one name on each line.")
    return names


def _names(text: str) -> Iterator[str]:
    """Split one value of --ids: names separated by commas, or @FILE with one name on each line."""
    parts = _lines(Path(text[1:])) if text.startswith("@") else text.split(",")
    return (name for part in parts if (name := part.strip()))


def _lines(path: Path) -> list[str]:
    try:
        lines = read_file_or_pipe(expand_user(path), SMALL).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise UsageError(
            f"--ids @{path} cannot be read: {reason}.", fix="It takes a text file with one name on each line."
        ) from exc
    if not any(line.strip() for line in lines):
        raise UsageError(f"--ids @{path} names no sample: the file is empty.", fix="Write one name on each line.")
    return lines
