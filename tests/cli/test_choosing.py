"""--limit, --documents, --sample, --ids and --threads on real command lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Lbx, fails

TASK = "needle/single_en"
IDS = [
    f"len{length:04d}-depth{depth:03d}-{index:02d}" for length in (64, 128) for index in (0, 1) for depth in (0, 100)
]


@pytest.fixture
def run(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> Any:
    def call(*more: object, tasks: str = TASK, into: str = "results.duckdb") -> Any:
        path = tmp_path / into
        return lbx("run", "-b", bundle, "-m", answers, "-t", tasks, "-o", path, "--no-plan", "--json", *more)

    return call


def asked(lbx: Lbx, path: Path) -> list[str]:
    query = "SELECT task || '/' || sample_id AS name FROM generations ORDER BY ALL"
    return [row["name"] for row in lbx.rows(path, query)]


def test_a_run_goes_on_from_some_samples_to_all(lbx: Lbx, run: Any, tmp_path: Path) -> None:
    """Whatever chose the first ones: it is one run, and nothing is asked twice."""
    told = [
        json.loads(done.stdout)
        for done in (
            run("--limit", 2),
            run("--sample", 3),
            run("--ids", f"{TASK}/{IDS[-1]}"),
            run("--documents", 5),
            run(),
        )
    ]
    assert len({one["run_id"] for one in told}) == 1
    assert sum(one["answered"] for one in told) == len(asked(lbx, tmp_path / "results.duckdb")) == 8
    assert [one["answered"] + one["done_before"] for one in told] == [2, 3, 1, 5, 8]


def test_the_same_draw_everywhere(lbx: Lbx, run: Any, bundle: Path, answers: Path, tmp_path: Path) -> None:
    """run, plan, parity and the shards of submit agree on what --sample draws; another seed draws others."""
    drawn = {}
    for seed in (0, 1):
        assert run("--sample", 3, "--seed", seed, tasks="needle", into=f"{seed}.duckdb").returncode == 0
        drawn[seed] = asked(lbx, tmp_path / f"{seed}.duckdb")
    assert drawn[0] != drawn[1]
    what = ["-b", bundle, "-t", "needle", "--sample", 3, "--seed", 1]
    planned = json.loads(lbx("plan", "-m", answers, *what, "--json").stdout)
    assert planned["total"]["samples"] == len(drawn[1])
    shown = lbx(
        "submit", "slurm", "--dry-run", "--shards", 2, "-o", tmp_path / "shards", "-m", answers, *what, "--json"
    )
    plan, spec = (json.loads(shown.stdout)[name] for name in ("plan", "spec"))
    dealt = [
        f"{task.partition('/')[2]}/{name}"
        for shard in plan["shards"]
        for task, places in shard["samples"].items()
        for _, name, _ in places
    ]
    assert sorted(dealt) == drawn[1]
    assert (spec["sample"], spec["seed"]) == (3, 1)
    compared = json.loads(lbx("parity", answers, answers, *what, "--json").stdout)
    assert sum(task["prompts"] for task in compared["tasks"]) == len(drawn[1])


def test_ids_by_a_file(lbx: Lbx, run: Any, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text(f"{IDS[0]}\n\n {TASK}/{IDS[3]} \r\n")
    done = run("--ids", f"@{tmp_path / 'ids.txt'}", "--ids", f"{IDS[5]},{IDS[0]}", tasks=f"{TASK},needle/multikey_en")
    assert done.returncode == 0, done.stderr
    names = [f"multikey_en/{IDS[i]}" for i in (0, 5)] + [f"single_en/{IDS[i]}" for i in (0, 3, 5)]
    assert asked(lbx, tmp_path / "results.duckdb") == sorted(names)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--limit", 0), "greater than or equal to 1"),
        (("--documents", -1), "greater than or equal to 1"),
        (("--sample", 0), "greater than or equal to 1"),
        (("--sample", "few"), "should be a valid integer"),
        (("--seed", -1), "greater than or equal to 0"),
        (("--threads", 0), "greater than or equal to 1"),
        (("--threads", 513), "is too high: llama.cpp allows at most 512"),
        (
            ("--threads", 4),
            "--threads does not apply to oracle: its backend scripted does not compute in this process.",
        ),
        (("--sample", 2, "--documents", 2), "--documents and --sample exclude each other."),
        (("--ids", IDS[0], "--limit", 2), "--ids and --limit exclude each other."),
        (("--ids", ""), "--ids names no sample."),
        (("--ids", "len0064-depth000-09"), f"No sample len0064-depth000-09 in {TASK}. Did you mean {IDS[2]}"),
        (("--ids", f"needle/single_zh/{IDS[0]}"), "--tasks does not include needle/single_zh."),
        (("--ids", "@missing.txt"), "--ids @missing.txt cannot be read: No such file or directory."),
    ],
)
def test_what_cannot_be_chosen(run: Any, tmp_path: Path, options: tuple[object, ...], words: str) -> None:
    done = run(*options)
    said = " ".join(done.stderr.replace("│", " ").split())
    assert done.returncode == 2, said
    assert words in said
    assert "Traceback" not in said
    assert not (tmp_path / "results.duckdb").exists(), "refused before anything is made"


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe\x00"])
def test_a_file_of_ids_without_any(run: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ids.txt").write_bytes(content)
    fails(run("--ids", f"@{tmp_path / 'ids.txt'}"), 2, "one name on each line")


def test_threads_need_a_model_that_computes(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    for command in (
        ("plan", "-b", bundle, "-m", answers, "-t", TASK),
        ("parity", answers, answers),
        ("submit", "slurm", "--dry-run", "--shards", 2, "-o", tmp_path / "s", "-b", bundle, "-m", answers, "-t", TASK),
    ):
        fails(lbx(*command, "--threads", 2), 2, "--threads does not apply to oracle")
    fails(lbx("score", tmp_path / "r.duckdb", "--threads", 2), 2, "--threads needs an embedding model")
    fails(lbx("parity", answers, answers, "--sample", 2), 2, "Pass --bundle and --tasks, too.")


def test_threads_are_the_machines_and_not_the_runs(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    """A real model: they reach its library, and the same run goes on with others."""
    model = Path(__file__).parents[2] / "models" / "demo" / "hf"
    told = []
    for threads in (1, 2):
        done = lbx.ok(
            "run", "-b", bundle, "-m", model, "-t", TASK, "--limit", threads, "--threads", threads,
            "-o", tmp_path / "r.duckdb", "--no-plan", "--json",
        )  # fmt: skip
        told.append(json.loads(done.stdout))
        hardware = lbx("sql", tmp_path / "r.duckdb", "SELECT hardware->>'threads' AS n FROM runs", "--format", "json")
        assert json.loads(hardware.stdout) == [{"n": str(threads)}]
    assert told[0]["run_id"] == told[1]["run_id"]
    assert (told[1]["done_before"], told[1]["answered"]) == (1, 1)
