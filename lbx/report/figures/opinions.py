"""Figures of judges' and raters' opinions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lbx.report.charts import Series, dots
from lbx.report.figures.base import Figure, FigureSource, point_of_row, run_series


def judge_results(source: FigureSource) -> Iterator[Figure]:
    """Draw win rates against each opponent, and mean ratings, judge by judge."""
    rows = [row for row in source.rows("judge_results") if row["task"] is None and row["questions"] == "all"]
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in sorted(rows, key=lambda row: (row["judge_id"], row["run_id"])):
        pair = row["kind"] == "pair"
        what = f"win rate against {source.label(row['against_run_id'])}, percent" if pair else "mean rating"
        point = point_of_row(row, value="win_rate") if pair else point_of_row(row, 1.0, "rating", "rating_")
        line = f"{row['label_judge']}, {row['fitness']}"
        title = f"{row['benchmark']}: {what}"
        series_of.setdefault(title, []).append((line, run_series(source, row["run_id"], [point])))
    return _draw(series_of, "A line for each judged run, below its judge.")


def rating_results(source: FigureSource) -> Iterator[Figure]:
    """Draw win rates and mean ratings, set by set."""
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in source.rows("rating_results"):
        if row["task"] is None:
            pair = row["kind"] == "pair"
            point = point_of_row(row, value="win_rate") if pair else point_of_row(row, 1.0, "mean", "mean_")
            title = f"{row['benchmark']}, {row['set_id']}: {'win rate, percent' if pair else 'mean rating'}"
            line = source.label(row["run_id"]) + (f" against {source.label(row['against_run_id'])}" if pair else "")
            series_of.setdefault(title, []).append((line, run_series(source, row["run_id"], [point])))
    return _draw(series_of, "A line for each rated run.")


def _draw(series_of: Mapping[str, list[tuple[str, Series]]], about: str) -> Iterator[Figure]:
    for title, series in series_of.items():
        lines = [line for line in series if (point := line[1].points[0]) and point.has_value]
        if len(lines) > 1:
            yield Figure(title, dots(title, about, lines))
