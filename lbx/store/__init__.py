"""The results file. The only room that imports duckdb."""

from lbx.store.interrupts import uninterrupted
from lbx.store.rows import GenerationRow, GroupRow, ResultRow, RunRow, SampleRow, ScoreRow, SessionRow, Table
from lbx.store.store import Store

__all__ = [
    "GenerationRow",
    "GroupRow",
    "ResultRow",
    "RunRow",
    "SampleRow",
    "ScoreRow",
    "SessionRow",
    "Store",
    "Table",
    "uninterrupted",
]
