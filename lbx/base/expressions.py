"""Regular expressions that other people wrote, in time that grows with the text alone.

They are RE2's, which DuckDB brings along: whatever an expression says, RE2 reads each character a bounded number of
times, in bounded memory. Python's ``re`` would need a process that is killed after some seconds, so that a score would
hang on the speed of a machine. What RE2 has no linear way for (lookahead, lookbehind, references to groups) it refuses.
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


def what_is_wrong(pattern: str) -> str:
    """Why a text is no expression, a clause; "" where it is one."""
    import duckdb

    if len(pattern) > _LONGEST:
        return f"it has more than {_LONGEST:,} characters"
    try:
        _connection().execute("SELECT regexp_extract('', ?)", [encodable(pattern)])
    except duckdb.Error as exc:
        return str(exc).partition("\n")[0].rpartition("Error: ")[2]
    return ""


def extract(pattern: str, text: str) -> str | None:
    """What the first match holds in its first group, or as a whole where the expression has no group.

    None where nothing matches, nothing but white space is held, or the expression is none; never raises.
    """
    group = _group(pattern)
    if group is None:
        return None
    sql = "SELECT regexp_extract(?, ?, ?::INTEGER)"
    ((held,),) = _connection().execute(sql, [encodable(text), encodable(pattern), group]).fetchall()
    return held if held.strip() else None


@lru_cache(256)
def _group(pattern: str) -> int | None:
    """1, or 0 of an expression without a group; None where it is no expression."""
    import duckdb

    if what_is_wrong(pattern):
        return None
    try:
        # Two names need two groups: the one around it, and one of its own.
        _connection().execute("SELECT regexp_extract('', ?, ['all', 'first'])", [f"({encodable(pattern)})"])
    except duckdb.Error:
        return 0
    return 1


def _connection() -> duckdb.DuckDBPyConnection:
    """One a call: calls may come from several threads."""
    return _database(os.getpid()).cursor()


@lru_cache(1)
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    return memory_database()
