"""lbx for notebooks: ten names, the same errors, and nothing left behind in the process that imports it."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import lbx

REPOSITORY = Path(__file__).resolve().parent.parent
RECIPE = 'name = "small"\n\n[[source]]\nkind = "path"\npath = "needle"\nto = "needle"\n'
NEEDLE = 'lengths = [64]\ndepths = [0.0, 1.0]\nsamples_per_cell = 2\nlanguages = ["en"]\n'


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    (folder / "needle").mkdir()
    (folder / "needle" / "needle.toml").write_text(NEEDLE)
    (folder / "small.toml").write_text(RECIPE)
    command = [sys.executable, "-m", "lbx.cli", "bundle", folder / "small.toml", "-o", folder]
    subprocess.run(command, check=True, capture_output=True)
    report = lbx.verify(f"{folder}/small.tar", trust=lbx.bundle.Trust(allow_unsigned=True))
    assert report.files == 1
    lbx.unpack(f"{folder}/small.tar", f"{folder}/small", trust=lbx.bundle.Trust(allow_unsigned=True))
    return folder / "small"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.jsonl"
    path.write_text(json.dumps({"key": "*", "text": "seven"}))
    return path


class Watching(lbx.Listener):
    def __init__(self) -> None:
        self.fractions: list[float] = []
        self.threads: set[str] = set()

    def progress(self, progress: lbx.running.listening.RunProgress) -> None:  # type: ignore[name-defined]
        self.fractions.append(progress.fraction)
        self.threads.add(threading.current_thread().name)


def test_ten_names() -> None:
    assert len(lbx.__all__) == 10
    for name in lbx.__all__:
        assert getattr(lbx, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lbx.nothing
    light = "import sys, lbx; assert not {'duckdb', 'rich', 'typer', 'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", light], check=True)


def test_plan_run_score_and_read(bundle: Path, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lbx")
    spec = lbx.RunSpec(bundle=bundle, model=model, tasks="needle/single_en,needle/multikey_en", limit=2)
    assert lbx.plan(spec).total.samples == 4
    watching = Watching()
    (outcome,) = lbx.run(spec, tmp_path / "r.duckdb", listener=watching).values()
    assert (outcome.answered, outcome.failed) == (4, 0)
    assert watching.fractions[-1] == 1.0
    assert any("sockets blocked in-process" in text for text in caplog.messages)
    assert lbx.score(tmp_path / "r.duckdb") == 4
    with lbx.open_results(tmp_path / "r.duckdb") as results:
        assert {"runs", "generations", "task_scores"} <= set(results)
        assert results["generations"].count("*").fetchall() == [(4,)]
        assert results.sql("SELECT count(DISTINCT task) FROM generations").fetchall() == [(2,)]
        with pytest.raises(KeyError, match="task_scores"):
            _ = results["no such thing"]
        with pytest.raises(lbx.LbxError, match="read-only"):
            results.sql("DELETE FROM generations")


def test_the_network_is_there_again_after_a_run(bundle: Path, model: Path, tmp_path: Path) -> None:
    lbx.run(lbx.RunSpec(bundle=bundle, model=model, tasks="needle", limit=1), tmp_path / "r.duckdb")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass


def test_a_spec_is_a_file(bundle: Path, model: Path, tmp_path: Path) -> None:
    spec = lbx.RunSpec(bundle=bundle, model=model, tasks=["needle"], ids=["a,b"], thinking=False, seed=3)
    spec.write(tmp_path / "run.json")
    assert lbx.RunSpec.read(tmp_path / "run.json") == spec
    assert set(json.loads((tmp_path / "run.json").read_text())) == {
        "lbx_run", "bundle", "model", "tasks", "ids", "thinking", "seed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"seed": "3"}, "--seed cannot be '3': it takes a whole number"),
        ({"seed": True}, "--seed cannot be True"),
        ({"limit": 0}, "--limit must be at least 1"),
        ({"rag": -1}, "--rag must be at least 0, not -1"),
        ({"tasks": []}, "A run needs tasks"),
        ({"tasks": 7}, "--tasks cannot be 7"),
        ({"chat": None}, "--chat cannot be None: it takes true or false"),
        ({"limit": 1, "ids": ["a"]}, "--ids and --limit exclude each other"),
        ({"documents": 1, "sample": 1}, "exclude each other"),
        ({"retriever": "e5"}, "--retriever needs --rag"),
        ({"both_kinds": True, "thinking": True}, "--both-kinds excludes --thinking"),
        ({"colour": "red"}, "a key that lbx does not know: colour"),
    ],
)
def test_what_a_spec_refuses(wrong: dict[str, object], says: str) -> None:
    values = {"lbx_run": 1, "bundle": "b", "model": "m", "tasks": ["t"], **wrong}
    with pytest.raises(lbx.LbxError, match=says):
        lbx.RunSpec.from_json(values, "run.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("{}", "is not the spec of a run"),
        ('{"lbx_run": 2}', "is of a newer lbx"),
        ('{"lbx_run": 1}', "does not say the run's bundle and model and tasks"),
        ("\udcff", "is not JSON"),
    ],
)
def test_what_is_no_spec(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(lbx.LbxError, match=says):
        lbx.RunSpec.read(tmp_path / "run.json")


def test_the_example_notebook_runs(bundle: Path, model: Path, tmp_path: Path) -> None:
    """Its cells, one after the other, in a process of their own; what it names is put in their place."""
    cells = json.loads((REPOSITORY / "docs" / "example.ipynb").read_text("utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for named, real in (('"demo"', repr(str(bundle))), ('"demo-hf"', repr(str(model)))):
        assert named in code
        code = code.replace(named, real)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "single_en" in done.stdout
    assert (tmp_path / "results.duckdb").is_file()
