"""Strict parsing of TOML files written by users, and of tables of answers, with known keys and types.

Every problem is a ``UsageError`` that names the file, the table and the key, and suggests the nearest valid key.

Pydantic and msgspec are not used: their imports add 61 and 12 ms of CPU time to the 104 ms for reading a card, and the
error messages, which are most of this module, would still have to be composed from the errors of those libraries.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from lbx.base.errors import UsageError
from lbx.base.inputs import read_input
from lbx.base.limits import KEY_PARTS, TABLE_BYTES

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LONG_KEY = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){%d}""" % KEY_PARTS  # noqa: UP031
)
"""A dotted key with so many components that tomllib would need time and memory by the square of their number."""
_SHOWN_CHARACTERS = 200
_NAMES: dict[type, str] = {
    str: "text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


def read_table(path: Path, what: str = "") -> tuple[dict[str, Any], str]:
    """Read a TOML file, and return its table and the SHA-256 of its bytes.

    Args:
        what: description of the file, put before its path in messages.

    Raises:
        UsageError: the file cannot be read or is not TOML; the message names file and line.
    """
    name = f"{what} {path}".strip()
    try:
        content = read_input(path, TABLE_BYTES)
    except OSError as exc:
        raise UsageError(f"{name} cannot be read: {exc.strerror or exc}.", fix="Check the path.") from exc
    try:
        text = content.decode("utf-8-sig")
        table = None if _LONG_KEY.search(text) else tomllib.loads(text)
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise UsageError(f"{name}, line {line}: it is not UTF-8 ({exc.reason}).", fix="Save it as UTF-8.") from exc
    except (ValueError, RecursionError) as exc:  # TOML's errors, and a number of thousands of digits
        raise UsageError(f"{name} is not valid TOML: {exc}.") from exc
    if table is None:
        raise UsageError(f"{name} cannot be used: a key has more than {KEY_PARTS} parts.", fix="Shorten the key.")
    return table, hashlib.sha256(content).hexdigest()


def is_name(name: str) -> bool:
    """Whether ``name`` is a valid name of a benchmark, a task or a rubric."""
    return bool(_NAME.fullmatch(name))


def suggest_names(name: str, choices: Iterable[str], *, cutoff: float = 0.5) -> str:
    """Sentence that suggests similar names, or else lists all choices, or "" without choices.

    Args:
        cutoff: minimum similarity of names, 0 to 1.
    """
    names = sorted(choices)
    close = difflib.get_close_matches(name, names, n=3, cutoff=cutoff)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Available: {', '.join(names)}." if names else ""


def check_keys(
    table: Mapping[str, Any], allowed_keys: Collection[str], location: str, required_keys: Collection[str] = ()
) -> None:
    """Check that a table contains no unknown keys and all required keys. Raises UsageError otherwise.

    Args:
        location: beginning of the message, followed by a key or a verb ("The model card m.toml:").
    """
    subject = location.removesuffix(":")
    for key in table:
        if key not in allowed_keys:
            raise UsageError(
                f"{subject} has no setting {_shorten(key)}.", fix=suggest_names(key, allowed_keys) or "Remove it."
            )
    for key in required_keys:
        if key not in table:
            raise UsageError(f"{subject} lacks {key}.", fix=f"Required: {', '.join(required_keys)}.")


def check_table(
    table: Mapping[str, Any], types: Mapping[str, type], location: str, required_keys: Collection[str] = ()
) -> None:
    """Check the keys of a table, and the type of each value, against {key: type}. Raises UsageError otherwise."""
    check_keys(table, types, location, required_keys)
    for key, value in table.items():
        check_type(value, types[key], f"{location} {key}")


def check_type(value: object, expected_type: type[T], location: str) -> T:
    """Check the type of a value and return it. An int is converted to an expected float, but a bool is no int."""
    if expected_type is float and type(value) is int and abs(value) < 1 << 1023:  # larger numbers may overflow a float
        return expected_type(value)  # type: ignore[call-arg]
    if type(value) is not expected_type:
        raise UsageError(f"{location} must be {_NAMES[expected_type]}, not {_shorten(value)}.")
    return value


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def check_texts(value: object, location: str) -> tuple[str, ...]:
    """Check that a value is a list of texts, and return a tuple. Raises UsageError otherwise."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise UsageError(f"{location} must be a list of texts, not {_shorten(value)}.")
    return tuple(value)


def from_table(cls: type[T], table: Mapping[str, Any], location: str) -> T:
    """Create an instance of a dataclass from a table with its fields as keys.

    Raises:
        UsageError: a key is unknown or missing, a value has the wrong type, or the dataclass rejects a value.
    """
    hints = get_type_hints(cls)
    known_fields = fields(cls)  # type: ignore[arg-type]
    required_keys = [f.name for f in known_fields if f.default is MISSING and f.default_factory is MISSING]
    check_keys(table, [f.name for f in known_fields], location, required_keys)
    values = {key: check_type(value, _required_type(hints[key]), f"{location} {key}") for key, value in table.items()}
    try:
        return cls(**values)
    except UsageError as exc:
        raise UsageError(f"{location}: {exc.cause}", fix=exc.fix) from exc


def _required_type(hint: Any) -> Any:
    """Return the required type of a value. None in a union only means that the key may be omitted."""
    kinds = [part for part in get_args(hint) if part is not NoneType] if get_origin(hint) is UnionType else [hint]
    return get_origin(kinds[0]) or kinds[0]


def entry_error(location: object, what: str, fix: str = "") -> UsageError:
    """Create the error for an invalid table. ``location`` names the file and the table."""
    return UsageError(f"{location}: {what}.", fix=fix)
