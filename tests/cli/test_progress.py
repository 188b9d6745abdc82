"""Progress on a real terminal: one line that fits, and no remains of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from lbx.base.listener import RunProgress
from tests.cli.kill_parts import slow
from tests.command_line import Lbx
from tests.screen import Shown, on_screen

RUNNING = re.compile(r"━+ +\d+%  (\d+)/16  (time left unknown|\S+ (s|min) left)")
BAR = re.compile(r"[━╸╺]{3}|\d%|/\d+ ")


def run(bundle: Path, model: Path, out: Path, columns: int = 80, **options: object) -> Shown:
    command = ("run", "-b", bundle, "-m", model, "-t", "needle/single_en,needle/single_zh", "-o", out)
    return on_screen(*command, columns=columns, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return slow(answers, tmp_path_factory.mktemp("slow"), 0.15)


def progress_lines(shown: Shown) -> list[str]:
    return [line for line in shown.frames if RUNNING.search(line)]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_run_has_bar_percent_samples_and_time_left_in_one_line(
    bundle: Path, model: Path, tmp_path: Path, columns: int
) -> None:
    shown = run(bundle, model, tmp_path / "r.duckdb", columns)
    assert shown.code == 0, shown.text
    lines = progress_lines(shown)
    assert lines, shown.raw
    assert all(line.startswith("needle/single_") and cell_len(line) < columns - 1 for line in lines)
    assert all(("bytes/s computed" in line and "of memory" in line) == (columns == 200) for line in lines)
    assert "prompt bytes processed" not in shown.raw, "the log's lines are for the log"
    assert "prompt bytes processed" in (tmp_path / "r.duckdb.log").read_text()
    assert not BAR.search(shown.text)
    assert f"16 answered, 0 failed; results in {tmp_path}/r.duckdb" in "".join(shown.lines), "a path without a break"
    assert all(shown.lines), "no empty line where the bar was"


def test_ctrl_c_leaves_no_bar(bundle: Path, model: Path, tmp_path: Path) -> None:
    shown = run(bundle, model, tmp_path / "r.duckdb", interrupt=lambda shown: bool(progress_lines(shown)))
    assert shown.code == 130
    assert not BAR.search(shown.text), shown.text
    assert "error: Interrupted. All answers so far are in" in shown.text
    again = run(bundle, model, tmp_path / "r.duckdb")
    assert again.code == 0 and "already done" in again.text


def test_an_error_leaves_no_bar_and_notes_come_above_it(tmp_path: Path) -> None:
    """Also of a phase that never reaches its total, and on a terminal of any width."""
    script = (
        "import sys, time\n"
        "from lbx.base.errors import LbxError\n"
        "from lbx.cli.output import note, show_error\n"
        "from lbx.cli.progress import RunBar\n"
        "try:\n"
        "    with RunBar() as bar:\n"
        "        bar.on_count('longbench/a-task-with-a-long-name: chunks retrieved', 5, 15_000)\n"
        "        time.sleep(0.3)\n"
        "        note('First note.')\n"
        "        bar.on_count('prompts', 3, 7)\n"
        "        print('a library prints', file=sys.stderr)\n"
        "        time.sleep(0.3)\n"
        "        raise LbxError('It failed.')\n"
        "except LbxError as error:\n"
        "    show_error(error)\n"
    )
    for columns in (30, 50, 80):
        shown = on_screen(script, columns=columns, program=("-P", "-c"))
        assert shown.lines == ["First note.", "a library prints", "error: It failed."]
        (retrieval,) = (line for line in shown.frames if "5/15,000" in line)
        assert "0%" in retrieval and "━" in retrieval and len(retrieval) <= columns - 2
        assert ("chunks" in retrieval) == (columns == 80)
        (prompts,) = (line for line in shown.frames if "3/7" in line)
        assert "42%" in prompts


def test_other_commands_leave_no_bar(made: Path, bundle: Path, model: Path, tmp_path: Path, lbx: Lbx) -> None:
    archive, results = tmp_path / "out" / "small.tar", tmp_path / "r.duckdb"
    lbx.ok("run", "-b", bundle, "-m", model, "-t", "needle/single_en", "-o", results)
    commands = {
        "bundle": ("bundle", made / "small.toml", "-o", tmp_path / "out"),
        "verify": ("verify", archive, "--allow-unsigned"),
        "unpack": ("unpack", archive, "--allow-unsigned", "--to", tmp_path / "there"),
        "plan": ("plan", "-b", bundle, "-m", model, "-t", "needle/single_en"),
        "score": ("score", results),
        "merge": ("merge", results, "-o", tmp_path / "merged.duckdb"),
    }
    for name, command in commands.items():
        shown = on_screen(*command)
        assert shown.code == 0, shown.text
        assert not re.search("[━╸╺]", shown.text), f"{name}: {shown.text}"
        assert all(shown.lines[:1]), f"{name}: {shown.text}"


def test_a_terminal_that_cannot_erase_gets_the_lines_of_a_log(bundle: Path, model: Path, tmp_path: Path) -> None:
    shown = run(bundle, model, tmp_path / "r.duckdb", environment={"TERM": "dumb"})
    assert shown.code == 0 and "\x1b" not in shown.raw
    assert "100%" in shown.text and "16 of 16 samples" in shown.text


def test_the_form_of_log_lines_is_fixed() -> None:
    """Scripts read them."""
    progress = RunProgress(212, 643, 3, 0.434, 1_234_567, 2_900_000, 1_402.6, 250.0, 6 << 30, None, "longbench/qasper")
    assert str(progress) == (
        "43%, 1,234,567 of 2,900,000 prompt tokens processed, 212 of 643 samples (3 failed), 1,403 tokens/s computed, "
        "4 min left, 6.0 GiB of memory, longbench/qasper"
    )
    on_gpu = RunProgress(0, 9, 0, 0.0, 0, None, 0.0, None, 1 << 20, 2 << 30, "", ended=True)
    assert str(on_gpu) == (
        "0%, 0 of 9 samples, 0 tokens/s computed, time left unknown, 1.0 MiB of memory and 2.0 GiB of GPU memory"
    ).replace("1.0 MiB", "1 MiB")
    assert str(RunProgress(0, 0, 0, 1.0, 0, None, 0.0, None, 0, None, "")) == "All prompts already have answers."
