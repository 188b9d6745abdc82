"""``lbx parity --depth -o``: rows of finished texts survive a kill, and the same command reads only the others."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lbx.base.exit_codes import ExitCode
from tests.command_line import Done, Lbx, fails
from tests.parity.test_measuring import F32
from tests.small_disks import small_disk

TEXTS = 3
ROWS = """
    SELECT model, text, start, stop, positions, round(kl, 9) AS kl, same_top, round(log_prob, 5) AS log_prob,
           text_sha256
    FROM depth_parity JOIN depth_pairs USING (pair_id) ORDER BY ALL
"""
ENDING = """
import os, signal, sys
from lbx.cli.main import main
from lbx.running import depth

function, count, name = sys.argv[1:4]
original, calls = getattr(depth, function), [0]

def counted(*arguments):
    result = original(*arguments)
    calls[0] += 1
    if calls[0] == int(count):
        os.kill(os.getpid(), getattr(signal, name))
    return result

setattr(depth, function, counted)
sys.argv = ["lbx", *sys.argv[4:]]
main()
"""
"""A command that gets a signal after the n-th call of a function of ``lbx.running.depth``."""


@pytest.fixture(scope="module")
def lbx() -> Lbx:
    return Lbx()


@pytest.fixture(scope="module")
def command(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """A comparison of two candidates on ``TEXTS`` texts, without the output."""
    tmp_path = tmp_path_factory.mktemp("command")
    cards = []
    for name, options in (("exact", F32), ("half", ""), ("moved", f"{F32}rope_freq_base = 10100.0\n")):
        cards.append(tmp_path / f"{name}.toml")
        cards[-1].write_text(
            f'name = "{name}"\nbackend = "llamacpp"\n[weights]\npath = "{tiny / "tiny.gguf"}"\n[options]\n{options}'
        )
    texts: list[object] = []
    for seed in range(TEXTS):
        words = random.Random(seed).choices(["one", "two", "the river", "Paris", "is", "of a", "7"], k=700)
        (tmp_path / f"{seed}.txt").write_text(" ".join(words))
        texts += ["--text", tmp_path / f"{seed}.txt"]
    return ["parity", *cards, "--depth", *texts]


@pytest.fixture(scope="module")
def undisturbed(lbx: Lbx, command: list[object], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    results = tmp_path_factory.mktemp("undisturbed") / "r.duckdb"
    lbx.ok(*command, "-o", results)
    return lbx.rows(results, ROWS)


def ended(function: str, count: int, name: str, *arguments: object) -> Done:
    """The command, which a signal ends after the n-th call of a function."""
    return subprocess.run(
        [sys.executable, "-c", ENDING, function, str(count), name, *map(str, arguments)],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=300,
    )  # fmt: skip


def distributions(results: Path) -> list[Path]:
    return [*Path(f"{results}.depth").glob("*/*.distributions")]


def test_a_repeated_command_reads_nothing(lbx: Lbx, command: list[object], tmp_path: Path) -> None:
    results = tmp_path / "r.duckdb"
    done = lbx.ok(*command, "-o", results)
    assert "of disk" in done.stderr
    assert not Path(f"{results}.depth").exists()
    stored = lbx.rows(results, ROWS)
    assert [(row["model"], row["start"]) for row in stored] == [
        (model, start) for model in ("half", "moved") for _ in range(TEXTS) for start in (0, 1024)
    ]
    again = lbx.ok(*command, "-o", results)
    assert "6 texts had been compared before" in again.stderr and "of disk" not in again.stderr
    assert again.stdout == done.stdout
    assert lbx.rows(results, ROWS) == stored
    # The report of the file is that of the command
    assert lbx.ok("report", results, "depth_parity").stdout in done.stdout


def test_a_further_candidate_joins_the_comparison(
    lbx: Lbx, command: list[object], undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    results = tmp_path / "r.duckdb"
    parity, first, half, moved, *rest = command
    lbx.ok(parity, first, half, *rest, "-o", results)
    done = lbx.ok(parity, first, half, moved, *rest, "-o", results)
    assert "3 texts had been compared before" in done.stderr
    assert lbx.rows(results, ROWS) == undisturbed
    assert len(lbx.rows(results, "SELECT DISTINCT comparison_id FROM depth_pairs")) == 1
    lbx.ok(parity, first, half, *rest, "--length", 1024, "-o", results)
    assert len(lbx.rows(results, "SELECT DISTINCT comparison_id FROM depth_pairs")) == 2


@pytest.mark.parametrize(
    ("function", "count", "kept", "before"),
    [
        ("_read_text", 4, 1, 0),  # after a look at each candidate, the reference begins the second text
        ("_save", 2, 0, 0),  # the first text's last array is written, and the file is not in its place
        ("write_depth_rows", 1, TEXTS, 1),
        ("write_depth_rows", 5, TEXTS, 5),
        ("_read_candidate", 3, TEXTS, 0),
    ],
)
def test_a_killed_command_continues(
    lbx: Lbx,
    command: list[object],
    undisturbed: list[dict[str, Any]],
    tmp_path: Path,
    function: str,
    count: int,
    kept: int,
    before: int,
) -> None:
    results = tmp_path / "r.duckdb"
    done = ended(function, count, "SIGKILL", *command, "-o", results)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(distributions(results)) == kept
    continued = lbx.ok(*command, "-o", results)
    counted = f"{before} text{'s' * (before != 1)} had been compared before"
    assert (counted in continued.stderr) == bool(before)
    assert lbx.rows(results, ROWS) == undisturbed
    assert not Path(f"{results}.depth").exists()


def test_an_interrupted_command_says_where_its_work_is(lbx: Lbx, command: list[object], tmp_path: Path) -> None:
    results = tmp_path / "r.duckdb"
    done = ended("write_depth_rows", 2, "SIGINT", *command, "-o", results)
    fails(
        done, ExitCode.INTERRUPTED, f"The texts so far are in {results}", "r.duckdb.depth", "Run the same command again"
    )
    assert "2 texts had been compared before" in lbx.ok(*command, "-o", results).stderr


def test_a_full_disk_leaves_nothing_half_written(lbx: Lbx, command: list[object], tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 24 * 2**20) as disk:
        results = disk / "r.duckdb"
        filler = disk / "filler"
        filler.write_bytes(bytes(20 * 2**20))
        done = lbx(*command, "-o", results)
        fails(done, ExitCode.FAILED)
        assert "disk is full" in done.stderr or "could not be written" in " ".join(done.stderr.split()), done.stderr
        filler.unlink()
        assert not list(disk.rglob("*.partial-*"))
        lbx.ok(*command, "-o", results)
        assert len(lbx.rows(results, ROWS)) == 4 * TEXTS


def test_a_refused_command_stores_nothing(
    lbx: Lbx, command: list[object], demo_gguf: Path, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    parity, first, half, moved, *rest = command
    results = tmp_path / "r.duckdb"
    refused = [parity, first, half, demo_gguf, *rest, "-o", results]
    fails(lbx(*refused), ExitCode.USAGE, "different token ids")
    assert not results.exists()
    lbx.ok(parity, first, half, *rest, "-o", results)
    fails(lbx(parity, first, moved, demo_gguf, *rest, "-o", results), ExitCode.USAGE, "different token ids")
    assert [row["model"] for row in lbx.rows(results, "SELECT model FROM depth_pairs")] == ["half"]
    assert lbx.rows(results, ROWS) == [row for row in undisturbed if row["model"] == "half"]


def test_only_a_comparison_by_position_is_stored(lbx: Lbx, command: list[object], tmp_path: Path) -> None:
    fails(lbx(*command[:3], "-o", tmp_path / "r.duckdb"), ExitCode.USAGE, "only comparisons by position")
    (tmp_path / "r.duckdb").write_text("no results file")
    fails(lbx(*command, "-o", tmp_path / "r.duckdb"), ExitCode.FAILED, "is not a results file")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fail-above", 0], "--depth compares distributions, not answers, so --fail-above would have no effect"),
        (["--positions", 3, "--max-new-tokens", 9], "so --positions and --max-new-tokens would"),
        (["--no-chat"], "not answers"),
        (["--limit", 2], "--text reads files whole, not samples, so --limit would"),
        (["--tasks", "needle"], "so --tasks would"),
    ],
)
def test_options_without_effect_are_refused(lbx: Lbx, command: list[object], options: list[object], words: str) -> None:
    fails(lbx(*command, *options), ExitCode.USAGE, words)


def test_texts_do_not_need_the_usual_bundle(
    lbx: Lbx, command: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LBX_BUNDLE", str(tmp_path))
    lbx.ok(*command[:3], *command[4:7], "--length", 1024)
