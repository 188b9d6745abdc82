"""Builders of page sections: for each report, for the benchmarks' leaderboards, and the scoreboard at the top.

Leaderboards are tables with the marks of runs, and the authors' charts. The scoreboard shows a row per run, with
averages, categories and tasks of benchmarks as columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lbx.base.columns import Column
from lbx.base.errors import UsageError
from lbx.base.visible import as_command
from lbx.report.draw.figures import figures
from lbx.report.draw.svg import run_class
from lbx.report.format.digits import short_length
from lbx.report.format.labels import LABELS, Row
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import cell_text, informative_rows, sheet
from lbx.report.page.findings import settings_of
from lbx.report.page.html import (
    Best,
    Html,
    Section,
    anchor_of,
    drawings,
    html,
    part,
    quiet,
    run_name,
    table,
    tag,
    truncate_text,
)
from lbx.report.page.scoreboard import Scoreboard, ScoreCell, ScoreColumn, build_scoreboard
from lbx.report.page.source import PageSource
from lbx.report.report import Report
from lbx.report.reports import NAMES, REPORTS, load_report
from lbx.report.rows.board import BOARDS, board_mark
from lbx.report.rows.effective_context import (
    STRIP_SCORE,
    Strip,
    StripRow,
    notes_on_omissions,
    notes_on_strips,
    strips,
)
from lbx.report.rows.leaderboard import PLACE, place_notes
from lbx.report.rows.paper import PAPER, average_numbers, doubts, has_paper, read_paper
from lbx.results import Table


def _boards(source: PageSource, report: Report) -> Section | None:
    """Build the section of leaderboards with the authors' tables and charts, or None without such benchmarks."""
    benchmarks = {row["benchmark"] for row in source.rows("leaderboard")}
    names = [name for name in BOARDS if BOARDS[name].benchmark in benchmarks]
    parts = [part for name in names if (table := source.table(name)) for part in _board(source, name, table)]
    return Section(report.name, report.title, parts) if parts else None


def _board_section(source: PageSource, name: str) -> Section:
    table = source.table(name)
    return Section(name, _title_and_unit(name)[0], _board(source, name, table) if table else [])


def _board(source: PageSource, name: str, board_table: Table) -> list[Html]:
    rows, board_sheet = board_table.dicts(), sheet(REPORTS[name], board_table)
    runs = [source.mark(row["run_id"] or row.get("reasoning_run_id")) for row in rows]
    marks = [board_mark(source, row) for row in rows]
    body = [
        [
            run_name(mark, text) if column.name == "model" else text
            for column, text in zip(board_sheet.columns, cells, strict=True)
        ]
        for mark, cells in zip(marks, board_sheet.rows, strict=True)
    ]
    title, unit = _title_and_unit(name)
    if not _has_numbers(board_sheet):
        return [tag("h3", title), quiet(f"No numbers in {len(board_sheet.rows):,} rows.")]
    table_html = table(
        title,
        board_sheet.columns,
        body,
        marks=runs,
        most_rows=source.most_rows,
        more=f"`{as_command('lbx', 'report', 'FILE', name, '-f', 'csv')}` has all.",
    )
    return [tag("h3", title), tag("p", unit, class_="quiet"), table_html, *drawings(figures(source, name))]


def _title_and_unit(name: str) -> tuple[str, str]:
    title, _, unit = REPORTS[name].title.partition(" (")
    unit = unit.removesuffix(")")
    return title, f"{unit[:1].upper()}{unit[1:]}."


_ACROSS = 8  # columns of runs in one table, limited by the width of paper
_LONGEST_REASON = 400  # characters; a comparison lists every two runs that differ


def report_section(
    source: PageSource, name: str, *, has_other_sections: bool = True, has_figures: bool = True
) -> Section | None:
    """Build the section of a report, in the layout of the report, or return None if the report is empty.

    If the report refuses the query, the section states the reason. If it is the only section, UsageError is raised.
    """
    report = load_report(name) if name in NAMES else REPORTS[name]
    if report.sections:
        return _boards(source, report)
    try:
        if source.table(name) is None:
            return None
    except UsageError as exc:
        if not has_other_sections:
            raise
        remedy = str(exc).removeprefix(exc.cause).strip()
        return Section(name, _title(name), [tag("p", truncate_text(exc.cause, _LONGEST_REASON)), tag("p", remedy)])
    if not has_figures and not (report.page and report.page.layout == "strips"):
        return Section(name, _title(name), list(_tables(source, name)))
    return _LAYOUTS[report.page.layout if report.page else "plain"](source, name)


