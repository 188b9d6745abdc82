"""Build commands from a frozen dataclass with Typer options as fields, and a function with it as argument.

Modules are named by strings and imported lazily: the help of a command imports its options, and only running a
command imports the modules of its function.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from lbx.cli.failures import stoppable

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter, Parameter
    from typer._click import Command as CommandWithHelp
else:
    CommandWithHelp = object

_CONTEXT = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
REQUIRED = inspect.Parameter.empty
Shown = tuple[Any, object]
"""Parameter for Typer: annotation and default."""


@dataclass(frozen=True)
class Row:
    """Entry of a command in the table of commands.

    Attributes:
        group: Panel in ``lbx --help``.
        line: First paragraph of the help; the docstring of the options has the others.
        options: Class of the options, "cli.module:class".
        work: Function that runs the command, "cli.module:function"; it takes an instance of ``options``.
        loads_model: Whether to explain crashes of a library and lack of memory, too.
        parts: Subcommands, of a command that only groups them.
    """

    group: str
    line: str
    options: str = ""
    work: str = ""
    loads_model: bool = False
    parts: Mapping[str, Row] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Several:
    """Annotation metadata of a field that is computed from several options.

    Attributes:
        options: Typer parameters of the options by parameter name.
        make: Computes the field's value from the values of all options.
    """

    options: Mapping[str, Shown]
    make: Callable[[Mapping[str, Any], typer.Context], object]


def resolve(name: str) -> Any:
    """Import an object of lbx by "package.module:name"."""
    module, _, own = name.partition(":")
    return getattr(importlib.import_module(f"lbx.{module}"), own)


class PlainTypes(CommandWithHelp):
    """Mixin that drops redundant types from the help, <bool> of flags and <path> of FILE, and keeps its order."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        params = super().get_params(ctx)
        for one in params:
            if one.param_type_name == "argument":
                one.display_type_rich = _no_type  # type: ignore[attr-defined]
            elif getattr(one, "is_flag", False) and one.metavar is None:
                one.metavar = ""
        return params

    def get_help_option_names(self, ctx: Context) -> list[str]:
        """Keep the declared order: Click takes names that a parameter has out of a set, whose order is not stable."""
        taken = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        return [name for name in ctx.help_option_names if name not in taken]


def _no_type(ctx: Context) -> None:
    """Show no type in the help of an argument."""


class _Parts(PlainTypes, TyperGroup):
    """Command with subcommands."""


class _Command(PlainTypes, TyperCommand):
    """Command with common options in --help, and every option in --help-all.

    Attributes:
        options: Class of the options; its ``BRIEF`` lists the names of common options.
    """

    options: type

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        if not (brief := getattr(self.options, "BRIEF", ())):
            super().format_help(ctx, formatter)
            return
        shown = copy.copy(self)
        shown.params = [_without_panel(one) for one in self.params if _in_brief(one, brief)]
        TyperCommand.format_help(shown, ctx, formatter)

    def show_all(self, ctx: Context) -> None:
        """Print the help with every option."""
        TyperCommand.format_help(self, ctx, ctx.make_formatter())


def _in_brief(option: Parameter, brief: Collection[str]) -> bool:
    return option.param_type_name == "argument" or option.name in (*brief, "help_all")


def _without_panel(option: Parameter) -> Parameter:
    shown = copy.copy(option)
    if option.param_type_name == "option":
        shown.rich_help_panel = None  # type: ignore[attr-defined]
    return shown


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        assert isinstance(context.command, _Command)
        context.command.show_all(context)
        raise typer.Exit


def _help_all(*, hidden: bool) -> Any:
    """Build the option --help-all, accepted by every command; it is hidden if --help already shows every option."""
    option = typer.Option(
        "--help-all", help="Show every option.", is_eager=True, expose_value=False, callback=_show_all, hidden=hidden
    )
    return Annotated[bool, option]


def completed_by(name: str) -> Callable[[typer.Context, str], list[str]]:
    """Build a shell completion from a function of ``lbx.cli.completing``, which gets the preceding values."""

    def offered(context: typer.Context, incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        try:
            known = resolve(f"cli.completing:{name}")(_given_before(context))
        except Exception:  # completion must not print errors
            return []
        return [f"{before}{comma}{one}" for one in known if one.startswith(begun)]

    return offered


def _given_before(context: typer.Context) -> dict[str, Any]:
    """Return the values that precede an option.

    While the option has no value, Typer has not assigned arguments to their names, so they are assigned here.
    """
    named, left = context.params, iter(context.args)
    arguments = (str(one.name) for one in context.command.params if one.param_type_name == "argument")
    return named | {name: next(left, None) for name in arguments if not named.get(name)}


def command(name: str, row: Row) -> Command:
    """Build a command with its options, without importing the modules of its function."""
    names = {"help_option_names": ["-h", "--help"]}
    alone = typer.Typer(
        name=name,
        cls=_Parts,
        help=row.line,
        add_completion=False,
        no_args_is_help=bool(row.parts),
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help", "--help-all"]} if row.parts else names,
    )
    parts = {own: (part, resolve(part.options)) for own, part in (row.parts or {name: row}).items()}
    for own, (part, options) in parts.items():
        alone.command(own, cls=_Command, help=_help(part.line, options), context_settings=names)(_called(part, options))
    made = typer.main.get_group(alone) if row.parts else typer.main.get_command(alone)
    for own, (_, options) in parts.items():
        (made.commands[own] if isinstance(made, TyperGroup) else made).options = options  # type: ignore[attr-defined]
    return made


def _called(row: Row, options: type) -> Callable[..., None]:

    def run(context: typer.Context, **values: Any) -> None:
        if not row.loads_model:
            # On import, NumPy starts a thread per core; only models have matrix products large enough to need them.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with stoppable(loads_model=row.loads_model):
            resolve(row.work)(_made(options, values, context))

    shown = _shown(options)
    shown["help_all"] = _help_all(hidden=not hasattr(options, "BRIEF")), False
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in shown.items()
    ]
    run.__signature__ = inspect.Signature([_CONTEXT, *parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (_CONTEXT, *parameters)}
    return run


def _shown(options: type) -> dict[str, Shown]:
    """Convert the fields of a class of options to {parameter name: Typer parameter}."""
    shown: dict[str, Shown] = {}
    for field in dataclasses.fields(options):
        if several := _several(field):
            shown |= several.options
        else:
            shown[field.name] = as_typer(field.type, field.default)
    return shown


def as_typer(annotation: Any, default: object) -> Shown:
    """Convert a field to a Typer parameter: tuples become repeatable options, MISSING becomes a required value."""
    kind, *more = get_args(annotation)
    if get_origin(kind) is tuple:
        several: Any = list[get_args(kind)[0]]  # type: ignore[misc]
        return (Annotated[several, *more], REQUIRED) if default is MISSING else (Annotated[several | None, *more], None)
    return annotation, REQUIRED if default is MISSING else default


def _made(options: type, values: Mapping[str, Any], context: typer.Context) -> object:
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
    """Join a command's help, with each paragraph in one line for the terminal to wrap."""
    return "\n\n".join([line, *(" ".join(part.split()) for part in (options.__doc__ or "").split("\n\n"))])
