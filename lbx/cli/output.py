"""What the commands say: answers on standard output, everything else on standard error."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from lbx.errors import LbxError

LOG_SECONDS = 30.0


class _Answers(Console):
    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, where `lbx report ... | head` has done all that it was asked for."""
        raise BrokenPipeError


def stdout() -> Console:
    """For answers. Off a terminal nothing is cut to 80 columns."""
    return _Answers() if sys.stdout.isatty() else _Answers(width=200, no_color=True, highlight=False)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


_quiet = False


def be_quiet() -> None:
    """Say nothing more: another process of this run says the same."""
    global _quiet  # noqa: PLW0603
    _quiet = True


def note(text: str) -> None:
    """One line about what is going on."""
    if not _quiet:
        announce(text)


def announce(text: str) -> None:
    """The same from whichever process does it: no other one says this."""
    stderr().print(escape(text))


def show_error(error: LbxError) -> None:
    """One paragraph: cause, fix, next command."""
    # A library's message at the end of a sentence has no full stop of its own.
    cause = error.cause if error.cause.endswith((".", "!", "?")) else f"{error.cause}."
    text = f"[bold red]error:[/] {escape(cause)}"
    if error.fix:
        text += f" {escape(error.fix)}"
    if error.command:
        text += f"\n  try: [bold]{escape(error.command)}[/]"
    stderr().print(text)


class _Watched:
    """Something with a bar on a terminal and none in a log."""

    def __init__(self, *columns: ProgressColumn) -> None:
        console = stderr()
        self._bar = Progress(*columns, console=console) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()


class ByteProgress(_Watched):
    """Progress of work counted in bytes: downloads, hashing, extraction."""

    def __init__(self) -> None:
        super().__init__(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
        self._ids: dict[str, TaskID] = {}

    def __call__(self, stage: str, item: str, done: int, total: int) -> None:
        if not self._bar:
            return
        if stage not in self._ids:
            self._ids[stage] = self._bar.add_task(stage, total=total)
        self._bar.update(self._ids[stage], completed=done, total=total, description=f"{stage} {escape(item)}")


class CountProgress(_Watched):
    """Progress of work counted in things: a bar on a terminal, a line now and then in a log."""

    def __init__(self, what: str) -> None:
        super().__init__(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._what = what
        self._ids: dict[str, TaskID] = {}
        self._last = time.monotonic()

    def count(self, done: int, total: int) -> None:
        self("", done, total)

    def __call__(self, item: str, done: int, total: int) -> None:
        name = f"{item}: {self._what}" if item else self._what
        if self._bar:
            if item not in self._ids:
                self._ids[item] = self._bar.add_task(escape(name), total=total)
            self._bar.update(self._ids[item], completed=done, total=total)
        elif done and time.monotonic() - self._last >= LOG_SECONDS:
            self._last = time.monotonic()
            note(f"{name}: {done:,} of {total:,}")
