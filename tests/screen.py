"""A terminal for tests: a command writes to a pseudo-terminal, and pyte shows what remains on its screen."""

from __future__ import annotations

import copy
import html
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

import pyte
from pyte.screens import Char
from rich.cells import cell_len

_HEIGHT = 24
_PATIENCE_S = 600.0
_COLOURS = {
    "black": "#7f848e", "red": "#ef7a7a", "green": "#8fd18a", "brown": "#e5c07b",
    "blue": "#6cb6ff", "magenta": "#d19af0", "cyan": "#56c8d8", "white": "#d7dae0",
}  # fmt: skip

pyte.graphics.TEXT[2] = "+blink"  # pyte drops faint text; lbx has notes in faint text, and no text that blinks


@dataclass(frozen=True)
class Picture:
    """The rows of a terminal at a moment, with those scrolled out at the top."""

    columns: int
    rows: list[Mapping[int, Char]]

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n") if self.text else []

    @cached_property
    def text(self) -> str:
        return "\n".join("".join(cell.data for cell in self._cells(row)).rstrip() for row in self.rows).rstrip("\n")

    def html(self, most: int) -> str:
        """Return the first rows as HTML, for a ``pre``."""
        return "\n".join(_html_line(self._cells(row)) for row in self.rows[:most]).rstrip()

    def _cells(self, row: Mapping[int, Char]) -> list[Char]:
        return [row[column] for column in range(self.columns)]


def _html_line(line: list[Char]) -> str:
    parts = []
    for style, cells in groupby(line, _style):
        text = html.escape("".join(cell.data for cell in cells))
        parts.append(f'<span style="{style}">{text}</span>' if style else text)
    return "".join(parts).rstrip()


def _style(cell: Char) -> str:
    parts = ["font-weight:bold"] * cell.bold + ["opacity:.65"] * cell.blink
    for name, colour in (("color", cell.fg), ("background", cell.bg)):
        if colour != "default":
            parts.append(f"{name}:{_COLOURS.get(colour.removeprefix('bright'), f'#{colour}')}")
    return ";".join(parts)


class Terminal(pyte.HistoryScreen):
    """A terminal that remembers the rows scrolled out at its top, and takes pictures of itself."""

    def __init__(self, columns: int) -> None:
        super().__init__(columns, _HEIGHT, history=sys.maxsize)

    def draw(self, data: str) -> None:
        """Draw each character by itself: pyte cuts a wide one in half at the end of a row, and drops all that follows
        one without a width.
        """
        for character in data:
            if cell_len(character) == 2 and self.cursor.x == self.columns - 1:
                self.cursor.x = self.columns
            super().draw(character)

    def picture(self) -> Picture:
        visible = [copy.copy(self.buffer[row]) for row in range(self.lines)]
        return Picture(self.columns, [*self.history.top, *visible])


@dataclass
class Shown:
    """What a command showed.

    Attributes:
        pictures: after each part of the output.
    """

    pictures: list[Picture]
    output: bytes = b""
    code: int = 0

    @property
    def raw(self) -> str:
        return self.output.decode(errors="replace")

    @property
    def text(self) -> str:
        """The text on the screen at the end."""
        return self.pictures[-1].text

    @property
    def lines(self) -> list[str]:
        """The lines on the screen at the end."""
        return self.pictures[-1].lines

    @property
    def frames(self) -> set[str]:
        """All lines that were on the screen at some time."""
        return {line for picture in self.pictures for line in picture.lines}


def on_screen(
    *arguments: object,
    columns: int = 80,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    interrupt: Callable[[Shown], bool] = lambda _: False,
    program: tuple[str, ...] = ("-P", "-m", "lbx.cli"),
) -> Shown:
    """Run lbx on a terminal of its own, and press Ctrl-C there once ``interrupt`` is true."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (_HEIGHT, columns))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    # A shell in a new session that opens the terminal gets it as its own, so Ctrl-C becomes a signal.
    command = ["sh", "-c", 'exec <>"$0" >&0 2>&0; exec "$@"', os.ttyname(theirs), sys.executable, *program]
    terminal, pressed, end = Terminal(columns), False, time.monotonic() + _PATIENCE_S
    stream, shown = pyte.ByteStream(terminal), Shown([terminal.picture()])
    with subprocess.Popen(
        [*command, *map(str, arguments)],
        stdin=theirs,
        start_new_session=True,
        cwd=folder,
        env=inherited | {"TERM": "xterm-256color"} | (environment or {}),
    ) as process:
        os.close(theirs)
        while time.monotonic() < end:
            if not select.select([ours], [], [], 1.0)[0]:
                continue
            try:
                data = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            shown.output += data
            stream.feed(data)
            shown.pictures.append(terminal.picture())
            if not pressed and interrupt(shown):
                pressed = True
                os.write(ours, b"\x03")
        else:
            process.kill()
            raise TimeoutError(shown.raw)
    os.close(ours)
    shown.code = process.returncode
    return shown
