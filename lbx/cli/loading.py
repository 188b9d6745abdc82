"""A command, made of its options: a frozen dataclass whose fields are Typer's, and a function that takes one of it.

Modules are named by texts here, and imported as they are needed: a command's help imports its options, and only a
command that runs imports what does the work.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from lbx.cli.stopping import stoppable

if TYPE_CHECKING:
    from typer._click import Command

_CONTEXT = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
REQUIRED = inspect.Parameter.empty
Shown = tuple[Any, object]
"""An option as Typer takes it: annotation, default."""


@dataclass(frozen=True)
class Row:
    """What is known of a command before it is called.

    Attributes:
        group: of ``lbx --help``, in which it stands.
        line: the first paragraph of its help; the others are its options' docstring.
        options: "cli.module:class" of its options.
        work: "cli.module:function", which takes a value of that class.
        loads_model: a library may crash, or memory run out: explain that, too.
        parts: commands below it, where it is none itself.
    """

    group: str
    line: str
    options: str = ""
    work: str = ""
    loads_model: bool = False
    parts: Mapping[str, Row] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Several:
    """Stands in the annotation of a field that several options make.

    Attributes:
        options: their names, as those of parameters, with what Typer takes.
        make: the field's value, from the values of all options.
    """

    options: Mapping[str, Shown]
    make: Callable[[Mapping[str, Any], typer.Context], object]


def resolve(name: str) -> Any:
    """What "room.module:name" means, in lbx."""
    module, _, own = name.partition(":")
    return getattr(importlib.import_module(f"lbx.{module}"), own)


def command(name: str, row: Row) -> Command:
    """A command with its options; imports their module, and none that does the work."""
    alone = typer.Typer(
        name=name, help=row.line, add_completion=False, no_args_is_help=bool(row.parts), rich_markup_mode="rich"
    )
    for own, part in (row.parts or {name: row}).items():
        options = resolve(part.options)
        alone.command(own, help=_help(part.line, options))(_called(part, options))
    return typer.main.get_group(alone) if row.parts else typer.main.get_command(alone)


def _called(row: Row, options: type) -> Callable[..., None]:
    """The function that Typer calls."""

    def run(context: typer.Context, **values: Any) -> None:
        with stoppable(loads_model=row.loads_model):
            resolve(row.work)(_made(options, values, context))

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _shown(options).items()
    ]
    run.__signature__ = inspect.Signature([_CONTEXT, *parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (_CONTEXT, *parameters)}
    return run


def _shown(options: type) -> dict[str, Shown]:
    """{name of a parameter: what Typer takes} of a class of options."""
    shown: dict[str, Shown] = {}
    for field in dataclasses.fields(options):
        if several := _several(field):
            shown |= several.options
        else:
            shown[field.name] = as_typer(field.type, field.default)
    return shown


def as_typer(annotation: Any, default: object) -> Shown:
    """A field as Typer takes it: a tuple is an option that can be repeated, and MISSING is what must be given."""
    kind, *more = get_args(annotation)
    if get_origin(kind) is tuple:
        several: Any = list[get_args(kind)[0]]  # type: ignore[misc]
        return (Annotated[several, *more], REQUIRED) if default is MISSING else (Annotated[several | None, *more], None)
    return annotation, REQUIRED if default is MISSING else default


def _made(options: type, values: Mapping[str, Any], context: typer.Context) -> object:
    """A value of the options' class."""
    made = {}
    for field in dataclasses.fields(options):
        if several := _several(field):
            made[field.name] = several.make(values, context)
        else:
            value = values[field.name]
            made[field.name] = tuple(value or ()) if get_origin(get_args(field.type)[0]) is tuple else value
    return options(**made)


def _several(field: dataclasses.Field[Any]) -> Several | None:
    return next((one for one in get_args(field.type) if isinstance(one, Several)), None)


def _help(line: str, options: type) -> str:
    """Each paragraph in one line, for the terminal to wrap."""
    return "\n\n".join([line, *(" ".join(part.split()) for part in (options.__doc__ or "").split("\n\n"))])
