"""Building of commands from a frozen dataclass with options as fields, and a function that takes its instances.

Modules are named by strings and imported lazily. The help of a command imports only the module of the options, and a
call of the command imports the module of the function.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, get_args, get_origin

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, expand_user, read_file_or_pipe
from lbx.base.phases import phases
from lbx.cli.error_conversion import stoppable
from lbx.options.option import Argument, OptionField, fields_of

if TYPE_CHECKING:
    from typer.core import TyperCommand as CommandWithHelp

    from lbx.options.run_spec import RunSpec
else:
    CommandWithHelp = object

Command = TyperCommand | TyperGroup
"""Typer's commands. Their common base class is private, and so are the classes of parameters, contexts, formatters."""
REQUIRED = inspect.Parameter.empty
_UNDECODABLE = re.compile("[\udc80-\udcff]")
"""Halves of surrogate pairs by which Python passes bytes of a command line that it cannot decode."""
S = TypeVar("S", bound="RunSpec")
_CONTEXT = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)


@dataclass(frozen=True)
class CommandSpec:
    """Definition of a command in ``COMMANDS``.

    Attributes:
        group: panel in ``lbx --help``.
        line: first paragraph of the help. The docstring of the options contains the others.
        options: class of the options, "cli.module:class".
        work: function that runs the command, "cli.module:function". It takes an instance of ``options``.
        loads_model: whether to explain crashes of a library and lack of memory, too.
        parts: subcommands of a command that only groups them.
        default_part: subcommand if the first word is a file instead of a subcommand, or "" if that is an error.
    """

    group: str
    line: str
    options: str = ""
    work: str = ""
    loads_model: bool = False
    parts: Mapping[str, CommandSpec] = dataclasses.field(default_factory=dict)
    default_part: str = ""


@dataclass(frozen=True)
class SpecValues(Generic[S]):
    """Values on a command line for the options of a spec. A field of this type adds these options to a command.

    If the field has a default, no option is required.

    Attributes:
        values: {field: value}, without values that the command line leaves at their defaults.
        environment: fields with a value from an environment variable.
    """

    spec: type[S]
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    environment: Sequence[str] = ()


def import_object(name: str) -> Any:
    """Import an object of lbx by "package.module:name"."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(f"lbx.{module}"), attribute)


class PlainTypes(CommandWithHelp):
    """Mixin for a command's help that drops the types of arguments and flags, and keeps the order of help options."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        for param in params:
            if param.param_type_name == "argument":
                param.display_type_rich = _no_type  # type: ignore[attr-defined]
            elif getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params

    def get_help_option_names(self, ctx: Any) -> list[str]:
        """Return the names of the help options in the declared order. Click uses a set, which has no stable order."""
        used_names = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        return [name for name in ctx.help_option_names if name not in used_names]


def _no_type(ctx: Any) -> None:
    """Show no type in the help of an argument."""


class _Parts(PlainTypes, TyperGroup):
    """Command with subcommands.

    Attributes:
        default_part: see ``CommandSpec``.
    """

    default_part = ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self.default_part and args and not self._is_subcommand(args[0], ctx):
            args = [self.default_part, *args]
        return super().parse_args(ctx, args)

    def _is_subcommand(self, word: str, ctx: Any) -> bool:
        """Whether a word is a subcommand, a misspelt one or an option for help."""
        is_misspelt = bool(get_close_matches(word, self.commands)) and not Path(word).exists()
        return word in self.commands or word in ctx.help_option_names or is_misspelt


class _Command(PlainTypes, TyperCommand):
    """Command with common options in --help, and every option in --help-all.

    Attributes:
        options: class with the names of common options in ``BRIEF``.
    """

    options: type

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if not (brief := getattr(self.options, "BRIEF", ())):
            super().format_help(ctx, formatter)
            return
        brief_command = copy.copy(self)
        brief_command.params = [_without_panel(param) for param in self.params if _in_brief(param, brief)]
        TyperCommand.format_help(brief_command, ctx, formatter)

    def show_all(self, ctx: Any) -> None:
        TyperCommand.format_help(self, ctx, ctx.make_formatter())


def _in_brief(option: Any, brief: Collection[str]) -> bool:
    return option.param_type_name == "argument" or option.name in (*brief, "help_all")


def _without_panel(option: Any) -> Any:
    result = copy.copy(option)
    if option.param_type_name == "option":
        result.rich_help_panel = None
    return result


def _show_all(context: typer.Context, value: bool) -> None:
    if value and not context.resilient_parsing:
        assert isinstance(context.command, _Command)
        context.command.show_all(context)
        raise typer.Exit


