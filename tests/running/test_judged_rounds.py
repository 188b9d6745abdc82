"""Stored answers as rounds: which are paired and in which order, what is said of those that are not; a judge's kin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lbx.backends.scripted import ByteTokenizer
from lbx.base.errors import UsageError
from lbx.base.records import Sample
from lbx.benchmarks.base.rubric import Rubric
from lbx.opinions.rounds import (
    JudgedModel,
    QuestionChoice,
    Rounds,
    RunAnswers,
    StoredQuestion,
    has_length_hint,
    make_rounds,
    same_family_runs,
    tokenizer_sha256,
)
from lbx.results import RunRow

PAIRS = Rubric("ours", "pair", "", "{question} {a} {b}", (("A", "first"), ("B", "second")))
RATINGS = Rubric("stars", "score", "", "{answer}", pattern="{rating}", low=1, high=5)
BOTH = {"evaluation": "f1", "judged_by": ["LLM", "human"]}


def question(name: str, task: str = "financial_qa", benchmark: str = "leval", **meta: Any) -> StoredQuestion:
    return StoredQuestion(Sample(benchmark, task, name, "", f"{name}?", ("r",), meta=meta), f"document of {name}")


def answered(run_id: str, answers: Mapping[StoredQuestion, Sequence[str]]) -> RunAnswers:
    return RunAnswers(
        run_id,
        {one.key: one for one in answers},
        {one.key: dict(enumerate(texts)) for one, texts in answers.items()},
    )


class Q(StoredQuestion):
    """A question that can be a key."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(self.key)


def asked(name: str, *args: Any, **meta: Any) -> Q:
    one = question(name, *args, **meta)
    return Q(one.sample, one.document)


def told(found: Rounds) -> list[tuple[str, str, int, int, bool, tuple[str, ...]]]:
    return [
        (one.sample_id, one.run_id, one.iteration, one.against_iteration, one.answer_first, one.marks)
        for one in found.rounds
    ]


def test_rounds_that_begin_with_the_opponent_come_first() -> None:
    one, two = asked("1", judged_by=["LLM"]), asked("2", judged_by=["LLM"])
    runs = [answered(name, {one: ["a"], two: ["a"]}) for name in ("x", "y")]
    found = make_rounds(PAIRS, runs, answered("z", {one: ["b"], two: ["b"]}), QuestionChoice("llm"))
    marks = ("LLM",)
    assert told(found) == [
        (name, run, 0, 0, first, marks) for name in "12" for first in (False, True) for run in "xy"
    ]  # fmt: skip
    assert found.questions == 2 and not +found.missing and not +found.empty
    given = make_rounds(PAIRS, runs, answered("z", {one: ["b"]}), QuestionChoice("llm", both_orders=False))
    assert [one.answer_first for one in given.rounds] == [True, True] and given.missing == {"z": 1}


@pytest.mark.parametrize(
    "mine, theirs, questions, pairs",
    [
        (["a"], ["b"], "both", [(0, 0, ("LLM", "human"))]),
        (["a"], ["b"], "llm", [(0, 0, ("LLM", "human"))]),
        (["a"], ["b", "c"], "both", [(0, 0, ("LLM",)), (0, 1, ("human",))]),
        (["a"], ["b", "c"], "llm", [(0, 0, ("LLM",))]),
        (["a", "d"], ["b", "c"], "human", [(1, 1, ("human",))]),
        (["a", "d"], ["b"], "both", [(0, 0, ("LLM",)), (1, 0, ("human",))]),
    ],
)
def test_a_question_for_both_is_two_pairs_where_there_are_two_answers(
    mine: list[str], theirs: list[str], questions: str, pairs: list[tuple[int, int, tuple[str, ...]]]
) -> None:
    one = asked("1", **BOTH)
    wanted = QuestionChoice(questions, both_orders=False)
    found = make_rounds(PAIRS, [answered("x", {one: mine})], answered("z", {one: theirs}), wanted)
    assert [(round_[2], round_[3], round_[5]) for round_ in told(found)] == pairs


