"""Sections of a page, one for each report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.report.boards import BOARDS
from lbx.report.cells import rows_for_people, sheet
from lbx.report.charts import Point, ScatterPoint, Series, curve, dots, heat, scatter
from lbx.report.labels import LABELS, Row
from lbx.report.page.boards import board
from lbx.report.page.html import Best, Html, Section, charts, figure, quiet, run_name, table, tag
from lbx.report.page.source import PageSource
from lbx.report.papers import doubts
from lbx.report.report_types import ReportDefinition
from lbx.report.reports import REPORTS
from lbx.store import Table

MOST_LINES = 8
"""Maximum number of runs in a readable chart of lines or dots; a heat map can show more."""
_ACROSS = 8  # columns of runs in one table, limited by the width of paper
_MOST_CHARTS = 60
_LINKED = ("leaderboard", "task_scores", "guards")
"""Reports with a row for each run and benchmark or task: their numbers are links to the answers."""


def report_section(source: PageSource, name: str, *, has_other_sections: bool = True) -> Section | None:
    """Build the section of a report: a special one or a plain table; None if the report is empty.

    If the report refuses the query, the section has the reason; on a page without others, UsageError is raised.
    """
    try:
        if source.table(name) is None:
            return None
    except UsageError as exc:
        if not has_other_sections:
            raise
        return Section(name, _title(name), [tag("p", str(exc))])
    return _SECTIONS.get(name, _plain)(source, name)


def _plain(source: PageSource, name: str) -> Section:
    return Section(name, _title(name), list(_tables(source, name)))


def _title(name: str) -> str:
    return REPORTS[name].title.split(" (")[0]


def _note(name: str) -> Html:
    """Return the units, which a report's title has in parentheses."""
    _, _, note = REPORTS[name].title.partition(" (")
    return quiet(note.removesuffix(")").capitalize() + ".") if note else Html("")


def _tables(source: PageSource, name: str) -> Iterable[Html]:
    table = source.table(name)
    yield _note(name)
    if table is None:
        return
    if "benchmark" not in table.columns:
        yield _table(source, name, table, _title(name))
        return
    for benchmark, part in _split(table, "benchmark"):
        yield _table(source, name, part, f"{_title(name)}: {benchmark}", without=("benchmark",))


def _split(report_table: Table, column: str) -> Iterable[tuple[str, Table]]:
    at = list(report_table.columns).index(column)
    parts: dict[str, list[tuple[Any, ...]]] = {}
    for row in report_table.rows:
        parts.setdefault(str(row[at]), []).append(row)
    return ((value, Table(report_table.columns, rows)) for value, rows in parts.items())


def _table(source: PageSource, name: str, report_table: Table, title: str, without: Sequence[str] = ()) -> Html:
    view = REPORTS[name]
    view = replace(view, columns=[c for c in view.columns if c.name not in without])
    report_sheet, report_table = sheet(view, report_table), rows_for_people(view, report_table)
    if not report_sheet.rows:
        return _notes(report_sheet.notes)
    marks = _row_marks(source, view, report_table, len(report_sheet.rows))
    label_columns = [
        (at, column.name) for at, column in enumerate(report_sheet.columns) if column.name in (*LABELS, "model")
    ]
    body = [list(row) for row in report_sheet.rows]
    rows = report_table.dicts() if view.pivot is None else [{}] * len(body)
    for line, row, mark in zip(body, rows, marks, strict=True):
        for at, name_of in label_columns:
            line[at] = _with_mark(source, line[at], mark if name_of == "model" else source.mark(row.get(name_of)))
    table_html = table(
        title,
        report_sheet.columns,
        body,
        marks=marks,
        more=f"`{as_command('lbx', 'report', 'FILE', name, '-f', 'csv')}` has all.",
        benchmark=str(rows[0]["benchmark"]) if name in _LINKED and "benchmark" in without else None,
    )
    return Html(table_html + _notes(report_sheet.notes))


def _with_mark(source: PageSource, text: str, mark: int | None) -> str:
    return text if mark is None else run_name(mark, source.labels[mark])


def _notes(notes: Iterable[str]) -> Html:
    return Html("".join(quiet(note) for note in notes))


def _row_marks(source: PageSource, view: ReportDefinition, report_table: Table, lines: int) -> list[int | None]:
    rows = report_table.dicts()
    if view.pivot is None:
        return [source.mark(row.get("run_id", row.get("run_b"))) for row in rows]
    gathered = dict.fromkeys((row.get("run_id"), *(row.get(c.name) for c in view.columns)) for row in rows)
    return [source.mark(key[0]) for key in gathered] if len(gathered) == lines else [None] * lines


