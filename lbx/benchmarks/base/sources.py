"""A task's data in either form in the bundle: the authors' files, or the hub's parquet conversion.

Sites with a mirror that carries only parquet can bundle that, and get the same samples.
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
    damaged_file_error,
    first_byte,
    read_json_array,
    read_jsonl,
    read_zip_jsonl,
)


class RowSource(Protocol):
    """Rows of one task. Both methods raise BundleError if a file is damaged."""

    def rows(self) -> Iterator[DataRow]: ...

    def count(self) -> int:
        """Count rows, without parsing them if the format allows."""
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
    """A JSON array; ``key`` is a field that every object has."""

    path: Path
    key: str

    def rows(self) -> Iterator[DataRow]:
        return read_json_array(self.path)

    def count(self) -> int:
        return count_keys(self.path, self.key)


@dataclass(frozen=True, slots=True)
class Parquet:
    """Parquet shards in order."""

    paths: Sequence[Path]

    def rows(self) -> Iterator[DataRow]:
        location = str(self.paths[0].parent)
        try:
            for number, (names, values) in enumerate(parquet_rows(self.paths), 1):
                yield DataRow(f"{location}, row {number}", dict(zip(names, values, strict=True)))
        except ValueError as exc:
            raise damaged_file_error(location, str(exc)) from exc

    def count(self) -> int:
        try:
            return count_parquet_rows(self.paths)
        except ValueError as exc:
            raise damaged_file_error(str(self.paths[0].parent), str(exc)) from exc


def json_rows(path: Path, key: str) -> RowSource:
    """Return the rows of a JSON file: one array, or one object a line; ``key`` is a field that every object has."""
    return JsonLines(path) if first_byte(path) == b"{" else JsonArray(path, key)


@dataclass(frozen=True, slots=True)
class DataSource:
    """Origin of a family's data and official texts.

    Attributes:
        recipe: the recipe that bundles them; "" for a family that needs no data.
        repositories: current and former names of its dataset on the hub.
        required_file: for a family that makes its own samples, the file that "all" requires.
        more_recipes: recipes of parts that only some tasks need.
    """

    recipe: str = ""
    repositories: tuple[str, ...] = ()
    required_file: str = ""
    more_recipes: tuple[str, ...] = ()

    @property
    def bundle_command(self) -> str:
        return as_command("lbx", "bundle", self.recipe, *self.more_recipes)

    def is_bundled(self, bundle: Bundle) -> bool:
        """Return whether "all" includes the family."""
        return not self.required_file or bundle.file(self.required_file) is not None

    def folder(self, bundle: Bundle) -> Path | None:
        """Return the folder of the dataset, or None. Raises BundleError if the bundle has it under several names."""
        folders = {name: path for name in self.repositories if (path := bundle.snapshot("dataset", name))}
        if len(folders) > 1:
            raise BundleError(
                f"The bundle has the same dataset under several names: {' and '.join(folders)}.",
                fix="Bundle only one of them.",
            )
        return next(iter(folders.values()), None)

    def official_file(self, bundle: Bundle, relative_path: str) -> Path:
        """Return a file with official prompts or settings. Raises NoDataError if it is missing."""
        path = bundle.file(relative_path)
        if path is None:
            raise self.missing_data_error(bundle, f"data/files/{relative_path} with the official settings")
        return path

    def missing_data_error(self, bundle: Bundle, description: str) -> NoDataError:
        """Return the error for a bundle without some data or official settings."""
        return NoDataError(
            f"The bundle at {bundle.root} does not contain {description}.",
            fix="Bundle the data on a connected machine.",
            command=self.bundle_command,
        )


def find_in_folder(
    folder: Path | None, relative_path: str, config: str, make_source: Callable[[Path], RowSource | None]
) -> RowSource | None:
    """Return ``make_source`` of the file at ``relative_path`` in a dataset's folder, else the parquet of ``config``."""
    if folder is None:
        return None
    path = folder / relative_path
    return make_source(path) if path.is_file() else find_parquet(folder, config)


def find_parquet(folder: Path, config: str) -> RowSource | None:
    """Return the shards of a configuration's only split, or None.

    The hub's branch ``refs/convert/parquet`` has CONFIG/SPLIT/0000.parquet. A dataset that was pushed to it as parquet
    has CONFIG/SPLIT-00000-of-00001.parquet, in a folder "data" for the configuration "default".

    Raises:
        BundleError: there are several splits, or only a part of one.
    """
    splits: dict[str, list[Path]] = {}
    for subfolder in ("default", "data") if config == "default" else (config,):
        for path in sorted((folder / subfolder).glob("*/*.parquet")):
            splits.setdefault(f"{subfolder}/{path.parent.name}", []).append(path)
        for path in sorted((folder / subfolder).glob("*.parquet")):
            splits.setdefault(f"{subfolder}/{path.name.partition('-')[0]}", []).append(path)
    if len(splits) > 1:
        raise damaged_file_error(str(folder), f"it has several splits, {', '.join(sorted(splits))}")
    for split in splits:
        if "/partial-" in split:
            raise damaged_file_error(str(folder), f"{split} has only part of the rows")
    return next((Parquet(tuple(paths)) for paths in splits.values()), None)