def test_a_run_that_asks_everything_several_times_is_paired_time_by_time() -> None:
    one, two = asked("1", **BOTH), asked("2", judged_by=["LLM"])
    run = answered("x", {one: ["a", "b", "c"], two: ["a", "b", "c"]})
    wanted = QuestionChoice("llm", both_orders=False)
    same = make_rounds(PAIRS, [run], answered("z", {one: ["d", "e", "f"], two: ["d", "e", "f"]}), wanted)
    assert [(one.sample_id, one.iteration, one.against_iteration) for one in same.rounds] == [
        (name, i, i) for name in "12" for i in range(3)
    ]
    rated = make_rounds(RATINGS, [run], None, wanted)
    assert [one.iteration for one in rated.rounds] == [0, 1, 2] * 2
    assert {one.against_run_id for one in rated.rounds} == {None}


def test_tasks_limits_and_open_questions() -> None:
    closed = asked("1", "tpo")
    every = [asked("1"), asked("2"), closed, asked("1", "narrativeqa", "longbench"), asked("7", "odd", "../strange")]
    run, against = (answered(name, {one: ["a"] for one in every}) for name in "xz")

    def judged(*tasks: str, limit: int | None = None) -> list[str]:
        found = make_rounds(PAIRS, [run], against, QuestionChoice("open", tasks, limit, both_orders=False))
        return [f"{one.benchmark}/{one.task}/{one.sample_id}" for one in found.rounds]

    assert judged("all", limit=1) == [
        "longbench/narrativeqa/1", "leval/financial_qa/1", "../strange/odd/7"
    ]  # fmt: skip
    assert judged("leval") == ["leval/financial_qa/1", "leval/financial_qa/2"]
    assert judged("longbench/narr*", "leval/financial_qa", limit=1) == [
        "longbench/narrativeqa/1",
        "leval/financial_qa/1",
    ]
    for tasks, questions in ((("leval/tpo",), "open"), (("all",), "human")):
        with pytest.raises(UsageError, match="No questions to judge: x and z did not both answer any question that is"):
            make_rounds(PAIRS, [run], against, QuestionChoice(questions, tasks))


def test_without_marked_questions_the_rubric_is_what_is_missing() -> None:
    run, against = (answered(name, {asked("1", "facts", "handbook"): ["a"]}) for name in "xz")
    with pytest.raises(UsageError) as refused:
        make_rounds(PAIRS, [run], against, QuestionChoice("llm", ("all",)))
    assert "marked" in refused.value.cause
    assert refused.value.fix == (
        "Only L-Eval marks its questions. For other benchmarks, pass your own rubric (docs/judges.md): "
        "--rubric FILE.toml."
    )


def test_strange_rows_of_somebodys_file_are_questions_like_others() -> None:
    for meta in ({"judged_by": 3, "evaluation": ["LLM"]}, {"judged_by": [["LLM"], None]}, {"evaluation": None}):
        assert question("1", **meta).marks == ()
    settings = {"{}": True, '{"length_hint": false}': False, '{"length_hint": null}': True}
    assert {text: has_length_hint(text) for text in settings} == settings


def test_the_judges_kin() -> None:
    digest = tokenizer_sha256(ByteTokenizer())
    assert len(digest) == 64
    row = RunRow(
        "judge",
        "m",
        "hf",
        "1",
        {},
        "b",
        {"backend.weights": "w"},
        {"architecture": "llama", "tokenizer_sha256": digest},
        "",
    )
    models = [
        JudgedModel("same name", "m"),
        JudgedModel("same weights", "n", '"w"'),
        JudgedModel("kin", "n", "", "llama", digest),
        JudgedModel("other tokenizer", "n", "", "llama", "0"),
        JudgedModel("other architecture", "n", "", "gemma", digest),
        JudgedModel("nobody knows", "n"),
    ]
    assert same_family_runs(row, models) == ["same name", "same weights", "kin"]
    assert same_family_runs(RunRow("judge", "m", "hf", "1", {}, "b", {}, {}, ""), models[2:]) == []
