"""A dataset's file: where each document's line is, and its bytes. A file of any size is read line by line."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.inputs import open_input
from lbx.base.limits import RECORD_BYTES
from lbx.exchange.annotation.pairs import Line

_BOM = b"\xef\xbb\xbf"
_PIECE, _ENDLESS = 1 << 20, 1 << 62
_CORRECT = "Nothing was changed. Correct the line first."


@dataclass(frozen=True, slots=True)
class Entry:
    """A document of the file.

    Attributes:
        number: of its line, from 1.
        start, end: its bytes, without the line feed.
        pairs: how many it came with.
    """

    number: int
    start: int
    end: int
    pairs: int


def opened(path: Path) -> BufferedReader:
    """Raises UsageError: it is not there, or cannot be read."""
    try:
        return open_input(path)
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror or exc}.", fix="Check the path.") from exc


def scanned(path: Path, file: BufferedReader) -> tuple[list[Entry], bool, str]:
    """Each document's place, whether the file writes in ASCII, and its SHA-256. Raises UsageError with the line."""
    entries: list[Entry] = []
    digest, at, only_ascii = hashlib.sha256(), 0, True
    lines = iter(lambda: file.readline(RECORD_BYTES + 1), b"")
    for number, data in enumerate(lines, 1):
        if len(data) > RECORD_BYTES:
            why = f"it has more than {RECORD_BYTES:,} bytes, too many for a document"
            raise UsageError(f"{path}, line {number}: {why}.", fix=_CORRECT)
        digest.update(data)
        line = data.removesuffix(b"\n")
        only_ascii = only_ascii and line.removeprefix(_BOM).isascii()
        if line.removeprefix(_BOM).strip():
            entries.append(Entry(number, at, at + len(line), _checked(path, number, line)))
        at += len(data)
    if not entries:
        raise UsageError(f"{path} holds no document.", fix="Give a file with a JSON object a line, as L-Eval's are.")
    return entries, only_ascii, digest.hexdigest()


def _checked(path: Path, number: int, data: bytes) -> int:
    try:
        line = Line(data.decode())
        if number == 1 and line.raw.lstrip("\ufeff \t\r").startswith("["):
            why = "it begins a JSON array, and a dataset has an object on each line"
            command = f"{as_command('jq', '-c', '.[]', path)} > {as_command(Path(f'{path.stem}.lines.jsonl'))}"
            raise UsageError(f"{path}, line 1: {why}.", fix=_CORRECT, command=command)
        return len(line.pairs())
    except UnicodeDecodeError as exc:
        why = f"it is not UTF-8 ({exc.reason} at byte {exc.start + 1})"
        raise UsageError(f"{path}, line {number}: {why}.", fix=_CORRECT) from exc
    except ValueError as exc:
        raise UsageError(f"{path}, line {number}: {exc}.", fix=_CORRECT) from exc


def read(file: BufferedReader, start: int, end: int | None) -> Iterator[bytes]:
    """A file's bytes, piece by piece; None for all that are left."""
    while start != end and (piece := os.pread(file.fileno(), min(_PIECE, (end or _ENDLESS) - start), start)):
        yield piece
        start += len(piece)


def sha256(path: Path) -> str:
    """Of a file's bytes, hex."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
