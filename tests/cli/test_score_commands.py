"""``lbx score`` and an import's scoring, disturbed: no process survives, nothing is lost, all is said in words."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from tests.command_line import Lbx, fails

ROWS = 600
WORDS = 1000
SCORES = "SELECT task, sample_id, metric, score FROM scores ORDER BY ALL"


@pytest.fixture(scope="module")
def predictions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So many long summaries that two processes need a while for them."""
    chance, folder = random.Random(0), tmp_path_factory.mktemp("pred") / "model"
    words = [f"word{number}" for number in range(500)]
    folder.mkdir()
    with (folder / "gov_report.jsonl").open("w") as file:
        for _ in range(ROWS):
            pred, answer = (" ".join(chance.choices(words, k=WORDS)) for _ in range(2))
            row = {"pred": pred, "answers": [answer], "all_classes": None, "length": WORDS}
            file.write(json.dumps(row) + "\n")
    return folder


@pytest.fixture(scope="module")
def imported(lbx: Lbx, predictions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "results.duckdb"
    lbx.ok("import", "longbench", predictions, "--model-name", "model", "-o", path)
    return path


def start(*args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lbx.cli", *map(str, args), "--processes", "2"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def parents() -> dict[int, int]:
    """The parent of every process that is alive."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it has just ended
            continue
        if state != "Z":
            found[int(path.parent.name)] = int(parent)
    return found


def workers(process: subprocess.Popen[str]) -> set[int]:
    """The processes that score, as soon as there are two: children of a child."""
    for _ in range(1000):
        alive = parents()
        children = {pid for pid, parent in alive.items() if parent == process.pid}
        found = {pid for pid, parent in alive.items() if parent in children}
        if len(found) == 2:
            return found
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.02)
    raise AssertionError("no two processes score")


def all_end(pids: set[int]) -> bool:
    for _ in range(500):
        if not pids & parents().keys():
            return True
        time.sleep(0.02)
    return False


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_process_outlives_a_stopped_command(
    imported: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    path = shutil.copy(imported, tmp_path / "results.duckdb")
    process = start("score", path)
    scoring = workers(process)
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert all_end(scoring)
    assert rows(path, SCORES) == rows(imported, SCORES)


def test_a_killed_worker_is_an_error_in_words(lbx: Lbx, imported: Path, tmp_path: Path) -> None:
    path = shutil.copy(imported, tmp_path / "results.duckdb")
    process = start("score", path)
    scoring = workers(process)
    subprocess.run(["kill", "-9", str(max(scoring))], check=True)
    _, said = process.communicate()
    assert process.returncode == 1
    assert "was killed" in said
    assert "--processes 1" in " ".join(said.split())
    assert "Traceback" not in said
    assert all_end(scoring)
    assert json.loads(lbx("score", path, "--json").stdout) == {"scored": ROWS}
    assert rows(path, SCORES) == rows(imported, SCORES)


def test_a_stopped_import_is_not_done_and_goes_on(lbx: Lbx, predictions: Path, imported: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    command = ("import", "longbench", predictions, "--model-name", "model", "-o", path)
    process = start(*command)
    scoring = workers(process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == 143
    assert "Run the same command again to continue" in " ".join(said.split())
    assert all_end(scoring)
    assert rows(path, "SELECT status FROM runs") == [("interrupted",)]
    done = lbx(*command, "--json")
    assert json.loads(done.stdout)["counts"] == {"gov_report": ROWS}
    assert rows(path, "SELECT status FROM runs") == [("done",)]
    assert rows(path, SCORES) == rows(imported, SCORES)


def test_an_unknown_run_is_not_scored(lbx: Lbx, imported: Path) -> None:
    fails(lbx("score", imported, "--run", "other"), 2, "other", str(rows(imported, "SELECT run_id FROM runs")[0][0]))


def test_only_results_files_are_scored(lbx: Lbx, predictions: Path, tmp_path: Path) -> None:
    """DuckDB itself opens a JSON lines file as if it were a database."""
    source = predictions / "gov_report.jsonl"
    path = shutil.copy(source, tmp_path / "results.jsonl")
    for command in (
        ("score", path),
        ("report", path),
        ("import", "longbench", predictions, "--model-name", "m", "-o", path),
    ):
        fails(lbx(*command), 1, "is not a results file")
    assert path.read_bytes() == source.read_bytes()
