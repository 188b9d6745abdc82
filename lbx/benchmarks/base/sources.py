"""Sources of a benchmark's data and official texts in a bundle.

The rows of a task come from the authors' files or from the hub's parquet conversion. Sites with a mirror that carries
only parquet can bundle that, and get the same samples.

Official prompt templates are filled in and split around the document: before + document + after is the official text.

Settings in the authors' Python files are read as literals, and the file is never run.
"""

from __future__ import annotations

import ast
import string
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from lbx.base.bundle_folder import Bundle
from lbx.base.database import count_parquet_rows, parquet_rows
from lbx.base.errors import BundleError, NoDataError
from lbx.base.visible import as_command
from lbx.benchmarks.base.data_files import (
    DataRow,
    count_jsonl,
    count_keys,
    count_zip_lines,
    damaged_file_error,
    first_byte,
    read_json_array,
    read_jsonl,
    read_text,
    read_zip_jsonl,
)


class RowSource(Protocol):
    """Data rows of a task. Both methods raise BundleError if a file is damaged."""

    def rows(self) -> Iterator[DataRow]: ...

    def count(self) -> int:
        """Count the rows, without parsing them if the format allows."""
        ...


@dataclass(frozen=True, slots=True)
class JsonLines:
    path: Path

    def rows(self) -> Iterator[DataRow]:
        return read_jsonl(self.path)

    def count(self) -> int:
        return count_jsonl(self.path)


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
    """Rows of a file that is one JSON array. Every object contains ``key``."""

    path: Path
    key: str

    def rows(self) -> Iterator[DataRow]:
        return read_json_array(self.path)

    def count(self) -> int:
        return count_keys(self.path, self.key)


@dataclass(frozen=True, slots=True)
class Parquet:
    """Rows of parquet shards, in the order of ``paths``."""

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
    """Return the source of a JSON file that is one array, or one object per line. Every object contains ``key``."""
    return JsonLines(path) if first_byte(path) == b"{" else JsonArray(path, key)


@dataclass(frozen=True, slots=True)
class DataSource:
    """Origin of a family's data and official texts.

    Attributes:
        recipe: the recipe that bundles the data, or "" for a family that needs no data.
        repositories: current and former names of the family's dataset on the hub.
        required_file: for a family that generates samples, the file that ``--tasks all`` requires.
        more_recipes: recipes of data that only some tasks need.
        licences: licences of the data and of the authors' scripts and prompts, or "" if unknown to lbx.
        real_rows: whether lbx's tests read published rows: "yes", "some", "no", or "" without published data.
    """

    recipe: str = ""
    repositories: tuple[str, ...] = ()
    required_file: str = ""
    more_recipes: tuple[str, ...] = ()
    licences: str = ""
    real_rows: str = ""

    @property
    def bundle_command(self) -> str:
        return as_command("lbx", "bundle", self.recipe, *self.more_recipes)

    def is_bundled(self, bundle: Bundle) -> bool:
        """Whether ``--tasks all`` includes the family."""
        return not self.required_file or bundle.file(self.required_file) is not None

    def folder(self, bundle: Bundle) -> Path | None:
        """Find the folder of the dataset, or None. Raises BundleError if the bundle contains it under several names."""
        folders = {name: path for name in self.repositories if (path := bundle.snapshot("dataset", name))}
        if len(folders) > 1:
            raise BundleError(
                f"The bundle has the same dataset under several names: {' and '.join(folders)}.",
                fix="Bundle only one of them.",
            )
        return next(iter(folders.values()), None)

    def official_file(self, bundle: Bundle, relative_path: str) -> Path:
        """Return the path of a file with official prompts or settings. Raises NoDataError if it is missing."""
        path = bundle.file(relative_path)
        if path is None:
            raise self.missing_data_error(bundle, f"the official prompts and settings, data/files/{relative_path}")
        return path

    def missing_data_error(self, bundle: Bundle, description: str) -> NoDataError:
        """Error for a bundle that does not contain some data or official settings."""
        return NoDataError(
            f"The bundle at {bundle.root} does not contain {description}.",
            fix="Bundle the data on a connected machine.",
            command=self.bundle_command,
        )


