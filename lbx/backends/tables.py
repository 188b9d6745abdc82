"""Strict reading of TOML tables: an unknown key, wrong type or missing value is named, with the nearest right one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from lbx.base.errors import UsageError

T = TypeVar("T")


def nearest(name: str, choices: Iterable[str]) -> str:
    """A sentence that names what was probably meant, or else all there is; "" when there is nothing."""
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"There is {', '.join(known)}." if known else ""


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise UsageError for the first key of the table that is not known."""
    names = list(known)
    for key in table:
        if key not in names:
            raise UsageError(f"{where} has no setting {key!r}.", fix=nearest(key, names) or "Remove it.")


def typed(value: object, wanted: type[T], where: str) -> T:
    """The value, if it has the wanted type; a whole number also counts as float, but a bool never counts as int."""
    if wanted is float and type(value) is int and abs(value) < 1 << 1023:  # a float holds no more
        return wanted(value)  # type: ignore[call-arg]
    if type(value) is not wanted:
        raise UsageError(f"{where} must be {_NAMES[wanted]}, not {value!r}.")
    return value


_NAMES: dict[type, str] = {
    str: "text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


def _kind(hint: Any) -> Any:
    """What a value's type must be; what may also be None can only be left out of a table."""
    given = [part for part in get_args(hint) if part is not NoneType] if get_origin(hint) is UnionType else [hint]
    return get_origin(given[0]) or given[0]


def from_table(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """An instance of the dataclass from a TOML table whose keys are its fields.

    Raises:
        UsageError: an unknown key, a value of another type, or one the dataclass refuses.
    """
    hints = get_type_hints(cls)
    known = fields(cls)  # type: ignore[arg-type]
    check_keys(table, (f.name for f in known), where)
    for f in known:
        if f.default is MISSING and f.default_factory is MISSING and f.name not in table:
            raise UsageError(f"{where} lacks {f.name}.")
    values = {key: typed(value, _kind(hints[key]), f"{where} {key}") for key, value in table.items()}
    try:
        return cls(**values)
    except UsageError as exc:
        raise UsageError(f"{where}: {exc.cause}", fix=exc.fix) from exc
