"""The exit codes of real processes; and that the command line called inside the tests says the same, to the letter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import profiles
from tests.command_line import Lbx

SAME = [
    (0, ("--version",)),
    (0, ("tasks", "--bundle", "{bundle}", "--json")),
    (0, ("report", "{results}", "leaderboard")),
    (0, ("report", "{results}", "--format", "markdown")),
    (0, ("sql", "{results}", "SELECT 'ключ' AS k, chr(27) AS c FROM runs", "--format", "csv")),
    (0, ("score", "{results}", "--json", "--processes", "1")),
    (1, ("sql", "{results}", "DELETE FROM runs")),
    (1, ("report", "none.duckdb")),
    (1, ("verify", "{archive}")),
    (1, ("unpack", "none.tar", "--allow-unsigned", "--to", "x")),
    (1, ("tasks", "--bundle", "nowhere")),
    (2, ("report", "{results}", "nothing")),
    (2, ("run", "--bundle", "{bundle}", "--model", "nope.gguf", "--tasks", "needle", "-o", "r.duckdb")),
    (2, ("bundle", "none.toml")),
    (2, ("export", "longbench")),
    (2, ("import", "nobench", "pred", "--model-name", "m", "-o", "r.duckdb")),
    (2, ("nothing",)),
]


@pytest.fixture(scope="session")
def results(lbx: Lbx, bundle: Path, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "results.duckdb"
    done = lbx.process("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "-o", path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize(
    ("code", "command"), profiles.every(3, SAME), ids=lambda value: "" if isinstance(value, int) else value[0]
)
def test_a_process_says_what_the_call_in_this_one_says(
    lbx: Lbx, bundle: Path, archive: Path, results: Path, tmp_path: Path, code: int, command: tuple[str, ...]
) -> None:
    words = [word.format(bundle=bundle, archive=archive, results=results) for word in command]
    process, call = lbx.process(*words, cwd=tmp_path), lbx(*words, cwd=tmp_path)
    assert (process.returncode, call.returncode) == (code, code), process.stderr
    assert process.stdout == call.stdout
    assert process.stderr == call.stderr
    assert process.stdout if code == 0 else process.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure(results: Path, tmp_path: Path, closed: str) -> None:
    """As of a daemon. What is opened later must not take their numbers: a library prints there."""
    code = (
        "import atexit, os; from lbx.cli.main import main; places = [f'/proc/self/fd/{n}' for n in range(3)]; "
        "atexit.register(lambda: open('places', 'w').write(' '.join(map(os.readlink, places)))); main()"
    )
    report = ("sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", code, "report", results, "leaderboard")
    assert subprocess.run(report, check=False, cwd=tmp_path, capture_output=True).returncode == 0
    opened = (tmp_path / "places").read_text().split()
    assert opened.count("/dev/null") >= closed.count("&-")
    assert all(place == "/dev/null" or place.startswith("pipe:") for place in opened[1:])


def test_failed_samples_end_a_process_with_3(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    model = tmp_path / "fails.jsonl"
    model.write_text('{"*": {"error": "the card caught fire"}}')
    run = ("run", "-b", bundle, "-m", model, "-t", "needle/single_en", "-n", 2, "-o", tmp_path / "r.duckdb")
    assert lbx.process(*run).returncode == 3
    again = lbx(*run)  # asks nobody, and must not say that all is answered
    assert again.returncode == 3 and "All prompts already have answers" in again.stderr
    assert "2 samples failed: " in again.stderr and "repeat the command with --retry-failed" in again.stderr


@pytest.mark.parametrize("limits", [("--max-prompt-tokens", 20), ("--context-window", 40)])
def test_prompts_that_do_not_fit_are_not_offered_to_be_retried(
    lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path, limits: tuple[str, int]
) -> None:
    results = tmp_path / "r.duckdb"
    run = ("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "-n", 2, "--name", "r", "-o", results)
    done = lbx(*run, *limits)
    assert done.returncode == 3
    said = " ".join(done.stderr.split())
    assert "they would fail again because of their prompts, so change what the reason names." in said
    assert "--retry-failed" not in said
    (reason,) = {row["error"] for row in lbx.rows(results, "SELECT error FROM generations")}
    assert "--max-prompt-tokens is 20. Raise" in reason or "context window is 40 tokens" in reason


def test_only_failures_of_other_causes_are_offered_to_be_retried(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    model, results = tmp_path / "fails.jsonl", tmp_path / "r.duckdb"
    model.write_text('{"*": {"error": "the card caught fire"}}')
    done = lbx("run", "-b", bundle, "-m", model, "-t", "needle/single_en", "--context-window", 600, "-o", results)
    (row,) = lbx.rows(results, "SELECT count(*) n, count(*) FILTER (error_type = 'PromptError') unfit FROM generations")
    assert 0 < row["unfit"] < row["n"]
    said = " ".join(done.stderr.split())
    assert f"{row['unfit']} of them would fail again because of their prompts" in said
    assert said.endswith("; repeat the command with --retry-failed to retry the others.")
