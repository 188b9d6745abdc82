"""Evaluation of untrusted regular expressions in linear time.

Uses RE2, which is part of DuckDB: for any expression it reads each character a bounded number of times, in bounded
memory. Python's ``re`` would need a subprocess with a timeout, and scores would then depend on the speed of the
machine. RE2 rejects constructs without a linear-time algorithm (lookahead, lookbehind, backreferences).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING

from lbx.base.database import memory_database
from lbx.base.records import encodable

if TYPE_CHECKING:
    import duckdb

_LONGEST = 1000


def expression_error(pattern: str) -> str:
    """Describe why an expression is invalid, as a clause; "" if it is valid."""
    import duckdb

    if len(pattern) > _LONGEST:
        return f"it has more than {_LONGEST:,} characters"
    try:
        _connection().execute("SELECT regexp_extract('', ?)", [encodable(pattern)])
    except duckdb.Error as exc:
        return str(exc).partition("\n")[0].rpartition("Error: ")[2]
    return ""


def extract(pattern: str, text: str) -> str | None:
    """Return the group that took part in the first match, or the whole match for an expression without groups.

    Returns None without a match, if it is only white space, if groups with different texts took part, or if the
    expression is invalid; never raises.
    """
    n_groups = _group_count(pattern)
    if n_groups is None:
        return None
    group = _group_names(n_groups) if n_groups > 1 else f"{n_groups}::INTEGER"
    sql = f"SELECT regexp_extract(?, ?, {group})"
    ((value,),) = _connection().execute(sql, [encodable(text), encodable(pattern)]).fetchall()
    texts = {part for part in (value.values() if isinstance(value, dict) else (value,)) if part.strip()}
    return texts.pop() if len(texts) == 1 else None


@lru_cache(256)
def _group_count(pattern: str) -> int | None:
    """Return the number of groups of an expression; None if it is invalid."""
    if expression_error(pattern):
        return None
    return bisect_right(range(pattern.count("(")), False, key=lambda count: not _has_groups(pattern, count + 1))


def _has_groups(pattern: str, count: int) -> bool:
    import duckdb

    try:
        # DuckDB takes at most as many names as there are groups, with one that is added here.
        sql = f"SELECT regexp_extract('', ?, {_group_names(count + 1)})"
        _connection().execute(sql, [f"({encodable(pattern)})"])
    except duckdb.Error:
        return False
    return True


def _group_names(count: int) -> str:
    return str([f"group{number}" for number in range(count)])


def _connection() -> duckdb.DuckDBPyConnection:
    """Open a cursor per call, because calls may come from several threads."""
    return _database(os.getpid()).cursor()


@lru_cache(1)
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    return memory_database()
