"""Right answers that a metric may have found by chance."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbx.base.records import Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.results import Store
from lbx.results.rows import GenerationRow, SampleRow
from lbx.results.scoring.reading import add_missing_numbers
from lbx.results.scoring.scores import score_rows
from tests.results.store_rows import RUN

NEEDLE, PLACE, WORD = ("ruler", "niah_single_1_4096"), ("babilong", "qa1_1k"), ("infinitebench", "kv_retrieval")
CHOICE, CODE = ("infinitebench", "longbook_choice_eng"), ("infinitebench", "code_debug")
FACT, BOOK = ("helmet", "kilt_nq_8k"), ("helmet", "infbench_choice_8k")
FILLER = "and much more is said. " * 20


def loose(task: tuple[str, str], output: str, *references: str, question: str = "") -> tuple[float, bool | None]:
    """Score of the headline, and whether it is a loose match."""
    scores = BENCHMARKS[task[0]].score(Sample(*task, "a", "", question, references), output)
    assert all(score.loose is None for score in scores[1:])
    return scores[0].score, scores[0].loose


@pytest.mark.parametrize(
    ("task", "output", "references"),
    [
        (NEEDLE, "The magic number is 1234567.", ("1234567",)),
        (("ruler", "niah_multivalue_4096"), "They are 12345, 23456, 34567." * 5, ("12345", "23456", "34567")),
        (("ruler", "qa_1_4096"), "In Paris, France.", ("Paris", "London")),
        (PLACE, "Mary is in the garden.", ("garden",)),
        (PLACE, "Mary is in the garden. " + FILLER, ("garden",)),
        (PLACE, "Garden.<example> Daniel is in the kitchen.", ("garden",)),
        (WORD, '"abc-123-def"', ("abc-123-def",)),
        (CHOICE, "A", ("a lamp", "A")),
        (CHOICE, "B. A lamp", ("A lamp", "B")),
        (CHOICE, "The answer is A because of the lamp.", ("the lamp", "A")),
        (CODE, "B. run", ("run", "B")),
        (FACT, "It was the Seine.", ("the Seine",)),
        (BOOK, "A", ("A", "A. a lamp")),
        (BOOK, "b", ("B", "B. a lamp")),
        (BOOK, "Answer: B. a lamp", ("B", "B. a lamp")),
        (BOOK, "a lamp", ("A", "A. a lamp")),
        (BOOK, "the lamp", ("A", "A. a lamp")),
        (BOOK, "a.", ("A", "A. a lamp")),
        (BOOK, "B. Vitamin C", ("B", "B. Vitamin C")),
        (CHOICE, "B. Joseph C. Crater", ("Joseph C. Crater", "B")),
    ],
)
def test_usual_right_answers_are_no_loose_matches(
    task: tuple[str, str], output: str, references: tuple[str, ...]
) -> None:
    assert loose(task, output, *references) == (1, False)


@pytest.mark.parametrize(
    ("task", "output", "references"),
    [
        # Long
        (NEEDLE, FILLER + "1234567", ("1234567",)),
        (("ruler", "qa_1_4096"), FILLER + "Paris", ("Paris", "a reference that is much longer")),
        (PLACE, "Mary is in the garden " + FILLER.replace(".", ","), ("garden",)),
        (WORD, FILLER + "abc", ("abc",)),
        (FACT, FILLER + "Seine", ("Seine",)),
        (CHOICE, "B. " + FILLER, ("lamp", "B")),
        (BOOK, "B. lamp: " + FILLER, ("B", "lamp")),
        # Several choices
        (PLACE, "garden. kitchen. hallway. office. bedroom. bathroom.", ("garden",)),
        (CHOICE, "ABCD", ("a lamp", "A")),
        (CHOICE, "A or B", ("a lamp", "A")),
        (CODE, "B. run\nC. stop", ("run", "B")),
        (BOOK, "A. a lamp, or B or C", ("A", "A. a lamp")),
        # A word that begins with the letter
        (CHOICE, "Dear reader", ("a lamp", "D")),
        # Empty output or reference
        (NEEDLE, "", ("",)),
        (NEEDLE, "unknown", ("",)),
        (FACT, "unknown", ("The",)),
        (BOOK, "", ("A", "A. a lamp")),
        (BOOK, "The", ("A", "A. a lamp")),
    ],
)
def test_loose_matches(task: tuple[str, str], output: str, references: tuple[str, ...]) -> None:
    assert loose(task, output, *references) == (1, True)


def test_wrong_answers_are_no_loose_matches_and_other_metrics_have_none() -> None:
    assert loose(NEEDLE, FILLER, "1234567") == (0, False)
    assert loose(CHOICE, "BACD", "a lamp", "A") == (0, False)
    assert loose(("infinitebench", "longbook_qa_eng"), "a lamp", "lamp") == (1, None)
    assert loose(("helmet", "icl_nlu_8k"), "label: 3", "3") == (1, None)
    assert loose(("longbench", "qasper"), "a lamp", "lamp") == (1, None)


def test_labels_of_the_question_are_no_other_choices() -> None:
    output, question = "Fred gave the apple to Bill.", "Who gave the apple to Bill?"
    assert loose(("babilong", "qa5_1k"), output, "Fred", question=question) == (1, False)


HOSTILE = ("x" * 10**6 + " abc", "abc \0" * 9999, "abc \ud800\udfff" * 999, "ABCD" * 250_000, "A " * 500_000)


@pytest.mark.parametrize("output", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("task", [NEEDLE, PLACE, WORD, CHOICE, CODE, FACT, BOOK], ids="/".join)
def test_hostile_outputs(task: tuple[str, str], output: str) -> None:
    assert loose(task, output, "garden" if task == PLACE else "abc", "A")[1] in (False, True)


def test_loose_matches_are_known_without_texts(tmp_path: Path) -> None:
    """The mark is stored with the score, so that files without texts, and without references, have it."""
    samples = [Sample(*NEEDLE, name, "", "", ("1234567",)) for name in ("short", "long", "wrong")]
    outputs = ("1234567", FILLER + "1234567", "no")
    family = BENCHMARKS["ruler"]
    with Store(tmp_path / "results.duckdb") as store:
        store.begin_run(RUN)
        store.write(
            samples=[SampleRow(sample, place) for place, sample in enumerate(samples)],
            generations=[GenerationRow(RUN.run_id, *sample.key, None) for sample in samples],
            scores=[
                row
                for sample, output in zip(samples, outputs, strict=True)
                for row in score_rows(RUN.run_id, sample.key, family, family.score(sample, output))
            ],
        )
        add_missing_numbers(store)
        assert store.query("SELECT n, loose_matches FROM guards").rows == [(3, 1)]