def find_in_folder(
    folder: Path | None, relative_path: str, config: str, make_source: Callable[[Path], RowSource | None]
) -> RowSource | None:
    """Find the source of the file at ``relative_path`` in a dataset's folder, or else of the parquet of ``config``."""
    if folder is None:
        return None
    path = folder / relative_path
    return make_source(path) if path.is_file() else find_parquet(folder, config)


def find_parquet(folder: Path, config: str, split: str = "") -> RowSource | None:
    """Find the parquet shards of a configuration's split, by default of the only split, or None.

    The hub's branch ``refs/convert/parquet`` has CONFIG/SPLIT/0000.parquet. A dataset that was pushed to it as parquet
    has CONFIG/SPLIT-00000-of-00001.parquet, in a folder "data" for the configuration "default".

    Raises:
        BundleError: there are several splits, or an incomplete one.
    """
    splits: dict[str, list[Path]] = {}
    for subfolder in ("default", "data") if config == "default" else (config,):
        for path in sorted((folder / subfolder).glob("*/*.parquet")):
            splits.setdefault(f"{subfolder}/{path.parent.name}", []).append(path)
        for path in sorted((folder / subfolder).glob("*.parquet")):
            splits.setdefault(f"{subfolder}/{path.name.partition('-')[0]}", []).append(path)
    if split:
        wanted = (f"{config}/{split}", f"{config}/partial-{split}")
        splits = {name: paths for name, paths in splits.items() if name in wanted}
    if len(splits) > 1:
        raise damaged_file_error(str(folder), f"it has several splits, {', '.join(sorted(splits))}")
    for name in splits:
        if "/partial-" in name:
            raise damaged_file_error(str(folder), f"{name} has only part of the rows")
    return next((Parquet(tuple(paths)) for paths in splits.values()), None)


def fill_format(template: str, values: Mapping[str, str], *, document: str, source: str) -> tuple[str, str, str]:
    """Fill in a ``str.format`` template, split into the text before the document, the document, and the rest.

    Args:
        template: text with fields like ``{context}``. The fields ``{}`` are numbered from "0".
        document: name of the document in ``values``. The text is split at the first occurrence of this field.
        source: file of the template, for messages.

    Raises:
        BundleError: the template is invalid, or has a field that ``values`` lacks.
    """
    pieces = [""]
    document_text = ""
    try:
        for literal, name in template_fields(template):
            pieces[-1] += literal
            if name == document and len(pieces) == 1:
                document_text = values[name]
                pieces.append("")
            elif name is not None:
                pieces[-1] += values[name]
    except (ValueError, KeyError) as exc:
        raise BundleError(
            f"Cannot fill in the prompt template in {source}: {exc}.",
            fix="lbx supports only the pinned version of this file; bundle that version.",
            command="lbx bundle RECIPE",
        ) from exc
    return (pieces[0], document_text, pieces[1]) if len(pieces) == 2 else (pieces[0], "", "")


def fill_placeholders(template: str, document: tuple[str, str], values: Mapping[str, str]) -> tuple[str, str, str]:
    """Fill in a template with marks like ``$Q$``, split into the text before the document, the document, and the rest.

    Args:
        document: mark and text of the document. A template without the mark gives ("...", "", "").
        values: {mark: text} of the others, in order. As officially, marks in texts that were filled in earlier, and in
            the document, are replaced, too.
    """
    placeholder, text = document
    before, mark_text, after = template.partition(placeholder)
    pieces = [before, text if mark_text else "", after.replace(placeholder, text)]
    for name, value in values.items():
        pieces = [piece.replace(name, value) for piece in pieces]
    return pieces[0], pieces[1], pieces[2]


def template_fields(template: str) -> Iterator[tuple[str, str | None]]:
    """Yield (literal text, name of the next field) of a template. The last name is None if it ends in literal text."""
    count = 0
    for literal, name, spec, conversion in string.Formatter().parse(template):
        if spec or conversion:
            raise ValueError(f"the field {{{name}}} has a conversion or a format")
        yield literal, str(count) if name == "" else name
        count += name == ""


_FAULTS = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)
"""Errors of parsing and of ast.literal_eval; text that is nested too deeply raises the last two."""


