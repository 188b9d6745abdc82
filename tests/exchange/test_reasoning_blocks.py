"""Reasoning inside imported answers: named, or on demand kept apart from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.exchange.exporting import export
from lbx.exchange.importing import split_blocks
from lbx.results import Store
from tests.command_line import Lbx, fails
from tests.exchange.import_parts import import_predictions

Shared = Callable[[str], Path]


@pytest.mark.parametrize(
    ("text", "reasoning", "answer", "closed"),
    [
        ("Tuesday", None, "Tuesday", None),
        ("<think>Hm.</think>\n\nTuesday", "Hm.", "Tuesday", True),
        ("<think>\n\n</think>\n\nTuesday", "", "Tuesday", True),
        ("<think>Hm. It goes on", "Hm. It goes on", "", False),
        ("It says so.</think>\nTuesday", "It says so.", "Tuesday", True),
        ("<think>a</think>\n\n<think>b</think>\n\nTuesday", "a\n\nb", "Tuesday", True),
        ("<reasoning>It says so.</reasoning>Tuesday", "It says so.", "Tuesday", True),
        (" <thinking>x</thinking> Tuesday", "x", "Tuesday", True),
        ("<THINK>x</THINK>Tuesday", "x", "Tuesday", True),
        ("[THINK]x[/THINK]Tuesday", "x", "Tuesday", True),
        ("<think>x</think>The tag </think> ends it.", "x", "The tag </think> ends it.", True),
        ("<b>Tuesday</b>", None, "<b>Tuesday</b>", None),
        ("a < b, I think > 3", None, "a < b, I think > 3", None),
    ],
)
def test_blocks(text: str, reasoning: str | None, answer: str, closed: bool | None) -> None:
    assert split_blocks(text) == (reasoning, answer, closed)


def test_blocks_are_named(shared: Shared, store: Store) -> None:
    imported = import_predictions(store, "longbench", shared("cases/import/think"), model="m")
    (note,) = imported.notes
    assert "5 of 5 answers contain a reasoning block" in note and "--strip-reasoning" in note
    outputs = store.query("SELECT output FROM generations").rows
    assert all(output.startswith("<think>") for (output,) in outputs)


def test_blocks_are_kept_apart(shared: Shared, store: Store, scored: Callable, tmp_path: Path) -> None:
    folder = shared("cases/import/think")
    plain = import_predictions(store, "longbench", folder, model="m")
    stripped = import_predictions(store, "longbench", folder, model="m", strip_reasoning=True)
    assert plain.run_id != stripped.run_id
    (note,) = stripped.notes
    assert "5 answers" in note and "reasoning" in note
    rows = store.query(
        "SELECT output, reasoning, reasoning_closed FROM generations WHERE run_id = ? ORDER BY created_at",
        [stripped.run_id],
    ).rows
    assert rows[0] == (
        "Ground truth is not established in the paper",
        "The paper says a lot about many things, in many words.",
        True,
    )
    assert scored(store, "longbench", stripped.run_id)["qasper"]["f1"] == 100.0
    assert scored(store, "longbench", plain.run_id)["qasper"]["f1"] < 100.0
    (out,) = export(store, "longbench", stripped.run_id, tmp_path / "out").files
    assert out.read_bytes() == (folder / "qasper.jsonl").read_bytes()


V2 = {"difficulty": "easy", "length": "short"}
BEFORE, BEHIND = "The correct answer is (A)", "The correct answer is (B)"


def v2_row(name: str, response: str, **more: object) -> dict[str, object]:
    return {"_id": name, **V2, "response": response, **more}


def test_longbench_v2_reads_the_letter_behind_the_block(store: Store, write_lines: Callable, scored: Callable) -> None:
    """pred.py took the letter in the reasoning; unclosed reasoning has none, and is wrong."""
    thought = f"<think>{BEFORE}?</think>{BEHIND}"
    rows = [
        v2_row("1", thought, answer="B", pred="A", judge=False),
        v2_row("2", thought, answer="A", pred="A", judge=True),
        v2_row("3", f"<think>{BEFORE}", answer="A", pred="A", judge=True),
    ]
    file = write_lines("m.jsonl", rows)
    plain = import_predictions(store, "longbench_v2", file, model="m").run_id
    stripped = import_predictions(store, "longbench_v2", file, model="m", strip_reasoning=True).run_id
    assert scored(store, "longbench_v2", plain)["mcq"]["accuracy"] == 66.7
    outputs = store.query("SELECT output FROM generations WHERE run_id = ? ORDER BY sample_id", [stripped]).rows
    assert outputs == [(BEHIND,), (BEHIND,), ("",)]


def test_longbench_v2_without_the_answer_is_refused(store: Store, write_lines: Callable) -> None:
    """Only ``judge`` tells what is right, and it is about another letter."""
    file = write_lines("m.jsonl", [v2_row("1", f"<think>{BEFORE}?</think>{BEHIND}", pred="A", judge=False)])
    with pytest.raises(UsageError, match=r"line 1: .*'answer'"):
        import_predictions(store, "longbench_v2", file, model="m", strip_reasoning=True)


def test_the_command(shared: Shared, tmp_path: Path) -> None:
    out = tmp_path / "r.duckdb"
    folder = shared("cases/import/think")
    for more, official in (((), 70.23), (("--strip-reasoning",), 100.0)):
        done = Lbx()("import", "longbench", folder, "--model-name", "m", "-o", out, "--json", *more)
        assert done.returncode == 0, done.stderr
        run = json.loads(done.stdout)["run_id"]
        rows = json.loads(Lbx()("report", out, "task_scores", "--run", run, "--format", "json").stdout)
        assert [row["official"] for row in rows] == [official]
    fails(Lbx()("import", "leval_judge", folder, "-o", out, "--strip-reasoning"), 2, "leval_judge has none")