def _point(row: Row, scale: float = 100.0, value: str = "score", of: str = "") -> Point:
    """Return a row's value with its interval; ``of`` is the prefix of the interval's columns."""
    ends = (row.get(name) for name in (value, f"{of}low", f"{of}high"))
    number, low, high = (None if end is None else scale * end for end in ends)
    return Point(number, low, high, f"{row['n']:,} answers" if row.get("n") else "")


def _by(rows: Iterable[Row], *names: str) -> Iterable[tuple[Any, list[Row]]]:
    for key, group in groupby(rows, key=lambda row: tuple(row[name] for name in names)):
        yield (key[0] if len(names) == 1 else key), list(group)


def _leaderboard(source: PageSource, name: str) -> Section:
    parts = [_note(name)]
    table = source.table(name)
    for benchmark, part in _split(table, "benchmark") if table else ():
        rows = [row for row in part.dicts() if row["score"] is not None][:60]
        lines = [(source.label(r["run_id"]), _series(source, r["run_id"], [_point(r)])) for r in rows]
        title = f"{benchmark}: score, percent"
        about = f"A line for each run, best first: {_words(rows[:3], source)}"
        parts.append(tag("h3", benchmark))
        parts.append(_table(source, name, part, f"Leaderboard: {benchmark}", without=("benchmark",)))
        if len(lines) > 1:
            parts.append(figure(title, dots(title, about, lines)))
    return Section(name, "Leaderboard", parts)


def _series(source: PageSource, run_id: str, points: Sequence[Point | None]) -> Series:
    return Series(source.label(run_id), source.mark_of(run_id), points)


def _words(rows: Sequence[Row], source: PageSource) -> str:
    return ", ".join(f"{source.label(row['run_id'])} {100 * row['score']:.1f}" for row in rows)


def _paper(source: PageSource, name: str) -> Section:
    parts = [_note(name)]
    table = source.table(name)
    for benchmark, part in _split(table, "benchmark") if table else ():
        parts.append(tag("h3", benchmark))
        runs = {row["run"]: source.mark(row["run_id"]) for row in part.dicts()}
        last = len(source.runs)
        names = sorted(runs, key=lambda name: last if (mark := runs[name]) is None else mark)
        at, best = list(part.columns).index("run"), _best_numbers(part)
        for start in range(0, len(names), _ACROSS):
            run_names = names[start : start + _ACROSS]
            few = Table(part.columns, [row for row in part.rows if row[at] in run_names])
            parts.append(_paper_table(few, runs, best, f"Official numbers: {benchmark}"))
    return Section(name, "Numbers as printed in the papers", parts)


def _best_numbers(paper_table: Table) -> set[tuple[str, str]]:
    numbers: dict[str, list[tuple[float, str]]] = {}
    for row in paper_table.dicts():
        if row["official"] is not None:
            numbers.setdefault(row["line"], []).append((row["official"], row["run"]))
    several = {line: scores for line, scores in numbers.items() if len(scores) > 1}
    return {(line, run) for line, scores in several.items() for number, run in scores if number == max(scores)[0]}


def _paper_table(
    paper_table: Table, runs: Mapping[str, int | None], best: Collection[tuple[str, str]], title: str
) -> Html:
    view = replace(REPORTS["paper"], columns=[c for c in REPORTS["paper"].columns if c.name != "benchmark"])
    paper_sheet = sheet(view, paper_table)
    lines = [
        [
            Best(text) if (row[0], column.name) in best else text
            for column, text in zip(paper_sheet.columns, row, strict=True)
        ]
        for row in paper_sheet.rows
    ]
    marks = [runs.get(c.name) if c.across else None for c in paper_sheet.columns]
    return Html(
        table(title, paper_sheet.columns, lines, column_marks=marks)
        + _notes([*paper_sheet.notes, *doubts(paper_table.dicts())])
    )


def _tasks(source: PageSource, name: str) -> Section:
    parts = [_note(name)]
    table = source.table(name)
    for benchmark, part in _split(table, "benchmark") if table else ():
        heads = [row for row in part.dicts() if row["headline"] and row["score"] is not None]
        title = f"{benchmark}: score by task, percent"
        if chart := _task_chart(source, heads, title):
            parts.append(figure(title, chart))
        parts.append(_table(source, name, part, f"Scores by task: {benchmark}", without=("benchmark",)))
    return Section(name, "Intervals by task", parts)


