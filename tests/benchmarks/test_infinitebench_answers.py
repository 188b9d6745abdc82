"""InfiniteBench's scores on random answers, beside the authors' compute_scores.py, which is run as it is."""

from __future__ import annotations

import importlib.util
import random
import sys
import unicodedata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lbx.base.records import Sample
from lbx.benchmarks.infinitebench import TASKS, parse_references
from lbx.benchmarks.metrics import infinitebench
from lbx.benchmarks.registry import BENCHMARKS
from tests.golden.case import SHARED

SCRIPTS = next(iter(SHARED.parents[1].glob("data/upstream_more/OpenBMB/InfiniteBench/*/src")), Path("missing"))
PARTS = (
    "A", "B", "D", "AB", "ABCD", "About", "answer is:", "answer:", "answer is", "option is", "is:",
    "correct option is:", "Option", "A.", "B:", " ", "  ", "\n", "\u3000", "\u00a0", "\u200b", *".,!?{}'\"`-*:",
    "1", "12", "1,234", "-5", "+7", "1_000", "3.5", "0007", "٣", "３", "½", "1e5", "run_it", "def f(): return 3",
    "the", "a", "lamp", "é", "e\u0301", "ß", "ŉ", "İ", "Σίσυφος", "北京", "。", "《书》", "\ud800", "\x00", "\u2028",
    "😀", "’", "MARY", "Mary's", "x" * 5000, "9" * 4400,
)  # fmt: skip
NUMBERS = {"integer": (1, 12, -5, 7, 1234, 0, 10**20), "number": (1, 12, 0, 2.5, 3.5, 7.0, -5, 1e22)}
ANSWERS = {
    "option": ("lamp", "A lamp", "run_it", "", "the D"),
    "longdialogue_qa_eng": ("MARY", "É", "SS", "1", "mary"),
    "text": ("12", "0007", "", "lamp", "e\u0301", "the B", "北京。", "A b c\nd. E"),
}


@pytest.fixture(scope="module")
def authors() -> ModuleType:
    """compute_scores.py, with rouge_score in place of ``evaluate``, which calls it."""
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rougeLsum"])
    if not SCRIPTS.is_dir():
        pytest.skip("needs the authors' sources in ../shared")

    def compute(predictions: list[str], references: list[list[str]], **_: Any) -> dict[str, list[float]]:
        pairs = zip(references, predictions, strict=True)
        return {"rougeLsum": [scorer.score_multi(*pair)["rougeLsum"].fmeasure for pair in pairs]}

    spec = importlib.util.spec_from_file_location("scores", SCRIPTS / "compute_scores.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "evaluate", SimpleNamespace(load=lambda _: SimpleNamespace(compute=compute)))
        patch.setitem(sys.modules, "args", SimpleNamespace(parse_args=None))
        patch.setattr(sys, "dont_write_bytecode", True)
        spec.loader.exec_module(module)
    return module


def made_answer(rng: random.Random, references: tuple[str, ...]) -> str:
    text = rng.choice(("", " ", "")).join(rng.choices(PARTS, k=rng.choice((0, 1, 1, 2, 3, 5, 9))))
    gold, place = rng.choice(references), rng.randrange(len(text) + 1)
    gold = rng.choice((gold, gold.upper(), gold + ".", unicodedata.normalize("NFD", gold), ""))
    return text[:place] + gold + text[place:]


@pytest.mark.parametrize("task", TASKS)
def test_random_answers_score_as_officially(authors: ModuleType, task: str) -> None:
    rng, kind = random.Random(task), TASKS[task].kind
    for _ in range(60 if task == "longbook_sum_eng" else 600):
        answers = ANSWERS.get(task) or NUMBERS.get(kind) or ANSWERS[kind]
        label: Any = rng.choices(answers, k=rng.choice((1, 3)) if task in ("math_calc", "longbook_qa_eng") else 1)
        label = [*label, rng.choice("ABCD")] if kind == "option" else label
        references = parse_references(task, label)
        assert references is not None
        label = {"math_calc": [label], "kv_retrieval": label[0]}.get(task, label)
        output = made_answer(rng, references)
        scores = BENCHMARKS["infinitebench"].score(Sample("infinitebench", task, "0", "", "", references), output)
        for score, model in zip(scores, ("any", "gpt4"), strict=False):
            try:
                wanted, error = authors.get_score_one(output, label, task, model), None
            except ValueError as exc:
                wanted, error = 0.0, f"ValueError: {exc}"
            assert (score.score, score.error) == (pytest.approx(wanted, abs=1e-12), error), (label, output)


def test_a_choice_without_a_text_is_stated_by_a_phrase_at_the_end() -> None:
    """As officially: every text begins with the empty one, and one character follows the phrase."""
    assert infinitebench.choose("The option is.", "", "D") == (True, "")
    assert infinitebench.choose("The option is", "", "D") == (False, "")
    assert infinitebench.names_function("It is: ", "", "D") is False
    assert infinitebench.names_function("It is:;", "", "D") is True
