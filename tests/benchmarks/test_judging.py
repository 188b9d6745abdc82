"""A judge's rounds: what it is asked, under which name, and how its text is read."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.base.records import JudgedAnswer, RoundSample, Sample, Truncation, sha256_text
from lbx.benchmarks.base.rubric import Rubric
from lbx.benchmarks.judge import NAME, JudgeBenchmark, Round
from lbx.benchmarks.registry import BENCHMARKS, benchmarks_with, reserved_names
from lbx.options.task_selection import select_tasks
from lbx.results.rows import stored_sample

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
MARKS = (("[[A]]", "first"), ("[[B]]", "second"), ("[[C]]", "tie"))
PAIRS = Rubric("ours", "pair", "Be just.", "Q {question} R {reference} A {a} B {b}", MARKS)
RATINGS = Rubric("stars", "score", "", "Q {question} X {answer}", pattern="[[{rating}]]", low=1, high=5)
ONE = Round(
    "leval", "tpo", "000-01", "why?", ("so",), "m", "good answer", against_run_id="turbo", against="bad", marks=("LLM",)
)


def read(text: str, rubric: Rubric = PAIRS, **changes: Any) -> list[tuple[float, str | None, str | None]]:
    sample = replace(ONE, **changes).sample(rubric)
    return [(score.score, score.extracted, score.partial) for score in BENCHMARKS[NAME].score(sample, text)]


def official(text: str) -> str:
    """As the authors' script decides: by substring, in this order."""
    return next((winner for mark, winner in (("A", "A"), ("B", "B"), ("C", "tie")) if f"[[{mark}]]" in text), "error")


def test_the_first_mark_in_the_official_order_counts_wherever_it_stands() -> None:
    draw = random.Random(17)
    pieces = ["[[A]]", "[[B]]", "[[C]]", "[A]", "[[ A ]]", "[[a]]", "A is better", "\n", ""]
    for _ in range(3000):
        text = "".join(draw.choices(pieces, k=draw.randrange(6)))
        for answer_first in (True, False):
            found = read(text, answer_first=answer_first)
            winner = official(text)
            if winner == "error":
                assert found == []
                continue
            ours = {"tie": "tie", "A" if answer_first else "B": "answer"}.get(winner, "against")
            several = sum(f"[[{mark}]]" in text for mark in "ABC") > 1
            score = {"answer": 1.0, "tie": 0.5, "against": 0.0}[ours]
            assert found == [(score, ours, "ambiguous" if several else None)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One.", "answer"),
        ("**Two**", "against"),
        ("Two\n\nThe other one is vague.", "against"),
        ("Both are fine.\nVerdict: equal", "tie"),
        ("**Verdict:** one", "answer"),
        ("结论：Two。", "against"),
        ("Two, as one can see. ONE", "answer"),
        ("The second one is better.", None),
        ("One of them is better.", None),
        ("One:\nvague.\nTwo:\nThis one is better.", None),
        ("None.", None),
    ],
)
def test_a_mark_in_another_case_counts_in_a_line_of_its_own(text: str, found: str | None) -> None:
    words = replace(PAIRS, verdicts=(("ONE", "first"), ("TWO", "second"), ("EQUAL", "tie")))
    assert [extracted for _, extracted, _ in read(text, words)] == ([found] if found else [])


def test_lines_with_different_marks_are_ambiguous_and_the_last_one_counts() -> None:
    words = replace(PAIRS, verdicts=(("ONE", "first"), ("TWO", "second")))
    assert read("**One**\nvague\n**Two**\nclear\n\nMy choice: two", words) == [(0.0, "against", "ambiguous")]
    assert read("**One**\nvague\n**Two**\nThis one is clear.", words) == []


def test_words_around_a_rating_count_in_any_case() -> None:
    stars = replace(RATINGS, pattern="Rating: {rating}")
    assert read("RATING: 4", stars, against_run_id=None) == [(0.75, "4", None)]
    assert read("My rating: 2\nRating: 4", stars, against_run_id=None) == [(0.75, "4", None)]


