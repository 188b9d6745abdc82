"""Output of commands: answers on standard output, everything else on standard error.

All text for a terminal passes through this module, which makes control characters visible (``lbx.base.visible``):
names and answers come from untrusted sources. Rich's markup is off; styles are passed as arguments.
"""

from __future__ import annotations

import itertools
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from typer.exceptions import TyperException

from lbx.base.errors import LbxError, UsageError
from lbx.base.listening import Listener, RunProgress
from lbx.base.outputs import is_regular_or_missing, open_output
from lbx.base.units import format_duration, format_size
from lbx.base.visible import as_command, escape_json, one_line, visible

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
    return _live[-1] if _live else _VisibleConsole(stderr=True, highlight=False, soft_wrap=True)


def answer(text: str) -> None:
    """Print a line to standard output."""
    typer.echo(one_line(text))


def answer_text(text: str | Iterable[str], output: Path | None = None) -> None:
    """Write several lines to standard output, or atomically to a file (``outputs.open_output``).

    Args:
        text: the whole text, or pieces of whole lines, which are written one after another.
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
    note(f"Written to {output}")


def binary_file(output: Path | None, file_format: str) -> Path:
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


_live: list[Console] = []
"""Consoles of active progress bars."""


def note(text: str) -> None:
    """Print a line about a result or a problem to standard error."""
    _print_line(text)


def _print_line(text: str) -> None:
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


@dataclass(frozen=True, slots=True)
class _ProgressLine:
    """Bar of a phase, fitted to the terminal's width.

    Attributes:
        names: names of the phase, from the longest to the shortest.
        texts: counts and the time left.
        details: further texts, of which as many are shown as fit.
    """

    names: Sequence[str]
    fraction: float
    texts: Sequence[str]
    details: Sequence[str] = ()

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        percent = f"{int(100 * self.fraction):>3}%"
        room = options.max_width - _ECHO - _LEAST_BAR - len(_GAP + percent)
        texts, room = _take_fitting(self.texts, room)
        name, room = self._fit_name(room)
        bar = _LEAST_BAR + max(0, min(room, _MOST_BAR - _LEAST_BAR))
        details, _room = _take_fitting(self.details, room + _LEAST_BAR - bar)
        grid = Table.grid(padding=(0, len(_GAP), 0, 0), pad_edge=False)
        cells = [Text(name, no_wrap=True)] if name else []
        grid.add_row(
            *cells, ProgressBar(1.0, self.fraction, bar, complete_style="cyan"), *map(Text, [percent, *texts, *details])
        )
        yield grid

    def _fit_name(self, room: int) -> tuple[str, int]:
        """Return the longest name that fits, or the start of the shortest, and the room that remains."""
        room -= len(_GAP)
        if room < _LEAST_NAME:
            return "", room + len(_GAP)
        name = Text(next((name for name in self.names if cell_len(name) <= room), self.names[-1]))
        name.truncate(room, overflow="ellipsis")
        return name.plain, room - name.cell_len


def _take_fitting(texts: Sequence[str], room: int) -> tuple[list[str], int]:
    """Return the first texts that fit into the room, and the room that remains."""
    fitting = []
    for text in texts:
        if len(_GAP + text) > room:
            break
        fitting.append(text)
        room -= len(_GAP + text)
    return fitting, room


_GAP = "  "
_LEAST_BAR, _MOST_BAR = 10, 24
_LEAST_NAME = 6
_ECHO = 2
"""Columns for the ^C that a terminal writes, which must not wrap the line: only one line is erased."""
_MEASURE_S = 2.0
"""Shortest time from which the time left is estimated."""


class _ProgressContext:
    """Context manager that shows the bar of the current phase on a terminal, and erases it at the end.

    No bar is written to a log.
    """

    def __init__(self) -> None:
        console = stderr()
        shows = console.is_terminal and not console.is_dumb_terminal
        self._line: _ProgressLine | None = None
        self._phase, self._start = "", 0.0
        self._bar = Live(console=console, get_renderable=self._draw, transient=True) if shows else None

    def __enter__(self) -> Self:
        if self._bar:
            _live.append(self._bar.console)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._line = None
            self._bar.stop()
            _live.remove(self._bar.console)

    def _draw(self) -> RenderableType:
        return self._line or Text()

    def _show_count(self, phase: str, name: str, done: int, total: int, count: str) -> None:
        """Show a phase until it is done, with the time left at the average speed so far."""
        if phase != self._phase:
            self._phase, self._start = phase, time.monotonic()
        elapsed = time.monotonic() - self._start
        left = [f"{format_duration(elapsed * (total - done) / done)} left"] if done and elapsed > _MEASURE_S else []
        texts = [text for text in (count, *left) if text]
        self._line = _ProgressLine([one_line(name)], done / total, texts) if done < total else None


class ByteProgress(_ProgressContext):
    """Progress of work counted in bytes: downloads, hashing, extraction."""

    def __call__(self, stage: str, item: str, done: int, total: int) -> None:
        if self._bar:
            self._show_count(stage, f"{stage} {item}", done, total, f"{format_size(done)}/{format_size(total)}")


class RunBar(_ProgressContext, Listener):
    """Progress of a run: a bar on a terminal, periodic lines in a log. Use it as a context manager."""

    def __init__(self) -> None:
        super().__init__()
        self._last = time.monotonic()

    def on_progress(self, progress: RunProgress) -> None:
        if not progress.samples:
            return
        if self._bar:
            self._show_run(progress)
        elif progress.ended or time.monotonic() - self._last >= RUN_LOG_SECONDS:
            self._last = time.monotonic()
            _print_line(str(progress))

    def on_message(self, text: str) -> None:
        note(text)

    def on_count(self, activity: str, done: int, total: int, unit: str = "") -> None:
        count = f"{done}%" if unit == "%" else f"{done:,}/{total:,} {unit}".rstrip()
        if self._bar:
            self._show_count(activity, activity, done, total, "" if unit == "%" else count)
        elif done and time.monotonic() - self._last >= LOG_SECONDS:
            self._last = time.monotonic()
            _print_line(f"{activity}: {count}")

    def _show_run(self, progress: RunProgress) -> None:
        task = one_line(progress.task)
        details = [f"{progress.failed:,} failed"] if progress.failed else []
        self._line = (
            None
            if progress.ended
            else _ProgressLine(
                [task, task.rpartition("/")[2]],
                progress.fraction,
                [f"{progress.n_finished:,}/{progress.samples:,}", progress.time_left],
                [*details, progress.speed, progress.memory],
            )
        )
