"""The documents say what is there: commands, tables, views, options, the tree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from lbx.cli.main import app
from lbx.report.views import VIEWS as REPORTS
from lbx.store import Store
from lbx.store.views import VIEWS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def commands() -> list[str]:
    return [command.name for command in app.registered_commands if command.name]


def test_every_command_is_in_the_readme_and_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    for command in commands():
        assert f"lbx {command}" in README, command
        assert f"lbx {command}" in changelog, command


def test_every_table_column_and_view_is_in_the_readme(tmp_path: Path) -> None:
    with Store(tmp_path / "results.duckdb") as store:
        found = store.query(
            "SELECT t.table_name, list(c.column_name ORDER BY c.column_index) FROM duckdb_tables() t "
            "JOIN duckdb_columns() c USING (table_name) WHERE t.table_name <> 'lbx_schema' GROUP BY ALL ORDER BY ALL"
        )
    documented = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", README, re.MULTILINE))
    assert {name: columns.strip().split(", ") for name, columns in documented.items()} == dict(found.rows)
    for view in VIEWS:
        assert f"`{view}`" in README


def test_every_report_reads_a_view() -> None:
    assert set(REPORTS) <= set(VIEWS)


def test_the_tree_in_the_readme_is_the_tree() -> None:
    section = README.split("## The tree")[1].split("## ")[0]
    named = set(re.findall(r"^ {4}(?: {2})?([\w./]+)  ", section, re.MULTILINE)) | {"lbx/"}
    there = {f"{p.name}/" for p in (ROOT / "lbx").iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    there |= {p.name for p in (ROOT / "lbx").glob("*.py") if p.name != "__init__.py"}
    there |= {"Containerfile", "Justfile", "bundle/", "models/", "lbx/", "docs/", "tests/", ".ci/"}
    assert named == there


def test_just_names_what_the_readme_does() -> None:
    just = Path(sys.executable).with_name("just")
    listed = subprocess.run([just, "--summary"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    named = set(re.findall(r"(?:`|bin/)just ([a-z-]+)", README))
    assert {"demo", "test", "real"} <= named <= set(listed)
