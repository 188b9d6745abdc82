"""Page of the commands: usage, arguments and options, from the objects that parse the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from rich.markup import render

from lbx.cli.main import COMMANDS, load_command
from tools.reference.markdown import code, escape, page, table

_HELP_OPTIONS = ("help", "help_all")
_EXAMPLE = re.compile(r"(?:Examples?: )?(lbx .*)", re.DOTALL)
_TYPES = {int: "whole number", float: "number", str: "text", Path: "path"}
_INTRODUCTION = """\
Every command with its arguments and options, as `--help-all` prints them. `-h` and `--help` show the common options of
a command. [Options and their commands](#options-and-their-commands) lists the commands that know an option.

Settings of the program, before the command: `--version` prints the version, and `--debug` shows tracebacks, the
libraries' own logs, and what a run's start costs. Exit codes: 0 done, 1 failed, 2 bad usage, 3 done but some samples
failed, 4 undecided (`lbx check`), 130 interrupted, 143 terminated. [Messages](messages.md) lists errors and notes."""


def commands() -> Mapping[str, Any]:
    """Return every command and subcommand by its full name, "lbx submit slurm"; groups come before their commands."""
    found: dict[str, Any] = {}
    for name in COMMANDS:
        found[f"lbx {name}"] = command = load_command(name)
        found |= {f"lbx {name} {part}": subcommand for part, subcommand in getattr(command, "commands", {}).items()}
    return found


def commands_page() -> str:
    """Return the page of all commands."""
    known = commands()
    panels: dict[str, list[str]] = {}
    for name, row in COMMANDS.items():
        panels.setdefault(row.group, []).append(f"- [`lbx {name}`](#lbx-{name}): {escape(row.line)}")
    contents = "\n\n".join("\n".join([f"**{panel}**\n", *lines]) for panel, lines in panels.items())
    sections = [command_section(name, command) for name, command in known.items()]
    return page("Commands", _INTRODUCTION, contents, *sections, option_index(known))


def command_section(name: str, command: Any) -> str:
    """Return a command's usage, help, arguments and options."""
    level = "##" if name.count(" ") == 1 else "###"
    parts = [f"{level} {name}", f"```text\n{_usage(name, command)}\n```", *_paragraphs(command)]
    if subcommands := getattr(command, "commands", {}):
        lines = (f"- [`{name} {part}`](#{f'{name} {part}'.replace(' ', '-')})" for part in subcommands)
        return "\n\n".join([*parts, "\n".join(lines)])
    arguments = [
        (code(param.metavar or str(param.name).upper()), _help(param))
        for param in command.params
        if param.param_type_name == "argument"
    ]
    parts += [table(["argument", "meaning"], arguments)] if arguments else []
    return "\n\n".join([*parts, option_tables(command)])


def _usage(name: str, command: Any) -> str:
    context = command.context_class(command, info_name=name)
    return " ".join([name, *command.collect_usage_pieces(context)])


def _paragraphs(command: Any) -> Iterator[str]:
    for paragraph in render(command.help or "").plain.split("\n\n"):
        if match := _EXAMPLE.fullmatch(paragraph):
            yield "\n".join(f"    {line.strip()}" for line in match[1].splitlines())
        elif paragraph.strip():
            yield escape(" ".join(paragraph.split()))


def _options(command: Any) -> Iterator[Any]:
    for param in command.params:
        if param.param_type_name == "option" and param.name not in _HELP_OPTIONS and getattr(param, "help", None):
            yield param


def option_tables(command: Any) -> str:
    """Return a command's options as tables, one for each panel of --help."""
    panels: dict[str, list[Sequence[str]]] = {}
    for option in _options(command):
        panel = getattr(option, "rich_help_panel", None) or "Options"
        panels.setdefault(panel, []).append((_spelling(option), _type(option), _default(option), _help(option)))
    head = ("option", "type", "default", "meaning")
    return "\n\n".join(f"**{panel}**\n\n{table(head, rows)}" for panel, rows in panels.items())


def _spelling(option: Any) -> str:
    """Return the option's names, and the placeholder, choices or range of its value."""
    names = ", ".join(map(code, (*option.opts, *option.secondary_opts)))
    return names if option.is_flag or not option.metavar else f"{names} {escape(option.metavar)}"


def _type(option: Any) -> str:
    """Return the type of an option's value, with its range."""
    kind = option.type_descriptor.annotation
    if option.is_flag:
        return "switch"
    if get_origin(kind) is list:
        return f"{_type_name(get_args(kind)[0])}, repeatable"
    least, most = (None if limit is None else f"{limit:,g}" for limit in (option.min, option.max))
    limits = f" from {least}" if least else ""
    return f"{_type_name(kind)}{limits}{f' to {most}' if most else ''}"


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(map(code, get_args(kind)))
    return ", ".join(code(member.value) for member in kind) if issubclass(kind, Enum) else _TYPES[kind]


def _default(option: Any) -> str:
    value = getattr(option.default, "value", option.default)
    if option.required:
        return "required"
    if option.is_flag:
        return "" if value is None else "on" if value else "off"
    default = "" if value is None or value in ((), [], "") else code(str(value))
    variable = f"{code(f'${option.envvar}')}" if getattr(option, "envvar", None) else ""
    return " or ".join(filter(None, (variable, default)))


def _help(param: Any) -> str:
    return escape(" ".join(render(param.help or "").plain.split()))


def option_index(known: Mapping[str, Any]) -> str:
    """Return the table of all options, each with the commands that know it."""
    users: dict[str, list[str]] = {}
    for name, command in known.items():
        for option in _options(command):
            users.setdefault(", ".join(map(code, option.opts)), []).append(name)
    for name, command in known.items():  # a group whose commands all know an option represents them
        subcommands = [f"{name} {part}" for part in getattr(command, "commands", ())]
        for names in users.values():
            if subcommands and {*subcommands} <= {*names}:
                names[:] = dict.fromkeys(name if user in subcommands else user for user in names)
    lines = [(spelling, ", ".join(map(_link, names))) for spelling, names in sorted(users.items())]
    return f"## Options and their commands\n\n{table(['option', 'commands'], lines)}"


def _link(name: str) -> str:
    return f"[{name.removeprefix('lbx ')}](#{name.replace(' ', '-')})"
