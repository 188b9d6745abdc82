"""The reports of judges and raters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lbx.opinions import agreement, tables
from lbx.opinions.reports import OPINIONS
from lbx.report.draw.charts import Point, Series, dots, heat
from lbx.report.draw.figures import (
    Figure,
    FigureSource,
    point_of_row,
    run_series,
)
from lbx.report.format.labels import Row
from lbx.report.query import ReportQuery
from lbx.report.report import PagePlace, Report
from lbx.results import Store, Table


def _draw_judge_results(source: FigureSource) -> Iterator[Figure]:
    """Draw win rates against each opponent, and mean ratings, judge by judge."""
    rows = [row for row in source.rows("judge_results") if row["task"] is None and row["questions"] == "all"]
    rows.sort(key=lambda row: (row["judge_id"], row["run_id"]))
    yield from _matrices(source, [(row, f"{row['label_judge']}, {row['fitness']}") for row in rows])
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in rows:
        pair = row["kind"] == "pair"
        what = f"win rate against {source.label(row['against_run_id'])}, percent" if pair else "mean rating"
        point = point_of_row(row, value="win_rate") if pair else point_of_row(row, 1.0, "rating", "rating_")
        line = f"{row['label_judge']}, {row['fitness']}"
        title = f"{row['benchmark']}: {what}"
        series_of.setdefault(title, []).append((line, run_series(source, row["run_id"], [point])))
    yield from _draw_opinions(series_of, "A line for each judged run, below its judge.")


def _draw_rating_results(source: FigureSource) -> Iterator[Figure]:
    """Draw win rates and mean ratings, set by set."""
    rows = [row for row in source.rows("rating_results") if row["task"] is None]
    yield from _matrices(source, [(row, row["set_id"]) for row in rows])
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in rows:
        pair = row["kind"] == "pair"
        point = point_of_row(row, value="win_rate") if pair else point_of_row(row, 1.0, "mean", "mean_")
        title = f"{row['benchmark']}, {row['set_id']}: {'win rate, percent' if pair else 'mean rating'}"
        line = source.label(row["run_id"]) + (f" against {source.label(row['against_run_id'])}" if pair else "")
        series_of.setdefault(title, []).append((line, run_series(source, row["run_id"], [point])))
    yield from _draw_opinions(series_of, "A line for each rated run.")


def _matrices(source: FigureSource, rows: Sequence[tuple[Row, str]]) -> Iterator[Figure]:
    """Draw a matrix of win rates for each judge or set with several opponents.

    A pair that was judged in one direction has its reverse as a derived value: draws count half, so that both add up to
    100.
    """
    pairs_of: dict[tuple[str, str], dict[tuple[str, str], Point]] = {}
    for row, judge in rows:
        if row["kind"] == "pair" and row["win_rate"] is not None:
            pairs = pairs_of.setdefault((row["benchmark"], judge), {})
            pairs[row["run_id"], row["against_run_id"]] = point_of_row(row, value="win_rate")
    for (benchmark, judge), pairs in pairs_of.items():
        if len({against for _, against in pairs}) < 2:
            continue
        runs = sorted({run for pair in pairs for run in pair}, key=source.mark_of)
        names = [source.label(run) for run in runs]
        derived = {(b, a): _reverse(point) for (a, b), point in pairs.items() if (b, a) not in pairs}
        cells = {(runs.index(a), runs.index(b)): point for (a, b), point in (pairs | derived).items()}
        title = f"{benchmark}, {judge}: win rate, percent"
        about = "Each row's run against each column's, the darker the higher; 50 is a tie."
        marks = [source.mark_of(run) for run in runs]
        ends = (0.0, 100.0)
        svg = heat(title, about, rows=names, columns=names, cells=cells, ends=ends, marks=marks, column_marks=marks)
        note = "Values in parentheses are 100 minus the reverse pair, which alone was judged." if derived else ""
        yield Figure(title, svg, f"Rows against columns. {note}".strip(), benchmark)


def _reverse(point: Point) -> Point:
    low, high = (None if end is None else 100 - end for end in (point.high, point.low))
    return Point(None if point.value is None else 100 - point.value, low, high, point.note, is_complement=True)


def _draw_opinions(series_of: Mapping[str, list[tuple[str, Series]]], about: str) -> Iterator[Figure]:
    for title, series in series_of.items():
        lines = [line for line in series if (point := line[1].points[0]) and point.has_value]
        if len(lines) > 1:
            yield Figure(title, dots(title, about, lines))


def _report(name: str, rows: Callable[[Store, ReportQuery], Table], order: int, **more: Any) -> Report:
    old = OPINIONS[name]
    return Report(
        name=name,
        title=old.title,
        columns=old.columns,
        rows=rows,
        notes=old.notes,
        empty=old.empty,
        page=PagePlace("Judges and people", order),
        **more,
    )


JUDGE_RESULTS = _report("judge_results", tables.results, 6, draw=_draw_judge_results)
JUDGE_BIAS = _report("judge_bias", tables.bias, 7)
RATING_RESULTS = _report("rating_results", tables.ratings, 8, draw=_draw_rating_results, has_ratings=True)
AGREEMENT = _report("agreement", agreement.table, 9, has_ratings=True)
