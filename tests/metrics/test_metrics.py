"""Metrics of made-up answers; any text at all is in ``test_properties``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.benchmarks.metrics import chinese, exam, f1, longbench

anything = st.text(st.characters(codec=None, exclude_categories=()), max_size=200)
"""Lone surrogates and control characters included."""


@pytest.mark.parametrize(
    ("prediction", "references", "wanted"),
    [
        ("The cat.", ["cat"], 1.0),
        ("a cat, a dog", ["cat"], 2 / 3),
        ("don't", ["dont"], 1.0),
        ("", [""], 0),
        ("the", ["the"], 0),
        ("dog", ["cat", "DOG!"], 1.0),
        ("dog", [], 0),
    ],
)
def test_qa_f1(prediction: str, references: list[str], wanted: float) -> None:
    assert f1.qa_f1(prediction, references) == wanted


@pytest.mark.parametrize(
    ("prediction", "reference", "wanted"),
    [
        ("厦门大学。", "厦门大学", 1.0),
        ("《厦门大学》", "厦门大学", 2 / 3),
        ("北京", "厦门", 0.0),
        ("，。！", "，。！", 0.0),
    ],
)
def test_qa_f1_zh(prediction: str, reference: str, wanted: float) -> None:
    """The second is the official list's: it removes 》 and not 《."""
    assert f1.qa_f1_zh(prediction, [reference]) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("prediction", "wanted"),
    [("Event date", 1 / 2), ("Event date or City", 1 / 3), ("City", 0.0), ("event", 0.0), ("", 0.0)],
)
def test_classification(prediction: str, wanted: float) -> None:
    """Naming the reference names "date" and "Event" too. The first is forgiven, its neighbour overlooked."""
    assert longbench.classification(prediction, ["Event date"], ["date", "Event", "Event date", "City"]) == wanted


@pytest.mark.parametrize(
    ("prediction", "references", "wanted"),
    [
        ("3", ["3"], 1.0),
        ("03", ["3"], 0.0),
        ("3 or 4", ["3"], 0.5),
        ("３", ["3"], 0.0),
        ("", ["3"], 0.0),
        ("4", ["3", "4"], 1),
    ],
)
def test_count(prediction: str, references: list[str], wanted: float) -> None:
    assert longbench.count(prediction, references) == wanted


def test_retrieval() -> None:
    assert longbench.retrieval("Paragraph 7, not 8", ["Paragraph 7"], language="en") == 0.5
    assert longbench.retrieval("段落12", ["段落12"], language="zh") == 1.0
    assert longbench.retrieval("7", ["Paragraph 7", "no number"], language="en") == 0.0


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("\n\nx = 1\ny = 2", "x = 1"),
        ("```python\nx = 1", "x = 1"),
        ("# why\n// how\n`", ""),
        ("   \nx = 1", "   "),
    ],
)
def test_code_line(output: str, line: str) -> None:
    assert longbench.code_line(output) == line


def test_edit_similarity_is_in_hundredths() -> None:
    assert longbench.edit_similarity("abc", ["abc"]) == 1.0
    assert longbench.edit_similarity("abcdef", ["abcdeg"]) == 0.83
    assert longbench.edit_similarity("", ["abc"]) == 0.0


@pytest.mark.parametrize(
    ("output", "letter"),
    [
        ("The correct answer is (B)", "B"),
        ("**The correct answer is** (C).", "C"),
        ("The correct answer is A. No: The correct answer is (D)", "D"),
        ("The correct answer is Apple", "A"),
        ("the correct answer is (B)", None),
        ("The correct answer is (E)", None),
        ("B", None),
    ],
)
def test_chosen_letter(output: str, letter: str | None) -> None:
    assert longbench.chosen_letter(output) == letter


@pytest.mark.parametrize(
    ("output", "several", "wanted"),
    [
        ("", False, "None"),
        (" \n", True, "None"),
        ("BC", False, "BC"),
        ("AC", False, "A"),
        ("Answer: C", False, "A"),
        ("no idea", False, "A"),
        ("CA", True, "AC"),
        ("A. this B) that", True, "AB"),
        ("it may be BAB", True, "BAB"),
        ("x Question A. y", True, "A"),
    ],
)
def test_choice_answer(output: str, several: bool, wanted: str) -> None:
    assert exam.choice_answer(output, several=several) == wanted


@pytest.mark.parametrize(
    ("prediction", "reference", "wanted"),
    [
        ("AB", "ABC", 0.25),
        ("ABC", "ABC", 1),
        ("D", "ABC", 0),
        ("18.0", "18", 1),
        ("it is eighteen", "EIGH TEEN", 1),
        ("x", "y", 0),
    ],
)
def test_exact_match(prediction: str, reference: str, wanted: float) -> None:
    assert exam.exact_match(prediction, reference) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The answer is $1,234.50.", "1234"),
        ("The answer is -3/4", "34"),
        ("it was 3 or 4 apples\n\n5", "4"),
        ("none", ""),
    ],
)
def test_math_answer(text: str, wanted: str) -> None:
    assert exam.math_answer(text) == wanted


def test_statements() -> None:
    assert exam.statement_answer("Surely true. [fact: I think it is False]") == ("true", "false")
    assert exam.statement_answer("True [fact: False") == ("true", "<error>")
    assert exam.statement_answer("True") is None


@given(anything)
def test_chinese_words_are_the_text_again(text: str) -> None:
    assert "".join(chinese.words(text)) == text


def test_jieba_is_loaded_in_silence_and_leaves_nothing(tmp_path: Path) -> None:
    """In a process of its own, where warnings are errors and the temporary folder is watched."""
    source = "import json, lbx.benchmarks.metrics.chinese as c; print(json.dumps(c.words('我爱北京天安门')))"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, check=True, env=environment
    )
    assert json.loads(done.stdout) == ["我", "爱", "北京", "天安门"]
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