@pytest.mark.parametrize(
    "text, found",
    [
        ("Fine. [[4]]", [(0.75, "4", None)]),
        ("[[1]] then [[1]]", [(0.0, "1", None)]),
        ("[[ 2.5 ]] and [[5]]", [(0.375, "2.5", "ambiguous")]),
        ("[[0]] or [[6]] or 3", []),
        ("[[6]], no, [[5]]", []),
        ("[[11]]", []),
        ("[[-3]]", []),
        ("[[3", []),
        ("", []),
    ],
)
def test_a_rating_is_the_first_number_that_stands_as_it_should(text: str, found: list[object]) -> None:
    assert read(text, RATINGS, against_run_id=None) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("v1.2.3; 7, I say.", ["7"]),
        ("3.5", ["3.5"]),
        ("10/10", ["10"]),
        ("3-4", ["3"]),
        ("-3", []),
        ("I say -3.", []),
        ("\u22123", []),
        ("11", []),
        ("0.9", []),
        ("In 2010 it was 7", []),
    ],
)
def test_a_bare_number_is_no_piece_of_another(text: str, found: list[str]) -> None:
    bare = replace(RATINGS, pattern="{rating}", high=10)
    assert [one[1] for one in read(text, bare, against_run_id=None)] == found


@pytest.mark.parametrize(
    ("text", "found"), [("[[４]]", ["4"]), ("[[٣.5]]", ["3.5"]), ("[[4,5]]", []), ("[[1,000]]", [])]
)
def test_a_rating_is_a_number_to_every_reader(text: str, found: list[str]) -> None:
    """DuckDB reads no digits but ASCII's: a mean would lack what a score has. And 4,5 is neither 4 nor 5."""
    for rubric in (RATINGS, replace(RATINGS, pattern="{rating}")):
        assert [one.extracted for one in JudgeBenchmark().score(ONE.sample(rubric), text)] == found


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"kind": "odd", "marks": [None]},
        {"verdicts": "null"},
        {"verdicts": '{"[[A]]": "first"}'},
        {"verdicts": '[["", "first"], ["x"], 3, ["[[A]]", ["no"]], [1, "tie"]]'},
        {"kind": "score", "pattern": "(a+)+$", "scale_low": 1.0, "scale_high": 2.0},
        {"kind": "score", "pattern": "{rating}", "scale_low": -1e300, "scale_high": 1e300},
        {"kind": "score", "pattern": "{rating}", "scale_low": -math.inf, "scale_high": math.inf},
        {"kind": "score", "pattern": "{rating}", "scale_low": math.nan, "scale_high": 2.0},
        {"kind": "score", "pattern": "{rating}", "scale_low": 1.0},
        {"kind": "score", "scale_low": 1.0, "scale_high": 2.0},
        {"kind": "score", "verdicts": '[["[[A]]", "first"]]'},
    ],
)
def test_what_a_strange_results_file_says_is_read_as_nothing(columns: dict[str, Any]) -> None:
    text = "a" * 100_000 + " " * 100_000 + "[[A]] [[2]] 2"
    about = {**asdict(ONE.sample(PAIRS).subject), "verdicts": None, **columns}
    row = {"sample_id": "0", "references": "[]", "question": "", "language": "en", "length": 0, "length_unit": "words"}
    sample = stored_sample(NAME, "t", {**row, "meta": "{}", "subject": about})
    assert isinstance(sample, RoundSample)
    assert BENCHMARKS[NAME].score(sample, text) == []
    assert BENCHMARKS[NAME].score(stored_sample(NAME, "t", {**row, "meta": "{}"}), text) == [], "a row is missing"


def test_a_round_is_named_by_all_that_makes_it() -> None:
    name = ONE.round_id(PAIRS.sha256)
    assert len(name) == 24
    assert replace(ONE).round_id(replace(PAIRS, source="elsewhere", name="theirs").sha256) == name
    others = [
        replace(ONE, answer="good  answer"), replace(ONE, against="worse"), replace(ONE, answer_first=False),
        replace(ONE, question="who?"), replace(ONE, references=("so", "")), replace(ONE, run_id="n"),
        replace(ONE, iteration=1), replace(ONE, against_run_id="claude"), replace(ONE, against_iteration=1),
        replace(ONE, sample_id="000-02"), replace(ONE, document_sha256="0"),
    ]  # fmt: skip
    names = [one.round_id(PAIRS.sha256) for one in others]
    names += [
        ONE.round_id(replace(PAIRS, user=PAIRS.user + ".").sha256),
        ONE.round_id(replace(PAIRS, system="").sha256),
    ]
    names += [
        ONE.round_id(replace(PAIRS, verdicts=MARKS[::-1]).sha256),
        ONE.round_id(replace(PAIRS, max_new_tokens=1).sha256),
    ]
    assert len({name, *names}) == 1 + len(names)


