"""What a person is told before a run, while it goes on and afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kill_parts import rows, slow, start
from tests.command_line import Lbx, fails

ONE = "needle/single_en"


def said(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def gguf(demo_gguf: Path) -> Path:
    return demo_gguf


@pytest.fixture
def card(gguf: Path, tmp_path: Path) -> Path:
    """The demo model as GGUF."""
    path = tmp_path / "demo.toml"
    path.write_text(f'name = "demo"\nbackend = "llamacpp"\n[weights]\npath = "{gguf}"\n')
    return path


def test_a_plan_tells_tokens_memory_and_time(lbx: Lbx, bundle: Path, gguf: Path, card: Path, tmp_path: Path) -> None:
    command = ("plan", "--bundle", bundle, "--model", card, "--tasks", "needle")
    found: dict[str, Any] = json.loads(lbx(*command, "--json").stdout)
    assert found["total"]["prompt_tokens"] == sum(task["prompt_tokens"] for task in found["tasks"])
    assert found["total"]["shared_factor"] > 1
    memory, expected = found["memory"], found["time"]
    # 3 layers of keys and values of 128 numbers in f16, for the 4,096 tokens of the window.
    assert (memory["kv_bytes_per_token"], memory["kv_bytes"]) == (3 * 2 * 128 * 2, 3 * 2 * 128 * 2 * 4096)
    assert memory["fits"] is True
    assert 0.9 * gguf.stat().st_size < memory["weights_bytes"] < gguf.stat().st_size
    assert expected["computed_tokens"] == found["total"]["distinct_tokens"]
    assert 0 < expected["prefill_s"] < expected["total_s"]
    assert 0 < sum(expected["answer_tokens"].values()) <= found["total"]["new_tokens"]
    assert expected["basis"].startswith("a calibration of")
    results = tmp_path / "results.duckdb"
    dry = lbx.ok("run", *command[1:], "-o", results, "--dry-run", "--json")
    assert json.loads(dry.stdout)["total"] == found["total"] and not results.exists()
    quick = lbx(*command, "--no-measure-speed")
    assert "Time: unknown" in quick.stdout
    assert "KV cache 6 MiB (1,536 bytes a token, 4,096 tokens)" in said(quick.stdout)

    done = lbx.ok("run", "--bundle", bundle, "--model", card, "--tasks", "needle", "-o", results)
    first = said(done.stderr)
    assert f"{found['total']['samples']} prompts, {found['total']['prompt_tokens']:,} tokens in all, " in first
    assert "fits Time: about" in first
    assert re.search(r"100%, [\d,]+ of [\d,]+ prompt tokens processed, 48 of 48 samples", first)
    (row,) = json.loads(lbx("report", results, "estimates", "--format", "json").stdout)
    assert (row["status"], row["session"], row["samples"]) == ("done", 1, 48)
    assert row["computed_prompt_tokens"] == row["planned_distinct_tokens"] == expected["computed_tokens"]
    assert row["estimated_s"] > 0
    assert row["ratio"] > 0
    assert row["peak_memory_bytes"] > 10 << 20
    log = (tmp_path / "results.duckdb.log").read_text()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d 100%", log.splitlines()[-1])

    taught = json.loads(lbx(*command, "--history", results, "--json").stdout)["time"]
    assert taught["basis"] == f"session 1 of {row['run_id']}"
    assert sum(taught["answer_tokens"].values()) == pytest.approx(row["output_tokens"], rel=0.1)
    again = lbx("run", "--bundle", bundle, "--model", card, "--tasks", "needle", "-o", results)
    assert "All prompts already have answers." in again.stderr
    assert "0 of 0" not in again.stderr and "tokens/s" not in again.stderr
    assert "0 of 0" not in results.with_name(f"{results.name}.log").read_text("utf-8").splitlines()[-1]


def test_sessions_of_short_prompts_do_not_forecast_long_ones(
    lbx: Lbx, bundle: Path, card: Path, tmp_path: Path
) -> None:
    """Costs are measured anew unless told not to; the basis then names the limits of the session."""
    results = tmp_path / "results.duckdb"
    lbx.ok("run", "--bundle", bundle, "--model", card, "--tasks", "needle", "--no-plan", "-o", results)
    recipe = Path(__file__).parents[2] / "models" / "smollm2" / "needle_2k.toml"
    long = lbx.unpacked(recipe, tmp_path)

    def basis(folder: Path, *options: str) -> str:
        command = ("plan", "--bundle", folder, "--model", card, "--history", results, "--json", "--tasks", *options)
        return str(json.loads(lbx(*command).stdout)["time"]["basis"])

    assert re.fullmatch(r"session 1 of \S+", basis(bundle, ONE))
    assert basis(long, ONE).startswith("a calibration of")
    assert re.fullmatch(
        r"session 1 of \S+, whose prompts had at most \d+ tokens",
        basis(long, "needle", "--no-measure-speed"),
    )


def test_a_plan_says_which_format_is_faster(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "models" / "demo" / "hf"
    command = ("plan", "--bundle", bundle, "--model", card, "--tasks", ONE, "--limit", "2", "--alternative", folder)
    found = json.loads(lbx(*command, "--json").stdout)
    asked = [found, *found["alternatives"]]
    assert [(one["backend"], one["total"]["samples"]) for one in asked] == [("llamacpp", 2), ("hf", 2), ("hf", 2)]
    own, both = "float16", {"float32", "bfloat16"}  # some processors multiply the demo model's own
    assert {one["dtype"] for one in asked[1:]} in (both, {own, "bfloat16"})
    assert {one["total"]["prompt_tokens"] for one in found["alternatives"]} == {found["total"]["prompt_tokens"]}
    assert all(one["time"]["total_s"] > 0 for one in found["alternatives"])
    (tmp_path / "page.gguf").write_text("<html>")
    gone = tmp_path / "gone.toml"
    gone.write_text('name = "gone"\nbackend = "endpoint"\n[options]\nurl = "http://127.0.0.1:9/v1"\nretries = 0\n')
    done = lbx(*command, "--alternative", tmp_path / "page.gguf", "--alternative", gone)
    assert re.search(r"Fastest here: \S+ on (hf|llamacpp)( in \w+)?, (\d+\.\d times )?as fast as", said(done.stdout))
    assert "Skipped page:" in said(done.stderr)
    assert "Skipped gone: The model server http://127.0.0.1:9/v1 does not answer" in said(done.stderr)
    unknown = lbx(*command, "--no-measure-speed")
    assert "Fastest here: unknown" in unknown.stdout
    fails(lbx(*command, "--alternative", "nothing"), 2, "nothing")


def test_what_does_not_fit_is_counted_all_the_same(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path) -> None:
    window = 2**31 - 2**20
    card.write_text(
        card.read_text().replace("[weights]", f"context_window = {window}\n[weights]")
        + "[options]\nextend_context = true\n"
    )
    done = lbx.ok("plan", "--bundle", bundle, "--model", card, "--tasks", ONE)
    assert "The KV cache of demo" in said(done.stderr)
    assert "still counts its tokens" in said(done.stderr)
    proposed = re.search(r"does not fit; a context window of ([\d,]+) tokens would", said(done.stdout))
    assert proposed
    assert 4096 < int(proposed[1].replace(",", "")) < window
    results = tmp_path / "results.duckdb"
    fails(
        lbx("run", "--bundle", bundle, "--model", card, "--tasks", ONE, "-o", results),
        1,
        "KV cache",
        "Lower context_window",
    )
    assert list(tmp_path.iterdir()) == [card]


def test_a_plans_results_file_is_an_input(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    results, missing = tmp_path / "results.duckdb", tmp_path / "missing.duckdb"
    command = ("--bundle", bundle, "--model", answers, "--tasks", ONE)
    lbx.ok("run", *command, "-o", results, "--no-plan")
    before = results.read_bytes()
    for path in (results, missing):
        lbx.ok("plan", *command, "--history", path)
    assert results.read_bytes() == before
    assert not missing.exists()


def test_a_run_need_not_plan(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    results, log = tmp_path / "results.duckdb", tmp_path / "elsewhere.txt"
    command = ("run", "--bundle", bundle, "--model", answers, "--tasks", ONE, "-o", results, "--log", log)
    done = lbx.ok(*command, "--no-plan", "--limit", 3)
    assert "tokens in all" not in done.stderr
    assert "100%, 3 of 3 samples" in done.stderr
    lbx(*command)
    assert [line.split(" ", 2)[2].split(",")[0] for line in log.read_text().splitlines()] == ["100%", "100%"]
    assert not (tmp_path / "results.duckdb.log").exists()
    found = rows(results, "SELECT session, status, planned_samples, answered, wall_s > 0 FROM sessions ORDER BY ALL")
    assert found == [(1, "done", None, 3, True), (2, "done", 5, 5, True)]


def test_a_log_that_cannot_be_written_is_refused_first(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.duckdb"
    command = ("run", "--bundle", bundle, "--model", answers, "--tasks", ONE, "-o", results)
    fails(lbx(*command, "--log", tmp_path / "no" / "x.log"), 2, "x.log cannot be written", "--log FILE")
    assert not results.exists()


def test_sessions_that_were_stopped_or_killed(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    results, model = tmp_path / "results.duckdb", slow(answers, tmp_path, 0.1)
    for number in (signal.SIGINT, signal.SIGKILL):
        process = start(bundle, model, results, ["--log", str(tmp_path / "x.log")])
        assert process.stderr
        while "Time: " not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(1.0)
        os.kill(process.pid, number)
        process.communicate()
    query = "SELECT status, planned_samples IS NULL, wall_s IS NULL, finished_at IS NULL FROM sessions ORDER BY session"
    assert rows(results, query) == [("interrupted", False, False, False), ("running", False, True, True)]
    assert lbx("run", "-b", bundle, "-m", model, "-t", "needle", "-o", results, "--limit", 1).returncode == 0
    assert [row[0] for row in rows(results, query)] == ["interrupted", "killed", "done"]


def test_a_plan_says_what_the_questions_can_decide(
    lbx: Lbx, bundle: Path, card: Path, answers: Path, tmp_path: Path
) -> None:
    """By a stated assumption, or by the differences between the runs of a results file."""
    command = ("plan", "--bundle", bundle, "--model", card, "--tasks", "needle", "--no-measure-speed")
    (few,) = json.loads(lbx.ok(*command, "--json").stdout)["decides"]
    (many,) = json.loads(lbx.ok(*command, "--json", "--models", 10, "--margin", 5).stdout)["decides"]
    assert (few["benchmark"], few["samples"]) == ("needle", 48) and 1 < few["documents"] <= 48
    assert few["basis"].startswith("assumption: ") and few["basis"] == many["basis"]
    assert few["detectable"] < many["detectable"], "ten models make 45 pairs"
    assert few["least_documents"] > many["least_documents"] > few["documents"], (
        "five points need fewer documents than one"
    )
    shown = said(lbx.ok(*command).stdout)
    assert "Differences between 2 models that these questions can show" in shown
    assert (
        f"{few['detectable']:.1f} (assumed spread)" in shown
        and "assumption: the difference between two models" in shown
    )
    assert "find a difference of 1 (--margin)" in shown
    assert "too few documents" in lbx.ok(*command, "--limit", 1, "--tasks", "needle/single_en").stdout
    assert "--margin" in lbx("plan", "--help").stdout
    results = tmp_path / "pilot.duckdb"
    always = tmp_path / "always.jsonl"
    always.write_text('{"*": "1"}')
    for model in (always, answers):
        lbx.ok("run", "--bundle", bundle, "--model", model, "--tasks", "needle", "-o", results, "--no-plan")
    (measured,) = json.loads(lbx.ok(*command, "--json", "--history", results).stdout)["decides"]
    assert "assumed" not in lbx.ok(*command, "--history", results).stdout
    assert measured["basis"] == f"1 pair of runs of {results}"
    assert measured["documents"] == few["documents"]
