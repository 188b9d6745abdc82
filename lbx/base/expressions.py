"""Evaluation of untrusted regular expressions in linear time.

Uses RE2, which is part of DuckDB: for any expression it reads each character a bounded number of times, in bounded
memory. Python's ``re`` would need a subprocess with a timeout, and scores would then depend on the speed of the
machine. RE2 rejects constructs without a linear-time algorithm (lookahead, lookbehind, backreferences).
"""

from __future__ import annotations

import os
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
    """Return the first group of the first match, or the whole match for an expression without groups.

    Returns None without a match, if it is only white space, or if the expression is invalid; never raises.
    """
    group = _group(pattern)
    if group is None:
        return None
    sql = "SELECT regexp_extract(?, ?, ?::INTEGER)"
    ((value,),) = _connection().execute(sql, [encodable(text), encodable(pattern), group]).fetchall()
    return value if value.strip() else None


@lru_cache(256)
def _group(pattern: str) -> int | None:
    """Number of the group to extract: 1, or 0 for an expression without groups; None if it is invalid."""
    import duckdb

    if expression_error(pattern):
        return None
    try:
        # Two names require two groups: the outer group added here, and one in the expression.
        _connection().execute("SELECT regexp_extract('', ?, ['all', 'first'])", [f"({encodable(pattern)})"])
    except duckdb.Error:
        return 0
    return 1


def _connection() -> duckdb.DuckDBPyConnection:
    """Open a cursor per call, because calls may come from several threads."""
    return _database(os.getpid()).cursor()


@lru_cache(1)
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    return memory_database()
