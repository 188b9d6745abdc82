"""A terminal for tests: a command writes to a pseudo-terminal, and a small model of the screen shows what remains."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rich.cells import cell_len

_PART = re.compile(r"\x1b\[(?P<numbers>[\d;?]*)(?P<code>[A-Za-z])|\x1b[^\[]|(?P<character>.)", re.DOTALL)
_PATIENCE_S = 120.0


class Screen:
    """Rows of characters, with those scrolled out at the top, and a cursor. Wraps and moves as xterm does."""

    def __init__(self, columns: int = 80, height: int = 24) -> None:
        self._columns, self._height = columns, height
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0

    @property
    def lines(self) -> list[str]:
        lines = ["".join(row).rstrip() for row in self._rows]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def write(self, text: str) -> None:
        for part in _PART.finditer(text):
            if (character := part["character"]) is not None:
                self._put(character)
            elif part["code"]:
                self._control(part["code"], part["numbers"])

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._move_down()
        elif character == "\b":
            self._column = max(0, self._column - 1)
        elif character >= " ":
            width = cell_len(character)
            if self._column + width > self._columns:
                self._column = 0
                self._move_down()
            row = self._rows[self._row]
            row += [" "] * (self._column + width - len(row))
            row[self._column : self._column + width] = [character, *[""] * (width - 1)]
            self._column += width

    def _move_down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])

    def _control(self, code: str, numbers: str) -> None:
        count = int(numbers) if numbers.isdigit() else 0
        row = self._rows[self._row]
        if code == "A":
            self._row = max(self._row - max(count, 1), len(self._rows) - self._height, 0)
        elif code == "K":
            del row[0 if count == 2 else self._column :]
        elif code == "J":
            del row[self._column :]
            del self._rows[self._row + 1 :]
        else:
            assert code in "mhl", f"this model of a terminal does not know {code}"


@dataclass
class Shown:
    """What a command showed.

    Attributes:
        lines: on the screen at its end.
        frames: all lines that were on the screen at some time.
    """

    code: int = 0
    raw: str = ""
    lines: list[str] = field(default_factory=list)
    frames: set[str] = field(default_factory=set)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def on_screen(
    *arguments: object,
    columns: int = 80,
    environment: Mapping[str, str] | None = None,
    interrupt: Callable[[Shown], bool] = lambda _: False,
    program: tuple[str, ...] = ("-P", "-m", "lbx.cli"),
) -> Shown:
    """Run lbx on a terminal of its own, and press Ctrl-C there once ``interrupt`` is true."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    # A shell in a new session that opens the terminal gets it as its own, so Ctrl-C becomes a signal.
    command = ["sh", "-c", 'exec <>"$0" >&0 2>&0; exec "$@"', os.ttyname(theirs), sys.executable, *program]
    shown, screen, pressed, end = Shown(), Screen(columns), False, time.monotonic() + _PATIENCE_S
    with subprocess.Popen(
        [*command, *map(str, arguments)],
        stdin=theirs,
        start_new_session=True,
        env=inherited | {"TERM": "xterm-256color"} | (environment or {}),
    ) as process:
        os.close(theirs)
        pending = b""
        while True:
            assert time.monotonic() < end, shown.raw
            if not select.select([ours], [], [], 1.0)[0]:
                continue
            try:
                pending += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            text = pending.decode(errors="ignore")
            pending = pending[len(text.encode()) :]
            shown.raw += text
            screen.write(text)
            shown.lines = screen.lines
            shown.frames |= set(shown.lines)
            if not pressed and interrupt(shown):
                pressed = True
                os.write(ours, b"\x03")
    os.close(ours)
    shown.code = process.returncode
    return shown
