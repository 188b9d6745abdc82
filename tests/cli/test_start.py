"""How lbx starts: ``--help`` imports no command, and a command's help none of the libraries that take long."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lbx.cli.main import COMMANDS, load

HEAVY = ("torch", "transformers", "llama_cpp", "duckdb", "numpy", "huggingface_hub", "cryptography", "starlette")
HEAVY += ("uvicorn", "jinja2", "httpx2")


def modules_after(*arguments: str) -> set[str]:
    code = "import sys; from lbx.cli.main import app\ntry: app()\nfinally: print('\\n', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert "Usage:" in done.stdout
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_no_command() -> None:
    assert not modules_after("--help") & {*HEAVY, *(f"lbx.cli.{module}" for module, _ in COMMANDS.values())}


@pytest.mark.parametrize("command", [*COMMANDS, "submit slurm", "submit kubernetes"])
def test_a_commands_help_loads_no_heavy_library(command: str) -> None:
    assert not modules_after(*command.split(), "--help") & {*HEAVY}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_line_of_help_is_the_commands_own(name: str) -> None:
    assert load(name).help.split("\n\n")[0] == COMMANDS[name][1]
