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
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from lbx.base.errors import UsageError
from lbx.cli.failures import stoppable

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter, Parameter
    from typer._click import Command as CommandWithHelp
else:
    CommandWithHelp = object

_CONTEXT = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
_UNDECODABLE = re.compile("[\udc80-\udcff]")
"""Halves of surrogate pairs by which Python passes bytes of a command line that it cannot decode."""
REQUIRED = inspect.Parameter.empty
TyperParameter = tuple[Any, object]
"""Parameter for Typer: annotation and default."""


@dataclass(frozen=True)
class CommandSpec:
    """Entry of a command in the table of commands.

    Attributes:
        group: Panel in ``lbx --help``.
        line: First paragraph of the help; the docstring of the options has the others.
        options: Class of the options, "cli.module:class".
        work: Function that runs the command, "cli.module:function"; it takes an instance of ``options``.
        loads_model: Whether to explain crashes of a library and lack of memory, too.
        parts: Subcommands, of a command that only groups them.
        default_part: Subcommand if the first word is a file instead of a subcommand; "" if that is an error.
    """

    group: str
    line: str
    options: str = ""
    work: str = ""
    loads_model: bool = False
    parts: Mapping[str, CommandSpec] = dataclasses.field(default_factory=dict)
    default_part: str = ""


@dataclass(frozen=True)
class CombinedOption:
    """Annotation metadata of a field that is computed from several options.

    Attributes:
        options: Typer parameters of the options by parameter name.
        make: Computes the field's value from the values of all options.
    """

    options: Mapping[str, TyperParameter]
    make: Callable[[Mapping[str, Any], typer.Context], object]


def import_object(name: str) -> Any:
    """Import an object of lbx by "package.module:name"."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(f"lbx.{module}"), attribute)


class PlainTypes(CommandWithHelp):
    """Mixin for a command's help that drops the types of arguments and flags, and keeps the order of help options."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        params = super().get_params(ctx)
        for param in params:
            if param.param_type_name == "argument":
                param.display_type_rich = _no_type  # type: ignore[attr-defined]
            elif getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params

    def get_help_option_names(self, ctx: Context) -> list[str]:
        """Keep the declared order of names: Click uses a set, which has no stable order."""
        used_names = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        return [name for name in ctx.help_option_names if name not in used_names]


def _no_type(ctx: Context) -> None:
    """Show no type in the help of an argument."""


class _Parts(PlainTypes, TyperGroup):
    """Command with subcommands.

    Attributes:
        default_part: See ``CommandSpec``.
    """

    default_part = ""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if self.default_part and args and not self._is_subcommand(args[0], ctx):
            args = [self.default_part, *args]
        return super().parse_args(ctx, args)

    def _is_subcommand(self, word: str, ctx: Context) -> bool:
        """Whether a word is a subcommand, a misspelt one or an option for help."""
        is_misspelt = bool(get_close_matches(word, self.commands)) and not Path(word).exists()
        return word in self.commands or word in ctx.help_option_names or is_misspelt


class _Command(PlainTypes, TyperCommand):
    """Command with common options in --help, and every option in --help-all.

    Attributes:
        options: Class whose ``BRIEF`` lists the names of common options.
    """

    options: type

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        if not (brief := getattr(self.options, "BRIEF", ())):
            super().format_help(ctx, formatter)
            return
        brief_command = copy.copy(self)
        brief_command.params = [_without_panel(param) for param in self.params if _in_brief(param, brief)]
        TyperCommand.format_help(brief_command, ctx, formatter)

    def show_all(self, ctx: Context) -> None:
        TyperCommand.format_help(self, ctx, ctx.make_formatter())


def _in_brief(option: Parameter, brief: Collection[str]) -> bool:
    return option.param_type_name == "argument" or option.name in (*brief, "help_all")


def _without_panel(option: Parameter) -> Parameter:
    result = copy.copy(option)
    if option.param_type_name == "option":
        result.rich_help_panel = None  # type: ignore[attr-defined]
    return result


def _show_all(context: typer.Context, value: bool) -> None:
    if value and not context.resilient_parsing:
        assert isinstance(context.command, _Command)
        context.command.show_all(context)
        raise typer.Exit


def _help_all(*, hidden: bool) -> Any:
    """Build the option --help-all; it is hidden if --help already shows every option."""
    option = typer.Option(
        "--help-all", help="Show every option.", is_eager=True, expose_value=False, callback=_show_all, hidden=hidden
    )
    return Annotated[bool, option]


