"""A task's data in whichever form the bundle holds it: what the authors published, or the hub's parquet of it.

Sites whose mirror carries only parquet can bundle that, and get the same samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lbx.base.commands import as_command
from lbx.base.database import count_parquet_rows, parquet_rows
from lbx.base.errors import BundleError, NoDataError
from lbx.base.layout import Bundle
from lbx.benchmarks.base.files import (
    DataRow,
    count_keys,
    count_zip_lines,
    damaged,
    first_sign,
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


def json_rows(path: Path, key: str) -> Source:
    """Rows of a JSON file: one array, or one object a line; ``key`` is a field that every object has."""
    return JsonLines(path) if first_sign(path) == b"{" else JsonArray(path, key)


@dataclass(frozen=True, slots=True)
class DataSource:
    """Where a family's data and official texts come from.

    Attributes:
        recipe: the recipe that bundles them; "" for a family that needs no data.
        repositories: names that its dataset has, or had, on the hub.
        required_file: file without which "all" leaves out a family that makes its own samples.
    """

    recipe: str = ""
    repositories: tuple[str, ...] = ()
    required_file: str = ""

    def is_bundled(self, bundle: Bundle) -> bool:
        """Whether "all" includes the family."""
        return not self.required_file or bundle.file(self.required_file) is not None

    def folder(self, bundle: Bundle) -> Path | None:
        """The folder of the dataset, or None. Raises BundleError: the bundle has it under several names."""
        folders = {name: path for name in self.repositories if (path := bundle.snapshot("dataset", name))}
        if len(folders) > 1:
            raise BundleError(
                f"The bundle holds one dataset under several names: {' and '.join(folders)}.", fix="Bundle one of them."
            )
        return next(iter(folders.values()), None)

    def official_file(self, bundle: Bundle, place: str) -> Path:
        """A file that official prompts and settings are read from. Raises NoDataError where it is missing."""
        path = bundle.file(place)
        if path is None:
            raise self.missing(bundle, f"data/files/{place}, which has official settings")
        return path

    def missing(self, bundle: Bundle, what: str) -> NoDataError:
        """The error for a bundle without some data or official settings."""
        return NoDataError(
            f"The bundle at {bundle.root} does not hold {what}.",
            fix="Bundle it on a connected machine.",
            command=as_command("lbx", "bundle", self.recipe),
        )


def find(folder: Path | None, place: str, config: str, make: Callable[[Path], Source | None]) -> Source | None:
    """What ``make`` makes of the file at ``place`` in a data set's folder, else the parquet of ``config``."""
    if folder is None:
        return None
    path = folder / place
    return make(path) if path.is_file() else find_parquet(folder, config)


def find_parquet(folder: Path, config: str) -> Source | None:
    """The shards of a configuration's only split, or None.

    The hub's branch ``refs/convert/parquet`` has CONFIG/SPLIT/0000.parquet. A dataset that was pushed to it as parquet
    has CONFIG/SPLIT-00000-of-00001.parquet, in a folder "data" for the configuration "default".

    Raises:
        BundleError: there are several splits, or only a part of one.
    """
    splits: dict[str, list[Path]] = {}
    for place in ("default", "data") if config == "default" else (config,):
        for path in sorted((folder / place).glob("*/*.parquet")):
            splits.setdefault(f"{place}/{path.parent.name}", []).append(path)
        for path in sorted((folder / place).glob("*.parquet")):
            splits.setdefault(f"{place}/{path.name.partition('-')[0]}", []).append(path)
    if len(splits) > 1:
        raise damaged(str(folder), f"it has several splits, {', '.join(sorted(splits))}")
    for split in splits:
        if "/partial-" in split:
            raise damaged(str(folder), f"{split} holds only a part of the rows")
    return next((Parquet(tuple(paths)) for paths in splits.values()), None)