def _plain(source: PageSource, name: str) -> Section:
    return Section(name, _title(name), [*drawings(figures(source, name)), *_tables(source, name)])


def _title(name: str) -> str:
    report = REPORTS[name]
    return (report.page.title if report.page else "") or report.caption


def _note(name: str) -> Html:
    """Build a paragraph with the units, which are in parentheses in the title of a report."""
    _, _, note = REPORTS[name].title.partition(" (")
    return tag("p", note.removesuffix(")").capitalize() + ".", class_="quiet") if note else Html("")


def _tables(source: PageSource, name: str) -> Iterable[Html]:
    table = source.table(name)
    yield _note(name)
    if table is None:
        return
    if "benchmark" not in table.columns:
        yield from _table(source, name, table, REPORTS[name].caption)
        return
    for benchmark, rows in _split(table, "benchmark"):
        caption = ": ".join(filter(None, (REPORTS[name].caption, benchmark)))
        yield from _table(source, name, rows, caption, without=("benchmark",))


def _split(report_table: Table, column: str) -> Iterable[tuple[str, Table]]:
    at = list(report_table.columns).index(column)
    parts: dict[str, list[tuple[Any, ...]]] = {}
    for row in report_table.rows:
        parts.setdefault("" if row[at] is None else str(row[at]), []).append(row)
    return ((value, Table(report_table.columns, rows)) for value, rows in parts.items())


def _table(source: PageSource, name: str, report_table: Table, title: str, without: Sequence[str] = ()) -> list[Html]:
    place = REPORTS[name].page
    has_links = place is not None and place.has_answer_links and "benchmark" in without
    view = replace(REPORTS[name], columns=[c for c in REPORTS[name].columns if c.name not in without])
    report_sheet, report_table = sheet(view, report_table), informative_rows(view, report_table)
    if not report_sheet.rows:
        return [quiet(f"{title}: {note}") for note in report_sheet.notes]
    if not _has_numbers(report_sheet):
        return [quiet(f"{title}: no numbers in {len(report_sheet.rows):,} rows.")]
    marks = _row_marks(source, view, report_table, len(report_sheet.rows))
    label_columns = [
        (at, column.name) for at, column in enumerate(report_sheet.columns) if column.name in (*LABELS, "model")
    ]
    body = [list(row) for row in report_sheet.rows]
    rows = report_table.dicts() if view.pivot is None else [{}] * len(body)
    for line, row, mark in zip(body, rows, marks, strict=True):
        for at, name_of in label_columns:
            line[at] = _with_mark(source, line[at], mark if name_of == "model" else source.mark(row.get(name_of)))
    constants = _constant_columns(report_sheet.columns, report_sheet.rows)
    order = [at for at in range(len(report_sheet.columns)) if at not in constants]
    verdict = [at for at in order[2:] if report_sheet.columns[at].name == "verdict"]
    order = [*order[:2], *verdict, *(at for at in order[2:] if at not in verdict)]
    table_html = table(
        title,
        [report_sheet.columns[at] for at in order],
        [[row[at] for at in order] for row in body],
        marks=marks,
        most_rows=source.most_rows,
        more=f"`{as_command('lbx', 'report', 'FILE', name, '-f', 'csv')}` has all.",
        benchmark=str(rows[0]["benchmark"]) if has_links else None,
        constants=[(report_sheet.columns[at], body[0][at]) for at in constants if body[0][at] != "-"],
    )
    return [table_html, *_notes(report_sheet.notes)]


_NEVER_CONSTANT = ("place", "model", "run", "benchmark", "task", "score", "verdict")
_LONGEST_CONSTANT = 60  # characters of a value in a caption


def _constant_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """Indices of the columns with the same value in all rows, and are neither names of rows nor scores."""
    return [
        at
        for at, column in enumerate(columns)
        if not (column.across or column.interval or column.name in _NEVER_CONSTANT)
        and len(rows) > 1
        and len({row[at] for row in rows}) == 1
        and len(rows[0][at]) <= _LONGEST_CONSTANT
    ]


def _has_numbers(report_sheet: Sheet) -> bool:
    indices = [at for at, column in enumerate(report_sheet.columns) if column.kind != "text"]
    return not indices or any(row[at] not in ("", "-") for row in report_sheet.rows for at in indices)


def _with_mark(source: PageSource, text: str, mark: int | None) -> str:
    return text if mark is None else run_name(mark, source.labels[mark])


def _notes(notes: Iterable[str]) -> list[Html]:
    return [quiet(note) for note in notes]


