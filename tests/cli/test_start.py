"""How lbx starts: ``--help`` imports no command, and a command's help none of the libraries that take long."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys

import pytest

from lbx.cli.loading import Row, resolve
from lbx.cli.main import COMMANDS, load

HEAVY = ("torch", "transformers", "llama_cpp", "duckdb", "numpy", "huggingface_hub", "cryptography", "starlette")
HEAVY += ("uvicorn", "jinja2", "httpx2")
ROWS = [row for command in COMMANDS.values() for row in (command.parts or {"": command}).values()]


def modules_after(*arguments: str) -> set[str]:
    code = "import sys; from lbx.cli.main import app\ntry: app()\nfinally: print('\\n', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert "Usage:" in done.stdout
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_no_command() -> None:
    assert not modules_after("--help") & {*HEAVY, *(f"lbx.{row.options.partition(':')[0]}" for row in ROWS)}


@pytest.mark.parametrize("command", [*COMMANDS, "submit slurm", "submit kubernetes"])
def test_a_commands_help_loads_no_heavy_library_and_nothing_that_does_the_work(command: str) -> None:
    work = {f"lbx.{row.work.partition(':')[0]}" for row in ROWS}
    assert not modules_after(*command.split(), "--help") & {*HEAVY, *work}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.work)
def test_what_does_the_work_takes_the_commands_options(row: Row) -> None:
    options, work = resolve(row.options), resolve(row.work)
    assert dataclasses.is_dataclass(options)
    (taken,) = inspect.signature(work, eval_str=True).parameters.values()
    assert taken.annotation is options


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_the_line_of_the_table(name: str) -> None:
    assert load(name).help.split("\n\n")[0] == COMMANDS[name].line
