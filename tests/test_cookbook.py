"""docs/cookbook.md: its answers are what two small files say, by `lbx sql` and by DuckDB alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import duckdb
import pytest

from lbx.benchmarks.judge import Round
from lbx.results import Store
from tests.judged_rounds import add_judge, both_orders

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def cookbook() -> ModuleType:
    found = importlib.util.spec_from_file_location("cookbook", ROOT / "docs" / "cookbook.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_answers_are_what_the_files_say(cookbook: ModuleType, tmp_path: Path) -> None:
    page = cookbook.PAGE.read_text("utf-8")
    assert cookbook.answered(tmp_path) == page, "run python docs/cookbook.py"
    assert len(cookbook.BLOCK.findall(page)) == page.count("```sql") == page.count("\n## ") == 20


def test_duckdb_alone_answers_the_same(cookbook: ModuleType, tmp_path: Path) -> None:
    results, last = cookbook.make(tmp_path)
    with duckdb.connect(str(results), read_only=True) as connection:
        connection.execute(f"ATTACH '{last}' AS last (READ_ONLY)")
        for found in cookbook.BLOCK.finditer(cookbook.PAGE.read_text("utf-8")):
            answer = connection.execute(found[2])
            names = [column[0] for column in answer.description]
            assert cookbook.shown(names, answer.fetchall()) in found[0]


def test_a_judges_verdicts_are_no_models_scores(cookbook: ModuleType, tmp_path: Path) -> None:
    results, last = cookbook.make(tmp_path)
    asked = Round("longbench", "qasper", "00", "Who?", (), "small-F16", "he", 0, "small-Q4", 0, "she")
    with Store(results) as store:
        add_judge(store, "the judge", both_orders(asked, "[[A]]", "[[B]]"))
    named = []
    with duckdb.connect(str(results), read_only=True) as connection:
        connection.execute(f"ATTACH '{last}' AS last (READ_ONLY)")
        for number, found in enumerate(cookbook.BLOCK.finditer(cookbook.PAGE.read_text("utf-8")), 1):
            cells = [cell for row in connection.execute(found[2]).fetchall() for cell in row]
            named += [number] if any("the judge" in str(cell) for cell in cells) else []
    assert named == [4, 6, 7, 8], "how fast it was, and how long its texts are, is told of every run"