def _task_chart(source: PageSource, rows: Sequence[Row], title: str) -> str:
    runs = sorted(dict.fromkeys(row["run_id"] for row in rows), key=source.mark_of)
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    if len(rows) < 2:
        return ""
    if len(runs) <= MOST_LINES:
        lines = [(row["task"], _series(source, row["run_id"], [_point(row)])) for row in rows]
        return dots(title, f"{len(tasks)} tasks, {len(runs)} runs; the numbers are in the table below.", lines)
    cells = {(runs.index(row["run_id"]), tasks.index(row["task"])): _point(row) for row in rows}
    about = f"{len(runs)} runs by {len(tasks)} tasks, the darker the higher; the numbers are in the cells."
    return heat(title, about, rows=[source.label(run) for run in runs], columns=tasks, cells=cells)


def _comparison(source: PageSource, name: str) -> Section:
    rows = source.rows(name)
    parts = []
    for (run_a, benchmark), group in _by(
        sorted(rows, key=lambda r: (r["run_a"], r["benchmark"])), "run_a", "benchmark"
    ):
        others = list(dict.fromkeys(row["run_b"] for row in group))
        if len(others) > MOST_LINES:  # of each the first line, which is the benchmark's average
            first = {row["run_b"]: row for row in reversed(group)}
            lines = [(source.label(run), _series(source, run, [_difference(first[run])])) for run in others]
        else:
            task_rows = sorted(group, key=lambda row: list(dict.fromkeys(r["task"] for r in group)).index(row["task"]))
            lines = [(row["task"], _series(source, row["run_b"], [_difference(row)])) for row in task_rows]
        title = f"{benchmark}: points more than {source.label(run_a)}"
        about = f"{len(others)} runs; right of 0 is better. The numbers are in the table below."
        parts.append(figure(title, dots(title, about, lines, zero=True)))
    return Section(name, "Comparison", [*parts, *_tables(source, name)])


def _difference(row: Row) -> Point:
    return replace(_point(row, value="difference"), note=str(row.get("verdict") or ""))


def _curves(source: PageSource, name: str) -> Section:
    """Draw a chart for each task, with the best runs of the leaderboard if there are many."""
    rows = source.rows(name)
    leaders, leading_note = _select_leaders(source, rows)
    figures = []
    for (benchmark, task, unit), group in _by(rows, "benchmark", "task", "length_unit"):
        title = f"{benchmark}/{task}: score by length, percent"
        if chart := _length_chart(source, group, leaders, title, unit):
            figures.append((f"{benchmark}/{task}, {unit}", chart))
    some = figures[:_MOST_CHARTS]
    omitted = f"{len(figures) - len(some)} more tasks are in the tables." if len(figures) > len(some) else ""
    note = [quiet(f"{leading_note} {omitted}".strip())] if leading_note or omitted else []
    return Section(name, "Score by length", [*note, charts(some), *_tables(source, name)])


def _effective(source: PageSource, name: str) -> Section:
    """Draw a chart for each benchmark, of the mean over the tasks that have all lengths."""
    rows = [row | {"run_id": row["run_id"] or row["model"]} for row in source.rows(name)]  # published models
    leaders, leading_note = _select_leaders(source, rows)
    figures = []
    for benchmark, unit in sorted({(row["benchmark"], row["length_unit"]) for row in rows}):
        group = [row for row in rows if (row["benchmark"], row["length_unit"]) == (benchmark, unit)]
        title = f"{benchmark}: tasks that have every length, percent"
        if chart := _length_chart(source, group, leaders, title, f"{unit}; each run on its own tasks, named below"):
            figures.append((f"{benchmark}, {unit}", chart))
    note = [quiet(leading_note)] if leading_note else []
    return Section(name, _title(name), [*note, charts(figures), *_tables(source, name)])


def _length_chart(
    source: PageSource, rows: Sequence[Row], leaders: Collection[tuple[str, str]], title: str, unit: str
) -> str:
    """Draw the lines of the runs in ``leaders``; "" for fewer than two lengths."""
    lengths = sorted({row["length_up_to"] for row in rows if row["length_up_to"] is not None})
    lines = [
        _line(source, run, lengths, group)
        for run, group in _by(rows, "run_id")
        if (group[0]["benchmark"], run) in leaders
    ]
    if len(lengths) < 2 or not lines:
        return ""
    return curve(title, f"Up to {lengths[0]:,} to {lengths[-1]:,} {unit}.", list(map(_short, lengths)), lines)


