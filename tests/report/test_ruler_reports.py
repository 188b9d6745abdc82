"""RULER's tables, board and charts of a run with published models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lbx.base.records import Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.benchmarks.ruler.tasks import LENGTHS, TASKS, task_name
from lbx.report import page
from lbx.report.format.table_cells import sheet
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.report.rows.paper import sheets
from lbx.results import Store
from lbx.results.file.store import Store as OpenStore
from lbx.results.scoring.aggregation import aggregate_scores
from tests.report.made_answers import Answer as StoredAnswer
from tests.report.made_answers import make
from tests.report.made_runs import Answer, add_run

WITH_ALL = ReportQuery(models=[""], with_published_models=True)
RIGHT = dict(zip(LENGTHS, (12, 11, 11, 9, 8, 3), strict=True))
"""Right answers of 12 to each task, by length: 100 to 25 percent."""
COLUMNS = ["4k", "8k", "16k", "32k", "64k", "128k"]


def _answers(lengths: tuple[int, ...], tasks: tuple[str, ...] = TASKS) -> Iterator[Answer]:
    for length in lengths:
        for base in tasks:
            for number in range(12):
                task = task_name(base, length)
                sample = Sample("ruler", task, f"{number:04d}-a", f"{task} {number}", "?", ("right",), length=length,
                                length_unit="tokens")  # fmt: skip
                yield sample, "right" if number < RIGHT[length] else "wrong"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ruler") / "results.duckdb"
    with Store(path) as store:
        add_run(store, "mine", _answers(LENGTHS), model="mine")
        add_run(store, "part", _answers(LENGTHS[:2], TASKS[:3]), model="part")
    return path


@pytest.fixture
def store(results: Path) -> Iterator[OpenStore]:
    with Store(results, read_only=True) as opened:
        yield opened


def test_the_papers_tables(store: OpenStore) -> None:
    lengths, tasks = sheets(read_report(store, "paper", WITH_ALL))
    assert (lengths.title, tasks.title) == (
        "RULER: mean of the 13 tasks by length",
        "RULER: tasks by length",
    )
    headings = ["run", *COLUMNS, "Avg", "wAvg (inc)", "wAvg (dec)", "effective (k)"]
    assert [column.heading for column in lengths.columns] == headings
    rows = {row[0]: row[1:] for row in lengths.rows}
    numbers = [float(cell.partition(" ")[0]) for cell in rows["mine"]]
    assert numbers == [100, 91.7, 91.7, 75, 66.7, 25, 75, 63.9, 86.1, 16]
    assert [mark for at in (3, 6) for mark in "[±" if mark in rows["mine"][at]] == ["[", "±"]
    assert rows["mine"][9] == "16"
    assert rows["Qwen3-8B (reported by its authors)*"] == [
        "96.3", "96", "91.8", "91.2", "82.1", "77.4", "89.1", "", "", "32",
    ]  # fmt: skip
    assert rows["Llama2*"][:2] == ["85.6", ""]
    assert len(rows) == 46
    assert [column.heading for column in tasks.columns] == ["of", "run", *COLUMNS]
    assert list(dict.fromkeys(row[0] for row in tasks.rows)) == list(TASKS)


def test_the_board(store: OpenStore) -> None:
    board = sheet(REPORTS["board_ruler"], read_report(store, "board_ruler", WITH_ALL))
    names = [column.name for column in board.columns]
    rows = {row[0]: dict(zip(names, row, strict=True)) for row in board.rows}
    assert rows["Jamba-1.5-large (reported by its authors)*"]["effective"] == ">128k"
    assert rows["LWM*"]["effective"] == "<4k"
    assert (rows["mine"]["effective"], rows["mine"]["average"][:2]) == ("16k", "75")
    assert (rows["part"]["effective"], rows["part"]["note"]) == ("-", "not all tasks")
    assert rows["Gemini-1.5-pro*"]["claimed"] == "1M"
    assert any("older generators" in note for note in board.notes)
    assert not any("documents" in note for note in board.notes), "samples share no document"


def test_a_chart_has_the_runs_though_many_published_models_are_better(store: OpenStore) -> None:
    html = "".join(page.pieces(store, WITH_ALL))
    chart = html[html.index("RULER: mean of the 13 tasks by length, percent") :]
    chart = chart[: chart.index("</svg>")]
    assert "mine" in chart and "part" in chart and "Jamba-1.5-large" in chart
    assert "LongAlpaca" not in chart
    strip = html[html.index("<caption>ruler, tokens") :]
    strip = strip[: strip.index("</table>")]
    assert "mine" in strip and "Llama3.1 (8B)*" in strip


def test_effective_context_has_published_models(store: OpenStore) -> None:
    query = ReportQuery(models=["Llama3.1", "Mistral-Nemo", "Llama2"], keep_score=0.856)
    rows = read_report(store, "effective_context", query).dicts()
    published = [row for row in rows if row["run_id"] is None]
    assert list(dict.fromkeys(row["model"] for row in published)) == [
        "Llama3.1 (70B)*",
        "Llama3.1 (8B)*",
        "Mistral-Nemo*",
    ]
    assert {row["effective"] for row in published if row["model"] == "Llama3.1 (8B)*"} == {32_768}
    first = published[0]
    assert (first["length_up_to"], first["score"], first["low"], first["verdict"]) == (4096, 0.965, None, "undecided")
    assert {row["length_unit"] for row in rows} == {"tokens"}
    relative = read_report(store, "effective_context", ReportQuery(models=["Mistral-Nemo"])).dicts()
    assert {row["effective"] for row in relative if row["run_id"] is None} == {16_384}
    alone = read_report(store, "effective_context", ReportQuery()).dicts()
    assert {row["run_id"] for row in alone} == {"mine", "part"}


def test_a_file_from_elsewhere_may_have_other_tasks(tmp_path: Path) -> None:
    rows = [
        StoredAnswer(f"{task} {number}", {"anything": 0.5}, benchmark="ruler", task=task, length=4000)
        for task in ("odd", "vt", "vt_x", "_4096", "vt_4096", "vt_99999999999999999999")
        for number in range(2)
    ]
    path = make(tmp_path / "r.duckdb", rows)
    with Store(path) as store:
        aggregate_scores(store, "a", BENCHMARKS["ruler"])
    with Store(path, read_only=True) as store:
        for name in ("paper", "board_ruler", "effective_context", "task_scores", "group_scores", "leaderboard"):
            read_report(store, name, WITH_ALL)
        (sheet_of_tasks,) = sheets(read_report(store, "paper", WITH_ALL))
    assert {cell for row in sheet_of_tasks.rows for cell in row[1:]} <= {"-", ""}
