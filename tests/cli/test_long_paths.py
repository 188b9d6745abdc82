"""Paths in pipes and on terminals: never broken, so that they can be copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import Lbx
from tests.page_parts import results_file
from tests.screen import on_screen

LONG = "/".join(["", *(f"a-folder-with-a-long-name-{number}" for number in range(9)), "the last part.duckdb"])
"""Longer than any terminal, with a space, at which lines are wrapped."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("-b", LONG, "-m", "m", "-t", "needle", "-o", "r.duckdb"),
    "plan": ("-b", LONG, "-m", "m", "-t", "needle"),
    "prompts": ("-b", LONG, "-m", "m", "-t", "needle"),
    "tasks": ("-b", LONG),
    "models": ("-b", LONG),
    "parity": (f"{LONG}.toml", f"{LONG}.toml"),
    "report": (LONG,),
    "report, too many arguments": ("r.duckdb", "leaderboard", LONG),
    "report, wrong choice": ("r.duckdb", "leaderboard", "--format", LONG),
    "show": (LONG,),
    "browse": (LONG,),
    "sql": (LONG, "SELECT 1"),
    "judge": (LONG, "--judge", "m", "-b", LONG, "--run", "r"),
    "rate": (LONG, "--rater", "anna"),
    "annotate": (LONG,),
    "import": ("longbench", LONG, "--model-name", "m", "-o", "r.duckdb"),
    "export": ("longbench", LONG, "-o", "x"),
    "score": (LONG,),
    "merge": (LONG, "-o", "r.duckdb"),
    "runs": (LONG,),
    "runs rename": (LONG, "a", "b"),
    "runs note": (LONG, "a"),
    "bundle": (f"{LONG}.toml", "-o", "x"),
    "verify": (LONG, "--allow-unsigned"),
    "unpack": (LONG, "--allow-unsigned", "--to", "x"),
    "submit slurm": ("-b", LONG, "-m", "m", "-t", "needle", "--shards", "2", "-o", "x"),
    "submit kubernetes": (
        *("-b", LONG, "-m", "m", "-t", "needle", "--shards", "2", "-o", "x"),
        *("--image", "i", "--run-claim", "c", "--bundle-claim", "d"),
    ),
    "status": (LONG,),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_has_paths_whole(lbx: Lbx, tmp_path: Path, name: str) -> None:
    done = lbx(*name.split(",", maxsplit=1)[0].split(), *COMMANDS[name], cwd=tmp_path)
    assert done.returncode in (1, 2), done.stdout
    assert LONG in done.stderr, done.stderr
    assert done.stderr.startswith("error: ")
    assert "╭" not in done.stderr


def test_a_terminal_wraps_paths_without_line_breaks(tmp_path: Path) -> None:
    for name in ("report", "report, wrong choice"):
        shown = on_screen(name.split(",")[0], *COMMANDS[name])
        assert shown.code in (1, 2)
        assert LONG in shown.raw


def test_the_overview_has_its_path_whole(lbx: Lbx, tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*LONG.split("/")[1:-1])
    folder.mkdir(parents=True)
    path = results_file(folder / "r.duckdb")
    assert f"A page: lbx report {path} --format html" in lbx.ok("report", path).stdout.replace("\n", " ")
    assert str(path) in on_screen("report", path).raw


def test_lists_of_a_pipe_have_paths_whole(lbx: Lbx, tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*Path(LONG).parts[1:4])
    folder.mkdir(parents=True)
    (folder / "needle.toml").write_text("lengths = [64]\n")
    (folder / "small.toml").write_text(f'name = "small"\n[[source]]\nkind = "path"\npath = "{folder}"\nto = "needle"\n')
    outside = tmp_path / "a-file-with-a-long-name-to-which-a-link-leads.txt"
    outside.write_text("x")
    (folder / "a-link-with-a-long-name-that-leads-out-of-the-folder.txt").symlink_to(outside)
    done = lbx("bundle", folder / "small.toml", "-o", folder / "out", "--dry-run")
    assert done.returncode == 0 and f"free in {folder}/out\n" in done.stdout + "\n"
