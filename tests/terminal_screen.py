"""A terminal's screen: what a command's output looks like after carriage returns, erasures and moves of the cursor."""

from __future__ import annotations

import codecs
import copy
import html
import os
import pty
import re
import subprocess
import time
import unicodedata
from pathlib import Path

_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>()][A-Z0-9]?")
_UNFINISHED = re.compile(r"\x1b(\[[0-9;?]*)?$")
_COLOURS = ("#7f848e", "#ef7a7a", "#8fd18a", "#e5c07b", "#6cb6ff", "#d19af0", "#56c8d8", "#d7dae0")
Cell = tuple[str, str]
"""A character and its style in CSS."""


class Screen:
    """Lines of a terminal without a lower end.

    Args:
        columns: width of the terminal; longer lines wrap.
    """

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._lines: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._codes: list[str] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def copy(self) -> Screen:
        other = copy.copy(self)
        other._lines = [list(line) for line in self._lines]
        return other

    @property
    def text(self) -> str:
        lines = ["".join(character for character, _ in line).rstrip() for line in self._lines]
        return "\n".join(lines).rstrip() + "\n"

    def html_lines(self, most: int) -> str:
        """Return the first lines as HTML, for a ``pre``."""
        parts = []
        for line in self._lines[:most]:
            for character, style in line:
                text = html.escape(character)
                parts.append(f'<span style="{style}">{text}</span>' if style and text else text)
            parts.append("\n")
        return "".join(parts).rstrip("\n")

    def feed(self, data: bytes) -> None:
        text = self._rest + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text)
        self._rest = unfinished[0] if unfinished else ""
        text = text[: len(text) - len(self._rest)]
        at = 0
        for match in _SEQUENCE.finditer(text):
            self._write(text[at : match.start()])
            if match[2]:
                self._control(match[1], match[2])
            at = match.end()
        self._write(text[at:])

    def _write(self, text: str) -> None:
        for character in text:
            if character == "\n":
                self._row += 1
                self._column = 0
            elif character == "\r":
                self._column = 0
            elif character == "\b":
                self._column = max(0, self._column - 1)
            elif character >= " ":
                self._put(character)
            while len(self._lines) <= self._row:
                self._lines.append([])

    def _put(self, character: str) -> None:
        width = 2 if unicodedata.east_asian_width(character) in "WF" else 0 if unicodedata.combining(character) else 1
        if self._column + width > self.columns:
            self._row, self._column = self._row + 1, 0
        while len(self._lines) <= self._row:
            self._lines.append([])
        line = self._lines[self._row]
        line += [(" ", "")] * (self._column + width - len(line))
        line[self._column : self._column + width] = [(character, self._style()), ("", "")][:width]
        self._column += width

    def _control(self, numbers: str, letter: str) -> None:
        count = int(numbers) if numbers.isdigit() else 0
        line = self._lines[self._row]
        if letter == "m":
            self._codes = [] if numbers in ("", "0") else [*self._codes, *numbers.split(";")]
        elif letter == "A":
            self._row = max(0, self._row - max(1, count))
        elif letter == "B":
            self._row += max(1, count)
        elif letter == "C":
            self._column += max(1, count)
        elif letter == "G":
            self._column = max(0, count - 1)
        elif letter == "K":
            if count == 2:
                line.clear()
            else:
                del line[self._column :]
        elif letter == "J":
            del line[self._column :]
            del self._lines[self._row + 1 :]
        while len(self._lines) <= self._row:
            self._lines.append([])

    def _style(self) -> str:
        parts: dict[str, str] = {}
        codes = iter(self._codes)
        for code in codes:
            number = int(code or 0)
            if number == 0:
                parts.clear()
            elif number == 1:
                parts["font-weight"] = "bold"
            elif number == 2:
                parts["opacity"] = ".65"
            elif number in (38, 48):
                name = "color" if number == 38 else "background"
                parts[name] = _extended([next(codes, "0") for _ in range(2)], codes)
            elif number in range(30, 38) or number in range(90, 98):
                parts["color"] = _COLOURS[number % 10]
            elif number in range(40, 48) or number in range(100, 108):
                parts["background"] = _COLOURS[number % 10]
            elif number in (22, 39, 49):
                parts.pop({22: "font-weight", 39: "color", 49: "background"}[number], None)
        return ";".join(f"{name}:{value}" for name, value in parts.items())


def _extended(first: list[str], codes: object) -> str:
    """Return a colour of 256 or of all colours, from the codes after 38 or 48."""
    kind, value = first
    if kind == "2":
        rest = [next(codes, "0") for _ in range(2)]  # type: ignore[call-overload]
        return f"rgb({value},{rest[0]},{rest[1]})"
    number = int(value)
    if number < 16:
        return _COLOURS[number % 8]
    if number >= 232:
        level = 8 + 10 * (number - 232)
        return f"rgb({level},{level},{level})"
    steps = (0, 95, 135, 175, 215, 255)
    number -= 16
    return f"rgb({steps[number // 36]},{steps[number // 6 % 6]},{steps[number % 6]})"


def captured_screen(command: list[str], columns: int, folder: Path, *, snapshots: list[Screen] | None = None) -> Screen:
    """Run a command in a folder on a pseudo-terminal and return its last screen.

    Args:
        snapshots: receives the screens meanwhile, ten a second.
    """
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "50", "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=environment)
    os.close(slave)
    screen, taken_s = Screen(columns), time.monotonic()
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # Linux: the other end is closed
            break
        screen.feed(data)
        if snapshots is not None and time.monotonic() - taken_s > 0.1:
            snapshots.append(screen.copy())
            taken_s = time.monotonic()
    os.close(master)
    process.wait()
    return screen
