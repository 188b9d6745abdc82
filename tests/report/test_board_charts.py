"""The charts of the benchmarks' authors: each board's numbers, and nothing for what is unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from lbx.benchmarks.babilong import LENGTHS as BABILONG_LENGTHS
from lbx.benchmarks.helmet.tasks import LENGTHS as HELMET_LENGTHS
from lbx.benchmarks.infinitebench import TASKS as INFINITEBENCH_TASKS
from lbx.benchmarks.longbench.paper_tables import CATEGORIES
from lbx.benchmarks.longbench_pro.paper_tables import CATEGORIES as DIMENSIONS
from lbx.benchmarks.lveval import LEVELS
from lbx.benchmarks.mrcr import LENGTHS
from lbx.benchmarks.ruler.aggregates import LABELS
from lbx.report.rows.board import BOARDS, MOST, draw_charts

Row = dict[str, Any]
HOSTILE = "</svg><script>alert(1)</script>&\"'\x00\x1b[31m\u202e"


def row(model: str, at: int, **values: Any) -> Row:
    return {"model": model, "run_id": model, "note": None, "at": at, **values}


def drawn(name: str, rows: list[Row]) -> list[tuple[str, str]]:
    return draw_charts(BOARDS[name].board, rows, who)


def who(one: Row) -> tuple[str, int]:
    return one["model"], one["at"]


def texts(svg: str) -> list[str]:
    """Titles of marks: what a tooltip says."""
    tree = ElementTree.fromstring(svg)
    return [" ".join("".join(one.itertext()).split()) for one in tree.iter() if one.tag.endswith("title")]


def radii(at: int, language: str = "English", **values: Any) -> Row:
    return row(f"M{at}", at, language=language, **{**dict.fromkeys(CATEGORIES, 40.0 + at), **values})


BOARD_ROWS: dict[str, Callable[[], list[Row]]] = {
    "board_longbench_radar": lambda: [radii(0, summarization=77.7), radii(1), radii(2, "Chinese")],
    "board_longbench_relative": lambda: [
        row("M", 0, data="LongBench-E", **{"0-4k": 0.0, "4-8k": -0.125, "8k+": -0.777}),
        row("N", 1, data="LongBench", **{"0-4k": 0.0, "4-8k": None, "8k+": -0.5}),
    ],
    "board_longbench_e": lambda: [
        row("M", 0, category=category, **{"0-4k": 50.0, "4-8k": 40.0, "8k+": 77.7}) for category in ("average", "code")
    ],
    "board_longbench_v2": lambda: [
        row("M", 0, overall=77.7, overall_cot=41.0),
        row("Human*", 1, overall=53.7, overall_cot=None),
    ],
    "board_longbench_pro_length": lambda: [row("M", 0, **dict.fromkeys(DIMENSIONS["length"], 0.777))],
    "board_longbench_pro_primary_task": lambda: [row("M", 0, **dict.fromkeys(DIMENSIONS["primary_task"], 0.777))],
    "board_longbench_pro_difficulty": lambda: [row("M", 0, **dict.fromkeys(DIMENSIONS["difficulty"], 0.777))],
    "board_longbench_pro_requirement": lambda: [row("M", 0, Full=0.777, Partial=None)],
    "board_longbench_pro_language": lambda: [row("M", 0, Chinese=0.777, English=0.5)],
    "board_longbench_pro_tries": lambda: [
        row("M", 0, **{f"{metric}@{n}": 0.777 for metric in ("bon", "pass") for n in (1, 2, 3)})
    ],
    "board_lveval": lambda: [
        row("M", 0, dataset=name, **dict.fromkeys(LEVELS, 77.7)) for name in ("all", "cmrc_mixup", "lic_mixup")
    ],
    "board_mrcr": lambda: [row("M", 0, needles=name, **dict.fromkeys(LENGTHS, 77.7)) for name in ("all", "2needle")],
    "board_graphwalks": lambda: [row("M", 0, operation=name, **{"128k": 77.7, "1m": 5.0}) for name in ("all", "bfs")],
    "board_helmet": lambda: [
        row("M", 0, category=name, **dict.fromkeys(HELMET_LENGTHS, 77.7)) for name in ("average", "RAG")
    ],
    "board_infinitebench": lambda: [row("M", 0, average=77.7, **dict.fromkeys(INFINITEBENCH_TASKS, 77.7))],
    "board_babilong": lambda: [
        row("M", 0, questions=name, **dict.fromkeys(BABILONG_LENGTHS, 77.7)) for name in ("all", "qa1", "qa2")
    ],
    "board_ruler": lambda: [row("M", 0, **dict.fromkeys(LABELS.values(), 77.7))],
}  # fmt: skip
TWO = (
    "board_longbench_radar",
    "board_longbench_relative",
    "board_longbench_e",
    "board_longbench_pro_tries",
    "board_lveval",
    "board_mrcr",
    "board_graphwalks",
    "board_helmet",
    "board_babilong",
)
"""Boards with two charts here."""


@pytest.mark.parametrize("name", BOARD_ROWS)
def test_a_board_is_drawn_with_its_numbers(name: str) -> None:
    charts = drawn(name, BOARD_ROWS[name]())
    assert len(charts) == 1 + (name in TWO)
    for title, svg in charts:
        assert title.split(":")[0].split(",")[0] in svg
    assert any("77.7" in said for _, svg in charts for said in texts(svg))
    assert all(ElementTree.fromstring(svg).get("role") == "img" for _, svg in charts)


def test_boards_without_a_chart_and_empty_ones_have_none() -> None:
    assert drawn("board_leval_exam", [row("M", 0)]) == []
    assert all(drawn(name, []) == [] for name in BOARDS)


@pytest.mark.parametrize("name", BOARD_ROWS)
def test_what_is_unknown_is_not_drawn(name: str) -> None:
    rows = BOARD_ROWS[name]()
    unknown = [{key: None if isinstance(value, float) else value for key, value in one.items()} for one in rows]
    assert drawn(name, unknown) == []
    known = [said for _, svg in drawn(name, rows) for said in texts(svg)]
    assert [said for _, svg in drawn(name, [*rows, *unknown]) for said in texts(svg)] == known


def test_a_chart_of_lines_has_the_first_few_models_and_names_are_text() -> None:
    rows = [radii(at) for at in range(MOST + 3)]
    ((_, svg),) = drawn("board_longbench_radar", rows)
    assert {said.split(":")[0] for said in texts(svg) if said.startswith("M")} == {f"M{at}" for at in range(MOST)}
    hostile = [radii(0) | {"model": HOSTILE}]
    ((_, svg),) = drawn("board_longbench_radar", hostile)
    assert "<script" not in svg
    assert not {"\x00", "\x1b", "\u202e"} & set(svg)
