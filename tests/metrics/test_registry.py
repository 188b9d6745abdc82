"""Metrics of benchmarks of one's own that are no official ones."""

from __future__ import annotations

import re
import sys
import unicodedata
from itertools import product

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lbx.benchmarks.metrics.registry import METRICS, ScoringTarget, fold_characters

OWN = ("exact_match", "contains")
ANY_TEXT = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=()), max_size=12),
    st.text("aé\u0301\u0307iİıßςſ 12²₃½①⁻—–-.,^'’´\u1ffd한글三ｶﾞ\ufb01", max_size=12),
)
INVISIBLE = st.sampled_from(["\u200b", "\u200d", "\ufeff", "\u00ad", "\ufe0f", "\U000e0100"])
CHARACTERS = [
    character
    for character in map(chr, range(sys.maxunicode + 1))
    if unicodedata.decomposition(character) or unicodedata.category(character) not in ("Lo", "Cn", "Co", "Cs")
]
"""Every character that a normalisation may change."""


def own_score(metric: str, answer: str, reference: str, language: str = "en") -> float:
    return METRICS[metric](answer, ScoringTarget((reference,), language)).value


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


EQUAL_TEXTS = {
    "composed and decomposed": [
        ("cafe\u0301", "café"), ("Nguye\u0302\u0303n", "Nguyễn"), ("\u1109\u1165\u110b\u116e\u11af", "서울")
    ],
    "width": [("３月１５日", "3月15日"), ("ｶﾀｶﾅ", "カタカナ"), ("ＡＢＣ", "ABC"), ("１０％", "10%")],
    "ligatures and symbols": [("ﬁrst oﬃce", "first office"), ("5 \u03bcm", "5 \u00b5m"), ("CO₂", "CO2")],
    "invisible": [
        ("co\u00adop", "coop"), ("\ufeffboat", "boat"), ("\u0628\u200c\u0647", "\u0628\u0647"), ("❤\ufe0f", "❤")
    ],
    "dashes": [("well\u2011known", "well-known"), *((f"1914{dash}1918", "1914-1918") for dash in "‐‑‒–—―−")],
    "quotation marks": [
        ("keeper’s", "keeper's"), ("oʼclock", "o'clock"), ("5′10″", "5'10\""), ("„boat“", '"boat"'), ("צה״ל", 'צה"ל')
    ],
    "case": [("STRASSE", "Straße"), ("ΟΔΟΣ", "οδος"), ("istanbul", "İstanbul"), ("ISPARTA", "Isparta")],
    "numbers": [
        ("½", "1/2"), ("1½", "1 1/2"), ("1⁄2", "1/2"), ("10²", "10^2"), ("10⁻³", "10^-3"), ("–5", "-5"),
        ("３．５", "3.5"),
    ],
    "white space": [("10\u202fkm", "10 km"), ("light\n\thouse", "light house")],
}  # fmt: skip


@pytest.mark.parametrize("metric", OWN)
@pytest.mark.parametrize("kind", EQUAL_TEXTS)
def test_different_writings_of_one_text_are_equal(metric: str, kind: str) -> None:
    for left, right in EQUAL_TEXTS[kind]:
        assert own_score(metric, left, right) == own_score(metric, right, left) == 1, (left, right)


DIFFERENT_TEXTS = {
    "exponents": ("10²", "102", "10⁻³", "103", "10-3", "10³"),
    "exponents of letters": ("x⁻¹", "x1"),
    "powers of ten": ("1e-3", "1e3"),
    "fractions": ("1½", "11/2", "½", "½5", "1/25"),
    "indices": ("10₂", "102", "log₂8", "log28"),
    "enclosed numbers": ("2①", "21", "⒈5", "1.5", "①②", "12", "⑴", "1"),
    "signs": ("5", "-5", "⁻5⁵"),
    "ellipses": ("1…5", "1.5", "15"),
    "lists": ("1 2", "12", "1, 2", "1;2"),
    "invisible text": ("", "\ufe0f"),
}
SAME_NUMBER = {frozenset(("1 2", "1, 2")), frozenset(("⑴", "1"))}


@pytest.mark.parametrize("language", ["en", "de", "zh"])
@pytest.mark.parametrize("kind", DIFFERENT_TEXTS)
def test_different_numbers_are_not_equal(kind: str, language: str) -> None:
    for left, right in product(DIFFERENT_TEXTS[kind], repeat=2):
        if left != right and frozenset((left, right)) not in SAME_NUMBER:
            assert own_score("exact_match", left, right, language) == 0, (left, right)


@pytest.mark.parametrize(
    ("answer", "reference", "language", "score"),
    [
        ("1,000", "1000", "en", 1), ("1,234,567", "1234567", "en", 1), ("3,125", "3125", "de", 0),
        ("0,125", "0125", "en", 0), ("12,34", "1234", "en", 0), ("—5 Euro", "5 Euro", "de", 1), ("A .", "A", "en", 1),
        ("B .", "B", "en", 1), ("A - B", "B", "en", 0), ("the “boat”", "boat", "en", 1),
    ],
)  # fmt: skip
def test_signs_of_numbers_and_words(answer: str, reference: str, language: str, score: float) -> None:
    assert own_score("exact_match", answer, reference, language) == score


