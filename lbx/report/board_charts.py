"""The charts of the benchmarks' authors, drawn of the rows of their boards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lbx.report.board_shapes import BUCKETS, CATEGORIES, DIMENSIONS, LEVELS, TRIES
from lbx.report.charts import Point, Series, curve, dots, heat, radar

Row = Mapping[str, Any]
Who = Callable[[Row], tuple[str, int]]
"""What a row's model is called in a chart, and its mark."""
Chart = tuple[str, str]
"""A title, and SVG."""

MOST = 8
"""Models in a chart of lines: the first of the board. Heat maps and dots have up to ``MOST_ROWS``."""
MOST_ROWS = 40


def drawn(name: str, rows: Sequence[Row], who: Who) -> list[Chart]:
    """The charts of a board; none where its authors have none, or its rows too little for one.

    Args:
        name: the report's.
        rows: its rows, best first.
    """
    return _DRAWN[name](rows, who) if name in _DRAWN and rows else []


def _series(rows: Iterable[Row], who: Who, columns: Iterable[str], scale: float = 1.0) -> list[Series]:
    """A series for each row that has any of the columns."""
    names = list(columns)
    found = []
    for row in rows:
        points = [None if row[name] is None else _point(row, name, scale) for name in names]
        if any(points):
            found.append(Series(*who(row), points))
    return found


def _point(row: Row, name: str, scale: float) -> Point:
    low, high = (row.get(f"{name}_{end}") for end in ("low", "high"))
    ends = [None if end is None else scale * end for end in (low, high)]
    return Point(scale * row[name], ends[0], ends[1], row["note"] or "")


def _groups(rows: Sequence[Row], column: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[column], []).append(row)
    return found


def _about(lines: Sequence[Series], what: str) -> str:
    return f"{what}, of {len(lines)} {'model' if len(lines) == 1 else 'models'}; the numbers are in the table."


def _radii(rows: Sequence[Row], who: Who) -> list[Chart]:
    found = []
    for language, some in _groups(rows, "language").items():
        shapes = _series(some[:MOST], who, CATEGORIES)
        title = f"LongBench, {language}: radius 40 + 60 × score / best score in the table"
        if shapes:
            found.append((title, radar(title, _about(shapes, "Six categories"), list(CATEGORIES.values()), shapes)))
    return found


def _relative(rows: Sequence[Row], who: Who) -> list[Chart]:
    found = []
    for data, some in _groups(rows, "data").items():
        lines = _series(some[:MOST], who, BUCKETS, 100)
        title = f"{data}: relative score by length, percent of the task's score, 0 at 0-4k"
        if lines:
            found.append((title, curve(title, _about(lines, "Mean over the tasks"), BUCKETS, lines)))
    return found


def _in_e(rows: Sequence[Row], who: Who) -> list[Chart]:
    found = []
    for category, some in _groups(rows, "category").items():
        lines = _series(some[:MOST], who, BUCKETS)
        title = f"LongBench-E: {category}, percent, by length"
        if lines:
            found.append((title, curve(title, _about(lines, "Three lengths"), BUCKETS, lines)))
    return found


def _v2(rows: Sequence[Row], who: Who) -> list[Chart]:
    """Overall, plain above with CoT, a label a model; Human and Random among them, where they belong."""
    held = []
    for row in rows[:MOST_ROWS]:
        name, mark = who(row)
        for column, said in (("overall", name), ("overall_cot", f"{name}, w/ CoT")):
            if row[column] is not None:
                held.append((name, Series(said, mark, [Point(row[column], note=row["note"] or "")])))
    title = "LongBench v2: Overall, percent; plain, and with CoT below it"
    return [(title, dots(title, f"{len(rows)} models, as in the table.", held))] if held else []


def _grouped(rows: Sequence[Row], who: Who, name: str) -> list[Chart]:
    shown = rows[:MOST]
    held = [(group, one) for group in DIMENSIONS[name] for one in _series(shown, who, [group], 100)]
    title = f"LongBench Pro: {name}, percent"
    return [(title, dots(title, f"{len(shown)} models by {name}; the numbers are in the table.", held))] if held else []


def _lengths(rows: Sequence[Row], who: Who) -> list[Chart]:
    names = DIMENSIONS["length"]
    some = rows[:MOST_ROWS]
    cells = {
        (at, column): Point(100 * row[name], note=row["note"] or "")
        for at, row in enumerate(some)
        for column, name in enumerate(names)
        if row[name] is not None
    }
    title = "LongBench Pro: sample length, percent"
    about = f"{len(some)} models by {len(names)} lengths, the darker the higher; the numbers are in the cells."
    labels = [who(row)[0] for row in some]
    return [(title, heat(title, about, rows=labels, columns=names, cells=cells))] if cells else []


def _tasks(rows: Sequence[Row], who: Who) -> list[Chart]:
    names = DIMENSIONS["primary_task"]
    shapes = _series(rows[:MOST], who, names, 100)
    title = "LongBench Pro: primary tasks, percent"
    axes = [name.partition(".")[0] for name in names]
    return [(title, radar(title, _about(shapes, "Eleven tasks"), axes, shapes))] if shapes else []


def _tries(rows: Sequence[Row], who: Who) -> list[Chart]:
    found = []
    for metric, said in (("bon", "Best-of-N"), ("pass", "Pass@N")):
        lines = _series(rows[:MOST], who, [f"{metric}@{n}" for n in TRIES], 100)
        title = f"LongBench Pro: {said}, percent"
        if lines:
            found.append((title, curve(title, _about(lines, "N from 1 to 3"), list(map(str, TRIES)), lines)))
    return found


def _levels(rows: Sequence[Row], who: Who) -> list[Chart]:
    by_dataset = _groups(rows, "dataset")
    lines = _series(by_dataset.get("all", [])[:MOST], who, LEVELS)
    title = "LV-Eval: mean over the datasets by level, percent"
    found = [(title, curve(title, _about(lines, "Five lengths"), LEVELS, lines))] if lines else []
    datasets = [name for name in by_dataset if name != "all"]
    for whose in dict.fromkeys(who(row) for row in rows[:MOST]):
        cells = {
            (at, column): Point(row[level], note=row["note"] or "")
            for at, dataset in enumerate(datasets)
            for row in by_dataset[dataset]
            if who(row) == whose
            for column, level in enumerate(LEVELS)
            if row[level] is not None
        }
        title = f"LV-Eval: {whose[0]} by dataset and level, percent"
        about = (
            f"{len(datasets)} datasets by {len(LEVELS)} lengths, the darker the higher; the numbers are in the cells."
        )
        if cells:
            found.append((title, heat(title, about, rows=datasets, columns=LEVELS, cells=cells, ends=(0, 100))))
    return found


def _grouped_by(name: str) -> Callable[[Sequence[Row], Who], list[Chart]]:
    return lambda rows, who: _grouped(rows, who, name)


_DRAWN: Mapping[str, Callable[[Sequence[Row], Who], list[Chart]]] = {
    "board_longbench_radar": _radii,
    "board_longbench_relative": _relative,
    "board_longbench_e": _in_e,
    "board_longbench_v2": _v2,
    "board_longbench_pro_length": _lengths,
    "board_longbench_pro_primary_task": _tasks,
    "board_longbench_pro_tries": _tries,
    **{f"board_longbench_pro_{name}": _grouped_by(name) for name in ("requirement", "difficulty", "language")},
    "board_lveval": _levels,
}
