"""A report's rows as texts: units, intervals, what is unknown, pivots."""

from __future__ import annotations

import math

import pytest

from lbx.base.columns import Column
from lbx.report.format.digits import number, quantity, quantity_with_interval, with_interval
from lbx.report.format.sheets import plain_columns
from lbx.report.format.table_cells import cells, sheet, without_intervals
from lbx.report.report import Report
from lbx.report.reports import REPORTS
from lbx.results import Table


@pytest.mark.parametrize(
    ("value", "low", "high", "method", "scale", "text"),
    [
        (0.449, 0.386, 0.512, "t", 100, "44.9 ± 6.3"),
        (0.015, 0.003, 0.079, "logit", 100, "1.5 [0.3, 7.9]"),
        (0.449, 0.325, 0.573, "t", 100, "44.9 ± 12.4"),
        (0.44912, 0.44282, 0.45542, "t", 100, "44.9 ± 0.6"),
        (0.44912, 0.44911, 0.44913, "t", 100, "44.9 ± 0.1"),
        (0.5, 0.4004, 0.5996, "t", 100, "50.0 ± 10.0"),
        (0.5, 0.49004, 0.50996, "t", 100, "50.0 ± 1.0"),
        (44.91, 38.6, 51.22, "t", 1, "44.9 ± 6.3"),
        (22.4, 20.3, 24.4, "t", 1, "22.4 ± 2.0"),
        (0.18, 0.103, 0.259, "logit", 1, "0.18 ± 0.08"),
        (0.2, 0.103, 0.459, "logit", 1, "0.2 [0.1, 0.5]"),
        (24.5, 23.99, 25.01, "t", 1, "24.5 ± 0.5"),
        (12.5, 2.2, 47.1, "logit", 1, "12.5 [2.2, 47.1]"),
        (12.5, 0.5, 24.5, "t", 1, "12.5 ± 12.0"),
        (28.9, 28.11, 29.69, "t", 1, "28.9 ± 0.8"),
        (14.363650026000187, 13.1, 15.6, "t", 1, "14.4 ± 1.2"),
        (14.363650026000187, None, None, "one cluster", 1, "14.36 (one document)"),
        (50.0, 47.0, 53.0, "t", 1, "50.0 ± 3.0"),
        (16.769637, None, None, None, 1, "16.77"),
        (-0.02, -0.04, 0.0, "t", 100, "-2.0 ± 2.0"),
        (1.0, 0.76, 1.0, "logit", 100, "100.0 [76.0, 100.0]"),
        (0.125, None, None, "one cluster", 100, "12.5 (one document)"),
        (1.0, None, None, "all alike", 100, "100.0 (all alike)"),
        (33.3, None, None, None, 1, "33.3"),
        (0.333, math.nan, math.inf, None, 100, "33.3"),
        (None, 0.1, 0.2, "t", 100, "-"),
        (math.nan, None, None, None, 100, "-"),
    ],
)
def test_a_score_and_how_sure_it_is(
    value: float | None, low: float | None, high: float | None, method: str | None, scale: float, text: str
) -> None:
    assert with_interval(value, low, high, method, scale) == text


def test_numbers_in_0_to_1_have_two_decimals_more() -> None:
    assert with_interval(0.5213, 0.509, 0.5336, "t", 1, most=4) == "0.521 ± 0.012"
    assert with_interval(0.5213, 0.5138, 0.5288, "t", 1, most=4) == "0.5213 ± 0.0075"
    assert with_interval(0.52131234, None, None, None, 1, most=4) == "0.5213"


def test_other_numbers() -> None:
    values = (14.363650026000187, 50.0, 28.2, 1234567.891, 0.45678912, 0.00001234, 0, -3.14159)
    said = ["14.36", "50", "28.2", "1,234,567.89", "0.4568", "1.2e-05", "0", "-3.14"]
    assert [number(value) for value in values] == said
    assert [quantity(value) for value in (12.5, 1234.56, 0.123456, 7, 7.0, 0.0)] == [
        "12.5",
        "1,235",
        "0.123",
        "7",
        "7",
        "0",
    ]
    assert quantity_with_interval(14363.650026, 12000.1234, 17000.789) == "14,364 [12,000, 17,001]"
    assert quantity_with_interval(3.14159, 2.5, 4.123456) == "3.14 [2.50, 4.12]"
    assert quantity_with_interval(3.14159, None, None) == "3.14"


def test_one_cluster_may_be_one_of_something_else() -> None:
    assert with_interval(0.5, None, None, "one cluster", 100, "question") == "50.0 (one question)"


def test_the_interval_of_a_row_stands_beside_its_score() -> None:
    names = ["task", "score", "low", "high", "method"]
    table = Table(names, [("qasper", 0.449, 0.386, 0.512, "t"), ("trec", 0.5, None, None, "all alike")])
    view = Report("", "", (Column("task", "task"), Column("score", "score", "percent", interval=True)))
    assert cells(view, table)[1] == [["qasper", "44.9 ± 6.3"], ["trec", "50.0 (all alike)"]]
    assert "All alike: every document has the same value, so there is no interval." in sheet(view, table).notes
    alone = without_intervals(view, table)
    assert alone.columns == ["task", "score"] and alone.rows[0] == ("qasper", 0.449)
    assert cells(view, alone)[1] == [["qasper", "44.9"], ["trec", "50.0"]]


def test_what_is_no_number_is_missing() -> None:
    view = Report("", "", (Column("a", "a", "count", unknown=True), Column("b", "b", "percent", interval=True)))
    table = Table(["a", "b"], [(None, math.nan), (math.nan, math.inf), (0, 0.0)])
    assert cells(view, table)[1] == [["-", "-"], ["-", "-"], ["0", "0.0"]]
    assert plain_columns(table)[1] == [["", ""], ["", ""], ["0", "0.0"]]


