"""First table of a page: a row per run, the benchmarks' averages, categories and tasks as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lbx.report.page.html import Html, html, part, run_name, tag
from lbx.report.page.source import PageSource
from lbx.report.papers import average_numbers
from lbx.report.reports import read_paper
from lbx.report.scoreboard import Scoreboard, ScoreCell, ScoreColumn, build_scoreboard
from lbx.report.svg import run_class

SHADES = 10
"""Number of background shades from the lowest to the highest score of a column."""
_SHADE_POINTS = 20.0
"""Smallest difference between the lightest and the darkest shade, so that close scores look alike."""
_MOST_SWITCHES = 40
"""Maximum number of groups of columns with a switch; further columns are always shown."""
_PLURALS = {"category": "categories", "task": "tasks"}

Group = tuple[str, str]
"""Benchmark and kind of columns that a switch shows or hides."""


@dataclass(frozen=True, slots=True)
class Switch:
    """Switch that shows or hides a group of columns."""

    css_class: str
    name: str
    is_on: bool


def scoreboard_part(source: PageSource) -> Html | None:
    """Build the table of all scores, with switches for intervals and column groups; None without scores."""
    if source.store is None:
        return None
    averages = average_numbers(read_paper(source.store, source.query))
    board = build_scoreboard(source.rows("leaderboard"), source.rows("task_scores"), averages)
    if not board.columns:
        return None
    groups = [group for column in board.columns if (group := _group(column))]
    first_groups = list(dict.fromkeys(groups))[:_MOST_SWITCHES]
    switches = {group: _switch(number, group, groups) for number, group in enumerate(first_groups)}
    styles = [_cell_styles(board, column, switches) for column in board.columns]
    places = {(row["run_id"], row["benchmark"]): row["place"] for row in source.rows("leaderboard")}
    heads = [_head(column, switches) for column in board.columns]
    rows = []
    runs_with_scores = {run for run, _ in board.cells}
    for run, page_run in source.runs.items():
        if run not in runs_with_scores:
            continue
        cells = [tag("th", run_name(page_run.mark, page_run.label), scope="row")]
        for column, style in zip(board.columns, styles, strict=True):
            place = places.get((run, column.benchmark)) if column.kind == "average" else None
            cells.append(_cell(board.cells.get((run, column)), style.get(run, style[""]), place))
        rows.append((run_class(page_run.mark), cells))
    has_partial_averages = any(cell.is_partial for cell in board.cells.values())
    return part("scoreboard", list(switches.values()), heads, rows, has_partial_averages)


def _group(column: ScoreColumn) -> Group | None:
    return None if column.kind == "average" else (column.benchmark, column.kind)


def _column_class(group: Group | None, switches: Mapping[Group, Switch]) -> str:
    if group is None:
        return "average"
    return switches[group].css_class if group in switches else "k"


def _switch(number: int, group: Group, groups: Iterable[Group]) -> Switch:
    """Return a group's switch: categories are shown first, and tasks of benchmarks without categories."""
    benchmark, kind = group
    is_on = kind == "category" or (benchmark, "category") not in groups
    return Switch(f"k{number}", f"{_PLURALS[kind]} of {benchmark}", is_on)


def switch_styles() -> str:
    """Return the style sheet of the switches, which work without a script."""
    return "".join(
        f".scores:not(:has(input.k{n}:checked)) :is(th, td).k{n}" + " { display: none }\n"
        for n in range(_MOST_SWITCHES)
    )


def _head(column: ScoreColumn, switches: Mapping[Group, Switch]) -> Html:
    group = _group(column)
    name = Html("_<wbr>".join(map(html, column.name.split("_"))) + ("" if group else " average"))
    tasks = {"task": f"{column.benchmark}/{column.name}", "average": f"{column.benchmark}/"}
    classes = _column_class(group, switches)
    return tag(
        "th",
        name,
        scope="col",
        class_=classes,
        data_task=tasks.get(column.kind, ""),
        title=f"{column.benchmark}: {column.kind}",
    )


def _cell_styles(board: Scoreboard, column: ScoreColumn, switches: Mapping[Group, Switch]) -> dict[str, str]:
    """Return the classes of a column's cells by run, and of an empty cell as ""."""
    group = _group(column)
    base = _column_class(group, switches)
    # As printed, and halves rounded up: the script, which shades visible runs anew, computes the same.
    values = {run: round(cell.value, 1) for (run, at), cell in board.cells.items() if at == column}
    low, high = min(values.values()), max(values.values())
    if low == high:
        return {"": base}
    span = max(high - low, _SHADE_POINTS)
    most = SHADES - 1
    shades = {run: int(most - most * (high - value) / span + 0.5) for run, value in values.items()}
    return {"": base} | {
        run: f"{base} h{shade}{' best' if values[run] == high else ''}" for run, shade in shades.items()
    }


def _cell(cell: ScoreCell | None, style: str, place: str | None) -> Html:
    if cell is None:
        return tag("td", "", class_=style)
    interval = "" if cell.low is None or cell.high is None else f"[{cell.low:.1f}, {cell.high:.1f}]"
    notes = [interval and f"95% interval {interval}", place and f"place {place}", cell.note]
    mark = tag("sup", "*") if cell.is_partial else ""
    more = ", ".join(filter(None, (interval, place and f"place {place}")))
    return tag(
        "td",
        f"{cell.value:.1f}",
        mark,
        tag("span", f" {more}", class_="interval") if more else "",
        tag("span", f" {cell.coverage}", class_="part") if cell.coverage else "",
        class_=style,
        title="; ".join(filter(None, notes)),
    )
