"""A task's data in whichever form the bundle holds it: what the authors published, or the hub's parquet of it.

The hub converts datasets to parquet on its branch ``refs/convert/parquet``, laid out as CONFIG/SPLIT/0000.parquet;
sites whose mirror carries only that can bundle it, and get the same samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lbx.base.database import count_parquet_rows, parquet_rows
from lbx.benchmarks.base.files import (
    DataRow,
    count_keys,
    count_zip_lines,
    damaged,
    read_json_array,
    read_jsonl,
    read_zip_jsonl,
)


class Source(Protocol):
    """Rows of one task. Both verbs raise BundleError where a file is damaged."""

    def rows(self) -> Iterator[DataRow]: ...

    def count(self) -> int:
        """How many rows, without parsing them where the format allows."""
        ...


@dataclass(frozen=True, slots=True)
class JsonLines:
    path: Path

    def rows(self) -> Iterator[DataRow]:
        return read_jsonl(self.path)

    def count(self) -> int:
        return sum(1 for _ in self.rows())


@dataclass(frozen=True, slots=True)
class ZippedJsonLines:
    path: Path
    member: str

    def rows(self) -> Iterator[DataRow]:
        return read_zip_jsonl(self.path, self.member)

    def count(self) -> int:
        return count_zip_lines(self.path, self.member)


@dataclass(frozen=True, slots=True)
class JsonArray:
    """``key`` is a field that every object has."""

    path: Path
    key: str

    def rows(self) -> Iterator[DataRow]:
        return read_json_array(self.path)

    def count(self) -> int:
        return count_keys(self.path, self.key)


@dataclass(frozen=True, slots=True)
class Parquet:
    """Shards in order."""

    paths: Sequence[Path]

    def rows(self) -> Iterator[DataRow]:
        where = str(self.paths[0].parent)
        try:
            for number, (names, values) in enumerate(parquet_rows(self.paths), 1):
                yield DataRow(f"{where}, row {number}", dict(zip(names, values, strict=True)))
        except ValueError as exc:
            raise damaged(where, str(exc)) from exc

    def count(self) -> int:
        try:
            return count_parquet_rows(self.paths)
        except ValueError as exc:
            raise damaged(str(self.paths[0].parent), str(exc)) from exc


def find(folder: Path | None, place: str, config: str, make: Callable[[Path], Source | None]) -> Source | None:
    """What ``make`` makes of the file at ``place`` in a data set's folder, else the parquet of ``config``."""
    if folder is None:
        return None
    path = folder / place
    return make(path) if path.is_file() else find_parquet(folder, config)


def find_parquet(folder: Path, config: str) -> Source | None:
    """The shards of a configuration's only split, or None."""
    paths = sorted((folder / config).glob("*/*.parquet"))
    return Parquet(tuple(paths)) if paths else None
