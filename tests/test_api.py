"""lbx for notebooks: ten names, the same errors, and nothing left behind in the process that imports it."""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest
from markdown_it import MarkdownIt

import lbx
from lbx.base.errors import UsageError
from lbx.opinions.judge_spec import JudgeSpec
from tests.command_line import Lbx
from tests.page_parts import results_file

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

    def on_progress(self, progress: lbx.base.listener.RunProgress) -> None:  # type: ignore[name-defined]
        self.fractions.append(progress.fraction)
        self.threads.add(threading.current_thread().name)


def test_ten_names() -> None:
    assert len(lbx.__all__) == 10
    assert dir(lbx) == sorted([*lbx.__all__, "__version__"])
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
    assert any("lbx refuses network connections" in text for text in caplog.messages)
    assert lbx.score(tmp_path / "r.duckdb") == 4
    with lbx.open_results(tmp_path / "r.duckdb") as results:
        assert {"runs", "generations", "task_scores"} <= set(results)
        assert results["generations"].count("*").fetchall() == [(4,)]
        assert results.sql("SELECT count(DISTINCT task) FROM generations").fetchall() == [(2,)]
        with pytest.raises(KeyError, match="Did you mean task_scores"):
            _ = results["tsk_scores"]
        with pytest.raises(lbx.LbxError, match="read-only"):
            results.sql("DELETE FROM generations")
        with pytest.raises(lbx.LbxError, match=r"scre.*Did you mean .*score"):
            results.sql("SELECT scre FROM scores")


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
        ({"seed": "3"}, "--seed must be a whole number, not '3'"),
        ({"seed": True}, "--seed must be a whole number, not True"),
        ({"limit": 0}, "--limit must be at least 1"),
        ({"rag": -1}, "--rag must be at least 0, not -1"),
        ({"tasks": []}, "A run needs tasks"),
        ({"tasks": 7}, "--tasks must be a list of texts, not 7"),
        ({"chat": None}, "--chat must be true or false, not None"),
        ({"limit": 1, "ids": ["a"]}, "--ids and --limit exclude each other"),
        ({"documents": 1, "sample": 1}, "exclude each other"),
        ({"retriever": "e5"}, "--retriever needs --rag"),
        ({"both_kinds": True, "thinking": True}, "--both-kinds excludes --thinking"),
        ({"colour": "red"}, "an unknown key: colour"),
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
        ('{"lbx_run": 2}', "was written by a newer lbx"),
        ('{"lbx_run": 1}', "lacks bundle and model and tasks"),
        ("\udcff", "is not JSON"),
    ],
)
def test_what_is_no_spec(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(lbx.LbxError, match=says):
        lbx.RunSpec.read(tmp_path / "run.json")


def test_paths_may_be_texts(bundle: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = lbx.RunSpec(bundle=str(bundle), model=str(model), tasks="needle", limit=1)
    spec.write("run.json")
    assert lbx.RunSpec.read("run.json") == spec


def test_a_file_of_before_has_the_views_of_today(bundle: Path, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    lbx.run(lbx.RunSpec(bundle=bundle, model=model, tasks="needle", limit=1), path)
    with duckdb.connect(path) as connection:
        connection.execute("DROP VIEW answers")
    with lbx.open_results(path) as results:
        assert list(results) == sorted(set(results)) and "answers" in results
        assert results["answers"].fetchall()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the documents' lines name, where a clone has it after `just demo`."""
    pytest.importorskip("torch", reason="needs lbx[hf]")
    folder = tmp_path_factory.mktemp("clone")
    (folder / "needle").mkdir()
    (folder / "needle" / "needle.toml").write_text(NEEDLE)
    sources = {"needle": "needle", str(REPOSITORY / "models/demo/hf"): "models/demo/hf"}
    recipe = "".join(f'\n[[source]]\nkind = "path"\npath = "{path}"\nto = "{to}"\n' for path, to in sources.items())
    (folder / "demo.toml").write_text(f'name = "demo"\n{recipe}')
    lbx.bundle.create([folder / "demo.toml"], folder)
    lbx.unpack(folder / "demo.tar", folder / "work/demo/bundle", trust=lbx.bundle.Trust(allow_unsigned=True))
    shutil.copytree(REPOSITORY / "models", folder / "models", ignore=shutil.ignore_patterns("demo", "smollm2"))
    (folder / "docs").mkdir()
    return folder


def _run(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_notebook_runs_as_it_stands(clone: Path) -> None:
    """Its cells, one after the other, in a process of their own, in the notebook's folder."""
    cells = json.loads((REPOSITORY / "docs" / "example.ipynb").read_text("utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert sum(bool(cell.get("outputs")) for cell in cells) >= 5, "a reader on the web sees what it shows"
    assert not re.search(r"[\" ]/(?:tmp|root|home|work)/", json.dumps(cells))
    shown = re.sub(r"^(\w+)$", r"print((getattr(\1, '_repr_html_', 0) or \1._repr_svg_)())", code, flags=re.MULTILINE)
    said = _run(shown, clone / "docs")
    assert "single_en" in said and said.count("<table>") == 1
    assert (clone / "docs" / "needles.svg").read_text("utf-8") in said
    assert (clone / "docs" / "results.duckdb").is_file()


_IN_JUPYTER = """
import sys, types
ipython = types.ModuleType("IPython")
ipython.get_ipython = lambda: types.SimpleNamespace(config={"IPKernelApp": {}})
sys.modules["IPython"] = ipython
"""
"""Makes DuckDB take the process for a notebook, where it refuses settings of its progress bar without ipywidgets."""


def test_a_notebook_needs_no_other_packages(tmp_path: Path) -> None:
    path = str(results_file(tmp_path / "r.duckdb"))
    code = f"import lbx\nwith lbx.open_results({path!r}) as results: print(results.report('leaderboard'))"
    assert "Leaderboard" in _run(_IN_JUPYTER + code, tmp_path)


def test_every_line_of_the_page_runs_as_it_stands(clone: Path) -> None:
    """Its blocks of Python, one after the other, then its command lines."""
    tokens = MarkdownIt().parse((REPOSITORY / "docs" / "python.md").read_text("utf-8"))
    python = [token.content for token in tokens if token.type == "fence" and token.info == "python"]
    said = _run("\n".join(python), clone)
    assert "single_en" in said and (clone / "run.json").is_file()
    commands = [line for token in tokens if token.type == "code_block" for line in token.content.splitlines()]
    assert len(commands) == 2
    for command in commands:
        done = Lbx()(*shlex.split(command)[1:], cwd=clone)
        assert done.returncode == 0, done.stderr
    assert (clone / "again.duckdb").is_file()
    inline = [child.content for token in tokens for child in token.children or () if child.type == "code_inline"]
    block = "\n".join(python)
    for text in inline:
        assert not re.match(r"\w+\.\w+\(.*\)$", text) or text in block, f"nothing runs {text}"


@pytest.mark.parametrize("made", [lbx.RunSpec, JudgeSpec])
@pytest.mark.parametrize(("name", "meant"), [("limitt", "limit"), ("task", "tasks")])
def test_an_unknown_field_of_a_spec_is_refused_with_what_was_meant(
    made: type[lbx.RunSpec], name: str, meant: str
) -> None:
    with pytest.raises(UsageError, match=f"{made.__name__} has no field '{name}'. Did you mean .*{meant}"):
        made(bundle="b", model="m", tasks=("needle",), **{name: 1})


def test_the_package_is_a_program() -> None:
    command = [sys.executable, "-P", "-m", "lbx", "--version"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"lbx {lbx.__version__}\n"
