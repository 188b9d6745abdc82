"""Names, answers, errors and arguments that would steer a terminal, hide, or look like something else."""

from __future__ import annotations

import ast
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import LBX_HOME, changed, lbx, process, results_file
from tests.screen import on_screen

EVIL = "a\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b1A\x8d\x7f\r\u202egnorw\u2066\u200b\ufeff\U000e0041[bold]b[/bold]:smile:"
SPELLED = (
    r"a\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b1A\x8d\x7f\r\u202egnorw\u2066\u200b\ufeff\U000e0041[bold]b[/bold]:smile:"
)
GOOD = "日本語 café 👩‍👩‍👧 ❤️ می‌خواهم क्‍ष Ελληνικά 한국어 – “x”"


def steers(text: str) -> str:
    """What of a text would steer or hide; the colours of a terminal's own table counted, too."""
    hidden = {*map(chr, range(32)), *map(chr, range(127, 160)), *"\u200b\u202e\u2066\ufeff\U000e0041"} - {"\n", "\t"}
    return "".join(sorted(hidden & set(text)))


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = results_file(tmp_path_factory.mktemp("evil") / "r.duckdb", run=EVIL, model=EVIL, output=EVIL)
    return changed(
        results_file(path, run="failed", model=EVIL, error=EVIL, task="hotpotqa"),
        "UPDATE samples SET task = task, length_unit = 'w' || chr(27) || '[31m'",
    )


