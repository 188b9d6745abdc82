"""Summaries in place of documents, by the command line: asked once, kept, continued, shared, merged, planned."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Lbx, fails
from kill_parts import wait_for_samples

from lbx.backends.scripted import ByteTokenizer
from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.base.records import SampleKey, Sampling, sha256_text
from lbx.benchmarks import LongBench
from lbx.benchmarks.base.summaries import NAME, join, part_id
from lbx.prompting.prompter import Prompter
from lbx.retrieval.chunks import split
from lbx.running.sent_prompts import rebuilt
from lbx.running.spec import RunSpec

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"
RECIPE = """
name = "lb"
[[source]]
kind = "path"
path = "data"
repo = "THUDM/LongBench"
type = "dataset"
[[source]]
kind = "path"
path = "config"
to = "THUDM/LongBench/LongBench/config"
licence = "MIT"
"""
TASKS = ("qasper", "gov_report")
LONG = " ".join(f"House {n} is grey and old." for n in range(60))
SHORT = "A house stood there."


@pytest.fixture(scope="module")
def home(lbx: Lbx, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundle "b": qasper asks twice about a long document and once about a short one."""
    import zipfile

    folder = tmp_path_factory.mktemp("summaries")
    for place in ("data", "config"):
        (folder / place).mkdir()
    documents = {"qasper": [LONG, LONG, SHORT], "gov_report": [LONG, LONG[::-1].replace(".", ". ")]}
    with zipfile.ZipFile(folder / "data" / "data.zip", "w") as archive:
        for task, texts in documents.items():
            rows = [
                {"input": f"Question {n}?", "context": text, "answers": ["grey"], "length": 300, "dataset": task,
                 "language": "en", "all_classes": None, "_id": f"{task}{n}"}
                for n, text in enumerate(texts)
            ]  # fmt: skip
            archive.writestr(f"data/{task}.jsonl", "\n".join(map(json.dumps, rows)))
    (folder / "config" / "dataset2prompt.json").write_text(
        json.dumps(dict.fromkeys(TASKS, "Read: {context}\nAsked: {input}\n"))
    )
    (folder / "config" / "dataset2maxlen.json").write_text(json.dumps(dict.fromkeys(TASKS, 8)))
    (folder / "lb.toml").write_text(RECIPE)
    assert (done := lbx("bundle", folder / "lb.toml", "-o", folder)).returncode == 0, done.stderr
    assert lbx("unpack", folder / "lb.tar", "--allow-unsigned", "--to", folder / "b").returncode == 0
    return folder


def make_model(folder: Path, answers: dict[str, object]) -> Path:
    (folder / "answers.json").write_text(json.dumps(answers))
    (folder / "m.toml").write_text(
        'name = "m"\nbackend = "scripted"\ncontext_window = 1000000\n[weights]\npath = "answers.json"\n'
    )
    return folder / "m.toml"


