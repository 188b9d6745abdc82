"""Settings in the authors' Python files: literals are read, and the file is never run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from lbx.benchmarks.base.files import damaged, read_text

_FAULTS = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)
"""Errors of parsing and of ast.literal_eval; text that is nested too deeply raises the last two."""


def read_literals(path: Path, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the values that a Python file's top level assigns to ``names``; the last assignment counts, as in Python.

    Raises:
        BundleError: the file is not Python, lacks a name, or assigns it anything but a literal; names file and line.
    """
    return _read_literals(read_text(path), str(path), names)


@lru_cache(maxsize=8)
def _read_literals(text: str, where: str, names: tuple[str, ...]) -> dict[str, Any]:
    nodes = {name: node for name, node in _assignments(text, where) if name in names}
    for name in names:
        if name not in nodes:
            raise damaged(where, f"it assigns no value to {name}")
    return {name: _value(nodes[name], name, where) for name in names}


def texts_given(text: str, where: str, name: str) -> list[str]:
    """Return every text that a Python file assigns to a name anywhere, in the file's order, as ``text_of`` reads it.

    Raises:
        BundleError: the file is not Python.
    """
    return [value for node in values_given(text, where, name) if (value := text_of(node)) is not None]


def values_given(text: str, where: str, name: str) -> list[ast.expr]:
    """Return every expression that a Python file assigns to a name anywhere, in the file's order.

    Raises:
        BundleError: the file is not Python.
    """
    nodes = [node for node in ast.walk(parse_python(text, where)) if isinstance(node, ast.Assign)]
    named = [node for node in nodes if any(isinstance(one, ast.Name) and one.id == name for one in node.targets)]
    return [node.value for node in sorted(named, key=lambda node: node.lineno)]


def texts_of_keys(text: str, where: str, name: str, keys: tuple[str, ...]) -> dict[str, str]:
    """Return the texts under some keys of a dict that a Python file assigns to a name anywhere.

    The dict's other values need not be literals.

    Raises:
        BundleError: the file is not Python, or has no dict of that name with a text under each key; names the file.
    """
    for node in values_given(text, where, name):
        if isinstance(node, ast.Dict):
            pairs = [(text_of(key), text_of(value)) for key, value in zip(node.keys, node.values, strict=True) if key]
            values = {key: content for key, content in pairs if key in keys and content is not None}
            if len(values) == len(keys):
                return {key: values[key] for key in keys}
    raise damaged(where, f"it assigns {name} no dict with text under {', '.join(keys)}")


def text_of(node: ast.expr) -> str | None:
    """Return a text literal, each value of an f-string as its expression between "\0"; None for other nodes."""
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.FormattedValue(value):
            return f"\0{unparsed(value)}\0"
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


def unparsed(node: ast.expr) -> str:
    """Return an expression as text; "..." for one nested deeper than any author's prompt."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return "..."


def parse_python(text: str, where: str) -> ast.Module:
    """Return a Python file's syntax tree. Raises BundleError if it is not Python; names file and line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # stray backslashes in the authors' files
            return ast.parse(text)
    except _FAULTS as exc:
        line = f", line {exc.lineno}" if isinstance(exc, SyntaxError) and exc.lineno else ""
        reason = exc.msg if isinstance(exc, SyntaxError) else str(exc) or type(exc).__name__
        raise damaged(where + line, f"it is not valid Python ({reason})") from exc


def _assignments(text: str, where: str) -> list[tuple[str, ast.expr]]:
    """Return the assignments to plain names at the top level, in order."""
    tree = parse_python(text, where)
    assignments: list[tuple[str, ast.expr]] = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            assignments += [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            assignments.append((node.target.id, node.value))
    return assignments


def _value(node: ast.expr, name: str, where: str) -> object:
    try:
        return ast.literal_eval(node)
    except _FAULTS as exc:
        raise damaged(
            f"{where}, line {node.lineno}", f"the value of {name} is not a literal, and lbx does not run the file"
        ) from exc
