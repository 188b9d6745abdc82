"""The results file. The only room that imports duckdb."""

from lbx.base.interrupts import uninterrupted
from lbx.store.opening import is_results_file
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
    "is_results_file",
    "uninterrupted",
]