def part_names(document: str, size: int) -> list[str]:
    digest = sha256_text(document)
    return [part_id(digest, size, number) for number in range(len(split(document, size)))]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Says of each part of the long document which it is."""
    said = {f"{NAME}/parts/{name}": f" part {n} " for n, name in enumerate(part_names(LONG, 100))}
    return make_model(tmp_path, {**said, "*": "grey"})


def command(home: Path, model: Path, results: Path, *more: object) -> list[object]:
    asked = ["--bundle", home / "b", "--model", model, "--tasks", "longbench"]
    return ["run", *asked, "-o", results, "--summaries", 100, *more]


def query(lbx: Lbx, results: Path, sql: str) -> list[dict[str, Any]]:
    done = lbx("sql", results, sql, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


KUBERNETES = ("--image", "lbx:1", "--run-claim", "r", "--bundle-claim", "b")
ANSWERS = "SELECT benchmark, task, sample_id, output, prompt_sha256 FROM generations ORDER BY ALL"


@pytest.mark.parametrize("workers", [0, 2])
def test_questions_are_asked_about_the_summaries(
    lbx: Lbx, home: Path, model: Path, tmp_path: Path, workers: int
) -> None:
    results = tmp_path / "results.duckdb"
    assert (done := lbx(*command(home, model, results, "--workers", workers))).returncode == 0, done.stderr
    parts = query(lbx, results, f"SELECT * FROM generations WHERE benchmark = '{NAME}'")
    assert len(parts) == len(split(LONG, 100)) + len(split(LONG[::-1].replace(".", ". "), 100))
    runs = query(lbx, results, "SELECT run_id, settings FROM runs ORDER BY length(run_id)")
    settings = [json.loads(run["settings"]) if isinstance(run["settings"], str) else run["settings"] for run in runs]
    assert [one["summaries"] for one in settings] == [100, 100]
    assert settings[0]["summarizer"] == runs[1]["run_id"] == parts[0]["run_id"]
    assert runs[1]["run_id"].endswith("-summaries")
    (row,) = query(lbx, results, "SELECT prompt_sha256 AS made FROM generations WHERE sample_id = 'qasper0'")
    bundle = Bundle(home / "b")
    sample = next(LongBench().samples(bundle, "qasper"))
    count = len(split(LONG, 100))
    text = join([f"part {n}" for n in range(count)], "en")
    assert text.splitlines()[1] == "Summary of part 2: part 1"
    prompt = LongBench().prompt(bundle, sample)
    told = prompt.text.replace(LONG, text)
    assert told != prompt.text
    prompter = Prompter(ByteTokenizer(), context_window=1_000_000)
    asked = LongBench().prompt(bundle, replace(sample, context=text))
    assert asked.text == told
    assert row["made"] == prompter.request(sample.key, asked, Sampling()).prompt_sha256
    board = query(lbx, results, "SELECT benchmark, mode, score FROM leaderboard ORDER BY 1")
    assert [(row["benchmark"], row["mode"], row["score"] is None) for row in board] == [
        (NAME, "summaries 100", True),
        ("longbench", "summaries 100", False),
    ]
    plain = tmp_path / "plain.duckdb"
    assert lbx(*command(home, model, plain)[:-2]).returncode == 0
    same = "SELECT prompt_sha256 FROM generations WHERE sample_id = 'qasper2'"
    assert query(lbx, results, same) == query(lbx, plain, same), "a document of one part stays as it is"
    for more in (["score", results], ["report", results, "paper"], ["report", results, "guards"]):
        assert (done := lbx(*more)).returncode == 0, done.stderr


def test_what_is_summed_up_is_not_summed_up_again(lbx: Lbx, home: Path, model: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.duckdb"
    for more in (["--limit", 1], [], ["--run", "other", "--seed", 4]):
        assert lbx(*command(home, model, results, *more)).returncode == 0
    counts = query(lbx, results, "SELECT run_id, count(*) AS n FROM generations GROUP BY run_id")
    counts = sorted(counts, key=lambda row: len(row["run_id"]))
    assert [row["n"] for row in counts] == [5, 5, len(set(part_names(LONG, 100))) * 2]
    sessions = query(lbx, results, "SELECT answered FROM sessions WHERE run_id LIKE '%-summaries' ORDER BY session")
    assert [row["answered"] for row in sessions] == [4, 4, 0]
    again = tmp_path / "again.duckdb"
    assert (done := lbx("run", "--spec", results, "--run", "other", "-o", again)).returncode == 0, done.stderr
    assert len(query(lbx, again, ANSWERS)) == counts[0]["n"] + counts[2]["n"]


def test_a_summary_that_failed_is_asked_again(lbx: Lbx, home: Path, tmp_path: Path) -> None:
    name = f"{NAME}/parts/{part_names(LONG, 100)[1]}"
    model, results = make_model(tmp_path, {name: {"error": "broken"}, "*": "x"}), tmp_path / "results.duckdb"
    fails(lbx(*command(home, model, results)), 1, "1 summaries failed", "--retry-failed")
    assert query(lbx, results, "SELECT count(*) AS n FROM generations WHERE benchmark = 'longbench'") == [{"n": 0}]
    (failure,) = query(lbx, results, "SELECT * FROM failures")
    assert failure["sample_id"] == part_names(LONG, 100)[1]
    fails(lbx(*command(home, model, results)), 1, "1 summaries failed")


def test_a_plan_counts_the_parts(lbx: Lbx, home: Path, model: Path, tmp_path: Path) -> None:
    asked = [one for one in command(home, model, tmp_path / "none.duckdb")[1:] if one != "-o"]
    asked.remove(tmp_path / "none.duckdb")
    done = lbx("plan", *asked, "--iterations", 3, "--json")
    assert done.returncode == 0, done.stderr
    tasks = {row["task"]: row for row in json.loads(done.stdout)["tasks"]}
    assert {name: row["samples"] for name, row in tasks.items()} == {
        f"{NAME}/parts": 8, "longbench/qasper": 9, "longbench/gov_report": 6,
    }  # fmt: skip
    parts = tasks[f"{NAME}/parts"]
    assert parts["new_tokens"] == 8 * 200
    assert parts["prompt_tokens"] > 2 * len(LONG)
    whole = json.loads(lbx("plan", *asked[:-2], "--json").stdout)["tasks"]
    assert tasks["longbench/qasper"]["prompt_tokens"] != whole[0]["prompt_tokens"]


def test_prompts_can_be_looked_at(lbx: Lbx, home: Path, model: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.duckdb"
    asked = command(home, model, results)
    assert lbx(*asked).returncode == 0
    for name in ("longbench/qasper/qasper1", f"{NAME}/parts/{part_names(LONG, 100)[2]}"):
        done = lbx("show", results, name, "--prompt", "--json")
        assert done.returncode == 0, done.stderr
        (told,) = json.loads(done.stdout)
        assert told["prompt_is_the_same"] is True
    spec = RunSpec(bundle=str(home / "b"), model=str(model), tasks=("longbench",), summaries=100)
    with pytest.raises(UsageError, match=f"no longer holds {NAME}/parts/of-another-bundle"):
        rebuilt(spec, "r", SampleKey(NAME, "parts", "of-another-bundle", 0), ())
    done = lbx("prompts", *[one for one in asked[1:] if one not in ("-o", results)])
    assert done.returncode == 0, done.stderr
    assert "Sum up the text above" in done.stdout


def test_what_does_not_go_together(lbx: Lbx, home: Path, model: Path, tmp_path: Path) -> None:
    asked = command(home, model, tmp_path / "results.duckdb")
    for more in (["--rag", 2], ["--no-context"]):
        fails(lbx(*asked, *more), 2, "exclude each other: each replaces the document")
    fails(lbx(*asked, "--both-kinds"), 2, "--both-kinds and --summaries exclude each other")


def test_shards_sum_up_their_own_documents(lbx: Lbx, home: Path, model: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.duckdb"
    assert lbx(*command(home, model, whole, "--run", "r")).returncode == 0
    asked = command(home, model, job := tmp_path / "job", "--run", "r")[1:]
    done = lbx("submit", "kubernetes", *asked, "--shards", 2, *KUBERNETES)
    assert done.returncode == 0, done.stderr
    parts = [tmp_path / f"{number}.duckdb" for number in range(2)]
    for number, part in enumerate(parts):
        shard = ["--shards", job / "shards.json", "--shard", number]
        done = lbx(*command(home, model, part, "--run", "r", *shard))
        assert done.returncode == 0, done.stderr
    assert (done := lbx("merge", *parts, "-o", tmp_path / "all.duckdb")).returncode == 0, done.stderr
    assert "have no score" not in done.stdout + done.stderr
    assert query(lbx, tmp_path / "all.duckdb", ANSWERS) == query(lbx, whole, ANSWERS)


@pytest.mark.parametrize("backend", ["hf", "llamacpp"])
def test_a_real_model_sums_up(lbx: Lbx, home: Path, tmp_path: Path, backend: str) -> None:
    pytest.importorskip("transformers" if backend == "hf" else "llama_cpp", reason="needs lbx[hf,llama]")
    weights = DEMO
    if backend == "llamacpp":
        pytest.importorskip("gguf", reason="needs lbx[dev]")
        weights = tmp_path / "demo.gguf"
        export = [sys.executable, DEMO.parent / "export_gguf.py", DEMO, weights, "--dtype", "f32"]
        subprocess.run(list(map(str, export)), check=True, capture_output=True)
    results = tmp_path / "results.duckdb"
    asked = command(home, weights, results, "--max-new-tokens", 8)
    done = lbx(*asked, "--limit", 1)
    assert done.returncode == 0, done.stderr
    rows = query(lbx, results, f"SELECT error, truncated FROM generations WHERE benchmark = '{NAME}'")
    assert rows == [{"error": None, "truncated": False}] * len(split(LONG, 100))
    assert (
        query(lbx, results, "SELECT count(*) AS n FROM generations WHERE benchmark <> 'document_summaries'")[0]["n"]
        == 2
    )


def test_a_killed_run_keeps_its_summaries(lbx: Lbx, home: Path, tmp_path: Path) -> None:
    """kill -9 while parts are summed up; the same command sums up the rest."""
    slow = {f"{NAME}/parts/{name}": {"text": "s", "delay_s": 1.2} for name in part_names(LONG, 100)}
    model, results = make_model(tmp_path, {**slow, "*": "x"}), tmp_path / "results.duckdb"
    running = [sys.executable, "-m", "lbx.cli", *map(str, command(home, model, results, "--tasks", "longbench/qasper"))]
    process = subprocess.Popen(running, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for_samples(process)
    time.sleep(3.9)
    process.kill()
    process.communicate()
    count = f"SELECT count(*) AS n FROM generations WHERE benchmark = '{NAME}'"
    (before,) = query(lbx, results, count)
    assert (done := lbx(*command(home, model, results))).returncode == 0, done.stderr
    answered = "SELECT answered FROM sessions WHERE run_id LIKE '%-summaries' ORDER BY session"
    assert query(lbx, results, answered)[-1]["answered"] == 8 - before["n"]
    whole = tmp_path / "whole.duckdb"
    assert lbx(*command(home, model, whole)).returncode == 0
    assert query(lbx, results, ANSWERS) == query(lbx, whole, ANSWERS)