def _row_marks(source: PageSource, view: Report, report_table: Table, lines: int) -> list[int | None]:
    rows = report_table.dicts()
    if view.pivot is None:
        return [source.mark(row.get("run_id", row.get("run_b"))) for row in rows]
    gathered = dict.fromkeys((row.get("run_id"), *(row.get(c.name) for c in view.columns)) for row in rows)
    return [source.mark(key[0]) for key in gathered] if len(gathered) == lines else [None] * lines


def _tables_first(source: PageSource, name: str) -> Section:
    parts = [_note(name)]
    table, drawn = source.table(name), figures(source, name)
    for benchmark, rows in _split(table, "benchmark") if table else ():
        parts.append(tag("h3", benchmark))
        parts += _table(source, name, rows, f"{REPORTS[name].caption}: {benchmark}", without=("benchmark",))
        parts += drawings(figure for figure in drawn if figure.benchmark == benchmark)
    return Section(name, _title(name), parts)


def _paper(source: PageSource, name: str) -> Section:
    parts = [_note(name)]
    table = source.table(name)
    benchmarks = list(_split(table, "benchmark")) if table else []
    title = _title(name) if any(has_paper(str(benchmark)) for benchmark, _ in benchmarks) else "Tables by benchmark"
    for benchmark, rows in benchmarks:
        parts.append(tag("h3", benchmark))
        run_of = {row["run"]: row["run_id"] for row in rows.dicts()}
        ranked = [row["run_id"] for row in source.rows("leaderboard") if row["benchmark"] == benchmark]
        by_rank = sorted(run_of, key=lambda name: ranked.index(run_of[name]) if run_of[name] in ranked else len(ranked))
        runs = {name: source.mark(run_of[name]) for name in by_rank}
        at, best = list(rows.columns).index("run"), _best_numbers(rows)
        for start in range(0, len(runs), _ACROSS):
            run_names = list(runs)[start : start + _ACROSS]
            few = Table(rows.columns, [row for row in rows.rows if row[at] in run_names])
            parts += _paper_table(few, runs, best, f"Official numbers: {benchmark}")
    return Section(name, title, parts)


def _best_numbers(paper_table: Table) -> set[tuple[str, str]]:
    numbers: dict[str, list[tuple[float, str]]] = {}
    for row in paper_table.dicts():
        if row["official"] is not None:
            numbers.setdefault(row["line"], []).append((row["official"], row["run"]))
    several = {line: scores for line, scores in numbers.items() if len(scores) > 1}
    return {(line, run) for line, scores in several.items() for number, run in scores if number == max(scores)[0]}


def _paper_table(
    paper_table: Table, runs: Mapping[str, int | None], best: Collection[tuple[str, str]], title: str
) -> list[Html]:
    view = replace(PAPER, columns=[c for c in PAPER.columns if c.name != "benchmark"])
    paper_sheet = sheet(view, paper_table)
    ranks = {name: rank for rank, name in enumerate(runs)}
    order = sorted(range(len(paper_sheet.columns)), key=lambda at: ranks.get(paper_sheet.columns[at].name, -1))
    columns = [paper_sheet.columns[at] for at in order]
    lines = [
        [Best(row[at]) if (row[0], paper_sheet.columns[at].name) in best else row[at] for at in order]
        for row in paper_sheet.rows
    ]
    marks = [runs.get(column.name) if column.across else None for column in columns]
    notes = _notes([*paper_sheet.notes, *doubts(paper_table.dicts())])
    return [table(title, columns, lines, column_marks=marks), *notes]


def _figures_first(source: PageSource, name: str) -> Section:
    parts = [_note(name)]
    table, drawn = source.table(name), figures(source, name)
    for benchmark, rows in _split(table, "benchmark") if table else ():
        parts += drawings(figure for figure in drawn if figure.benchmark == benchmark)
        parts += _table(source, name, rows, f"{REPORTS[name].caption}: {benchmark}", without=("benchmark",))
    return Section(name, _title(name), parts)


def _strips(source: PageSource, name: str) -> Section:
    """Build the section of runs by lengths, with the tints of one scale from 0 to 100."""
    rows = source.rows(name)
    tables = [strip_table(source, strip) for strip in strips(rows)]
    signs = {"few": "Hatched", "cut": "Hatched", "end": "thick line"}
    notes = [*notes_on_strips(rows, signs=signs), *(note for strip in strips(rows) for note in strip.notes())]
    first, *others = notes
    omissions = map(quiet, notes_on_omissions(rows))
    more = [tag("details", tag("summary", "Rules and tasks"), *map(quiet, others))] if others else []
    return Section(
        name, _title(name), [Html(f'<div class="charts">{"".join(tables)}</div>'), quiet(first), *omissions, *more]
    )


