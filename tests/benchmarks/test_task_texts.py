"""What raters and judges read where a sample has no question: the prompt that asks for a summary, say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.records import Sample
from lbx.benchmarks.base.rubric import Rubric
from lbx.benchmarks.judge import JudgeBenchmark
from lbx.opinions.rating_sets import make_rating_set
from lbx.opinions.rounds import QuestionChoice, make_rounds, read_answers, task_text
from lbx.results import Store
from tests.command_line import Lbx

RATING = Rubric("stars", "score", "", "Task: {question}\nAnswer: {answer}", pattern="{rating}", low=1, high=5)
MULTI_NEWS = (
    "You are given several news passages. Write a one-page summary of all news. \n\nNews:\n[...]\n"
    "Now, write a one-page summary of all the news.\n\nSummary:"
)


@pytest.fixture
def store(bundle: Bundle, shared: Callable[[str], Path], tmp_path: Path) -> Iterator[Store]:
    """Published answers to multi_news, whose samples have no question."""
    source = shared("data/predictions/longbench/llama3-8b-instruct") / "multi_news.jsonl"
    done = Lbx()(
        "import", "longbench", source, "--model-name", "llama3", "-o", tmp_path / "r.duckdb", "--bundle", bundle.root
    )
    assert done.returncode == 0, done.stderr
    with Store(tmp_path / "r.duckdb") as opened:
        assert opened.query("SELECT DISTINCT question FROM samples").rows == [("",)]
        yield opened


def test_raters_read_the_prompt_of_a_sample_without_a_question(store: Store, bundle: Bundle) -> None:
    made, _ = make_rating_set(store, (), kind="score", bundle=bundle)
    assert {item.task_text for item in made.items} == {MULTI_NEWS}
    without, _ = make_rating_set(store, (), kind="score")
    assert {item.task_text for item in without.items} == {""}
    assert made.set_id == without.set_id, "the bundle only shows what was asked"


def test_judges_read_the_prompt_of_a_sample_without_a_question(store: Store, bundle: Bundle) -> None:
    ((run,),) = store.query("SELECT run_id FROM runs").rows
    made = make_rounds(RATING, [read_answers(store, run)], None, QuestionChoice("open"), bundle)
    assert made.without_task == 0
    judging = JudgeBenchmark(RATING, made.rounds)
    for sample in judging.samples(bundle, RATING.name):
        assert judging.prompt(bundle, sample).text.startswith(f"Task: {MULTI_NEWS}\nAnswer: ")
    assert make_rounds(RATING, [read_answers(store, run)], None, QuestionChoice("open")).without_task == 200


def test_a_question_that_an_import_does_not_know_is_not_made_up(bundle: Bundle) -> None:
    """The prompt of qasper holds the question, and that of multi_news does not."""
    unknown = Sample("longbench", "qasper", "0", "", "", ())
    assert task_text(bundle, unknown, "") == ""
    assert task_text(bundle, Sample("longbench", "multi_news", "0", "", "", ()), "") == MULTI_NEWS
    assert "Question: " in task_text(bundle, unknown, "a document's hash")
    assert task_text(bundle, Sample("longbench", "qasper", "0", "", "Why?", ()), "") == "Why?"
    assert task_text(None, unknown, "") == ""
    assert task_text(bundle, Sample("lveval", "hotpotwikiqa_mixup_16k", "0", "", "", ()), "d") == "", (
        "not in the bundle"
    )
