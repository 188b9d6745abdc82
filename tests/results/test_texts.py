"""Columns with texts: every column of the schema that could hold a text is in exactly one of three lists."""

from __future__ import annotations

from lbx.results.file.contents import COLUMN_TYPES
from lbx.results.file.texts import FACT_COLUMNS, LABEL_PATTERNS, TEXT_COLUMNS

NUMERIC_TYPES = {"INTEGER", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP"}


def test_every_column_is_known_to_hold_texts_or_none() -> None:
    candidates = {column for column, kind in COLUMN_TYPES.items() if kind not in NUMERIC_TYPES}
    facts = {(table, column) for table, columns in FACT_COLUMNS.items() for column in columns}
    assert len(TEXT_COLUMNS) + len(LABEL_PATTERNS) + len(facts) == len(candidates)
    assert TEXT_COLUMNS.keys() | LABEL_PATTERNS.keys() | facts == candidates
