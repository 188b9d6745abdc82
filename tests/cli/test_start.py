"""How lbx starts: ``--help`` imports no command, and a command's help none of the libraries that take long.

Nor does a command that has no use for them.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from typer.models import ParameterInfo

from lbx.cli.command_builder import CommandSpec, import_object, parameters_of
from lbx.cli.main import COMMANDS, load_command
from lbx.results import Store
from tests.command_line import Lbx

HEAVY = ("torch", "transformers", "llama_cpp", "duckdb", "numpy", "huggingface_hub", "cryptography", "starlette")
HEAVY += ("uvicorn", "jinja2", "httpx2")
ROWS = [row for command in COMMANDS.values() for row in (command.parts or {"": command}).values()]


def modules_after(*arguments: str, words: str = "Usage:") -> set[str]:
    code = "import sys; from lbx.cli.main import app\ntry: app()\nfinally: print('\\n', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert words in done.stdout
    return set(done.stdout.splitlines()[-1].split())


def test_help_imports_no_command() -> None:
    assert not modules_after("--help") & {*HEAVY, *(f"lbx.{row.options.partition(':')[0]}" for row in ROWS)}


@pytest.mark.parametrize(
    "command", [*COMMANDS, *(f"{name} {part}" for name, row in COMMANDS.items() for part in row.parts)]
)
def test_a_commands_help_loads_no_heavy_library_and_nothing_that_does_the_work(command: str) -> None:
    work = {f"lbx.{row.work.partition(':')[0]}" for row in ROWS}
    assert not modules_after(*command.split(), "--help") & {*HEAVY, *work}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.work)
def test_what_does_the_work_takes_the_commands_options(row: CommandSpec) -> None:
    options, work = import_object(row.options), import_object(row.work)
    assert dataclasses.is_dataclass(options)
    (taken,) = inspect.signature(work, eval_str=True).parameters.values()
    assert issubclass(options, taken.annotation)


def test_a_list_of_models_opens_no_results_file_and_knows_no_benchmark() -> None:
    assert not modules_after("models", "--json", words="[") & {*HEAVY, "lbx.benchmarks"}


def test_a_query_knows_no_benchmark(tmp_path: Path) -> None:
    Store(tmp_path / "a.duckdb").close()
    asked = modules_after("sql", str(tmp_path / "a.duckdb"), "SELECT 40 + 2 AS answer", words="42")
    assert "duckdb" in asked
    assert not asked & {"numpy", "jinja2", "lbx.benchmarks"}


def test_a_table_of_a_report_brings_nothing_of_the_page(tmp_path: Path) -> None:
    Store(tmp_path / "a.duckdb").close()
    assert not modules_after("report", str(tmp_path / "a.duckdb"), "failures", words="No sample") & {"jinja2"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_the_line_of_the_table(name: str) -> None:
    assert load_command(name).help.split("\n\n")[0] == COMMANDS[name].line


@pytest.mark.parametrize(
    "command", [*COMMANDS, *(f"{name} {part}" for name, row in COMMANDS.items() for part in row.parts)]
)
def test_help_shows_every_text_as_it_is_declared(command: str) -> None:
    """Rich reads words in square brackets as markup, and :names: as emoji."""
    row = COMMANDS[command.split(maxsplit=1)[0]]
    row = row.parts[command.split()[1]] if " " in command else row
    shown = " ".join(
        Lbx().ok(*command.split(), "--help-all", environment=os.environ | {"COLUMNS": "4000"}).stdout.split()
    )
    texts = [row.line, *(part.line for part in row.parts.values())]
    if row.options:
        options = import_object(row.options)
        texts += (options.__doc__ or "").split("\n\n")
        for parameter in parameters_of(options).values():
            (declared,) = (entry for entry in get_args(parameter.annotation) if isinstance(entry, ParameterInfo))
            texts.append("" if declared.hidden else declared.help or "")
    assert any("[rubric]" in text for text in texts) or command != "run"
    for text in texts:
        assert " ".join(text.split()) in shown


def test_the_list_of_commands_shows_every_line_as_it_is_declared() -> None:
    shown = " ".join(Lbx().ok("--help", environment=os.environ | {"COLUMNS": "4000"}).stdout.split())
    assert not [row.line for row in COMMANDS.values() if row.line not in shown]