def strip_table(source: PageSource, strip: Strip, title: str = "") -> Html:
    """Build a table of runs by lengths, with a tint and the answers' doubts in each cell."""
    body = []
    for row in strip.rows:
        mark = source.mark(row.key)
        cells = [tag("th", row.name if mark is None else run_name(mark, source.labels[mark]), scope="row")]
        cells += [_strip_cell(row, length) for length in strip.lengths]
        cells.append(tag("td", row.line["works_to"], class_="t", title=row.line["why"] or ""))
        if strip.has_certainty:
            cells += [tag("td", row.length(column), class_="t") for column in ("kept_to", "lost_from")]
        body.append((run_class(mark), cells))
    ends = ["works to", *(["retained to (95%)", "lost from (95%)"] if strip.has_certainty else [])]
    title, lengths = title or strip.title, list(map(short_length, strip.lengths))
    return part("strip", title, anchor_of(title), lengths, ends, body, strip.counts())


def _strip_cell(row: StripRow, length: int) -> Html:
    cell = row.cells.get(length)
    if cell is None or cell["score"] is None:
        return tag("td", "")
    low, high = cell.get("low"), cell.get("high")
    interval = "" if low is None or high is None else f"95% interval [{100 * low:.1f}, {100 * high:.1f}]"
    count = f"{cell['n']:,} answers" if cell["n"] else ""
    doubt = {"few": "few answers to a task", "cut": "prompts were cut"}.get(cell["doubt"] or "", "")
    classes = [f"h{min(SHADES - 1, max(0, int(SHADES * cell['score'])))}", *(["hatched"] if doubt else [])]
    if length == row.line["effective"]:
        classes.append("end")
    title = "; ".join(filter(None, (interval, count, doubt)))
    score, _, certainty = cell_text(cell, STRIP_SCORE).partition(" ")
    parts = [tag("span", f" {certainty}", class_="interval")] if certainty else []
    return tag("td", score, *parts, class_=" ".join(classes), title=title)


_LAYOUTS: Mapping[str, Callable[[PageSource, str], Section]] = {
    "plain": _plain,
    "tables": _tables_first,
    "figures": _figures_first,
    "paper": _paper,
    "strips": _strips,
    "boards": _board_section,
}
"""{``PagePlace.layout``: function that builds a section}."""


SHADES = 10
"""Number of background shades, from the lowest to the highest score of a column."""
_SHADE_POINTS = 20.0
"""Smallest difference in points between the lightest and the darkest shade, so that close scores look alike."""
_MOST_SWITCHES = 40
"""Maximum number of column groups with a switch. Further columns are always shown."""
_PLURALS = {"category": "categories", "task": "tasks"}

Group = tuple[str, str]
"""Group of columns that a switch shows or hides: (benchmark, "category" or "task")."""


@dataclass(frozen=True, slots=True)
class Switch:
    """Checkbox that shows or hides a group of columns."""

    css_class: str
    name: str
    is_on: bool


def scoreboard_part(source: PageSource) -> Html | None:
    """Build the scoreboard with switches for column groups, or return None without scores."""
    if source.store is None:
        return None
    averages = average_numbers(read_paper(source.store, source.query))
    board = build_scoreboard(source.rows("leaderboard"), source.rows("task_scores"), averages)
    if not board.columns:
        return None
    groups = [group for column in board.columns if (group := _group(column))]
    first_groups = list(dict.fromkeys(groups))[:_MOST_SWITCHES]
    switches = {group: _switch(number, group, groups) for number, group in enumerate(first_groups)}
    values: dict[ScoreColumn, dict[str, float]] = {}
    for (run, column), cell in board.cells.items():
        values.setdefault(column, {})[run] = round(cell.value, 1)  # as printed
    styles = [_cell_styles(values[column], _column_class(_group(column), switches)) for column in board.columns]
    places = {(row["run_id"], row["benchmark"]): row for row in source.rows("leaderboard") if row["place"]}
    heads = [_head(column, switches) for column in board.columns]
    rows = []
    runs_with_scores = {run for run, _ in board.cells}
    asked = {(row["run_id"], row["benchmark"], task) for row in source.rows("guards") for task in (row["task"], None)}
    for run, page_run in source.runs.items():
        if run not in runs_with_scores:
            continue
        name = run_name(page_run.mark, page_run.label)
        if page_run.anchor:
            name = tag("a", name, href=f"#{page_run.anchor}")
        cells = [tag("th", name, scope="row")]
        for column, style in zip(board.columns, styles, strict=True):
            place = places.get((run, column.benchmark)) if column.kind == "average" else None
            task = column.name if column.kind == "task" else None
            why = "no score" if (run, column.benchmark, task) in asked else "not asked"
            cells.append(_cell(board.cells.get((run, column)), style.get(run, style[""]), place, why))
        rows.append((run_class(page_run.mark), cells))
    notes = [*_scoreboard_notes(board), *_runs_without_scores(source, runs_with_scores)]
    cautions = list(place_notes(list(places.values())))
    if cautions:
        notes.append(tag("details", tag("summary", "Cautions about places"), *map(quiet, cautions)))
    return part("scoreboard", list(switches.values()), heads, rows, notes)


