"""Comparison of a run's attested rows with the rows of a file, line by line (``lbx.store.row_digests``).

Both are sorted, so that equal lines are skipped and only the others are parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lbx.base.errors import BundleError
from lbx.store.row_digests import COLUMNS, DIGITS, MARK_DIGITS, PLAIN, is_blank
from lbx.store.texts import ANSWERS

_MOST_LINES = 2_000_000
"""Differing lines in memory: a file in which more differ is another file."""
UNKNOWN_COLUMN = "?"
"""Name of a changed column if its mark is the same by chance (one change in 256)."""


@dataclass(frozen=True, slots=True)
class Change:
    """Difference between an attested row and the file.

    Attributes:
        kind: "missing" is a removed row about another run that is not in the file either.
        key: {column of the table's primary key: value}.
        columns: columns that differ; empty unless the row is "changed".
    """

    kind: Literal["changed", "removed", "added", "missing"]
    table: str
    key: Mapping[str, str | int | None]
    columns: Sequence[str] = ()


@dataclass(slots=True)
class Comparison:
    """Result of ``compare_rows``.

    Attributes:
        unchecked_texts: texts that the file does not have any more, by its own record.
        remaining_texts: texts that it has despite that record.
    """

    changes: list[Change] = field(default_factory=list)
    unchecked_texts: int = 0
    remaining_texts: int = 0


@dataclass(frozen=True, slots=True)
class _Row:
    table: str
    key: Sequence[str | int | None]
    about: Sequence[str]
    values: str
    marks: str
    texts: Sequence[str | None]

    def change(self, kind: Literal["changed", "removed", "added", "missing"], columns: Sequence[str] = ()) -> Change:
        return Change(kind, self.table, dict(zip(COLUMNS[self.table].key, self.key, strict=True)), columns)


def compare_rows(
    attested: Iterable[str], current: Iterable[str], *, texts: str | None, missing_runs: frozenset[str]
) -> Comparison:
    """Compare the lines of a run.

    Args:
        texts: texts that were kept when others were removed after the attestation, by the file's own record
            (``runs.texts``); None if the file has all texts.
        missing_runs: attested runs that the file does not have.

    Raises:
        BundleError: an attested line is malformed, or nearly all lines differ.
    """
    result = Comparison()
    old: list[_Row] = []
    new: dict[tuple[str, Sequence[str | int | None]], list[_Row]] = {}
    for old_line, new_line in _pair_lines(attested, current, with_equal=texts is not None):
        if len(old) + len(new) > _MOST_LINES:
            raise BundleError(f"More than {_MOST_LINES:,} rows differ.", fix="Is it the attestation of another file?")
        if old_line is not None and new_line is not None:
            if texts is None or not _has_only_removed_texts(old_line, new_line, result):
                _compare_columns(_parse_row(old_line), _parse_row(new_line), texts, result)
            continue
        if old_line is not None:
            old.append(_parse_row(old_line))
        if new_line is not None:
            row = _parse_row(new_line)
            new.setdefault((row.table, row.key), []).append(row)
    for row in old:
        others = new.get((row.table, row.key))
        if others:
            _compare_columns(row, others.pop(0), texts, result)
        else:
            result.changes.append(row.change("missing" if missing_runs.intersection(row.about) else "removed"))
    result.changes += [row.change("added") for rows in new.values() for row in rows]
    return result


def _pair_lines(
    attested: Iterable[str], current: Iterable[str], *, with_equal: bool
) -> Iterator[tuple[str, None] | tuple[None, str] | tuple[str, str]]:
    """Yield lines of one side only, pairs that are equal but for their texts, and equal ones on request."""
    old_lines, new_lines = iter(attested), iter(current)
    old, new = next(old_lines, None), next(new_lines, None)
    while old is not None and new is not None:
        if old == new:
            if with_equal:
                yield old, new
            old, new = next(old_lines, None), next(new_lines, None)
        elif old.rpartition(",[")[0] == new.rpartition(",[")[0]:
            yield old, new
            old, new = next(old_lines, None), next(new_lines, None)
        elif old < new:
            yield old, None
            old = next(old_lines, None)
        else:
            yield None, new
            new = next(new_lines, None)
    if old is not None:
        yield old, None
    if new is not None:
        yield None, new
    yield from ((line, None) for line in old_lines)
    yield from ((None, line) for line in new_lines)


def _has_only_removed_texts(old_line: str, new_line: str, result: Comparison) -> bool:
    """Whether two lines, equal but for their texts, differ only by removed ones, which are then counted.

    In a file without texts these are nearly all lines, and parsing them whole takes three times as long.
    """
    head = old_line.rpartition(",[")[0]
    table = head[2 : head.index('"', 2)]
    old_texts, new_texts = (line[len(head) + 2 : -2].split(",") for line in (old_line, new_line))
    if len(old_texts) != len(new_texts):  # malformed
        return False
    unchecked_count = 0
    for name, before, after in zip(COLUMNS[table].texts, old_texts, new_texts, strict=False):
        if not is_blank(table, name, None if after == "null" else after[1:-1]):
            return False
        unchecked_count += before not in (after, "null")
    result.unchecked_texts += unchecked_count
    return True


def _compare_columns(old: _Row, new: _Row, kept_texts: str | None, result: Comparison) -> None:
    """Add the change of a row, if any.

    The mark of a text is that of its form without texts: of its hash, or of an object's entries without texts.
    """
    columns = COLUMNS[old.table]
    differing = [
        name
        for at, name in enumerate(columns.values)
        if old.marks[at * MARK_DIGITS :][:MARK_DIGITS] != new.marks[at * MARK_DIGITS :][:MARK_DIGITS]
    ]
    changed = [name for name in differing if name not in columns.texts]
    for name, before, after in zip(columns.texts, old.texts, new.texts, strict=True):
        may_be_removed = kept_texts is not None and is_blank(old.table, name, after)
        if before != after and may_be_removed and name not in differing:
            result.unchecked_texts += before is not None
        elif before != after or (name in differing and (kept_texts is not None or after == PLAIN)):
            changed.append(name)
        elif kept_texts is not None and not may_be_removed and (kept_texts, name) != (ANSWERS, "output"):
            result.remaining_texts += 1
    if changed or old.values != new.values:
        result.changes.append(old.change("changed", changed or [UNKNOWN_COLUMN]))


def _parse_row(line: str) -> _Row:
    try:
        table, key, about, values, marks, texts = json.loads(line)
        columns = COLUMNS[table]
        is_row = (
            _is_list(key, (str, int, type(None)), len(columns.key))
            and _is_list(about, (str,))
            and _is_hex(values, DIGITS)
            and _is_hex(marks, MARK_DIGITS * len(columns.values))
            and _is_list(texts, (str, type(None)), len(columns.texts))
            and all(text is None or text == PLAIN or _is_hex(text, DIGITS) for text in texts)
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        is_row = False
    if not is_row:
        raise BundleError("A row of the attestation is malformed.", fix="Ask its signer to attest the file again.")
    return _Row(table, tuple(key), about, values, marks, texts)


def _is_list(value: object, kinds: tuple[type, ...], length: int | None = None) -> bool:
    return isinstance(value, list) and length in (None, len(value)) and {*map(type, value)} <= {*kinds}


def _is_hex(value: object, digits: int) -> bool:
    return isinstance(value, str) and re.fullmatch(rf"[0-9a-f]{{{digits}}}", value) is not None
