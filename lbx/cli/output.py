"""Output of commands: answers on standard output, everything else on standard error.

All text for a terminal passes through this module, which makes control characters visible (``lbx.base.visible``):
names and answers come from untrusted sources. Rich's markup is off; styles are passed as arguments.
"""

from __future__ import annotations

import itertools
import logging
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
)
from rich.segment import Segment
from rich.text import Text
from typer.exceptions import TyperException

from lbx.base.errors import LbxError, UsageError
from lbx.base.outputs import is_regular_or_missing, open_output
from lbx.base.visible import escape_json, one_line, visible
from lbx.running.listening import Listener, RunProgress

LOG_SECONDS, RUN_LOG_SECONDS = 30.0, 60.0

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

    def on_broken_pipe(self) -> None:
        """Re-raise BrokenPipeError, because Rich would exit with 1 although `lbx report ... | head` has succeeded."""
        raise BrokenPipeError


def stdout() -> Console:
    """Create a console for answers; without a terminal, lines are not cut to 80 columns."""
    return _VisibleConsole() if sys.stdout.isatty() else _VisibleConsole(width=200, no_color=True, highlight=False)


def terminal() -> Console | None:
    """Create a console for standard output if that is a terminal, else None."""
    return stdout() if sys.stdout.isatty() else None


def takes_unicode() -> bool:
    """Whether standard output can encode more than ASCII."""
    return "utf" in (sys.stdout.encoding or "").lower()


def stderr() -> Console:
    return _VisibleConsole(stderr=True, highlight=False, soft_wrap=True)


def answer(text: str) -> None:
    """Print one line to standard output."""
    typer.echo(one_line(text))


def answer_text(text: str | Iterable[str], output: Path | None = None) -> None:
    """Write several lines to standard output, or atomically to a file (``outputs.open_output``).

    Args:
        text: The whole text, or an iterable of pieces of whole lines, which are written one by one.
    """
    pieces = [text] if isinstance(text, str) else text
    write_answer(pieces if output else map(visible, pieces), output)


def write_answer(pieces: Iterable[str], output: Path | None) -> None:
    """Write pieces of safe text to standard output or a file."""
    if output is None:
        try:
            sys.stdout.writelines(pieces)
            sys.stdout.flush()
        except BrokenPipeError:
            raise BrokenPipeError from None  # without errno, or Typer would exit with 1
        return
    with open_output(output) as file:
        file.writelines(piece.encode("utf-8") for piece in pieces)


def binary_file(output: Path | None, file_format: str) -> Path:
    """Check the path of a parquet or PNG file.

    Raises:
        UsageError: No path is given, or it is a link, or it exists and is not a regular file.
    """
    if output is None or not is_regular_or_missing(output):
        raise UsageError(
            f"{file_format} cannot be printed to a terminal or a pipe.",
            fix=f"Pass the file to write: -o FILE.{file_format.lower()}.",
        )
    return output


def answer_json(text: str | Iterable[str], output: Path | None = None) -> None:
    """Write JSON, whole or in pieces; control characters are written as JSON escapes, which keep the values."""
    pieces = [text] if isinstance(text, str) else text
    answer_text(itertools.chain((escape_json(piece) for piece in pieces), ["\n"]), output)


_live: list[Console] = []
"""Consoles of active progress bars; notes are printed above the bars."""


def note(text: str) -> None:
    """Print one line about progress or a problem to standard error."""
    (_live[-1] if _live else stderr()).print(one_line(text))


def notes(texts: Sequence[str]) -> None:
    """Print the first notes on rows of a file, and the number of the others."""
    for text in texts[:_NOTES]:
        note(text)
    if len(texts) > _NOTES:
        note(f"... and {len(texts) - _NOTES:,} more rows like these (--json lists all)")


class Notes(logging.Handler):
    """Log handler that prints records as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def show_error(error: LbxError) -> None:
    """Print an error as one paragraph: cause, fix, next command."""
    # A cause that ends with a library's message may lack a full stop.
    cause = error.cause if error.cause.endswith((".", "!", "?")) else f"{error.cause}."
    message = Text.assemble(("error:", "bold red"), " ", one_line(f"{cause} {error.fix}".rstrip()))
    if error.command:
        message.append("\n  try: ").append(one_line(error.command), "bold")
    stderr().print(message)


_PYDANTIC_PREFIX = "Value error, "
"""Prefix of pydantic's messages; Typer parses choices with pydantic."""


def show_usage_error(error: TyperException) -> None:
    """Print a usage error in Typer's format, which may quote arguments such as names of files."""
    from typer.rich_utils import rich_format_error  # imported late, because it imports everything that renders help

    error.message = visible(error.message.removeprefix(_PYDANTIC_PREFIX))
    rich_format_error(error)  # type: ignore[arg-type]  # Typer's own, under its private name


def show_traceback(text: str) -> None:
    """Print a traceback to standard error."""
    typer.echo(visible(text), err=True, nl=False)


def progress_bar(*columns: str | ProgressColumn) -> Progress | None:
    """Create a progress bar on a terminal; None in a log. A column given as a string is its format."""
    console = stderr()
    bar_columns = (TextColumn(column, markup=False) if isinstance(column, str) else column for column in columns)
    return Progress(*bar_columns, console=console) if console.is_terminal else None


class _ProgressContext:
    """Context manager that shows a progress bar on a terminal and none in a log."""

    def __init__(self, *columns: str | ProgressColumn) -> None:
        self._bar = progress_bar(*columns)

    def __enter__(self) -> Self:
        if self._bar:
            _live.append(self._bar.console)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()
            _live.remove(self._bar.console)


class ByteProgress(_ProgressContext):
    """Progress of work counted in bytes: downloads, hashing, extraction."""

    def __init__(self) -> None:
        super().__init__("{task.description}", BarColumn(), "{task.percentage:>3.0f}%")
        self._ids: dict[str, TaskID] = {}

    def __call__(self, stage: str, item: str, done: int, total: int) -> None:
        if not self._bar:
            return
        if stage not in self._ids:
            self._ids[stage] = self._bar.add_task(stage, total=total)
        self._bar.update(self._ids[stage], completed=done, total=total, description=one_line(f"{stage} {item}"))


class RunBar(_ProgressContext, Listener):
    """Progress of a run: bars on a terminal, periodic lines in a log. Use it as a context manager."""

    def __init__(self) -> None:
        super().__init__("{task.description}", BarColumn(), "{task.percentage:>3.0f}%", "{task.fields[said]}")
        self._ids: dict[str, TaskID] = {}
        self._last = time.monotonic()

    def progress(self, progress: RunProgress) -> None:
        if not progress.samples:
            return
        if self._bar:
            self._show("run", one_line(progress.task), progress.fraction, 1.0, progress.pace)
        elif progress.ended or time.monotonic() - self._last >= RUN_LOG_SECONDS:
            self._last = time.monotonic()
            note(str(progress))

    def said(self, text: str) -> None:
        note(text)

    def counted(self, what: str, done: int, total: int) -> None:
        if self._bar:
            self._show(what, one_line(what), done, total, f"{done:,} of {total:,}")
        elif done and time.monotonic() - self._last >= LOG_SECONDS:
            self._last = time.monotonic()
            note(f"{what}: {done:,} of {total:,}")

    def _show(self, key: str, name: str, done: float, total: float, status: str) -> None:
        assert self._bar is not None
        if key not in self._ids:
            self._ids[key] = self._bar.add_task("", total=total, said="")
        self._bar.update(self._ids[key], description=name, completed=done, total=total, said=status)
