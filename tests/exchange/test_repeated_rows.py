"""Rows that answer a question again, as a second start of LongBench's scripts appends them to their file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.exchange.exporting import export
from lbx.results import Store
from tests.exchange.import_parts import import_predictions, real_bundle

Shared = Callable[[str], Path]
V2 = {"_id": "q", "difficulty": "easy", "length": "short", "answer": "A", "pred": "A", "judge": True}


def _answers(store: Store, run_id: str) -> list[tuple[int, int]]:
    """(iteration, answers)."""
    return store.query(
        "SELECT iteration, count(*) FROM generations WHERE run_id = ? GROUP BY ALL ORDER BY ALL", [run_id]
    ).rows


@pytest.mark.parametrize(("case", "again", "first", "lines"), [("dup", 5, 5, "6-10"), ("resumed", 80, 200, "81-160")])
def test_repeated_rows_are_named_and_count_as_officially(
    case: str, again: int, first: int, lines: str, shared: Shared, store: Store, scored: Callable, tmp_path: Path
) -> None:
    """eval.py counts every row; a question that is answered twice is one question."""
    folder = shared(f"cases/import/{case}")
    imported = import_predictions(store, "longbench", folder, model="m")
    (note,) = imported.notes
    start = lines.partition("-")[0]
    assert f"line {start}: {again} rows answer a question again (lines {lines})" in note
    assert _answers(store, imported.run_id) == [(0, first), (1, again)]
    ((task, rows),) = imported.counts.items()
    assert rows == first + again
    (file,) = folder.iterdir()
    with Store(tmp_path / "alone.duckdb") as other:
        alone = import_predictions(other, "longbench", _each_row_alone(file, tmp_path), model="n").run_id
        assert _answers(other, alone) == [(0, first + again)]
        numbers = scored(other, "longbench", alone)[task]
    assert scored(store, "longbench", imported.run_id)[task] == numbers
    (out,) = export(store, "longbench", imported.run_id, tmp_path / "out").files
    assert out.read_bytes() == file.read_bytes()


def _each_row_alone(file: Path, tmp_path: Path) -> Path:
    """The same rows, told apart by a length that no score of theirs depends on."""
    rows = [json.loads(line) for line in file.read_text("utf-8-sig").splitlines() if line.strip()]
    copy = tmp_path / "alone" / file.name
    copy.parent.mkdir()
    copy.write_text("".join(json.dumps({**row, "length": n + 1}) + "\n" for n, row in enumerate(rows)))
    return copy.parent


def test_the_bundle_tells_repeated_rows_from_repeated_questions(
    shared: Shared, store: Store, tmp_path: Path, write_lines: Callable
) -> None:
    """multifieldqa_zh has a question twice: its two rows are two questions, however often the file is written."""
    bundle = real_bundle(shared, tmp_path / "bundle")
    file = shared("data/predictions/longbench/llama2-7b-chat-4k/multifieldqa_zh.jsonl")
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    whole = import_predictions(store, "longbench", write_lines("a/multifieldqa_zh.jsonl", rows).parent, model="a",
                               bundle=bundle)  # fmt: skip
    assert _answers(store, whole.run_id) == [(0, 200)] and not whole.notes
    twice = write_lines("b/multifieldqa_zh.jsonl", rows[:80] + rows).parent
    imported = import_predictions(store, "longbench", twice, model="b", bundle=bundle)
    assert _answers(store, imported.run_id) == [(0, 200), (1, 80)] and imported.unmatched == 0
    (note,) = imported.notes
    assert "line 81: 80 rows answer a question again (lines 81-160)" in note


def test_longbench_v2_names_them_too(store: Store, write_lines: Callable, scored: Callable) -> None:
    file = write_lines("m.jsonl", [V2, {**V2, "_id": "r"}, {**V2, "pred": "B", "judge": False}])
    imported = import_predictions(store, "longbench_v2", file, model="m")
    (note,) = imported.notes
    assert "line 3: 1 row answers a question again (line 3), 1 of them with another answer; every row counts" in note
    assert scored(store, "longbench_v2", imported.run_id)["mcq"]["accuracy"] == 66.7


@pytest.mark.parametrize("task", ["trec", "qasper"])
def test_questions_alike_are_not_repeated_rows(task: str, shared: Shared, store: Store) -> None:
    """The data has a few rows with the same answers and length."""
    file = shared(f"data/predictions/longbench/llama2-7b-chat-4k/{task}.jsonl")
    imported = import_predictions(store, "longbench", file, model="m")
    assert _answers(store, imported.run_id) == [(0, 200)] and not imported.notes


def test_rows_without_a_length_may_be_any_question(store: Store, write_lines: Callable) -> None:
    row = {"pred": "Paris", "answers": ["Paris"], "all_classes": None}
    imported = import_predictions(store, "longbench", write_lines("in/qasper.jsonl", [row] * 3).parent, model="m")
    assert _answers(store, imported.run_id) == [(0, 3)] and not imported.notes
