"""What people write in TOML: a table read, and its keys looked at. Whatever is wrong is one ``UsageError``."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.inputs import read_input

_LIMIT = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KINDS = {str: "text", list: "a list of texts", int: "a whole number", bool: "true or false", dict: "a table"}


def is_name(name: str) -> bool:
    """Whether a benchmark, a task or a rubric can be called so."""
    return bool(_NAME.fullmatch(name))


def read_table(path: Path) -> tuple[dict[str, Any], str]:
    """A TOML file's table, and the SHA-256 of its bytes.

    Raises:
        UsageError: it cannot be read, or is not TOML; names file and line.
    """
    try:
        content = read_input(path, _LIMIT)
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror or exc}.") from exc
    try:
        return tomllib.loads(content.decode("utf-8-sig")), hashlib.sha256(content).hexdigest()
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise UsageError(f"{path}, line {line}: it is not UTF-8 ({exc.reason}).") from exc
    except (ValueError, RecursionError) as exc:
        raise UsageError(f"{path} is not valid TOML: {exc}.") from exc


def check_keys(
    table: Mapping[str, Any],
    known: Mapping[str, type],
    needed: Iterable[str],
    where: str,
    nested: Collection[str] = (),
) -> None:
    """Whether a table has the keys it needs, no other ones, and values of their kinds.

    Args:
        known: {key: type of its value}; lists are of texts.
        nested: lists of something else.

    Raises:
        UsageError: it has not; names the key.
    """
    for key, value in table.items():
        if key not in known:
            raise wrong(where, f"there is no key {key!r}.{near(key, known)}")
        wanted = known[key]
        right = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
        if wanted is list and key not in nested:
            right = right and all(isinstance(text, str) for text in value)
        if not right:
            raise wrong(where, f"{key} should be {_KINDS[wanted]}")
    for key in needed:
        if key not in table:
            raise wrong(where, f"the key {key!r} is missing")


def near(name: str, known: Collection[str]) -> str:
    """What a name that is not known may have meant, for the end of a sentence."""
    found = get_close_matches(name, known, n=1)
    return f" Did you mean {found[0]!r}?" if found else f" Known are {listed(known)}"


def listed(names: Iterable[str]) -> str:
    """Names between commas."""
    return ", ".join(names)


def wrong(where: object, what: str) -> UsageError:
    """The error for what a table says."""
    return UsageError(f"{where}: {what}" + "." * (not what.endswith("?")))
