"""Progress line of commands on standard error: a bar on a terminal, periodic lines in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lbx.base.listener import Listener, RunProgress
from lbx.base.units import format_duration, format_size
from lbx.base.visible import one_line
from lbx.cli.output import live_consoles, note, print_line, stderr

LOG_SECONDS, RUN_LOG_SECONDS = 30.0, 60.0


@dataclass(frozen=True, slots=True)
class _ProgressLine:
    """Bar of a phase, fitted to the terminal's width.

    Attributes:
        names: names of the phase, from the longest to the shortest.
        texts: counts and the time left.
        details: further texts, shown as far as they fit.
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
            live_consoles.append(self._bar.console)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._line = None
            self._bar.stop()
            live_consoles.remove(self._bar.console)

    def _draw(self) -> RenderableType:
        return self._line or Text()

    def _show_count(self, phase: str, name: str, done: int, total: int, count: str) -> None:
        """Show the count of an unfinished phase, with the time left at the average speed so far."""
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
            print_line(str(progress))

    def on_message(self, text: str) -> None:
        note(text)

    def on_count(self, activity: str, done: int, total: int, unit: str = "") -> None:
        count = f"{done}%" if unit == "%" else f"{done:,}/{total:,} {unit}".rstrip()
        if self._bar:
            self._show_count(activity, activity, done, total, "" if unit == "%" else count)
        elif done and time.monotonic() - self._last >= LOG_SECONDS:
            self._last = time.monotonic()
            print_line(f"{activity}: {count}")

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
