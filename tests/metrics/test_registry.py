"""Metrics of benchmarks of one's own that are no official ones."""

from __future__ import annotations

import pytest

from lbx.metrics.registry import METRICS, ScoringTarget


@pytest.mark.parametrize(
    ("answer", "reference", "language", "score"),
    [
        ("A.", "A", "en", 1), ("B.", "B", "en", 1), ("A, C", "C", "en", 0), ("The", "the", "en", 1),
        ("The boat.", "a boat", "en", 1), ("Hall A", "hall", "en", 0), ("A. Tuesday", "Tuesday", "en", 0),
        ("«Вторник».", "вторник", "ru", 1), ("“Tuesday”…", "Tuesday", "en", 1), ("¿Qué?", "qué", "es", 1),
        ("火曜日。", "火曜日", "ja", 1), ("《星期 二》", "星期二", "zh", 1), ("il a dit", "il dit", "fr", 0),
        ("- 5", "5", "en", 1), ("5", "-5", "en", 0), ("\u22125", "-5", "en", 1), ("35", "3.5", "en", 0),
        (".5", "5", "en", 0), ("1,000", "1000", "en", 1), ("35", "3,5", "de", 0), ("C", "C++", "en", 0),
        ("+.", "+", "en", 1), ("...", "...", "en", 1), ("...", "?", "en", 0), ("don't", "dont", "en", 1),
    ],
)  # fmt: skip
def test_exact_match_ignores_punctuation_of_every_language(
    answer: str, reference: str, language: str, score: float
) -> None:
    assert METRICS["exact_match"](answer, ScoringTarget((reference,), language)).value == score


def test_f1_compares_a_reference_without_words_by_exact_match() -> None:
    assert METRICS["f1"]("A.", ScoringTarget(("A",))).value == 1
    assert METRICS["f1"]("B", ScoringTarget(("A",))).value == 0
    assert METRICS["f1"]("boat A", ScoringTarget(("A", "boat B"))).value == pytest.approx(2 / 3)