@pytest.mark.parametrize(
    ("answer", "reference", "language", "score"),
    [
        ("60 %", "60%", "en", 0), ("서울타워", "서울 타워", "ko", 0), ("light \u00a0 house", "light house", "en", 1),
        ("12", "1 2", "en", 0), ("见第 3 章", "第3章", "zh", 1), ("1 2", "12", "zh", 0),
        ("三 十 一", "三十一", "zh-TW", 1), ("三 十 一", "三十一", "en", 0), ("x = 10²", "102", "en", 0),
        ("It is 5.", "\ufe0f", "en", 0), ("x", " \u200b", "en", 0),
    ],
)  # fmt: skip
def test_contains_reads_runs_of_white_space_as_one_space(
    answer: str, reference: str, language: str, score: float
) -> None:
    assert own_score("contains", answer, reference, language) == score


def test_a_first_line_of_invisible_characters_is_no_answer() -> None:
    result = METRICS["exact_match_first_line"]("\ufeff\n\u200b\nTuesday\nor not", ScoringTarget(("Tuesday",)))
    assert result == (1.0, "Tuesday")


def test_every_character_folds_once_and_keeps_its_digits_apart() -> None:
    """Folding a folded text changes nothing; a compatibility character's digits never join those around it."""
    for character in CHARACTERS:
        assert fold_characters(fold_characters(character)) == fold_characters(character), hex(ord(character))
        plain = unicodedata.normalize("NFKC", character)
        if plain == character or unicodedata.category(character) == "Nd" or not re.search(r"\d", plain):
            continue
        numbers = re.findall(r"\d+", plain)
        for text, parts in ((f"1{character}", ["1", *numbers]), (f"{character}1", [*numbers, "1"])):
            assert re.findall(r"\d+", fold_characters(text)) == parts, hex(ord(character))


@pytest.mark.parametrize("metric", OWN)
@pytest.mark.parametrize("language", ["en", "zh"])
@given(text=ANY_TEXT)
@example("\u1ffd")
def test_a_text_equals_itself_in_every_normal_form(metric: str, language: str, text: str) -> None:
    itself = own_score(metric, text, text, language)
    assert itself == bool(fold_characters(text).strip())
    for form in ("NFC", "NFD"):
        other = unicodedata.normalize(form, text)  # type: ignore[arg-type]
        assert own_score(metric, other, text, language) == own_score(metric, text, other, language) == itself


@pytest.mark.parametrize("metric", [*OWN, "exact_match_first_line"])
@given(answer=ANY_TEXT, reference=ANY_TEXT, character=INVISIBLE, position=st.integers(0, 12))
def test_invisible_characters_change_no_score(
    metric: str, answer: str, reference: str, character: str, position: int
) -> None:
    for text in (reference, answer):
        longer = answer[:position] + character + answer[position:]
        assert own_score(metric, longer, text) == own_score(metric, answer, text)
        assert own_score(metric, text, longer) == own_score(metric, text, answer)


@given(left=ANY_TEXT, right=ANY_TEXT)
def test_exact_match_is_symmetric(left: str, right: str) -> None:
    assert own_score("exact_match", left, right) == own_score("exact_match", right, left)
    folded = fold_characters(left)
    assert fold_characters(folded) == folded


NUMBERS = st.tuples(
    st.sampled_from(["", "-"]),
    st.integers(1, 120),
    st.one_of(
        st.none(),
        st.tuples(st.just("exponent"), st.integers(-12, 12)),
        st.tuples(st.just("fraction"), st.sampled_from("½⅓¾⅒")),
        st.tuples(st.just("decimals"), st.integers(0, 120)),
    ),
)
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def writings(sign: str, whole: int, end: tuple[str, int | str] | None) -> list[str]:
    """Ways to write a number."""
    kind, value = end or ("", "")
    ends = {
        "": [""],
        "exponent": [f"^{value}", str(value).translate(SUPERSCRIPTS)],
        "fraction": [str(value), " " + unicodedata.normalize("NFKC", str(value)).replace("\u2044", "/")],
        "decimals": [f".{value}", f"．{value}"],
    }[kind]
    return [minus + str(whole) + rest for minus in (["-", "\u2212", "–"] if sign else [""]) for rest in ends]


@given(left=NUMBERS, right=NUMBERS, language=st.sampled_from(["en", "de", "ja"]))
def test_numbers_are_equal_only_if_their_values_are(
    left: tuple[str, int, tuple[str, int | str] | None],
    right: tuple[str, int, tuple[str, int | str] | None],
    language: str,
) -> None:
    assume(left != right)
    for first, second, score in [(left, left, 1), (right, right, 1), (left, right, 0)]:
        for answer, reference in product(writings(*first), writings(*second)):
            assert own_score("exact_match", answer, reference, language) == score, (answer, reference)