def _scoreboard_notes(board: Scoreboard) -> Iterator[str]:
    cells, first = board.cells.values(), board.columns[0]
    is_by_bound = any(cell.sorts_as is not None for (_, column), cell in board.cells.items() if column == first)
    order = f"Runs are in the order of the leaderboard of {first.benchmark}"
    yield f"{order}, with missing answers as 0." if is_by_bound else f"{order}."
    if any(cell.coverage for cell in cells):
        yield "‡ a score over a part of the answers; the others are missing"
    if any(cell.is_partial for cell in cells):
        yield "* an average over only some of the tasks that other runs have"


def _runs_without_scores(source: PageSource, runs_with_scores: Collection[str]) -> Iterator[Html]:
    """Name the runs that are in no row, by the reason."""
    judged = {row.get(name) for row in source.rows("judge_results") for name in ("run_id", "against_run_id")}
    judged |= {run for run, page_run in source.runs.items() if settings_of(page_run.row).get("judged")}
    answering = {row["run_id"] for row in source.rows("guards")}
    groups: dict[str, list[Html]] = {}
    for run, page_run in source.runs.items():
        if run not in runs_with_scores:
            has_no_score = (
                "judges or people assess their answers, which have no score"
                if run in judged
                else "no answer has a score"
            )
            reason = has_no_score if run in answering else "no answers"
            groups.setdefault(reason, []).append(tag("span", run_name(page_run.mark, page_run.label)))
    for reason, names in groups.items():
        yield Html(f"Not in the table, because {reason}: {', '.join(names)}.")


def _group(column: ScoreColumn) -> Group | None:
    return None if column.kind == "average" else (column.benchmark, column.kind)


def _column_class(group: Group | None, switches: Mapping[Group, Switch]) -> str:
    if group is None:
        return "average"
    return switches[group].css_class if group in switches else "k"


def _switch(number: int, group: Group, groups: Iterable[Group]) -> Switch:
    """Checkbox of a column group, initially on for categories, and for tasks of benchmarks without categories."""
    benchmark, kind = group
    is_on = kind == "category" or (benchmark, "category") not in groups
    return Switch(f"k{number}", f"{_PLURALS[kind]} of {benchmark}", is_on)


def switch_styles() -> str:
    """Style sheet of the checkboxes, which work without a script."""
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


def _cell_styles(values: Mapping[str, float], base: str) -> dict[str, str]:
    """CSS classes of the cells of a column with the class ``base``: {run: classes}, with the key "" for empty cells."""
    low, high = min(values.values()), max(values.values())
    if low == high:
        return {"": base}
    span = max(high - low, _SHADE_POINTS)
    most = SHADES - 1
    # Halves are rounded up: the script, which shades visible runs anew, computes the same.
    shades = {run: int(most - most * (high - value) / span + 0.5) for run, value in values.items()}
    return {"": base} | {
        run: f"{base} h{shade}{' best' if values[run] == high else ''}" for run, shade in shades.items()
    }


def _cell(cell: ScoreCell | None, style: str, rank_row: Row | None, why_none: str) -> Html:
    if cell is None:
        return tag("td", why_none, class_=f"{style} none")
    place = cell_text(rank_row, PLACE) if rank_row else ""
    caution = rank_row["place_caution"] if rank_row else None
    sorts_as = "" if cell.sorts_as is None else f"{cell.sorts_as:.1f} with missing answers as 0"
    interval = "" if cell.low is None or cell.high is None else f"[{cell.low:.1f}, {cell.high:.1f}]"
    notes = [interval and f"95% interval {interval}", place and f"place {place}", caution, cell.note, sorts_as]
    marks = ("*" if cell.is_partial else "") + ("‡" if cell.coverage else "")
    mark = tag("sup", marks) if marks else ""
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
