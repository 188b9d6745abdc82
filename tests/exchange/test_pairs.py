"""Edits of a line in L-Eval's form: only what is edited changes, and it comes back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.exchange.annotation.dataset import ANSWERS, QUESTIONS, DatasetLine, Splice, apply_splices, inverse_splices

ODD = (
    '\ufeff{ "weight" :1.50e+3 ,"instructions":["a\\u00e9","b"  ,  "c\\/d"],"x":{"y": [1,{}]},'
    '"outputs" : [ "1" ,"2"],"input":"d"} \r'
)


def _after(line: DatasetLine, splices: list[Splice]) -> DatasetLine:
    return DatasetLine(apply_splices(line.raw, splices), line.ascii)


def _texts(line: DatasetLine) -> list[tuple[str | None, str | None]]:
    return [(question.text, answer.text) for question, answer in line.pairs()]


def test_an_edit_changes_its_text_alone() -> None:
    line = DatasetLine(ODD)
    assert _texts(line) == [("aé", "1"), ("b", "2"), ("c/d", None)]
    assert _after(line, line.set(1, QUESTIONS, 'ü"\n')).raw == ODD.replace('"b"', '"\\u00fc\\"\\n"')
    assert _after(
        DatasetLine(ODD, ascii=False), DatasetLine(ODD, ascii=False).set(1, QUESTIONS, "ü")
    ).raw == ODD.replace('"b"', '"ü"')
    assert line.set(0, QUESTIONS, "aé") == []
    assert line.set(2, ANSWERS, "") == []
    assert _after(line, line.set(2, ANSWERS, "3")).raw == ODD.replace(',"2"', ',"2" ,"3"')


def test_pairs_come_and_go_together() -> None:
    line = DatasetLine(ODD)
    more = _after(line, line.add("q", "r"))
    assert _texts(more) == [("aé", "1"), ("b", "2"), ("c/d", ""), ("q", "r")]
    less = _after(more, more.remove(0))
    assert _texts(less) == [("b", "2"), ("c/d", ""), ("q", "r")]
    assert less.raw.startswith('\ufeff{ "weight" :1.50e+3 ,"instructions":["b"  ,  "c\\/d"')
    while less.pairs():
        less = _after(less, less.remove(len(less.pairs()) - 1))
    assert less.raw == '\ufeff{ "weight" :1.50e+3 ,"instructions":[],"x":{"y": [1,{}]},"outputs" : [ ],"input":"d"} \r'
    assert _texts(_after(less, less.add("q", "r"))) == [("q", "r")]


@pytest.mark.parametrize("raw", ['{"input": "d"}', '{"input":"d","k":0}', '{ "outputs": ["r"], "input": "d" }'])
def test_lists_that_are_missing_are_made(raw: str) -> None:
    line = DatasetLine(raw)
    made = _after(line, line.add("q", "a"))
    assert json.loads(made.raw)["instructions"][-1] == "q"
    assert json.loads(made.raw)["outputs"][-1] == "a"
    assert list(json.loads(made.raw))[: len(json.loads(raw))] == list(json.loads(raw))


def test_line_breaks_stay_those_of_the_old_text() -> None:
    line = DatasetLine(json.dumps({"input": "d", "instructions": ["a\r\nb", "a\rb"], "outputs": ["", "x\ny"]}))
    assert line.set(0, QUESTIONS, "a\nb") == []
    assert line.set(1, QUESTIONS, "a\nb") == []
    assert _texts(_after(line, line.set(0, QUESTIONS, "a\nc")))[0][0] == "a\r\nc"
    assert _texts(_after(line, line.set(1, QUESTIONS, "a\nc")))[1][0] == "a\nc"


def test_what_no_page_can_send_stays() -> None:
    raw = '{"input": "d", "instructions": ["\\ud800", 7, "\\u0000"], "outputs": []}'
    line = DatasetLine(raw)
    assert [bool(question.explanation) for question, _ in line.pairs()] == [True, True, True]
    for place in range(3):
        with pytest.raises(ValueError, match="kept unchanged"):
            line.set(place, QUESTIONS, "x")
    with pytest.raises(ValueError, match="no pair 4"):
        line.set(3, QUESTIONS, "x")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("", "not JSON"),
        ("[1]", "contains no object"),
        ('{"input": "d"', "expected ',' or '}' at column 14"),
        ('{"input": "d"} {}', "text follows"),
        ('{"input" "d"}', "expected ':'"),
        ('{"input": "d", "input": "e"}', "'input' twice"),
        ('{"input": "d", 3: 4}', "expected a key"),
        ('{"input": tru}', "not JSON"),
        ('{"input": 3}', "no document"),
        ("{}", "no document"),
        ('{"input": "d", "outputs": "x"}', '"outputs" should be a list'),
        ('{"input": "d", "k": ' + "[" * 100_000 + "}", "too deep"),
    ],
)
def test_other_lines_are_refused_in_words(raw: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        DatasetLine(raw).values()


_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)
_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _text, lambda x: st.lists(x, max_size=2)
)
_step = st.tuples(st.sampled_from(["set", "add", "remove", "undo"]), st.integers(0, 4), st.booleans(), _text, _text)


@settings(deadline=None)
@given(
    extra=st.dictionaries(
        _text.filter(lambda key: key not in ("instructions", "outputs", "input")), _value, max_size=3
    ),
    questions=st.none() | st.lists(_text, max_size=3),
    answers=st.none() | st.lists(_text, max_size=3),
    separators=st.sampled_from([(", ", ": "), (",", ":"), (" ,\t", " :  ")]),
    ascii_only=st.booleans(),
    steps=st.lists(_step, max_size=12),
)
def test_any_edits_undone_give_the_line_back(
    extra: dict, questions: list | None, answers: list | None, separators: tuple, ascii_only: bool, steps: list
) -> None:
    values = {**extra, "input": "d"}
    if questions is not None:
        values["instructions"] = questions
    if answers is not None:
        values = {"outputs": answers, **values}
    first = line = DatasetLine(json.dumps(values, ensure_ascii=ascii_only, separators=separators), ascii_only)
    done: list[list[Splice]] = []
    for kind, place, is_answer, text, other in steps:
        if kind == "undo":
            line = _after(line, inverse_splices(done.pop())) if done else line
            continue
        before = _texts(line)
        try:
            if kind == "set":
                splices = line.set(place, ANSWERS if is_answer else QUESTIONS, text)
            else:
                splices = line.add(text, other) if kind == "add" else line.remove(place)
        except ValueError:
            assert place >= len(before)
            continue
        line = _after(line, splices)
        done.append(splices)
        now = json.loads(line.raw)
        assert repr({key: now[key] for key in extra}) == repr(extra)
        assert len(line.pairs()) == len(before) + {"set": 0, "add": 1, "remove": -1}[kind]
    while done:
        line = _after(line, inverse_splices(done.pop()))
    assert line.raw == first.raw
