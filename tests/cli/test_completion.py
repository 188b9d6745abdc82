"""``lbx --install-completion``: bash completes commands, options and their values, and no heavy library is loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LBX = Path(sys.executable).with_name("lbx")
HEAVY = ("torch", "transformers", "llama_cpp", "duckdb", "numpy", "huggingface_hub", "cryptography")

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody whose home is new, with lbx on the PATH."""
    return {**os.environ, "HOME": str(tmp_path), "PATH": f"{LBX.parent}:{os.environ['PATH']}"}


def bash(script: str, shell: dict[str, str], folder: Path | None = None) -> list[str]:
    # The colon behind it: bash would become its last command, and Typer asks which shell is above it.
    done = subprocess.run(
        ["bash", "-ec", f"{script}\n:"], capture_output=True, text=True, env=shell, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def completed(words: str, shell: dict[str, str], folder: Path | None = None) -> set[str]:
    """What bash offers for the last of the words, by the script that --install-completion wrote."""
    script = (
        f'. "$HOME/.bashrc"; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _lbx_completion lbx; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return set(bash(script, shell, folder))


def test_installed_for_bash_it_completes(shell: dict[str, str], tmp_path: Path) -> None:
    said = bash("lbx --install-completion", shell)
    assert any("bash completion installed" in line for line in said)
    assert completed("lbx re", shell) == {"report"}
    assert completed("lbx run --max", shell) == {"--max-prompt-tokens", "--max-new-tokens"}
    assert completed("lbx submit k", shell) == {"kubernetes"}
    assert completed("lbx report x.duckdb task", shell) == {"task_scores"}
    assert completed("lbx report x.duckdb --format m", shell) == {"markdown"}
    assert completed("lbx export every", shell) == {"every_eval_ever"}


def test_show_completion_prints_what_install_writes(shell: dict[str, str], tmp_path: Path) -> None:
    shown = bash("lbx --show-completion", shell)
    bash("lbx --install-completion", shell)
    assert (tmp_path / ".bash_completions" / "lbx.sh").read_text().splitlines() == shown


def test_completion_runs_no_module_of_the_working_folder(shell: dict[str, str], tmp_path: Path) -> None:
    bash("lbx --install-completion", shell)
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("signal", "json", "typer", "shellingham"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'a').write({name!r})\n")
    assert completed("lbx ver", shell, folder) == {"verify"}
    assert not (tmp_path / "PWNED").exists()


def test_completion_loads_no_heavy_library(shell: dict[str, str]) -> None:
    code = (
        "import sys; sys.argv = ['lbx']\n"
        "from lbx.cli.main import main\n"
        "try: main()\n"
        "finally: print('LOADED', [m for m in " + repr(HEAVY) + " if m in sys.modules])"
    )
    asking = {"_LBX_COMPLETE": "complete_bash", "COMP_WORDS": "lbx report x ", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**shell, **asking}, check=False
    )
    assert "leaderboard" in done.stdout
    assert "LOADED []" in done.stdout
