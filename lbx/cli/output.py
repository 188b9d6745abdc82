"""What the commands say: answers on standard output, everything else on standard error.

All text on its way to a terminal passes here, and is shown as ``lbx.base.visible`` has it: names and answers come from
elsewhere. Rich's markup is off; styles are given, not written into texts.
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
from lbx.base.outputs import answer_file, is_plain
from lbx.base.visible import json_escaped, one_line, visible
from lbx.running.listening import Listener, RunProgress

LOG_SECONDS, RUN_LOG_SECONDS = 30.0, 60.0

_NOTES = 5


class _Shown(Console):
    """A console that spells out what steers terminals, before it measures text and once more as it draws it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, where `lbx report ... | head` has done all that it was asked for."""
        raise BrokenPipeError


def stdout() -> Console:
    """For answers. Off a terminal nothing is cut to 80 columns."""
    return _Shown() if sys.stdout.isatty() else _Shown(width=200, no_color=True, highlight=False)


def terminal() -> Console | None:
    """Where standard output is a terminal, that."""
    return stdout() if sys.stdout.isatty() else None


def takes_unicode() -> bool:
    """Whether standard output can hold more than ASCII."""
    return "utf" in (sys.stdout.encoding or "").lower()


def stderr() -> Console:
    return _Shown(stderr=True, highlight=False, soft_wrap=True)


def answer(text: str) -> None:
    """A line on standard output."""
    typer.echo(one_line(text))


def answer_text(text: str | Iterable[str], output: Path | None = None) -> None:
    """Several lines: on standard output, or in a file (``outputs.answer_file``), whole or not at all.

    Args:
        text: all of it, or pieces of whole lines, which are written as they come.
    """
    pieces = [text] if isinstance(text, str) else text
    write_answer(pieces if output else map(visible, pieces), output)


def write_answer(pieces: Iterable[str], output: Path | None) -> None:
    """Pieces that may be shown as they are, on standard output or in a file."""
    if output is None:
        try:
            sys.stdout.writelines(pieces)
            sys.stdout.flush()
        except BrokenPipeError:
            raise BrokenPipeError from None  # without a number, for which Typer would exit with 1
        return
    with answer_file(output) as file:
        file.writelines(piece.encode("utf-8") for piece in pieces)


def parquet_file(output: Path | None) -> Path:
    """Where a parquet file goes. Raises UsageError: nowhere, or where none can be put in place of what there is."""
    if output is None or not is_plain(output):
        raise UsageError("Parquet is not for terminals and pipes.", fix="Say where to write it: -o FILE.parquet.")
    return output


def answer_json(text: str | Iterable[str], output: Path | None = None) -> None:
    """JSON, at once or in pieces; what steers terminals is escaped, so that its values stay what they are."""
    pieces = [text] if isinstance(text, str) else text
    answer_text(itertools.chain((json_escaped(piece) for piece in pieces), ["\n"]), output)


_live: list[Console] = []
"""Of the bars that are drawn at the moment: what is said meanwhile goes above them."""


def note(text: str) -> None:
    """One line about what is going on."""
    (_live[-1] if _live else stderr()).print(one_line(text))


def notes(texts: Sequence[str]) -> None:
    """The first of several notes on rows of a file, and how many more there are."""
    for text in texts[:_NOTES]:
        note(text)
    if len(texts) > _NOTES:
        note(f"... and {len(texts) - _NOTES:,} more rows like these (--json names all)")


class Notes(logging.Handler):
    """Shows what lbx logs."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def show_error(error: LbxError) -> None:
    """One paragraph: cause, fix, next command."""
    # A library's message at the end of a sentence has no full stop of its own.
    cause = error.cause if error.cause.endswith((".", "!", "?")) else f"{error.cause}."
    message = Text.assemble(("error:", "bold red"), " ", one_line(f"{cause} {error.fix}".rstrip()))
    if error.command:
        message.append("\n  try: ").append(one_line(error.command), "bold")
    stderr().print(message)


_OF_PYDANTIC = "Value error, "
"""With what pydantic, by which Typer reads choices, begins its messages."""


def show_usage_error(error: TyperException) -> None:
    """What is wrong with the command line, as Typer has it; arguments may be names of files, and stand in it."""
    from typer.rich_utils import rich_format_error  # which brings all that help is drawn with

    error.message = visible(error.message.removeprefix(_OF_PYDANTIC))
    rich_format_error(error)  # type: ignore[arg-type]  # Typer's own, under its private name


def show_traceback(text: str) -> None:
    """What --debug shows of a failure."""
    typer.echo(visible(text), err=True, nl=False)


def progress_bar(*columns: str | ProgressColumn) -> Progress | None:
    """A bar on a terminal, None in a log. A text is the format of a column."""
    console = stderr()
    made = (TextColumn(column, markup=False) if isinstance(column, str) else column for column in columns)
    return Progress(*made, console=console) if console.is_terminal else None


class _Watched:
    """Something with a bar on a terminal and none in a log."""

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


class ByteProgress(_Watched):
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


class RunBar(_Watched, Listener):
    """A run's progress: bars on a terminal, a line now and then in a log. Use it as a context manager."""

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

    def _show(self, key: str, name: str, done: float, total: float, said: str) -> None:
        assert self._bar is not None
        if key not in self._ids:
            self._ids[key] = self._bar.add_task("", total=total, said="")
        self._bar.update(self._ids[key], description=name, completed=done, total=total, said=said)
