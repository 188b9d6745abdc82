"""The benchmarks' boards in the page: tables with the marks of runs and published models, and the charts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbx.benchmarks.lveval import LEVELS
from lbx.report.rows.board import BOARDS
from lbx.results import Store
from tests.command_line import Lbx
from tests.page_parts import Page
from tests.report.made_runs import add_run, trec
from tests.report.test_boards import HOSTILE, lveval, pro, v2


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("boards") / "results.duckdb"
    with Store(path) as store:
        tasks = [f"{dataset}_{level}" for dataset in ("factrecall_en", "hotpotwikiqa_mixup") for level in LEVELS]
        levels = [answer for task in tasks for answer in lveval(task, 1, 2)]
        add_run(store, "one", [*v2(6, 12), *pro(2), *trec(3, 4), *levels], model=HOSTILE)
        add_run(store, "two", [*v2(5, 12), *pro(3)], model="plain", settings={"thinking": True, "cot": True})
    return path


def shown(path: Path, *more: str) -> Page:
    done = Lbx()("report", path, *more, "--format", "html")
    assert done.returncode == 0, done.stderr
    assert "<b>|" not in done.stdout
    assert not {"\x1b", "\u202e"} & set(done.stdout)
    found = Page(done.stdout)
    assert len(found.ids()) == len(set(found.ids()))
    return found


def test_the_whole_page_has_the_boards_with_their_charts(results: Path) -> None:
    found = shown(results, "--published", "Qwen3-8B")
    assert "board" in found.ids()
    assert "The benchmarks' leaderboards" in found.text
    rows = [row for row in found.cells if row and "Human*" in row[0]]
    assert rows, "LongBench v2's lines stand in its table"
    titles = (
        "LongBench Pro: primary tasks",
        "LongBench Pro: sample length",
        "LongBench v2: Overall",
        "LV-Eval: mean over",
    )
    assert [title for title in titles if title not in found.text] == []
    of_models = {row[0] for row in found.cells if row and row[0].startswith("Qwen3-8B")}
    assert {"Qwen3-8B*", "Qwen3-8B (thinking)*", "Qwen3-8B (nonthinking)*"} <= of_models


def test_a_board_alone_is_a_page(results: Path) -> None:
    found = shown(results, "board_longbench_v2")
    assert "plain" in found.text
    assert "LongBench Pro" not in found.text
    assert sum(tag == "svg" and attributes.get("role") == "img" for tag, attributes in found.tags) == 1
    assert "No run answers this benchmark." in shown(results, "board_leval_f1").text


def test_all_boards_are_sections_of_a_page(results: Path) -> None:
    ids = shown(results, "board").ids()
    held = [name for name in BOARDS if name in ids]
    assert {"board_longbench", "board_longbench_v2", "board_longbench_pro", "board_lveval"} <= set(held)
    assert "board_leval_exam" not in ids
