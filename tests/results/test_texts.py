"""Columns with texts: every column of the schema that could hold a text is in exactly one of three lists."""

from __future__ import annotations

import duckdb
import pytest

from lbx.results.file.contents import COLUMN_TYPES
from lbx.results.file.texts import FACT_COLUMNS, LABEL_PATTERNS, TEXT_COLUMNS
from lbx.running.forecast.estimate import Costs

NUMERIC_TYPES = {"INTEGER", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP"}


def test_every_column_is_known_to_hold_texts_or_none() -> None:
    candidates = {column for column, kind in COLUMN_TYPES.items() if kind not in NUMERIC_TYPES}
    facts = {(table, column) for table, columns in FACT_COLUMNS.items() for column in columns}
    assert len(TEXT_COLUMNS) + len(LABEL_PATTERNS) + len(facts) == len(candidates)
    assert TEXT_COLUMNS.keys() | LABEL_PATTERNS.keys() | facts == candidates


@pytest.mark.parametrize("longest", [9, 10**6])
@pytest.mark.parametrize("answers", [{"": 0.5}, {"a/b": 12.0}, {}])
@pytest.mark.parametrize("basis", ["a rule of thumb", "a calibration of 0.3 s", "session 2 of my run and 3 earlier"])
def test_every_basis_of_a_forecast_is_in_its_known_form(basis: str, answers: dict[str, float], longest: int) -> None:
    """Else a run whose calibration measured no answer cannot be shared without texts."""
    costs = Costs(1.0, 0.0, 1.0, 1.0, 0.0, 1.0, answers, basis, longest_prompt=1_000)
    form, text = LABEL_PATTERNS["sessions", "estimate_basis"], costs.basis_for(["a/b", "c/d"], longest)
    found = duckdb.sql("SELECT regexp_full_match(?, ?)", params=[text, form]).fetchall()
    assert found == [(True,)], text