def read_literals(path: Path, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Read the literals that a Python file's top level assigns to ``names``. The last assignment counts, as in Python.

    Raises:
        BundleError: the file is not Python, lacks a name, or assigns anything but a literal. The message names file and
            line.
    """
    return _read_literals(read_text(path), str(path), names)


@lru_cache(maxsize=8)
def _read_literals(text: str, location: str, names: tuple[str, ...]) -> dict[str, Any]:
    nodes = {name: node for name, node in _assignments(text, location) if name in names}
    for name in names:
        if name not in nodes:
            raise damaged_file_error(location, f"it assigns no value to {name}")
    return {name: _literal_value(nodes[name], name, location) for name in names}


def assigned_texts(text: str, location: str, name: str) -> list[str]:
    """Read the text literals that a Python file assigns to a name, at any level, in the file's order.

    Raises:
        BundleError: the file is not Python.
    """
    return [value for node in assigned_values(text, location, name) if (value := text_of(node)) is not None]


def assigned_values(text: str, location: str, name: str) -> list[ast.expr]:
    """Find the expressions that a Python file assigns to a name, at any level, in the file's order.

    Raises:
        BundleError: the file is not Python.
    """
    nodes = [node for node in ast.walk(parse_python(text, location)) if isinstance(node, ast.Assign)]
    assignments = [
        node for node in nodes if any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    return [node.value for node in sorted(assignments, key=lambda node: node.lineno)]


def texts_of_keys(text: str, location: str, name: str, keys: tuple[str, ...]) -> dict[str, str]:
    """Read the texts under ``keys`` of a dict that a Python file assigns to a name, at any level.

    Other values of the dict need not be literals.

    Raises:
        BundleError: the file is not Python, or contains no dict of that name with a text under each key. The message
            names the file.
    """
    for node in assigned_values(text, location, name):
        if isinstance(node, ast.Dict):
            pairs = [(text_of(key), text_of(value)) for key, value in zip(node.keys, node.values, strict=True) if key]
            values = {key: content for key, content in pairs if key in keys and content is not None}
            if len(values) == len(keys):
                return {key: values[key] for key in keys}
    raise damaged_file_error(location, f"it assigns {name} no dict with text under {', '.join(keys)}")


def text_of(node: ast.expr) -> str | None:
    """Read a text literal. A value of an f-string becomes its source code between two NUL characters.

    Returns None for other nodes.
    """
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.FormattedValue(value):
            return f"\0{unparse(value)}\0"
        case ast.JoinedStr(values):
            return "".join(text_of(value) or "" for value in values)
        case ast.BinOp(_, ast.Add()):
            parts = [text_of(part) for part in _summands(node)]
            return None if None in parts else "".join(map(str, parts))
    return None


def _summands(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the summands of a sum of any length from left to right."""
    waiting = [node]
    while waiting:
        match waiting.pop():
            case ast.BinOp(left, ast.Add(), right):
                waiting += [right, left]
            case other:
                yield other


def unparse(node: ast.expr) -> str:
    """Source code of an expression, or "..." for an expression nested deeper than any author's prompt."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return "..."


def parse_python(text: str, location: str) -> ast.Module:
    """Parse a Python file. Raises BundleError naming file and line if it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # stray backslashes in the authors' files
            return ast.parse(text)
    except _FAULTS as exc:
        line = f", line {exc.lineno}" if isinstance(exc, SyntaxError) and exc.lineno else ""
        reason = exc.msg if isinstance(exc, SyntaxError) else str(exc) or type(exc).__name__
        raise damaged_file_error(location + line, f"it is not valid Python ({reason})") from exc


def _assignments(text: str, location: str) -> list[tuple[str, ast.expr]]:
    """Return the assignments to plain names at the top level, in order."""
    tree = parse_python(text, location)
    assignments: list[tuple[str, ast.expr]] = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            assignments += [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            assignments.append((node.target.id, node.value))
    return assignments


def _literal_value(node: ast.expr, name: str, location: str) -> object:
    try:
        return ast.literal_eval(node)
    except _FAULTS as exc:
        raise damaged_file_error(
            f"{location}, line {node.lineno}", f"the value of {name} is not a literal, and lbx does not run the file"
        ) from exc
