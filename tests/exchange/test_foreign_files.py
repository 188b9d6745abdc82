"""Files that other people's scripts wrote: whatever the official scorer takes is taken, and has its numbers.

Where the official scorer would stop, a row scores 0 and says why. References that are no texts are refused
(``test_bad_predictions``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.exporting import export
from lbx.results import Store
from tests.exchange.import_parts import import_predictions

Row = dict[str, Any]
V1 = {"pred": "Paris", "answers": ["Paris"], "all_classes": None, "length": 3}
V2 = {"_id": "q1", "difficulty": "easy", "length": "short", "answer": "A", "pred": "A", "judge": True}
LV = {"pred": "the old bridge", "answers": ["the old bridge"], "gold_ans": "bridge", "input": "?", "length": 3}


@pytest.fixture
def first_scores(answers: Callable) -> Callable[[Store, str, str, str], list[tuple[float, bool]]]:
    """(score, whether the official script would stop) of each row of a task, in order."""

    def read(store: Store, run_id: str, benchmark: str, task: str) -> list[tuple[float, bool]]:
        found = answers(store, run_id, benchmark, task)
        heads = [BENCHMARKS[benchmark].score(sample, output)[0] for sample, _, output in found]
        return [(head.score, head.error is not None) for head in heads]

    return read


def _without(row: Row, *names: str) -> Row:
    return {key: value for key, value in row.items() if key not in names}


def _back(store: Store, form: str, run_id: str, source: Path, to: Path) -> None:
    (file,) = export(store, form, run_id, to).files
    assert file.read_bytes() == source.read_bytes()


V1_ROWS: dict[str, tuple[str, Row, float, bool]] = {
    "only what is read": ("qasper", {"pred": "Paris", "answers": ["Paris"]}, 1.0, False),
    "all of the data's keys": ("qasper", {"_id": 7, "input": 3, "context": None, "method": "x", **V1}, 1.0, False),
    "no length": ("gov_report", {**V1, "length": None}, 0.999999995, False),
    "answers as numbers": ("passage_count", {**V1, "pred": "3 of 4", "answers": [3]}, 0.5, False),
    "no classes": ("trec", {**V1, "all_classes": None}, 0.0, True),
    "classes left out": ("trec", _without(V1, "all_classes"), 0.0, True),
    "classes": ("trec", {**V1, "all_classes": ["Paris", "Rome"]}, 1.0, False),
    "no paragraph": ("passage_retrieval_en", {**V1, "pred": "Paragraph 3"}, 0.0, True),
    "null": ("qasper", {**V1, "pred": None}, 0.0, False),
    "empty": ("triviaqa", {**V1, "pred": ""}, 0.0, False),
}


@pytest.mark.parametrize("case", V1_ROWS)
def test_longbench(case: str, store: Store, write_lines: Callable, first_scores: Callable, tmp_path: Path) -> None:
    task, row, score, stops = V1_ROWS[case]
    file = write_lines(f"m/{task}.jsonl", [row, row])
    run = import_predictions(store, "longbench", file.parent, model="m").run_id
    assert first_scores(store, run, "longbench", task) == [(pytest.approx(score, abs=1e-12), stops)] * 2
    _back(store, "longbench", run, file, tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "task", "e"),
    [
        ("qasper.jsonl", "qasper", False),
        ("llama-2_qasper.jsonl", "qasper", False),
        ("model.1.qasper.pred.jsonl", "qasper", False),
        ("qasper-snapkv.jsonl", "qasper", False),
        ("repobench-p_full.jsonl", "repobench-p", False),
        ("qasper_e-snapkv.jsonl", "qasper_e", False),
        ("x_qasper.jsonl", "qasper_e", True),
        ("nq.jsonl", "nq", False),
    ],
)
def test_a_models_name_beside_the_tasks(name: str, task: str, e: bool, store: Store, write_lines: Callable) -> None:
    file = write_lines(f"m/{name}", [V1])
    for other in ("result.json", "README.md", ".part.jsonl"):
        file.with_name(other).write_text("{}")
    write_lines("m/more/qasper.jsonl", [V1])
    imported = import_predictions(store, "longbench", file.parent, model="m", e=e)
    assert imported.counts == {task: 1}
    assert set(imported.ignored) == {"result.json", "README.md", ".part.jsonl", "more/"}


def test_one_file_alone(store: Store, write_lines: Callable, tmp_path: Path) -> None:
    """L-Eval's scorer is given a file, and not all that lies beside one need be a task's."""
    file = write_lines("m/coursera.pred.jsonl", [_le("AB", "AB", **EXAM)])
    write_lines("m/turbo.pred.jsonl", [V1])
    imported = import_predictions(store, "leval", file, model="m")
    assert (imported.counts, imported.ignored) == ({"coursera": 1}, ())
    _back(store, "leval", imported.run_id, file, tmp_path / "out")


def test_lone_carriage_returns_end_lines(store: Store, tmp_path: Path, scored: Callable) -> None:
    file = tmp_path / "m/qasper.jsonl"
    file.parent.mkdir()
    for end in (b"\r", b""):
        file.write_bytes(b"\r".join([json.dumps(V1).encode(), b"", json.dumps({**V1, "pred": "no"}).encode()]) + end)
        run = import_predictions(store, "longbench", file.parent, model="m").run_id
        assert scored(store, "longbench", run)["qasper"]["f1"] == 50.0
        _back(store, "longbench", run, file, tmp_path / f"out{len(end)}")


def test_a_lone_surrogate_is_no_punctuation(store: Store, write_lines: Callable, first_scores: Callable) -> None:
    """The results file cannot hold one; "?" in its place would vanish from the answer, and make it right."""
    folder = write_lines("m/qasper.jsonl", [{**V1, "pred": "\ud800Paris"}, {**V1, "answers": ["Paris\udfff"]}]).parent
    run = import_predictions(store, "longbench", folder, model="m").run_id
    assert first_scores(store, run, "longbench", "qasper") == [(0.0, False)] * 2


V2_ROWS: dict[str, tuple[list[Row], float, float]] = {
    "only what is read": ([{"difficulty": "easy", "length": "short", "judge": False}], 0.0, 25.0),
    "numbers as ids": ([{**V2, "_id": 5}, {**V2, "_id": 6, "pred": "B", "judge": 0}], 50.0, 50.0),
    "no ids": ([_without(V2, "_id"), {**_without(V2, "_id"), "pred": "B", "judge": False}], 50.0, 50.0),
    "twice": ([V2, V2, {**V2, "pred": None, "judge": False, "response": None}], 66.7, 75.0),
    "at the second attempt": ([{"_id": "q1", "error": "timeout"}, V2], 100.0, 100.0),
    "an answer known later": ([{**V2, "answer": None, "pred": "B", "judge": False}, V2], 50.0, 50.0),
    "another spelling of the letter": ([{**V2, "pred": "(a)"}], 100.0, 100.0),
    "no letter": ([{**V2, "pred": "N/A", "judge": False}, {**V2, "pred": 3, "judge": False}], 0.0, 25.0),
    "no judgement": ([{**V2, "judge": None}, {**_without(V2, "judge"), "pred": "B"}], 50.0, 50.0),
    "judged in numbers": ([{**V2, "judge": 1}, {**V2, "pred": "B", "judge": "0"}], 50.0, 50.0),
    "no pred": ([{**_without(V2, "pred"), "response": "The correct answer is (A)"}], 100.0, 100.0),
    "neither": ([_without(V2, "pred")], 100.0, 100.0),
    "odd fields": ([{**V2, "question": 3, "choice_A": 1, "choice_B": None, "domain": 5, "response": []}], 100.0, 100.0),
    "odd groups": ([{**V2, "difficulty": None, "length": 7}], 100.0, 100.0),
}


@pytest.mark.parametrize("case", V2_ROWS)
@pytest.mark.parametrize("array", [False, True])
def test_longbench_v2(
    case: str, array: bool, store: Store, write_lines: Callable, scored: Callable, tmp_path: Path
) -> None:
    rows, accuracy, compensated = V2_ROWS[case]
    file = write_lines("results/m.jsonl", rows)
    if array:
        file.write_text(json.dumps(rows, indent=2) + "\n" if len(rows) > 1 else json.dumps(rows))
    run = import_predictions(store, "longbench_v2", file, model="m").run_id
    numbers = scored(store, "longbench_v2", run)["mcq"]
    assert (numbers["accuracy"], numbers["compensated"]) == (accuracy, compensated)
    group = "hard" if case == "odd groups" else "easy"
    assert numbers[f"accuracy/{group}"] == accuracy
    _back(store, "longbench_v2", run, file, tmp_path / "out")


def test_a_letter_that_is_none_is_told(store: Store, write_lines: Callable) -> None:
    file = write_lines("m.jsonl", [{**V2, "pred": "N/A", "judge": False}])
    (note,) = import_predictions(store, "longbench_v2", file, model="m").notes
    assert "m.jsonl, line 1: 'pred' is 'N/A', which is not one of A, B, C, D" in note


LV_ROWS: dict[str, tuple[str, Row, float, bool]] = {
    "only what is read": ("factrecall_en_16k", {"pred": "old", "answers": ["old"]}, 1.0, False),
    "no keywords": ("loogle_SD_mixup_16k", {**_without(LV, "gold_ans"), "pred": "old"}, 2 / 3, False),
    "keywords": ("loogle_SD_mixup_16k", {**LV, "pred": "old"}, 0.0, False),
    "keywords of F1": ("factrecall_en_16k", {**LV, "gold_ans": ["bridge"]}, 1.0, False),
    "an empty list": ("loogle_SD_mixup_16k", {**LV, "gold_ans": []}, 1.0, False),
    "a question that is no text": ("loogle_SD_mixup_16k", {**LV, "input": 3, "length": None}, 1.0, False),
}


@pytest.mark.parametrize("case", LV_ROWS)
def test_lveval(case: str, store: Store, write_lines: Callable, first_scores: Callable, tmp_path: Path) -> None:
    task, row, score, stops = LV_ROWS[case]
    file = write_lines(f"m/{task}.jsonl", [row])
    run = import_predictions(store, "lveval", file.parent, model="m").run_id
    assert first_scores(store, run, "lveval", task) == [(pytest.approx(score, abs=1e-12), stops)]
    _back(store, "lveval", run, file, tmp_path / "out")


def _le(said: object, right: object, **more: object) -> Row:
    return {"query": "?", "gt": right, "prompt": "p", "m_pred": said, "evaluation": "f1", **more}


EXAM = {"evaluation": "exam"}
LE_ROWS: dict[str, tuple[str, Row, float, bool]] = {
    "only what is read": ("narrative_qa", _without(_le("Paris", "Paris"), "query", "prompt"), 1.0, False),
    "keys in another order": ("narrative_qa", dict(reversed(_le("Paris", "Paris").items())), 1.0, False),
    "several answers": ("narrative_qa", _le("Paris", "Paris", other_pred="Rome"), 1.0, False),
    "no mark": ("narrative_qa", _without(_le("Paris", "Paris"), "evaluation"), 1.0, False),
    "null mark": ("tpo", _le("B", "B", evaluation=None), 1.0, False),
    # Metric.compute of the package datasets makes text of what these tasks hand over.
    "a number right": ("narrative_qa", _le("5", 5), 1.0, False),
    "a number said": ("narrative_qa", _le(5, "5"), 1.0, False),
    "both numbers": ("topic_retrieval_longchat", _le(2.50, "2.5", **EXAM), 1.0, False),
    "several right": ("narrative_qa", _le("['Paris', 'Rome']", ["Paris", "Rome"]), 1.0, False),
    "a list said": ("topic_retrieval_longchat", _le(["Rome"], "rome", **EXAM), 1.0, False),
    "null said": ("narrative_qa", _le(None, "Paris"), 0.0, False),
}


@pytest.mark.parametrize("case", LE_ROWS)
def test_leval(case: str, store: Store, write_lines: Callable, first_scores: Callable, tmp_path: Path) -> None:
    task, row, score, stops = LE_ROWS[case]
    file = write_lines(f"m/{task}{'.pred' if stops else ''}.jsonl", [row, row])
    imported = import_predictions(store, "leval", file.parent, model="m")
    assert first_scores(store, imported.run_id, "leval", task) == [(score, stops)] * 2
    assert bool(imported.notes) == (not isinstance(row["m_pred"], str) or not isinstance(row["gt"], str))
    _back(store, "leval", imported.run_id, file, tmp_path / "out")