def completion(name: str) -> Callable[[typer.Context, str], list[str]]:
    """Build a shell completion from a function of ``lbx.cli.completing``, which gets the preceding values."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        before, comma, prefix = incomplete.rpartition(",")
        try:
            candidates = import_object(f"cli.completing:{name}")(_preceding_values(context))
        except Exception:  # completion must not print errors
            return []
        return [f"{before}{comma}{candidate}" for candidate in candidates if candidate.startswith(prefix)]

    return complete


def _preceding_values(context: typer.Context) -> dict[str, Any]:
    """Return the values of the options and arguments before the completed one.

    While the option has no value, Typer has not assigned arguments to their names, so they are assigned here.
    """
    values, remaining = context.params, iter(context.args)
    arguments = (str(param.name) for param in context.command.params if param.param_type_name == "argument")
    return values | {name: next(remaining, None) for name in arguments if not values.get(name)}


def build_command(name: str, row: CommandSpec) -> Command:
    """Build a command with its options, without importing the modules of its function."""
    names = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(
        name=name,
        cls=_Parts,
        help=row.line,
        add_completion=False,
        no_args_is_help=bool(row.parts),
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help", "--help-all"]} if row.parts else names,
    )
    parts = {part_name: (part, import_object(part.options)) for part_name, part in (row.parts or {name: row}).items()}
    for part_name, (part, options) in parts.items():
        app.command(part_name, cls=_Command, help=_help(part.line, options), context_settings=names)(
            _make_function(part, options)
        )
    result = typer.main.get_group(app) if row.parts else typer.main.get_command(app)
    if isinstance(result, _Parts):
        result.default_part = row.default_part
    for part_name, (_, options) in parts.items():
        (result.commands[part_name] if isinstance(result, TyperGroup) else result).options = options  # type: ignore[attr-defined]
    for command in (result, *(result.commands.values() if isinstance(result, TyperGroup) else ())):
        _escape_markup(command)
    return result


def _escape_markup(command: Command) -> None:
    """Escape words in square brackets in the help of a command and its options: Typer prints them as Rich's markup."""
    described: Any
    for described in (command, *command.params):
        described.help = escape(getattr(described, "help", None) or "")


def _make_function(row: CommandSpec, options: type) -> Callable[..., None]:

    def run(context: typer.Context, **values: Any) -> None:
        if not row.loads_model:
            # On import, NumPy starts a thread per core; only models have matrix products large enough to need them.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with stoppable(loads_model=row.loads_model):
            _refuse_undecodable(values, context)
            import_object(row.work)(_make_options(options, values, context))

    typer_parameters = _typer_parameters(options)
    typer_parameters["help_all"] = _help_all(hidden=not hasattr(options, "BRIEF")), False
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in typer_parameters.items()
    ]
    run.__signature__ = inspect.Signature([_CONTEXT, *parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (_CONTEXT, *parameters)}
    return run


def _typer_parameters(options: type) -> dict[str, TyperParameter]:
    parameters: dict[str, TyperParameter] = {}
    for field in dataclasses.fields(options):
        if several := _combined_option(field):
            parameters |= several.options
        else:
            parameters[field.name] = as_typer(field.type, field.default)
    return parameters


def as_typer(annotation: Any, default: object) -> TyperParameter:
    """Convert a field to a Typer parameter: tuples become repeatable options, MISSING becomes a required value."""
    kind, *more = get_args(annotation)
    if get_origin(kind) is tuple:
        several: Any = list[get_args(kind)[0]]  # type: ignore[misc]
        return (Annotated[several, *more], REQUIRED) if default is MISSING else (Annotated[several | None, *more], None)
    return annotation, REQUIRED if default is MISSING else default


def _refuse_undecodable(values: Mapping[str, Any], context: typer.Context) -> None:
    """Raise UsageError for a text that is not UTF-8; the names of files may have any bytes."""
    names = {param.name: param.opts[0] for param in context.command.params if param.param_type_name == "option"}
    for name, value in values.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and (bad := _UNDECODABLE.search(text)):
                encoding = sys.getfilesystemencoding()
                is_utf8 = encoding.replace("-", "").lower() == "utf8"
                raise UsageError(
                    f"{names.get(name) or name.upper()} is not {'UTF-8' if is_utf8 else encoding}: character "
                    f"{bad.start() + 1} is the byte {ord(bad[0]) - 0xDC00:#x}.",
                    fix="Type it in UTF-8." if is_utf8 else "Set LC_ALL=C.UTF-8, and repeat the command.",
                )


def _make_options(options: type, values: Mapping[str, Any], context: typer.Context) -> object:
    arguments = {}
    for field in dataclasses.fields(options):
        if several := _combined_option(field):
            arguments[field.name] = several.make(values, context)
        else:
            value = values[field.name]
            arguments[field.name] = tuple(value or ()) if get_origin(get_args(field.type)[0]) is tuple else value
    return options(**arguments)


def _combined_option(field: dataclasses.Field[Any]) -> CombinedOption | None:
    return next((argument for argument in get_args(field.type) if isinstance(argument, CombinedOption)), None)


def _help(line: str, options: type) -> str:
    """Join a command's help, with each paragraph in one line for the terminal to wrap."""
    return "\n\n".join([line, *(" ".join(part.split()) for part in (options.__doc__ or "").split("\n\n"))])
