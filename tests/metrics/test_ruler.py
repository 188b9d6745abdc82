"""RULER's metrics at their edges, and against a plain reading of the official code."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.benchmarks.metrics.ruler import clean_prediction, string_match_all, string_match_part

texts = st.text(st.sampled_from("aAbßſKİ\u212a1 \t\r\n\x00\x1c\x1f\x7f\x85\xa0\u2003\u200b\ufeff\ud83d"), max_size=12)


@given(texts)
def test_white_space_and_control_characters(text: str) -> None:
    cleaned = re.compile(r"[\x00-\x1f]").sub("\n", text.strip()).strip()
    assert clean_prediction(text) == cleaned


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (" \x00a\tb\x1f ", "a\nb"),
        ("\x00 \x01", ""),
        ("\u00a0a\u2003", "a"),
        ("\u200ba\ufeff", "\u200ba\ufeff"),
        ("a\x7f\x85b", "a\x7f\x85b"),
    ],
)
def test_some_cleaned_predictions(text: str, cleaned: str) -> None:
    assert clean_prediction(text) == cleaned


@given(texts, st.lists(texts, min_size=1, max_size=4))
def test_the_references_in_a_prediction(text: str, references: list[str]) -> None:
    matches = [1.0 if reference.lower() in text.lower() else 0.0 for reference in references]
    assert string_match_all(text, references) == sum(matches) / len(references)
    assert string_match_part(text, references) == max(matches)


@pytest.mark.parametrize(
    ("text", "references", "share"),
    [
        ("The PARTY", ["art", "the"], 1.0),
        ("12345678", ["1234567"], 1.0),
        ("strasse", ["straße"], 0.0),
        ("\u212a", ["k"], 1.0),
        ("e\u0301", ["é"], 0.0),
        ("", [""], 1.0),
        ("a", ["a", "a", "b"], 2 / 3),
        ("a", [], 0.0),
    ],
)
def test_some_shares(text: str, references: list[str], share: float) -> None:
    assert string_match_all(text, references) == share
    assert string_match_part(text, references) == float(share > 0)
