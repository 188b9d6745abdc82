"""Settings in the authors' Python files: literals are read, and the file is never run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from lbx.benchmarks.base.files import damaged_file_error, read_text

_FAULTS = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)
"""Errors of parsing and of ast.literal_eval; text that is nested too deeply raises the last two."""


def read_literals(path: Path, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the values that a Python file's top level assigns to ``names``; the last assignment counts, as in Python.

    Raises:
        BundleError: the file is not Python, lacks a name, or assigns it anything but a literal; names file and line.
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
    """Return every text that a Python file assigns to a name anywhere, in the file's order, as ``text_of`` reads it.

    Raises:
        BundleError: the file is not Python.
    """
    return [value for node in assigned_values(text, location, name) if (value := text_of(node)) is not None]


def assigned_values(text: str, location: str, name: str) -> list[ast.expr]:
    """Return every expression that a Python file assigns to a name anywhere, in the file's order.

    Raises:
        BundleError: the file is not Python.
    """
    nodes = [node for node in ast.walk(parse_python(text, location)) if isinstance(node, ast.Assign)]
    assignments = [
        node for node in nodes if any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    return [node.value for node in sorted(assignments, key=lambda node: node.lineno)]


def texts_of_keys(text: str, location: str, name: str, keys: tuple[str, ...]) -> dict[str, str]:
    """Return the texts under some keys of a dict that a Python file assigns to a name anywhere.

    The dict's other values need not be literals.

    Raises:
        BundleError: the file is not Python, or has no dict of that name with a text under each key; names the file.
    """
    for node in assigned_values(text, location, name):
        if isinstance(node, ast.Dict):
            pairs = [(text_of(key), text_of(value)) for key, value in zip(node.keys, node.values, strict=True) if key]
            values = {key: content for key, content in pairs if key in keys and content is not None}
            if len(values) == len(keys):
                return {key: values[key] for key in keys}
    raise damaged_file_error(location, f"it assigns {name} no dict with text under {', '.join(keys)}")


def text_of(node: ast.expr) -> str | None:
    """Return a text literal, each value of an f-string as its expression between "\0"; None for other nodes."""
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
    """Return an expression as text; "..." for one nested deeper than any author's prompt."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return "..."


def parse_python(text: str, location: str) -> ast.Module:
    """Return a Python file's syntax tree. Raises BundleError if it is not Python; names file and line."""
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
