"""Charts of what judges and people say: win rates and means with their intervals, a line for each judged run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lbx.report.charts import Point, Series, dots
from lbx.report.page.html import Html, figure
from lbx.report.page.source import Source

Row = Mapping[str, Any]


def win_rates(source: Source) -> list[Html]:
    """Of each opponent's runs, judge by judge; of ratings, the means."""
    rows = [row for row in source.rows("judge_results") if row["task"] is None and row["questions"] == "all"]
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in sorted(rows, key=lambda row: (row["judge_id"], row["run_id"])):
        pair = row["kind"] == "pair"
        what = f"win rate against {source.label(row['against_run_id'])}, percent" if pair else "mean rating"
        point = _point(row, "win_rate", "", 100) if pair else _point(row, "rating", "rating_")
        line = f"{row['label_judge']}, {row['fitness']}"
        series_of.setdefault(f"{row['benchmark']}: {what}", []).append((line, _series(source, row, point)))
    return _figures(series_of, "A line for each judged run, below its judge.")


def ratings(source: Source) -> list[Html]:
    """Of each set of rated answers, run by run."""
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in source.rows("rating_results"):
        if row["task"] is None:
            pair = row["kind"] == "pair"
            point = _point(row, "win_rate", "", 100) if pair else _point(row, "mean", "mean_")
            title = f"{row['benchmark']}, {row['set_id']}: {'win rate, percent' if pair else 'mean rating'}"
            line = source.label(row["run_id"]) + (f" against {source.label(row['against_run_id'])}" if pair else "")
            series_of.setdefault(title, []).append((line, _series(source, row, point)))
    return _figures(series_of, "A line for each rated run.")


def _figures(found: Mapping[str, list[tuple[str, Series]]], about: str) -> list[Html]:
    drawn = ((title, [line for line in lines if line[1].points[0]]) for title, lines in found.items())
    return [figure(title, dots(title, about, lines)) for title, lines in drawn if len(lines) > 1]


def _series(source: Source, row: Row, point: Point | None) -> Series:
    return Series(source.label(row["run_id"]), source.mark_of(row["run_id"]), [point])


def _point(row: Row, name: str, of: str, scale: float = 1.0) -> Point | None:
    if row[name] is None:
        return None
    low, high = (None if row[of + end] is None else scale * row[of + end] for end in ("low", "high"))
    return Point(scale * row[name], low, high)
