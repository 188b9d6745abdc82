"""LongBench v2's 23 real questions, asked of a scripted model whose reasoning does not always close."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.bundle.hubserver import serve
from tests.command_line import Lbx

Once = Callable[[str, Callable[[Path], object]], Path]
Report = Callable[..., list[dict[str, object]]]
RIGHT, QUESTIONS = 14, 23


@pytest.fixture(scope="session")
def questions(lbx: Lbx, shared: Callable[[str], Path], upstreams: list[Path], once: Once) -> Path:
    """The unpacked bundle of bundle/longbench_v2.toml."""

    def make(folder: Path) -> None:
        with serve(shared("data/hub"), upstreams) as hub:
            served = ("--hub", hub.url, "--mirror", hub.mirror)
            for command in (
                ("bundle", Path("bundle/longbench_v2.toml"), *served, "-o", folder),
                ("unpack", "--allow-unsigned", folder / "longbench_v2.tar", "--to", folder / "bundle"),
            ):
                lbx.ok(*command)

    return once("v2", make) / "bundle"


@pytest.fixture
def ask(lbx: Lbx, questions: Path, tmp_path: Path) -> Callable[[Path], None]:
    def run(model: Path) -> None:
        lbx.ok("run", "-b", questions, "-m", model, "-t", "longbench_v2", "-o", tmp_path / "r.duckdb", "--no-plan")

    return run


@pytest.fixture
def report(lbx: Lbx, tmp_path: Path) -> Report:
    def read(name: str, **wanted: object) -> list[dict[str, object]]:
        rows = json.loads(lbx("report", tmp_path / "r.duckdb", name, "--format", "json").stdout)
        return [row for row in rows if all(row[key] == value for key, value in wanted.items())]

    return read


@pytest.fixture
def half(shared: Callable[[str], Path]) -> Path:
    """14 right answers and 9 whose reasoning never closes."""
    return shared("cases/v2-think/half.json")


def _table(tmp_path: Path, half: Path, unclosed: str) -> Path:
    """The answers of ``half`` with another text in place of each unclosed reasoning."""
    answers: Mapping[str, str] = json.loads(half.read_text())
    path = tmp_path / "table.json"
    path.write_text(json.dumps({key: text if "</think>" in text else unclosed for key, text in answers.items()}))
    return path


def test_unclosed_reasoning_is_wrong(
    lbx: Lbx, ask: Callable[[Path], None], report: Report, half: Path, tmp_path: Path
) -> None:
    """In the task's number, on the board, and in the official script's files."""
    ask(half)
    (number,) = report("task_scores", metric="accuracy")
    assert (number["n"], number["official"], number["answered"]) == (QUESTIONS, 60.9, QUESTIONS)
    (row,) = report("board_longbench_v2", model="half")
    assert (row["overall"], row["note"]) == (60.9, "reasoning closed in 14 of 23")
    for what, place in (((), "half.jsonl"), (("--results",), "result.txt")):
        lbx.ok("export", "longbench_v2", tmp_path / "r.duckdb", "-o", tmp_path / "out", *what)
        lines = (tmp_path / "out" / place).read_text().splitlines()
        if what:
            assert lines[1].split("\t")[:2] == ["half", "60.9"]
        else:
            judged = [json.loads(line)["judge"] for line in lines]
            assert (judged.count(True), judged.count(False)) == (RIGHT, QUESTIONS - RIGHT)


@pytest.mark.parametrize("closed", ["<think>Short.</think>", "<think></think>\n"])
def test_an_answer_that_ends_with_its_reasoning_is_wrong(
    closed: str, ask: Callable[[Path], None], report: Report, half: Path, tmp_path: Path
) -> None:
    ask(_table(tmp_path, half, closed))
    (number,) = report("task_scores", metric="accuracy")
    assert (number["n"], number["official"]) == (QUESTIONS, 60.9)


def test_an_output_without_a_character_counts_as_officially(
    ask: Callable[[Path], None], report: Report, half: Path, tmp_path: Path
) -> None:
    """pred.py takes it for a failed call; the board says how many are left, and ranks it behind whole runs."""
    ask(_table(tmp_path, half, ""))
    ask(half)
    (number,) = report("task_scores", metric="accuracy", model="table")
    assert (number["n"], number["official"], number["asked"]) == (RIGHT, 100.0, QUESTIONS)
    rows = [row for row in report("board_longbench_v2") if row["run_id"]]
    assert [(row["model"], row["overall"]) for row in rows] == [("half", 60.9), ("table", 100.0)]
    assert rows[1]["note"] == "14 of 23"


def test_failed_calls_alone_leave_the_denominator(
    ask: Callable[[Path], None], report: Report, half: Path, tmp_path: Path, lbx: Lbx, questions: Path
) -> None:
    model = tmp_path / "table.json"
    answers = json.loads(half.read_text())
    failing = {key: text if "</think>" in text else {"error": "no answer"} for key, text in answers.items()}
    model.write_text(json.dumps(failing))
    done = lbx("run", "-b", questions, "-m", model, "-t", "longbench_v2", "-o", tmp_path / "r.duckdb", "--no-plan")
    assert done.returncode == 3
    (row,) = report("board_longbench_v2", model="table")
    assert (row["overall"], row["note"]) == (100.0, "14 of 23")
