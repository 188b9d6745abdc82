"""Columns with texts: every column of the schema that could hold a text is in exactly one of two lists."""

from __future__ import annotations

from lbx.store.contents import COLUMN_TYPES
from lbx.store.texts import LABEL_COLUMNS, TEXT_COLUMNS

NUMERIC_TYPES = {"INTEGER", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP"}


def test_every_column_is_known_to_hold_texts_or_none() -> None:
    candidates = {column for column, kind in COLUMN_TYPES.items() if kind not in NUMERIC_TYPES}
    labels = {(table, column) for table, columns in LABEL_COLUMNS.items() for column in columns}
    assert not TEXT_COLUMNS.keys() & labels
    assert TEXT_COLUMNS.keys() | labels == candidates