def _cost(source: PageSource, name: str) -> Section:
    rows = [row for row in source.rows(name) if row["task"] is None]
    figures = []
    for benchmark in dict.fromkeys(row["benchmark"] for row in rows):
        points = [
            ScatterPoint(
                source.label(row["run_id"]),
                mark,
                Point(row["seconds_per_answer"]),
                _point(row),
                row["unbeaten"] is True,
            )
            for row in rows
            if row["benchmark"] == benchmark and None not in (row["score"], row["seconds_per_answer"])
            if (mark := source.mark(row["run_id"])) is not None
        ]
        if len(points) > 1:
            title = f"{benchmark}: score against cost"
            about = f"{len(points)} runs; the line joins the unbeaten ones. The numbers are in the table below."
            plot = scatter(title, about, x_name="seconds per answer", y_name="score, percent", points=points)
            figures.append(figure(title, plot))
    return Section(name, _title(name), [*figures, *_tables(source, name)])


def _judges(source: PageSource, name: str) -> Section:
    return Section(name, _title(name), [*win_rates(source), *_tables(source, name)])


def _people(source: PageSource, name: str) -> Section:
    return Section(name, _title(name), [*_ratings(source), *_tables(source, name)])


def win_rates(source: PageSource) -> list[Html]:
    """Draw win rates against each opponent, and mean ratings, judge by judge."""
    rows = [row for row in source.rows("judge_results") if row["task"] is None and row["questions"] == "all"]
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in sorted(rows, key=lambda row: (row["judge_id"], row["run_id"])):
        pair = row["kind"] == "pair"
        what = f"win rate against {source.label(row['against_run_id'])}, percent" if pair else "mean rating"
        point = _point(row, value="win_rate") if pair else _point(row, 1.0, "rating", "rating_")
        line = f"{row['label_judge']}, {row['fitness']}"
        series_of.setdefault(f"{row['benchmark']}: {what}", []).append((line, _series(source, row["run_id"], [point])))
    return _opinion_figures(series_of, "A line for each judged run, below its judge.")


def _ratings(source: PageSource) -> list[Html]:
    series_of: dict[str, list[tuple[str, Series]]] = {}
    for row in source.rows("rating_results"):
        if row["task"] is None:
            pair = row["kind"] == "pair"
            point = _point(row, value="win_rate") if pair else _point(row, 1.0, "mean", "mean_")
            title = f"{row['benchmark']}, {row['set_id']}: {'win rate, percent' if pair else 'mean rating'}"
            line = source.label(row["run_id"]) + (f" against {source.label(row['against_run_id'])}" if pair else "")
            series_of.setdefault(title, []).append((line, _series(source, row["run_id"], [point])))
    return _opinion_figures(series_of, "A line for each rated run.")


def _opinion_figures(series_of: Mapping[str, list[tuple[str, Series]]], about: str) -> list[Html]:
    drawn = (
        (title, [line for line in lines if (point := line[1].points[0]) and point.has_value])
        for title, lines in series_of.items()
    )
    return [figure(title, dots(title, about, lines)) for title, lines in drawn if len(lines) > 1]


def _line(source: PageSource, run: str, lengths: Sequence[int], rows: Sequence[Row]) -> Series:
    points = {row["length_up_to"]: _point(row) for row in rows}
    return _series(source, run, [points.get(length) for length in lengths])


def _select_leaders(source: PageSource, rows: Sequence[Row]) -> tuple[set[tuple[str, str]], str]:
    """Return the first (benchmark, run) pairs of each leaderboard, for line charts, and a note about omitted runs."""
    ranks = {(row["benchmark"], row["run_id"]): at for at, row in enumerate(source.rows("leaderboard"))}
    runs: dict[str, list[tuple[str, str]]] = {}
    for pair in dict.fromkeys((row["benchmark"], row["run_id"]) for row in rows):
        runs.setdefault(pair[0], []).append(pair)
    leaders = {
        pair
        for pairs in runs.values()
        for pair in sorted(pairs, key=lambda pair: ranks.get(pair, len(ranks)))[:MOST_LINES]
    }
    most = max(map(len, runs.values()), default=0)
    note = f"The charts show the best {MOST_LINES} of {most} runs; the tables have all." if most > MOST_LINES else ""
    return leaders, note


def _short(length: int) -> str:
    """Format a length as a tick: 512, 4k, 1M."""
    for size, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if length >= size and length % size == 0:
            return f"{length // size}{letter}"
    return f"{length:,}"


_SECTIONS: Mapping[str, Callable[[PageSource, str], Section]] = {
    **dict.fromkeys(BOARDS, board),
    "leaderboard": _leaderboard,
    "paper": _paper,
    "task_scores": _tasks,
    "comparison": _comparison,
    "length_curve": _curves,
    "effective_context": _effective,
    "cost": _cost,
    "judge_results": _judges,
    "rating_results": _people,
}
