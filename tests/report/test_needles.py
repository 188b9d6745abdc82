"""Needles by length and depth."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lbx.report.format.table_cells import sheet
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.results import Store, Table
from lbx.statistics.estimates import binomial_interval
from tests.command_line import Lbx
from tests.report.made_answers import Answer, make
from tests.screen import on_screen


def table_of(path: Path, **wanted: Any) -> Table:
    with Store(path, read_only=True) as store:
        return read_report(store, "needles", ReportQuery(**wanted))


def needles(
    task: str, found: dict[tuple[int, float], list[float]], unit: str = "words", run: str = "a"
) -> list[Answer]:
    return [
        Answer(
            f"{length} {depth} {at}",
            {"recall": score},
            run=run,
            benchmark="needle",
            task=task,
            document=f"{task} {length} {at}",
            length=length,
            unit=unit,
            meta={"depth": depth},
        )
        for (length, depth), scores in found.items()
        for at, score in enumerate(scores)
    ]


FOUND = {(64, 0.0): [1.0] * 4, (64, 0.5): [1.0, 1.0, 1.0, 0.0], (128, 0.0): [0.5, 0.0], (128, 0.5): [1.0, 0.0]}


def test_each_cell_has_its_mean_its_interval_and_its_count(tmp_path: Path) -> None:
    rows = table_of(make(tmp_path / "r.duckdb", needles("single_en", FOUND))).dicts()
    assert {(row["length"], row["depth"]): (row["n"], row["score"]) for row in rows} == {
        (64, 0.0): (4, 1.0),
        (64, 0.5): (4, 0.75),
        (128, 0.0): (2, 0.25),
        (128, 0.5): (2, 0.5),
    }
    assert all(row["method"] in ("logit", "exact") and row["task"] == "single_en" for row in rows)
    assert (rows[0]["low"], rows[0]["high"]) == pytest.approx(binomial_interval(1.0, 4))


def test_tasks_of_one_unit_are_averaged_cell_by_cell(tmp_path: Path) -> None:
    other = {(64, 0.0): [0.0, 0.0], (64, 0.5): [1.0], (256, 0.0): [1.0]}
    rows = [*needles("single_en", FOUND), *needles("multikey_en", other), *needles("single_zh", FOUND, "characters")]
    means = [row for row in table_of(make(tmp_path / "r.duckdb", rows)).dicts() if row["task"] is None]
    assert [
        (row["length_unit"], row["length"], row["depth"], row["tasks"], row["n"], row["score"]) for row in means
    ] == [
        ("words", 64, 0.0, 2, 6, 0.5),
        ("words", 64, 0.5, 2, 5, 0.875),
    ], "only cells that every task has"


def test_people_see_depths_down_and_lengths_across(tmp_path: Path) -> None:
    table = table_of(make(tmp_path / "r.duckdb", needles("single_en", FOUND)))
    made = sheet(REPORTS["needles"], table)
    assert [column.heading for column in made.columns][-3:] == ["depth %", "64", "128"]
    assert [row[-3] for row in made.rows] == ["0", "50"]
    assert made.rows[0][-2].startswith("100"), made.rows


def test_a_benchmark_of_one_s_own_may_say_depths_too(tmp_path: Path) -> None:
    own = Answer("q", {"found": 1.0}, benchmark="mine", task="t", meta={"depth": 0.25, "metrics": ["found"]})
    odd = Answer("r", {"f1": 1.0}, task="qasper", meta={"depth": "deep"})
    (row,) = table_of(make(tmp_path / "r.duckdb", [own, odd, Answer("s", {"f1": 1.0})])).dicts()
    assert (row["benchmark"], row["depth"], row["n"], row["score"]) == ("mine", 0.25, 1, 1.0)


def test_a_terminal_and_text_files_have_a_shaded_grid_for_each_task_and_their_mean(tmp_path: Path) -> None:
    lengths = (1000, 4096, 16384, 32768, 65536, 131072, 262144, 1 << 20)
    found = {(length, depth / 4): [1.0] * 4 + [0.0] * at for at, length in enumerate(lengths) for depth in range(5)}
    rows = [row for task in ("single_en", "multikey_en") for row in needles(task, found, "tokens")]
    path = make(tmp_path / "r.duckdb", [*rows, *needles("single_en", {(64, 0.5): [0.0]}, run="b")])
    command = ("report", path, "needles")
    text = Lbx().ok(*command).stdout
    titles = [line for line in text.splitlines() if "needles found" in line]
    assert titles == [
        "model a, needle, mean of 2 tasks: needles found (percent) by depth and tokens",
        "model a, needle, multikey_en: needles found (percent) by depth and tokens",
        "model a, needle, single_en: needles found (percent) by depth and tokens",
        "model b, needle, single_en: needles found (percent) by depth and words",
    ]
    assert "depth %  1,000     4k    16k    32k    64k   128k   256k     1M\n" in text
    assert "     25  █ 100  █  80  ▓  67  ▒  57  ▒  50  ▒  44  ▒  40  ░  36\n" in text
    assert "     50  ·   0\n" in text
    assert "The widest 95% interval is 19 to 99 percent. --format markdown and csv have all intervals." in text
    assert Lbx().ok(*command, "-o", tmp_path / "out").stdout == "" and (tmp_path / "out").read_text("utf-8") == text
    plain = Lbx().ok(*command, "--ascii").stdout
    assert plain.isascii() and "     25    100    80    67    57    50    44    40    36\n" in plain
    shown = on_screen(*command)
    assert "\x1b[48;5;17m   100 \x1b[0m" in shown.raw and "     25    100     80     67     57" in shown.text
    assert not {*"·░▒▓█"} & {*shown.text} and max(map(len, shown.lines)) <= 80
    assert shown.lines[: len(text.splitlines())][1:9] == [
        re.sub("[·░▒▓█]", " ", line).rstrip() for line in text.splitlines()[1:9]
    ]
    assert "█ 100" in on_screen(*command, environment={"NO_COLOR": "1"}).text
    assert "█ 100" in on_screen(*command, environment={"TERM": "linux"}).text, "a terminal of 8 colours"
    assert "[" in Lbx().ok(*command, "--format", "markdown").stdout.splitlines()[4], "intervals are in other formats"


@pytest.mark.parametrize("rows", [[], [Answer("s", {"f1": 1.0})], needles("single_en", {(64, 0.0): [float("nan")]})])
def test_odd_files_have_words(tmp_path: Path, rows: list[Answer]) -> None:
    made = sheet(REPORTS["needles"], table_of(make(tmp_path / "r.duckdb", rows)))
    assert made.notes or made.rows
    assert "nan" not in " ".join(text for row in made.rows for text in row)
