"""The options that say what a run is, made of its spec's fields: ``lbx run``, ``plan`` and ``submit`` take the same."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, read_handed
from lbx.base.paths import expanded
from lbx.planning.option import Field, fields_of
from lbx.running.judge_spec import JudgeSpec
from lbx.running.spec import RunSpec

SpecFile = Annotated[
    Path | None,
    typer.Option(
        "--spec",
        metavar="FILE",
        rich_help_panel="What to ask",
        help="A run as a file: what `lbx submit` wrote, or a results file whose run is to be made again (--run names "
        "it). Other options change it.",
    ),
]


def of_run(name: str) -> Any:
    """What the command line shows of an option of a run, for the annotation of another command's parameter."""
    return _shown(fields_of(RunSpec)[name])


def _shown(field: Field) -> Any:
    option = field.option
    assert option is not None
    return typer.Option(
        *field.names, metavar=option.metavar, min=field.least, help=option.help, rich_help_panel=option.panel
    )


def _parameter(field: Field, *, required: bool) -> tuple[Any, object]:
    """A field as a command's parameter: (annotation, default)."""
    listed = get_origin(field.kind) is tuple
    kind = Path if field.option and field.option.path else list[str] if listed else field.kind
    optional = listed or (field.default is MISSING and not required)
    default = inspect.Parameter.empty if field.default is MISSING and required else None if optional else field.default
    return Annotated[kind | None if optional else kind, _shown(field)], default


def _of_judges() -> Iterator[Field]:
    """The options of a judge: its bundle, its own, and those of a run that it takes, too."""
    fields = {name: field for name, field in fields_of(JudgeSpec).items() if field.option}
    taken = (name for name, field in fields.items() if field.option and field.option.judges)
    return (fields[name] for name in dict.fromkeys(["bundle", *JudgeSpec.__annotations__, *taken]) if name in fields)


_OPTIONS = {name: _parameter(field, required=False) for name, field in fields_of(RunSpec).items()}
_OPTIONS["spec_file"] = SpecFile, None
"""{name: (annotation, default)} of the parameters that make a ``RunSpec``; and --spec."""
_OF_JUDGES = {field.name: _parameter(field, required=True) for field in _of_judges()}
"""The same of a ``JudgeSpec``."""


def takes_spec(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options in place of its parameter ``spec``."""
    return _taking(command, _OPTIONS, _spec_of)


def takes_judge(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a judge's options in place of its parameter ``spec``, which is what was said of them."""
    return _taking(command, _OF_JUDGES, _said)


def _taking(
    command: Callable[..., None],
    options: Mapping[str, tuple[Any, object]],
    make: Callable[[Mapping[str, Any], typer.Context], object],
) -> Callable[..., None]:
    @functools.wraps(command)
    def called(context: typer.Context, **values: Any) -> None:
        given = {name: values.pop(name) for name in options}
        if takes_file:
            values["spec_file"] = given["spec_file"]
        command(spec=make(given, context), **values)

    parameters = inspect.signature(command, eval_str=True).parameters
    takes_file = "spec_file" in parameters
    own = [parameter for name, parameter in parameters.items() if name not in ("spec", "spec_file")]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    called.__signature__ = inspect.Signature([context, *added, *own])  # type: ignore[attr-defined]
    return called


def _spec_of(given: Mapping[str, Any], context: typer.Context) -> RunSpec:
    values = _said(given, context)
    values.pop("spec_file", None)
    if (file := given["spec_file"]) is not None:
        from lbx.running.stored_specs import read_any_spec

        return dataclasses.replace(read_any_spec(file, values.get("name")), **values)
    for name, field in fields_of(RunSpec).items():
        if field.default is MISSING and name not in values:
            spelled = " / ".join(field.names)
            raise UsageError(f"Missing option {spelled}.", fix="A run needs a bundle, a model and tasks, or --spec.")
    return RunSpec(**values)


def _said(given: Mapping[str, Any], context: typer.Context) -> dict[str, Any]:
    """What was given on the command line."""
    said = {name for name in given if str(getattr(context.get_parameter_source(name), "name", "")) != "DEFAULT"}
    return {name: names_of_samples(given[name]) if name == "ids" else given[name] for name in said}


def names_of_samples(given: Sequence[str] | None) -> tuple[str, ...]:
    """What --ids names.

    Raises:
        UsageError: nothing, or a file of names cannot be read.
    """
    names = tuple(name for text in given or () for name in _names(text))
    if given and not names:
        raise UsageError("--ids names no sample.", fix="Give names, or @FILE with one name on each line.")
    return names


def _names(text: str) -> Iterator[str]:
    """The names in one --ids: between commas, or a line each of a file."""
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
