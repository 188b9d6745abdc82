"""Output of commands: answers on standard output, everything else on standard error.

All text for a terminal passes through this module, which makes control characters visible (``lbx.base.visible``):
names and answers come from untrusted sources. Rich's markup is off; styles are passed as arguments.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text
from typer.exceptions import TyperException

from lbx.base.errors import LbxError, UsageError
from lbx.base.outputs import is_regular_or_missing, open_output
from lbx.base.standard_streams import ClosedOutputError
from lbx.base.visible import as_command, escape_json, one_line, visible

_NOTES = 5


class _VisibleConsole(Console):
    """Console that makes control characters visible, before measuring text and again while rendering."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def print(self, *objects: Any, **options: Any) -> None:
        with suppress(ClosedOutputError):
            super().print(*objects, **options)


def stdout() -> Console:
    """Create a console for answers. Long lines are wrapped by the terminal only, so that paths can be copied."""
    if sys.stdout.isatty():
        return _VisibleConsole(soft_wrap=True)
    return _VisibleConsole(soft_wrap=True, no_color=True, highlight=False)


def terminal() -> Console | None:
    """Create a console for standard output if that is a terminal, else None."""
    return stdout() if sys.stdout.isatty() else None


def takes_unicode() -> bool:
    """Whether standard output can encode more than ASCII."""
    return "utf" in (sys.stdout.encoding or "").lower()


def stderr() -> Console:
    """Return the console of an active progress bar, which prints above the bar, or create one."""
    return live_consoles[-1] if live_consoles else _VisibleConsole(stderr=True, highlight=False, soft_wrap=True)


def answer(text: str) -> None:
    """Print a line to standard output."""
    with suppress(ClosedOutputError):
        typer.echo(one_line(text))


def answer_text(text: str | Iterable[str], output: Path | None = None) -> None:
    """Write several lines to standard output, or atomically to a file (``outputs.open_output``).

    Args:
        text: the whole text, or pieces of whole lines, which are written one after another.
    """
    pieces = [text] if isinstance(text, str) else text
    write_answer(pieces if output else map(visible, pieces), output)


def write_answer(pieces: Iterable[str], output: Path | None) -> None:
    """Write pieces of safe text to a file, or to standard output until the reader ends."""
    if output is None:
        with suppress(ClosedOutputError):
            sys.stdout.writelines(pieces)
            sys.stdout.flush()
        return
    with open_output(output) as file:
        file.writelines(piece.encode("utf-8") for piece in pieces)
    note(f"Written to {output}")


def require_output_file(output: Path | None, file_format: str) -> Path:
    """Check the path of a parquet or PNG file.

    Raises:
        UsageError: no path is given, or the path is that of a link, or of something other than a regular file.
    """
    if output is None or not is_regular_or_missing(output):
        raise UsageError(
            f"{file_format} cannot be printed to a terminal or a pipe.",
            fix=f"Pass the file to write: -o FILE.{file_format.lower()}.",
        )
    return output


def answer_json(text: str | Iterable[str], output: Path | None = None) -> None:
    """Write JSON, whole or in pieces. Control characters are written as JSON escapes, so that values stay equal."""
    pieces = [text] if isinstance(text, str) else text
    answer_text(itertools.chain((escape_json(piece) for piece in pieces), ["\n"]), output)


live_consoles: list[Console] = []
"""Consoles of active progress bars (``lbx.cli.progress``)."""


def note(text: str) -> None:
    """Print a line about a result or a problem to standard error."""
    print_line(text)


def print_line(text: str) -> None:
    """Print a line about progress to standard error."""
    stderr().print(one_line(text))


def notes(texts: Sequence[str]) -> None:
    """Print the first of several notes, and the number of the other notes."""
    for text in texts[:_NOTES]:
        note(text)
    if len(texts) > _NOTES:
        note(f"... and {len(texts) - _NOTES:,} more rows like these (--json lists all)")


class Notes(logging.Handler):
    """Log handler that prints records as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def show_error(error: LbxError) -> None:
    """Print an error as a paragraph: cause, fix, next command."""
    _show_paragraph(error.cause, error.fix, error.command)


def _show_paragraph(cause: str, fix: str, command: str) -> None:
    # A cause that ends with a library's message may lack a full stop.
    cause = cause if cause.endswith((".", "!", "?")) else f"{cause}."
    message = Text.assemble(("error:", "bold red"), " ", one_line(f"{cause} {fix}".rstrip()))
    if command:
        message.append("\n  try: ").append(one_line(command), "bold")
    stderr().print(message)


_PYDANTIC_PREFIX = "Value error, "
"""Prefix of messages of pydantic, by which Typer parses choices."""


def show_usage_error(error: TyperException, fix: str = "") -> None:
    """Print a usage error of Typer, which may quote arguments such as names of files.

    Args:
        fix: sentence in place of Typer's own suggestion.
    """
    if type(error).__name__ == "NoArgsIsHelpError":  # private in Typer, which has printed the help
        return
    error.message = error.message.removeprefix(_PYDANTIC_PREFIX)
    context = getattr(error, "ctx", None)
    names = context.command_path.removeprefix(context.find_root().info_name).split() if context else []
    cause = f"{(error.message or error.format_message()).rstrip('.')}." if fix else error.format_message()
    _show_paragraph(cause, fix, as_command("lbx", *names, "--help"))


def show_traceback(text: str) -> None:
    """Print a traceback to standard error."""
    typer.echo(visible(text), err=True, nl=False)