COMMANDS: dict[str, tuple[str, ...]] = {
    **{f"report as {name}": ("report", "{0}", "--format", name) for name in ("table", "markdown", "json", "html")},
    **{
        f"{view} as csv": ("report", "{0}", view, "--format", "csv")
        for view in ("leaderboard", "failures", "length_curve", "paper")
    },
    **{
        f"sql as {name}": (
            "sql",
            "{0}",
            'SELECT *, 1 AS "\x1b[31m" FROM runs JOIN generations USING (run_id)',
            "-f",
            name,
        )
        for name in ("table", "csv", "json")
    },
    "an unknown run": ("report", "{0}", "--run", "none"),
    "an unknown run to export": ("export", "longbench", "{0}", "--run", f"no{EVIL}", "-o", "x"),
    "a wrong query": ("sql", "{0}", f"SELECT '{EVIL}' FROM \"{EVIL}\""),
    "a format": ("report", "{0}", "--format", EVIL),
    "a file": ("report", f"no{EVIL}"),
    "a view": ("report", "{0}", EVIL),
    "a score": ("score", "{0}", "--run", EVIL, "--json"),
    "a status": ("status", f"no{EVIL}"),
    "a bundle": ("tasks", "--bundle", f"no{EVIL}"),
    "an archive": ("verify", f"no{EVIL}", "--allow-unsigned"),
    "a recipe": ("bundle", f"no{EVIL}", "-o", "x"),
    "a card": ("parity", f"no{EVIL}.toml", f"no{EVIL}.gguf"),
    "the runs": ("runs", "{0}"),
    "an unknown run to rename": ("runs", "rename", "{0}", EVIL, f"no{EVIL}"),
    "a merge": ("merge", f"no{EVIL}", "-o", "x.duckdb"),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_no_command_lets_it_through(evil: Path, what: str) -> None:
    said = lbx(*(part.format(evil) if part == "{0}" else part for part in COMMANDS[what]))
    assert not steers(said.all)


MARKUP = ("[bold]x[/bold]", "[/]", "[link=x]:smile:")


@pytest.mark.parametrize("name", MARKUP)
def test_no_name_is_markup(tmp_path: Path, name: str) -> None:
    """Rich would style, drop or refuse words in square brackets."""
    folder = tmp_path / name.replace("/", "|")
    folder.mkdir()
    path = results_file(folder / "r.duckdb", run=name, model=f"m {name}", output=name)
    changed(
        results_file(path, run="failed", model=name, error=f"because of {name}", task="hotpotqa"),
        *(f"UPDATE {table} SET task = 'task {name}' WHERE task = 'qasper'" for table in
          ("samples", "generations", "scores", "numbers")),
    )  # fmt: skip
    (folder / "recipe.toml").write_text(f'name = "x"\n[[source]]\nkind = "path"\npath = {json.dumps(name)}\nto = "x"\n')
    (folder / "card.toml").write_text(f'name = "x"\nbackend = {json.dumps(name)}\n')
    (folder / "benchmark.toml").write_text(f'name = {json.dumps(name)}\nlicence = ""\n[[task]]\nname = "t"\n')
    shown: dict[tuple[object, ...], str] = {
        ("report", path): f"m {name}",
        ("report", path, "failures"): f"because of {name}",
        ("report", path, "leaderboard", "--format", "markdown"): "",
        ("report", path, name): name,
        ("report", path, "--run", f"no {name}"): f"no {name}",
        ("report", path, "--tasks", f"longbench/{name}"): "",
        ("report", path, "--format", name): name,
        ("sql", path, "SELECT run_id, model FROM runs"): name,
        ("sql", path, f'SELECT 1 AS "{name}"'): name,
        ("sql", path, f'SELECT * FROM "{name}"'): name,
        ("show", path, "--run", name): f"task {name}",
        ("show", path, f"longbench/task {name}/0000", "--run", name): name,
        ("show", path, name): name,
        ("runs", path): name,
        ("runs", "rename", path, name, f"new {name}"): f"new {name}",
        ("runs", "note", path, f"new {name}", f"{name}=x"): name,
        ("runs", "remove", path, f"new {name}"): f"new {name}",
        ("merge", path, folder / name, "-o", folder / "m.duckdb"): name,
        ("verify", folder / f"{name}.tar", "--allow-unsigned"): name,
        ("tasks", "--bundle", folder / name): name,
        ("bundle", folder / "recipe.toml", "-o", folder): name,
        ("bundle", folder / "benchmark.toml", "-o", folder): name,
        ("models", "--bundle", folder / name): name,
        ("run", "-b", folder, "-m", folder / "card.toml", "-t", name, "-o", folder / "n.duckdb"): "",
        ("export", name, path, "-o", folder / "e"): name,
        ("submit", name): name,
        (name,): name,
    }  # fmt: skip
    for command, words in shown.items():
        said = lbx(*command)
        text = "".join(said.all.split())
        assert "did not expect" not in said.err and "MarkupError" not in text, command
        assert "".join(words.split()) in text, (command, said)


def test_names_are_shown_spelled_out(evil: Path) -> None:
    said = lbx("sql", evil, "SELECT model FROM runs", "--format", "csv")
    assert SPELLED in said.out
    table = lbx("report", evil, "failures").out.replace("\n", "").replace(" ", "")
    assert "[bold]b[/bold]:smile:" in table
    (row, *_) = json.loads(lbx("sql", evil, "SELECT model FROM runs", "--format", "json").out)
    assert row == {"model": EVIL}


def test_what_people_can_read_stays(tmp_path: Path) -> None:
    path = results_file(tmp_path / "r.duckdb", model=GOOD)
    for more in ((), ("--format", "markdown"), ("--format", "html")):
        assert GOOD in lbx("report", path, "leaderboard", *more).out


def test_a_line_feed_in_a_name_makes_no_line(tmp_path: Path) -> None:
    spoof = "model\n GPT-5      hf      longbench    1    1    99.99"
    path = results_file(tmp_path / "r.duckdb", model=spoof, run="r\nerror: all is well")
    for more in ((), ("--format", "markdown")):
        lines = lbx("report", path, "leaderboard", *more).out.splitlines()
        assert not [line for line in lines if line.strip().startswith("GPT-5")]
    said = lbx("export", "longbench", path, "--run", "no\nerror: all is well", "-o", tmp_path / "x")
    assert "error: all is well" not in said.err.splitlines()


def on_a_terminal(*arguments: object) -> bytes:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "lbx.cli", *map(str, arguments)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"}):
        os.close(theirs)
        said = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            said += part
    os.close(ours)
    return said


def test_a_terminal_gets_lbx_s_own_sequences_only(evil: Path) -> None:
    said = on_a_terminal("report", evil)
    assert b"\x1b[" in said, "lbx itself writes bold there"
    for sequence in (b"\x1b]0;", b"\x07", b"\x1b[2J", b"\xc2\x9b", "\u202e".encode(), b"\x1b[31m"):
        assert sequence not in said, sequence


def test_progress_bars_spell_names_out(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "needle.toml").write_text("lengths = [64]\n")
    (folder / "x[bold red]y.txt").write_text("x")
    recipe = tmp_path / "r.toml"
    recipe.write_text('name = "small"\n[[source]]\nkind = "path"\npath = "source"\nto = "needle"\n')
    said = on_a_terminal("bundle", recipe, "-o", tmp_path / "out")
    assert b"small" in said
    assert b"\x1b[1;31my" not in said
    script = (
        "import time\n"
        "from lbx.cli.progress import ByteProgress, RunBar\n"
        "evil = chr(27) + ']0;owned' + chr(7) + '[bold]b[/bold]'\n"
        "with ByteProgress() as progress:\n"
        "    progress(evil, evil, 1, 2); time.sleep(0.3)\n"
        "with RunBar() as progress:\n"
        "    progress.on_count(evil, 1, 3); time.sleep(0.3)\n"
    )
    drawn = on_screen(script, columns=200, program=("-P", "-c"))
    assert [line.count("[bold]b[/bold]") for line in sorted(drawn.frames) if "\\x1b" in line] == [1, 2]
    assert "\x1b]0;" not in drawn.raw
    assert "\x07" not in drawn.raw


def test_doctor_and_tracebacks_spell_out() -> None:
    said = process("doctor", env=os.environ | {"container": EVIL, "HF_HOME": f"/nowhere/{EVIL}"})
    assert not steers(said.all)
    assert "owned" in said.out
    said = process("--debug", "report", f"no{EVIL}")
    assert said.code == 1
    assert "Traceback" in said.err
    assert not steers(said.err)


def test_a_run_s_log_is_spelled_out(tmp_path: Path) -> None:
    from lbx.base.listener import Listener
    from lbx.results import GenerationRow
    from lbx.running.monitor import ProgressTracker, RunMonitor

    log = tmp_path / "run.log"
    with RunMonitor(ProgressTracker(None, 1), Listener(), log) as progress:
        progress.count_sample(GenerationRow(EVIL, EVIL, EVIL, EVIL, 0, output="x"))
    assert "owned" in log.read_text("utf-8")
    assert not steers(log.read_text("utf-8"))


SAYS = {"Console", "Progress", "TextColumn", "Live", "print", "rich_format_error", "from_markup", "from_ansi"}

SCRIPTS = ("backends/llama/trial.py", "engine/template_process.py", "base/crash_report.py")
"""Programs of their own: two answer into a pipe of ours, the third outlives this process and has only our own words."""


def test_all_text_passes_one_place() -> None:
    """No module but ``cli/output.py`` writes to a terminal; llama.cpp's own log, which --debug asks for, aside."""
    for path in LBX_HOME.rglob("*.py"):
        place = str(path.relative_to(LBX_HOME))
        if place in ("cli/output.py", "cli/progress.py", "backends/llama/library.py", *SCRIPTS):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            where = f"{place}, line {getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call):
                called = node.func
                name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
                bare = isinstance(called, ast.Name)
                wraps = (place, name) == ("report/format/terminal.py", "Console")  # to nowhere
                assert name not in SAYS or wraps or (name == "print" and not bare), f"{where}: {name}"
                assert name not in ("echo", "secho"), f"{where}: {name}"
            if isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr", "__stdout__", "__stderr__"):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                # A file descriptor, a redirection, a question for the terminal's width.
                allowed = place in ("cli/main.py", "running/workers/worker.py", "report/notebook.py")
                assert owner != "sys" or allowed, where


def test_an_unknown_command_is_spelled_out_on_a_terminal() -> None:
    said = on_a_terminal("report", "a", "b", "c\x1b]0;owned\x07")
    assert b"\x1b]0;" not in said
    assert b"owned" in said
    refused(lbx("report", f"no{EVIL}"), "does not exist")