def test_a_score_has_one_decimal_everywhere() -> None:
    view = REPORTS["comparison"]
    names = ["run_a", "run_b", "score_a", "score_b", "difference", "low", "high", "method", "detectable"]
    rows = [
        ("a", "b", 0.28871, 0.47482, 0.18611, 0.1762, 0.196, "t", 0.0141),
        ("a", "b", 0.28871, 0.47482, 0.18611, 0.1311, 0.2411, "t", 0.0741),
        ("a", "b", 0.28871, 0.47482, 0.18611, None, None, "all alike", None),
    ]
    headings = [column.heading for column in cells(view, Table(names, rows))[0]]
    shown = [dict(zip(headings, row, strict=True)) for row in cells(view, Table(names, rows))[1]]
    assert [[row[name] for name in ("first", "second", "points", "detectable")] for row in shown] == [
        ["28.9", "47.5", "18.6 ± 1.0", "1.4"],
        ["28.9", "47.5", "18.6 ± 5.5", "7.4"],
        ["28.9", "47.5", "18.6 (all alike)", "-"],
    ]


def test_what_nobody_knows_is_a_sentence_once() -> None:
    columns = (Column("model", "model"), Column("a", "a", "count", unknown=True), Column("b", "b", unknown=True))
    view = Report("", "", columns, is_informative=lambda row: row["a"] is not None)
    made = sheet(
        view, Table(["model", "a", "b"], [("m", 1, None), ("n", None, None), ("o", None, None), ("n", None, "")])
    )
    assert ([column.heading for column in made.columns], made.rows) == (["model", "a"], [["m", "1"]])
    assert list(made.notes) == [
        "Columns left out, because no answer has a value: b.",
        "Left out: 3 rows of n, o, without these values (imported answers never have them). "
        "JSON and csv include the rows.",
    ]
    nothing = sheet(view, Table(["model", "a", "b"], [(name, None, None) for name in "vwxyz"]))
    assert not nothing.rows and "5 rows of v, w, x and 2 more" in nothing.notes[0]


def test_a_pivot_has_a_column_for_what_is_unknown() -> None:
    view = Report("", "", (Column("task", "task"),), pivot=("length", Column("score", "score", "percent")))
    columns, body = cells(view, Table(["run_id", "task", "length", "score"], [("r", "t", None, 0.5), ("r", "t", 8, 1)]))
    assert [column.heading for column in columns] == ["task", "8", "unknown"]
    assert body == [["t", "100.0", "50.0"]]
    columns, body = cells(
        view, Table(["run_id", "task", "length", "score"], [("r", "t", None, None), ("r", "u", 8, 1)])
    )
    assert [column.heading for column in columns] == ["task", "8"], "nothing is known of the unknown"
    assert body == [["t", ""], ["u", "100.0"]]


def test_kinds() -> None:
    kinds = ("count", "percent", "points", "number", "text")
    view = Report("", "", [Column(kind, kind, kind) for kind in kinds])
    rows = [(1234567, 0.12345, -0.5, 33.33, 7), (0, 1.0, 0.004, 100.0, "x"), (None,) * 5]
    assert cells(view, Table(kinds, rows))[1] == [
        ["1,234,567", "12.3", "-50.0", "33.33", "7"],
        ["0", "100.0", "+0.4", "100", "x"],
        ["-"] * 5,
    ]


def test_an_optional_column_is_there_where_a_row_has_it() -> None:
    view = Report("", "", (Column("a", "A"), Column("b", "B", optional=True)))
    for values, shown in (([None, None], ["A"]), ([None, ""], ["A", "B"]), ([None, 0], ["A", "B"]), ([], ["A"])):
        columns, body = cells(view, Table(["a", "b"], [("x", value) for value in values]))
        assert [column.heading for column in columns] == shown
        assert [len(row) for row in body] == [len(shown)] * len(values)


def test_a_pivot_has_a_line_for_each_run() -> None:
    """Two runs that look the same stay two lines."""
    view = REPORTS["length_curve"]
    names = ["run_id", "benchmark", "task", "length_unit", "model", "backend", "mode", "length_up_to", "score"]
    rows = [
        ("r1", "b", "t", "words", "m", "hf", None, 1024, 0.5),
        ("r1", "b", "t", "words", "m", "hf", None, 131072, 1.0),
        ("r2", "b", "t", "words", "m", "hf", None, 4096, 0.25),
    ]
    columns, body = cells(view, Table(names, rows))
    assert [column.heading for column in columns][-3:] == ["1,024", "4,096", "131,072"]
    assert "mode" not in [column.heading for column in columns]
    assert [row[-3:] for row in body] == [["50.0", "", "100.0"], ["", "25.0", ""]]


def test_a_pivot_by_run_joins_the_runs_lines() -> None:
    view = REPORTS["paper"]
    names = ["run", "run_id", "benchmark", "line", "official"]
    rows = [
        ("b (cot)", "r2", "longbench", "qasper", 12.5),
        ("a", "r1", "longbench", "qasper", None),
        ("a", "r1", "longbench", "lcc", 50.0),
    ]
    columns, body = cells(view, Table(names, rows))
    assert [column.heading for column in columns] == ["benchmark", "task", "a", "b (cot)"]
    assert body == [["longbench", "qasper", "-", "12.5"], ["longbench", "lcc", "50", ""]]
    assert cells(view, Table(names, []))[1] == []
