"""Printing of tables in the output of commands: fitted to a terminal, complete elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import typer
from rich.console import Console

from lbx.base.errors import UsageError
from lbx.base.inputs import is_results_file
from lbx.base.visible import as_command
from lbx.cli.output import takes_unicode, terminal, write_answer
from lbx.report.format.sheets import SHADES, Cells, Sheet
from lbx.report.format.terminal import OutputLine, lines


def check_output(output: Path | None) -> None:
    """Raise UsageError for a folder, a file in no folder, and a results file, which may have taken days to compute."""
    if output is not None and output.is_dir():
        raise UsageError(f"{output} is a folder.", fix="Give a file in it.")
    if output is not None and not output.parent.exists():
        raise UsageError(
            f"The folder {output.parent} does not exist.",
            fix="Make it, or choose a file in another folder with -o.",
            command=as_command("mkdir", "-p", output.parent),
        )
    if output is not None and output.is_file() and is_results_file(output):
        raise UsageError(f"{output} is a results file and would be overwritten.", fix="Choose another file with -o.")


def show_table(title: str, cells: Cells) -> None:
    """Print a table for people on standard output."""
    show_sheets([Sheet(title, *cells)])


def print_table(cells: Cells, console: Console) -> None:
    """Print a table for people on a console, fitted to it if it is a terminal."""
    for line in lines(Sheet("", *cells), console.width if console.is_terminal else None):
        if line.text:
            console.print(line.text)


def show_sheets(
    sheets: Iterable[Sheet], output: Path | None = None, *, ascii_only: bool = False, pipe_width: int | None = None
) -> None:
    """Print tables for people, fitted to the terminal, or write them to a pipe or a file.

    Args:
        pipe_width: width in columns outside a terminal, or None for the width of the tables. The environment variable
            COLUMNS overrides it in a pipe.
    """
    screen = terminal() if output is None else None
    ascii_only = ascii_only or (output is None and not takes_unicode())
    columns = os.environ.get("COLUMNS", "") if output is None else ""
    width = screen.width if screen else int(columns) if columns.isdecimal() and int(columns) else pipe_width
    table_lines = (line for sheet in sheets for line in lines(sheet, width, ascii_only=ascii_only))
    if screen is None or screen.no_color or screen.is_dumb_terminal:
        write_answer((f"{line.text}\n" for line in table_lines), output)
        return
    has_shades = screen.color_system in ("256", "truecolor")
    write_answer((f"{_style_line(line, has_shades=has_shades)}\n" for line in table_lines), None)


def _style_line(line: OutputLine, *, has_shades: bool) -> str:
    if line.role == "shaded":
        return _SHADED_CELL.sub(_shade, line.text) if has_shades else line.text
    return typer.style(line.text, **_STYLES.get(line.role, {}))


def _shade(cell: re.Match[str]) -> str:
    """Replace the character before a number by a background, up to the middle of the gaps between cells."""
    background, ink = _SHADE_COLOURS[SHADES.index(cell[1])]
    return typer.style(f"   {cell[2]}", fg=ink, bg=background)


_STYLES: dict[str, dict[str, bool]] = {"title": {"bold": True}, "heading": {"bold": True}, "note": {"dim": True}}
_SHADED_CELL = re.compile(f" ([{SHADES}]) ( *[0-9]+ ?)")
_BLACK, _WHITE = 16, 231
_SHADE_COLOURS = ((255, _BLACK), (153, _BLACK), (75, _BLACK), (25, _WHITE), (17, _WHITE))
"""Background and text colour of each of ``SHADES``, among the 256 colours of terminals. Higher values are darker."""
