"""The results file. The only room that imports duckdb."""

from lbx.store.interrupts import uninterrupted
from lbx.store.rows import GenerationRow, ResultRow, RunRow, SampleRow, ScoreRow, Table
from lbx.store.store import Store

__all__ = ["GenerationRow", "ResultRow", "RunRow", "SampleRow", "ScoreRow", "Store", "Table", "uninterrupted"]
