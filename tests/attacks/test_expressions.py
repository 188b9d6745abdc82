"""Regular expressions that a bundle or a results file brings: time in proportion to the text, and no exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.database import expression_error, extract_match

anything = st.text(st.characters(codec=None, exclude_categories=()), max_size=80)


@pytest.mark.parametrize(
    "pattern, text, held",
    [
        (r"Answer:\s*(\w+)", "no. Answer: B. Answer: C", "B"),
        (r"(?s:.*)Answer:\s*(\w+)", "no.\nAnswer: B.\nAnswer: C", "C"),
        (r"[A-D]", "so C or D", "C"),
        (r"(?i)ANSWER (?:is )?(\d+)", "the answer is 42", "42"),
        (r"(?P<said>x)y", "xy", "x"),
        (r"\p{Han}+", "is 灰岛 so", "灰岛"),
        (r"a|(b)", "a", None),
        (r"\s+", "a   b", None),
        (r"z", "abc", None),
        (r"\((.*?)\)", "(a) (b)", "a"),
        (r"(-?[$0-9.,]{2,})|(-?[0-9]+)", "I count 7 boats", "7"),
        (r"(-?[$0-9.,]{2,})|(-?[0-9]+)", "I count 31 boats", "31"),
        (r"A(\d)|B(\d)|(?P<c>C)(?:\d)", "C3", "C"),
        (r"(answer|result): (\w+)", "answer: B", None),
        (r"((\d+)) metres", "31 metres", "31"),
        (r"((\d+) metres)", "31 metres", None),
        (r"(a)?(b)?(c)?\(", "b(", "b"),
        ("|".join(f"(x{number:02})" for number in range(100)), "x99", "x99"),
        ("\ud800", "\ud800", "\ufffd"),
        ("b.c", "a\0b\0c", "b\0c"),
    ],
)
def test_what_an_expression_holds(pattern: str, text: str, held: str | None) -> None:
    assert expression_error(pattern) == ""
    assert extract_match(pattern, text) == held


@pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)b", r"(a)\1", "(a", "a)(b", "((a{1000}){1000}){1000}", "a" * 1001])
def test_what_is_none(pattern: str) -> None:
    assert expression_error(pattern)
    assert extract_match(pattern, "aaa") is None


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+$", "(a|a)*c", "(.*)*(.*)*(.*)*x", "(?:a?){500}a{500}b"])
def test_no_expression_hangs(pattern: str) -> None:
    """Python's ``re`` would still be at it after the age of the universe: the test ends, or never does."""
    assert extract_match(pattern, "a" * 100_000 + "!") is None


@given(pattern=anything, text=anything)
def test_nothing_upsets_it(pattern: str, text: str) -> None:
    held = extract_match(pattern, text)
    assert held is None or (held.strip() and not expression_error(pattern))
