"""Options of a run, derived from the fields of its spec and shared by ``lbx run``, ``plan`` and ``submit``."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_origin

import typer

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, expanded, read_handed
from lbx.base.option import Field, fields_of
from lbx.cli.loading import REQUIRED, Several, Shown, completed_by, resolve
from lbx.cli.options import A_RUN, BUNDLE_VARIABLE
from lbx.running.judge_spec import JudgeSpec
from lbx.spec.run_spec import RunSpec

SpecFile = Annotated[
    Path | None,
    typer.Option(
        "--spec",
        metavar="FILE",
        rich_help_panel="What to ask",
        help="Read the run from this file of `lbx submit` or results file; other options override it.",
    ),
]


_COMPLETED = {"tasks": "tasks", "model": "models", "embedding": "models", "runs": "runs", "against": "runs"}
"""{field: function of ``lbx.cli.completing`` with the shell completions of its values}."""


def of_run(name: str) -> Any:
    """Return the Typer option of a field of ``RunSpec``, for another command."""
    return _option(fields_of(RunSpec)[name])


def _option(field: Field) -> Any:
    option = field.option
    assert option is not None
    return typer.Option(
        *field.names, metavar=option.metavar, min=field.least, help=option.help, rich_help_panel=option.panel,
        envvar=BUNDLE_VARIABLE if field.name == "bundle" else None,
        autocompletion=completed_by(_COMPLETED[field.name]) if field.name in _COMPLETED else None,
    )  # fmt: skip


def _shown(field: Field, *, required: bool) -> Shown:
    """Convert a field to a Typer parameter; the default of lists and of optional fields without default is None."""
    listed = get_origin(field.kind) is tuple
    kind = Path if field.option and field.option.path else list[str] if listed else field.kind
    if listed or (field.default is MISSING and not required):
        return Annotated[kind | None, _option(field)], None
    return Annotated[kind, _option(field)], REQUIRED if field.default is MISSING else field.default


def _of_judges() -> Iterator[Field]:
    """Options of a judge: the bundle, fields of ``JudgeSpec``, and options of runs that judges share."""
    fields = {name: field for name, field in fields_of(JudgeSpec).items() if field.option}
    taken = (name for name, field in fields.items() if field.option and field.option.judges)
    return (fields[name] for name in dict.fromkeys(["bundle", *JudgeSpec.__annotations__, *taken]) if name in fields)


def given(names: Mapping[str, object], values: Mapping[str, Any], context: typer.Context) -> dict[str, Any]:
    """Select values given by the user; a spec file takes precedence over environment variables."""
    unsaid = ("DEFAULT", "ENVIRONMENT") if values.get("spec_file") else ("DEFAULT",)
    typed = [name for name in names if str(getattr(context.get_parameter_source(name), "name", "")) not in unsaid]
    return {name: names_of_samples(values[name]) if name == "ids" else values[name] for name in typed}


def run_options(spec: type[RunSpec]) -> Several:
    options = {name: _shown(field, required=False) for name, field in fields_of(spec).items()}

    def make(values: Mapping[str, Any], context: typer.Context) -> RunSpec:
        typed = given(options, values, context)
        if (file := values["spec_file"]) is not None:
            read: Callable[[Path, str | None], RunSpec] = resolve("running.resolved:read_any_spec")
            return dataclasses.replace(read(file, values["stored"]), **typed)
        if values["stored"]:
            raise UsageError("--run selects a run of --spec RESULTS.", fix="To name a new run, pass --name.")
        for name, field in fields_of(spec).items():
            if field.default is MISSING and name not in typed:
                spelled = " / ".join(field.names)
                raise UsageError(
                    f"Missing option {spelled}.", fix="A run needs a bundle, a model and tasks, or --spec."
                )
        return spec(**typed)

    return Several(options, make)


_OF_JUDGES = {field.name: _shown(field, required=True) for field in _of_judges()}
Judging = Annotated[Mapping[str, Any], Several(_OF_JUDGES, lambda values, context: given(_OF_JUDGES, values, context))]
"""Given options of a ``JudgeSpec``; its other values depend on them, so no defaults are filled in here."""


@dataclass(frozen=True, kw_only=True)
class OfRun:
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
            autocompletion=completed_by("runs"),
            help=f"The run of --spec RESULTS: {A_RUN}.",
        ),
    ] = None


def names_of_samples(given: Sequence[str] | None) -> tuple[str, ...]:
    """Read the sample names of --ids.

    Raises:
        UsageError: --ids names no sample, or a file of names cannot be read.
    """
    names = tuple(name for text in given or () for name in _names(text))
    if given and not names:
        raise UsageError("--ids names no sample.", fix="Give names, or @FILE with one name on each line.")
    return names


def _names(text: str) -> Iterator[str]:
    """Split one value of --ids: names separated by commas, or @FILE with one name on each line."""
    parts = _lines(Path(text[1:])) if text.startswith("@") else text.split(",")
    return (name for part in parts if (name := part.strip()))


def _lines(path: Path) -> list[str]:
    try:
        lines = read_handed(expanded(path), SMALL).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise UsageError(
            f"--ids @{path} cannot be read: {reason}.", fix="It takes a text file with one name on each line."
        ) from exc
    if not any(line.strip() for line in lines):
        raise UsageError(f"--ids @{path} names no sample: the file is empty.", fix="Write one name on each line.")
    return lines