def _help_all(*, hidden: bool) -> inspect.Parameter:
    """Build the option --help-all, which is hidden if --help already shows all options."""
    option = typer.Option(
        "--help-all", help="Show every option.", is_eager=True, expose_value=False, callback=_show_all, hidden=hidden
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter("help_all", kind, default=False, annotation=Annotated[bool, option])


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
    result: Command = typer.main.get_group(app) if row.parts else typer.main.get_command(app)  # type: ignore[assignment]
    if isinstance(result, _Parts):
        result.default_part = row.default_part
    commands: Mapping[str, Any] = result.commands if isinstance(result, TyperGroup) else {name: result}
    for part_name, (_, options) in parts.items():
        commands[part_name].options = options
    for command in [*commands.values(), *([result] if row.parts else [])]:
        _escape_markup(command)
    return result


def _escape_markup(command: Command) -> None:
    """Escape square brackets in the help of a command and its options, which Typer would print as Rich's markup."""
    described: Any
    for described in (command, *command.params):
        described.help = escape(getattr(described, "help", None) or "")


def _make_function(row: CommandSpec, options: type) -> Callable[..., None]:

    def run(context: typer.Context, **values: Any) -> None:
        if not row.loads_model:
            # On import, NumPy starts a thread per core; only models have matrix products large enough to need them.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with stoppable(loads_model=row.loads_model):
            refuse_undecodable(values, context)
            with phases.measure("imports"):
                work = import_object(row.work)
            work(make_options(options, values, context))

    parameters = [_CONTEXT, *parameters_of(options).values(), _help_all(hidden=not hasattr(options, "BRIEF"))]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _help(line: str, options: type) -> str:
    """Join a command's help, with each paragraph in one line for the terminal to wrap."""
    return "\n\n".join([line, *(" ".join(part.split()) for part in (options.__doc__ or "").split("\n\n"))])


def parameters_of(options: type) -> dict[str, inspect.Parameter]:
    """Build the parameters of a function for Typer, a parameter for each option of a command's dataclass."""
    return {
        field.name: inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for field, is_required in option_fields(options)
        for annotation, default in [_annotation(field, is_required=is_required)]
    }


def make_options(options: type, values: Mapping[str, Any], context: typer.Context) -> object:
    """Make an instance of a command's dataclass.

    Raises:
        UsageError: a file of names cannot be read, or the dataclass refuses the values.
    """
    arguments: dict[str, object] = {}
    for field in fields_of(options).values():
        if get_origin(field.value_type) is SpecValues:
            fields, sources = _fields_of_spec(field), _sources(context)
            arguments[field.name] = SpecValues(
                _spec_of(field),
                {name: _convert(fields[name], values[name]) for name in fields if sources.get(name, "") != "DEFAULT"},
                [name for name in fields if sources.get(name) == "ENVIRONMENT"],
            )
        else:
            arguments[field.name] = _convert(field, values[field.name])
    return options(**arguments)


def _sources(context: typer.Context) -> dict[str, str]:
    """Return {parameter: origin of the value}, such as COMMANDLINE, ENVIRONMENT or DEFAULT."""
    return {name: getattr(context.get_parameter_source(name), "name", "") for name in context.params}


def _spec_of(field: OptionField) -> type[RunSpec]:
    spec: type[RunSpec] = get_args(field.value_type)[0]
    return spec


def _fields_of_spec(field: OptionField) -> Mapping[str, OptionField]:
    return _spec_of(field).command_line_fields()


def option_fields(options: type) -> Iterator[tuple[OptionField, bool]]:
    """Yield each option's field, and whether a command line must give it."""
    for field in fields_of(options).values():
        if get_origin(field.value_type) is SpecValues:
            for part in _fields_of_spec(field).values():
                yield part, part.default is MISSING and field.default is MISSING
        else:
            yield field, field.default is MISSING


def _annotation(field: OptionField, *, is_required: bool) -> tuple[Any, object]:
    """Build the annotation and the default of a field for Typer, which wants None as the default of tuples."""
    assert field.option is not None, field.name
    kind: Any = Path if field.option.path else field.value_type
    if is_tuple := get_origin(kind) is tuple:
        kind = list[get_args(kind)[0]]  # type: ignore[misc]
    parameter = _typer_parameter(field)
    if is_required:
        return Annotated[kind, parameter], REQUIRED
    if is_tuple or field.default is MISSING:
        return Annotated[kind | None, parameter], None
    return Annotated[kind, parameter], field.default


def _typer_parameter(field: OptionField) -> Any:
    option = field.option
    assert option is not None
    complete = _completion(option.completion) if isinstance(option.completion, str) else option.completion
    if isinstance(option, Argument):
        return typer.Argument(help=option.help, metavar=option.metavar, autocompletion=complete)
    return typer.Option(
        *field.names,
        help=option.help,
        metavar=option.metavar,
        rich_help_panel=option.panel or None,
        min=field.minimum,
        max=option.maximum if option.minimum is not None else None,
        envvar=option.variable or None,
        autocompletion=complete,
    )


def _completion(name: str) -> Callable[[typer.Context, str], list[str]] | None:
    """Make a shell completion from a function of ``lbx.cli.shell_completion``, which gets the preceding values."""
    if not name:
        return None

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        before, comma, prefix = incomplete.rpartition(",")
        try:
            candidates = import_object(f"cli.shell_completion:{name}")(_preceding_values(context))
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


def refuse_undecodable(values: Mapping[str, Any], context: typer.Context) -> None:
    """Raise UsageError for a text that is not UTF-8. Names of files may contain any bytes."""
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


def _convert(field: OptionField, value: Any) -> Any:
    assert field.option is not None
    if get_origin(field.value_type) is not tuple:
        return value
    return split_names(field.option_name, value) if field.option.name_files else tuple(value or ())


def split_names(option: str, values: Sequence[str] | None) -> tuple[str, ...]:
    """Read names separated by commas, and files of names.

    Raises:
        UsageError: the values contain no name, or a file cannot be read.
    """
    names = tuple(name for text in values or () for name in _names(option, text))
    if values and not names:
        raise UsageError(f"{option} names no sample.", fix="Give names, or @FILE with one name on each line.")
    return names


def _names(option: str, text: str) -> Iterator[str]:
    """Split a value into names: names separated by commas, or @FILE with a name on each line."""
    parts = _lines(option, Path(text[1:])) if text.startswith("@") else text.split(",")
    return (name for part in parts if (name := part.strip()))


def _lines(option: str, path: Path) -> list[str]:
    try:
        lines = read_file_or_pipe(expand_user(path), SMALL).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise UsageError(
            f"{option} @{path} cannot be read: {reason}.", fix="It takes a text file with one name on each line."
        ) from exc
    if not any(line.strip() for line in lines):
        raise UsageError(f"{option} @{path} names no sample: the file is empty.", fix="Write one name on each line.")
    return lines