def test_a_sample_says_who_is_compared_and_holds_no_answer() -> None:
    sample = ONE.sample(PAIRS)
    assert (sample.benchmark, sample.task, sample.question, sample.references) == (NAME, "ours", "why?", ("so",))
    assert sample.context == "" and "good answer" not in str(sample) and "bad" not in str(sample)
    assert sample.meta == {}
    assert sample.subject == JudgedAnswer(
        kind="pair", benchmark="leval", task="tpo", sample_id="000-01", run_id="m", iteration=0,
        against_run_id="turbo", against_iteration=0, answer_first=True, document_sha256="",
        marks=("LLM",), answer_sha256=sha256_text("good answer"), against_sha256=sha256_text("bad"),
        answer_words=2, against_words=1, verdicts=(("[[A]]", "first"), ("[[B]]", "second"), ("[[C]]", "tie")),
    )  # fmt: skip
    assert replace(ONE, against_run_id=None).sample(RATINGS).subject == JudgedAnswer(
        kind="score", benchmark="leval", task="tpo", sample_id="000-01", run_id="m", marks=("LLM",),
        answer_sha256=sha256_text("good answer"), answer_words=2, pattern="[[{rating}]]", scale_low=1, scale_high=5,
    )  # fmt: skip


def test_a_prompt_is_the_rubrics_with_the_answers_in_the_rounds_order(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({})
    swapped = replace(ONE, answer_first=False, references=("{a}", "two"))
    judging = JudgeBenchmark(PAIRS, [ONE, swapped])
    (task,) = judging.tasks(bundle)
    assert (task.full_name, task.metrics, task.samples) == ("judge/ours", ("verdict",), 2)
    prompts = [judging.prompt(bundle, sample) for sample in judging.samples(bundle, task.name)]
    assert [prompt.text for prompt in prompts] == [
        "Q why? R so A good answer B bad",
        "Q why? R {a}\ntwo A bad B good answer",
    ]
    assert {(p.system, p.max_new_tokens, p.truncation, p.temperature) for p in prompts} == {
        ("Be just.", 2048, Truncation.REFUSE, None)
    }


def test_a_document_that_the_rubric_shows_comes_from_the_bundle(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({})
    rubric = replace(PAIRS, user="{document}\n\n" + PAIRS.user)
    texts = {"0": "first text", "1": "another", "2": "third"}

    def documents(_bundle: Bundle, benchmark: str, task: str) -> Iterator[Sample]:
        return (Sample(benchmark, task, name, text, "", ()) for name, text in texts.items())

    rounds = [
        replace(ONE, sample_id=name, answer_first=first, document_sha256=sha256_text(texts[name]))
        for first in (True, False)
        for name in ("2", "0")
    ]
    judging = JudgeBenchmark(rubric, rounds, documents)
    samples = list(judging.samples(bundle, "ours"))
    assert [sample.context for sample in samples] == ["first text"] * 2 + ["third"] * 2
    assert {sample.sample_id for sample in samples} == {one.round_id(rubric.sha256) for one in rounds}
    prompt = judging.prompt(bundle, samples[0])
    assert (prompt.before, prompt.document, prompt.truncation) == ("", "first text", Truncation.DOCUMENT_MIDDLE)
    for wrong in (replace(rounds[0], document_sha256="0"), replace(rounds[0], sample_id="9")):
        with pytest.raises(BundleError, match=r"lacks the document of leval/tpo/[29]"):
            list(JudgeBenchmark(rubric, [wrong], documents).samples(bundle, "ours"))


def test_the_name_means_what_is_stored_and_can_be_no_benchmark_of_ones_own(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({})
    stored = BENCHMARKS[NAME]
    assert isinstance(stored, JudgeBenchmark) and stored.tasks(bundle) == [] and list(stored.samples(bundle, "x")) == []
    assert NAME not in list(BENCHMARKS) and "lbx judge" in reserved_names()[NAME]
    assert benchmarks_with(judging := JudgeBenchmark(PAIRS, [ONE]))[NAME] is judging
    assert stored.aggregate("ours", []) == []
    assert stored.cluster(replace(ONE, document_sha256="d").sample(PAIRS), "elsewhere") == "d"
    with pytest.raises(UsageError, match='no task "judge"'):
        select_tasks(bundle, [NAME])
