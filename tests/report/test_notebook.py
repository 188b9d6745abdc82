"""Reports as objects, for notebooks."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import lbx
from lbx.cli.read_options import ReportOptions
from lbx.options.option import fields_of
from lbx.report.notebook import Report
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS
from tests.command_line import Lbx
from tests.page_parts import EVIL, results_file
from tests.screen import on_screen


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_file(tmp_path_factory.mktemp("notebook") / "r.duckdb", ["first", "second", EVIL])


def read(path: Path, name: str, **options: Any) -> Report:
    with lbx.open_results(path) as opened:
        return opened.report(name, **options)


def test_a_report_is_the_one_of_the_command_and_stays_when_the_file_is_closed(results: Path) -> None:
    report = read(results, "leaderboard")
    assert str(report) == repr(report) == Lbx().ok("report", results, "leaderboard").stdout.rstrip()
    csv = Lbx().ok("report", results, "leaderboard", "--format", "csv").stdout.splitlines()
    assert csv[0] == ",".join(report.columns) and len(csv) == 1 + len(report.rows)
    assert report.name == "leaderboard"


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_is_an_object(results: Path, name: str) -> None:
    report = read(results, name, **({"baseline": "first"} if "--baseline" in REPORTS[name].takes else {}))
    assert all(len(row) == len(report.columns) for row in report.rows)
    assert str(report) and report._repr_html_()


def test_its_html_is_a_plain_table_without_markup_of_the_file(results: Path) -> None:
    tags = set[str]()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            tags.add(tag)
            assert not {"style", "onload"} & {name for name, _ in attributes}

    for name in ("leaderboard", "paper", "task_scores"):
        Tags().feed(read(results, name)._repr_html_())
    assert tags == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p"}


def test_options_are_those_of_the_command(results: Path) -> None:
    assert len(read(results, "leaderboard", runs="first").rows) == 1
    assert len(read(results, "leaderboard", runs=["first", "second"]).rows) == 2
    (row,) = (row for row in read(results, "comparison", baseline="second", runs=["first", "second"]).rows[:1])
    assert row[0] == "second" or "second" in row
    assert "low" not in read(results, "leaderboard", without_intervals=True).columns
    names = {field.option_name for field in fields_of(ReportQuery).values() if field.option}
    of_the_command = {field.option_name for field in fields_of(ReportOptions).values()}
    assert names - {"--run", "--no-interval"} == {option for report in REPORTS.values() for option in report.takes}
    assert names < of_the_command


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("leaderbord", {}, "no report 'leaderbord'. Did you mean leaderboard"),
        ("board", {}, "Name one of: board_longbench,"),
        ("leaderboard", {"run": "first"}, "no option 'run'. Did you mean runs"),
        ("leaderboard", {"baseline": "first"}, "Only the reports .* take --baseline"),
        ("leaderboard", {"runs": "third"}, "No run 'third'"),
        ("comparison", {"baseline": "third"}, "third"),
    ],
)
def test_errors_name_what_is_near(results: Path, name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(lbx.LbxError, match=message):
        read(results, name, **options)


def test_libraries_are_optional(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = read(results, "leaderboard")
    for name, convert in (("pandas", report.to_pandas), ("pyarrow", report.to_arrow)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(lbx.LbxError, match=f"{name} is not installed. Install it"):
            convert()


@pytest.mark.parametrize("name", ["leaderboard", "comparison", "failures"])
def test_a_report_as_a_data_frame(results: Path, name: str) -> None:
    pytest.importorskip("pandas")
    report = read(results, name, **({"baseline": "first"} if name == "comparison" else {}))
    frame = report.to_pandas()
    assert list(frame.columns) == list(report.columns) and len(frame) == len(report.rows)


@pytest.mark.parametrize("name", ["leaderboard", "comparison", "failures", "judge_results"])
def test_a_report_as_an_arrow_table(results: Path, name: str) -> None:
    pytest.importorskip("pyarrow")
    report = read(results, name, **({"baseline": "first"} if name == "comparison" else {}))
    table = report.to_arrow()
    assert table.column_names == list(report.columns) and table.num_rows == len(report.rows)


def test_charts_are_the_file_of_the_command(results: Path, tmp_path: Path) -> None:
    report = read(results, "leaderboard")
    chart = report.chart()
    chart.save(tmp_path / "chart.svg")
    saved = (tmp_path / "chart.svg").read_text("utf-8")
    assert saved == chart.svg == chart._repr_svg_()
    command = Lbx().ok("report", results, "leaderboard", "--format", "svg").stdout
    assert command.replace("r.duckdb: ", "") == saved
    assert ElementTree.fromstring(saved).tag.endswith("svg")
    with pytest.raises(lbx.LbxError, match=r"chart.pdf ends neither with .svg nor with .png"):
        chart.save(tmp_path / "chart.pdf")
    with pytest.raises(lbx.LbxError, match=r"The report failures has no charts\. Name a report with charts: "):
        read(results, "failures").chart()
    with pytest.raises(lbx.LbxError, match="too few rows for a chart"):
        read(results, "leaderboard", runs="first").chart()


def test_a_chart_as_png(results: Path, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="needs lbx[png]")
    read(results, "leaderboard").chart().save(tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_on_a_terminal_a_report_fits(results: Path) -> None:
    script = f"import lbx\nwith lbx.open_results({str(results)!r}) as results:\n    print(results.report('guards'))"
    shown = on_screen(script, columns=80, program=("-P", "-c"))
    assert shown.code == 0 and "Columns hidden (terminal too narrow)" in shown.text
