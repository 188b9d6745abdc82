"""The report ``board``: results in the columns of the benchmarks' leaderboards, with a section for each leaderboard.

Benchmarks define the tables as data (``benchmarks.base.paper_tables``). Numbers are official ones. A run without an
official number (with only some samples or tasks) is listed with the score so far and a note. Runs have the order of
the leaderboard, and a published model comes before the first run with a lower number, with missing answers as 0.

The entries of a board are runs and published models, with numbers by key.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from lbx.base.columns import Column
from lbx.base.marks import COUNT_WORDS
from lbx.base.number import NumberKey, group_number, key_of, task_number
from lbx.benchmarks.base.paper_tables import (
    AnswerLengthRule,
    Board,
    BoardEntry,
    BoardPart,
    BoardRow,
    Chart,
    DotChart,
    HeatMap,
    IntervalValues,
    LineChart,
    ModelDotChart,
    RadarChart,
    TaskRating,
    file_names,
)
from lbx.benchmarks.registry import BENCHMARKS, unit_of
from lbx.report.draw.charts import Point, Series, curve, dots, extent, heat, radar
from lbx.report.draw.figures import (
    Figure,
    FigureSource,
)
from lbx.report.format.labels import Row, number_label, with_model_labels
from lbx.report.format.table_cells import interval_notes
from lbx.report.query import PUBLISHED, ReportQuery
from lbx.report.ranks import rank_key, read_ranked_scores, sort_score
from lbx.report.report import PagePlace, Report
from lbx.report.rows.expected import answer_counts
from lbx.report.rows.paper import Curves, curves
from lbx.report.rows.reference import PublishedModel, find_published, load_published
from lbx.results import Store, Table
from lbx.results.file.imports import harness_of
from lbx.results.read.runs import KILLED, RUNNING, states_of_runs
from lbx.results.rows import BOUND_COLUMNS
from lbx.results.views import MODE_OF_RUN, NUMBERS_OF_TASKS_AND_GROUPS

T = TypeVar("T")

_ANSWERING_RUNS = f"""
    SELECT r.run_id, r.model, r.backend, {MODE_OF_RUN} AS mode, d.differs_in, r.settings, r.metadata
    FROM runs r JOIN distinctions d USING (run_id)
    WHERE r.run_id IN (SELECT run_id FROM generations WHERE benchmark = ?)
    ORDER BY r.model, r.backend, r.run_id
"""  # noqa: S608 (our own names)
_NUMBERS = f"SELECT * FROM ({NUMBERS_OF_TASKS_AND_GROUPS}) WHERE benchmark = ? ORDER BY part, place, position"  # noqa: S608
_RATINGS = """
    SELECT run_id, rubric, judge_id, task, score, n_answers, n_questions, n_rounds, n_failed, n_errors - n_failed
    FROM judge_results JOIN (
        SELECT run_id, benchmark, task, count(*) AS n_answers FROM generations WHERE error IS NULL GROUP BY ALL
    ) USING (run_id, benchmark, task)
    WHERE benchmark = ? AND kind = 'score' AND questions = 'all' AND score IS NOT NULL
    ORDER BY run_id, task, judge_id
"""
_COMPLETE_RUNS = """
    SELECT run_id FROM coverage WHERE benchmark = ?
    GROUP BY run_id HAVING bool_and(coalesce(answers >= bundle_answers, false))
"""
_CLOSED = """
    SELECT run_id, count(*) FILTER (WHERE reasoning_closed IS DISTINCT FROM false), count(*)
    FROM generations WHERE benchmark = ? AND error IS NULL GROUP BY ALL
"""


def entries(store: Store, query: ReportQuery, benchmark: str) -> list[BoardEntry]:
    """Make entries of a benchmark's runs, then of the requested published models and those that are always shown.

    Raises:
        UsageError: no benchmark of the file has published scores of a requested model.
    """
    runs = [run for run in _run_entries(store, benchmark) if not query.runs or run.run_id in query.runs]
    if not runs:
        return []
    key = rank_key(store)
    runs.sort(key=lambda run: key(run.run_id, benchmark))
    boards = BENCHMARKS[benchmark].boards
    published_models = find_published(store, query) if query.models or query.references else []
    if boards.reference_models:
        published_models += [
            model
            for model in load_published()
            if model.model in boards.reference_models and model not in published_models
        ]
    models = runs + [_published_entry(model) for model in published_models if model.benchmark == benchmark]
    return [boards.complete_entry(model) for model in models]


_READ: WeakKeyDictionary[Store, dict[str, list[BoardEntry]]] = WeakKeyDictionary()
"""{read-only file: {benchmark: entries of runs}}, a cache because seven boards share the entries."""


def _run_entries(store: Store, benchmark: str) -> list[BoardEntry]:
    cached_entries = _READ.setdefault(store, {}) if store.read_only else {}
    if benchmark not in cached_entries:
        runs = store.query(_ANSWERING_RUNS, [benchmark]).dicts()
        numbers: dict[str, list[dict[str, Any]]] = {}
        for row in store.query(_NUMBERS, [benchmark]).dicts() if runs else ():
            numbers.setdefault(row["run_id"], []).append(row)
        sample_counts, states = (answer_counts(store), states_of_runs(store)) if runs else ({}, {})
        complete_runs = {run for (run,) in store.query(_COMPLETE_RUNS, [benchmark]).rows}
        closed_shares = {
            run_id: _coverage_text(*counts) for run_id, *counts in store.query(_CLOSED, [benchmark]).rows if runs
        }
        ratings: dict[str, list[TaskRating]] = {}
        tasks_of_rubric = BENCHMARKS[benchmark].rubrics.tasks if runs else {}
        for run_id, rubric, *rating in store.query(_RATINGS, [benchmark]).rows if tasks_of_rubric else ():
            if (task_rating := TaskRating(*rating)).task in tasks_of_rubric.get(rubric, ()):
                ratings.setdefault(run_id, []).append(task_rating)
        cached_entries[benchmark] = [
            replace(
                _run_entry(
                    run,
                    benchmark,
                    numbers.get(run["run_id"], []),
                    sample_counts,
                    closed_shares,
                    state=states[run["run_id"]],
                    is_complete=run["run_id"] in complete_runs,
                ),
                ratings=ratings.get(run["run_id"], ()),
            )
            for run in runs
        ]
    return cached_entries[benchmark]


def _run_entry(
    run: Mapping[str, Any],
    benchmark: str,
    number_rows: Iterable[Mapping[str, Any]],
    sample_counts: Mapping[tuple[str, str, str | None], tuple[int, int]],
    closed_shares: Mapping[str, str | None],
    *,
    state: str,
    is_complete: bool,
) -> BoardEntry:
    unit = unit_of(benchmark)
    settings, metadata = _object(run["settings"]), _object(run["metadata"])
    numbers: dict[NumberKey, float] = {}
    intervals: dict[NumberKey, IntervalValues] = {}
    lacking, clusters = set(), {}
    incomplete: list[tuple[int, int]] = []
    for row in number_rows:
        key = key_of({**row, "run_id": "", "benchmark": ""})
        official, score, counts = row["official"], row["score"], (row["answered"], row["asked"])
        low, high = (None if row[end] is None else unit * row[end] for end in ("low", "high"))
        intervals[key] = (low, high, row["method"], row["cluster_by"])
        clusters[row["cluster_by"]] = True
        if None not in counts and counts[0] < counts[1]:
            incomplete.append(counts)
        value = unit * score if official is None and score is not None else official
        if value is not None and math.isfinite(value):  # other programs' files may have any value
            numbers[key] = value
        if official is None:
            lacking.add(key)
    # Where all samples have an answer, some answers may have no part in a number.
    note = _coverage_text(*sample_counts.get((run["run_id"], benchmark, None), (0, 0))) or _coverage_text(
        *_least_complete(incomplete)
    )
    if state in (RUNNING, KILLED) and not is_complete:
        note = "; ".join(filter(None, (state, note)))
    if (harness := harness_of(settings)) and harness.unofficial_tasks:
        note = "; ".join(filter(None, (note, f"asked by {harness.title}")))
    mode = run["mode"] or ""
    return BoardEntry(
        run["model"], run["run_id"], run["backend"],
        mode=run["mode"], mode_without_reasoning=re.sub(r"\b(no thinking|thinking|cot)\b", "", mode).strip() or None,
        differs_in=run["differs_in"],
        reasons=bool(re.search(r"(?<!no )\bthinking\b|\bcot\b", mode)) or _is_reasoning_file(settings),
        attributes={**settings, "made": run["backend"] != "import", "metadata": metadata},
        numbers=numbers, unofficial=frozenset(lacking), intervals=intervals,
        cluster_by="sample" if "sample" in clusters else next(filter(None, clusters), None), note=note,
        remark=f"reasoning closed in {part}" if (part := closed_shares.get(run["run_id"])) else None,
    )  # fmt: skip


def _least_complete(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """(answered, asked) of the number with the most samples asked, and of those with the fewest answered."""
    return max(parts, key=lambda part: (part[1], -part[0]), default=(0, 0))


def _coverage_text(part: int, total: int) -> str | None:
    return f"{part:,} of {total:,}" if part < total else None


def _object(text: str | None) -> dict[str, Any]:
    value = json.loads(text or "{}")
    return value if isinstance(value, dict) else {}


def _is_reasoning_file(settings: Mapping[str, Any]) -> bool:
    return any(re.search(r"(?<!non)thinking", name) for name in file_names(settings))


@cache
def _keys_by_label(benchmark: str) -> dict[str, NumberKey]:
    """{label in files of published scores: key} of the numbers on a benchmark's boards."""
    boards = BENCHMARKS[benchmark].boards.tables.values()
    parts = [part for board in boards for part in board.parts]
    keys = {key for part in parts for key in (*part.numbers.values(), *part.reasoning_numbers.values())}
    return {number_label(key): key for key in keys}


Pair = tuple[BoardEntry | None, BoardEntry | None]
"""(plain, reasoning) entries of a model, or None for a missing entry."""

_REASONING = re.compile(r" \((?:w/ CoT|thinking)\)")
_PLAIN = re.compile(r" \(nonthinking\)")


def _published_entry(model: PublishedModel) -> BoardEntry:
    """Make the entry of a published model. The name loses the mode, so that both modes share a row."""
    keys = _keys_by_label(model.benchmark)
    return BoardEntry(
        _PLAIN.sub("", _REASONING.sub("", model.model)) + "*",
        reasons=bool(_REASONING.search(model.model)),
        attributes={**model.about, "published": model.model},
        numbers={keys.get(label, task_number(label)): score.value for label, score in model.scores.items()},
        note=model.doubt,
    )


def pair_entries(models: Iterable[BoardEntry], required_names: Collection[str] = ()) -> list[Pair]:
    """Pair the plain and the reasoning entry of each model. Duplicates get separate rows.

    Args:
        required_names: published models that fill both entries of a pair.
    """
    rows: list[tuple[tuple[object, ...], list[BoardEntry | None]]] = []
    for entry in models:
        key = (entry.model, entry.run_id is None, entry.backend, entry.mode_without_reasoning, entry.differs_in)
        if entry.run_id is None and entry.model.rstrip("*") in required_names:
            rows.append((key, [entry, entry]))
            continue
        side = int(entry.reasons)
        free = next((pair for other, pair in rows if other == key and pair[side] is None), None)
        if free is None:
            free = [None, None]
            rows.append((key, free))
        free[side] = entry
    return [(pair[0], pair[1]) for _, pair in rows]


class BenchmarkBoard(NamedTuple):
    """Board with the name of the benchmark."""

    benchmark: str
    board: Board


BOARDS: dict[str, BenchmarkBoard] = {
    name: BenchmarkBoard(family.name, board)
    for family in BENCHMARKS.values()
    for name, board in family.boards.tables.items()
}
"""{name of the report: board}."""

_RUNS = ("run_id", "reasoning_run_id")

_WORDS = """
    SELECT g.run_id, a.task, [{by}] AS marks, count(*) AS n,
           avg(coalesce(g.output_words, {count})) AS words
    FROM generations g JOIN samples a USING (benchmark, task, sample_id)
    WHERE g.benchmark = ? AND coalesce(g.output_sha256, g.output) IS NOT NULL GROUP BY ALL
"""


def _notes(board_table: Table, further: str) -> list[str]:
    lows = [at for at, name in enumerate(board_table.columns) if name.endswith("_low")]
    by = board_table.columns.index("cluster_by") if lows else 0
    bounds = [(next((row[at] for at in lows if row[at] is not None), None), row[by]) for row in board_table.rows]
    intervals = interval_notes(replace(board_table, columns=["low", "cluster_by"], rows=bounds)) if lows else []
    return [*intervals, *filter(None, [further])]


def table(store: Store, query: ReportQuery, name: str) -> Table:
    """Build the rows of a board. In a table of pairs ``reasoning_run_id`` is the run with reasoning."""
    benchmark, board = BOARDS[name]
    rows = _rows(store, query, benchmark, board)
    runs = _RUNS if board.pairs_modes else _RUNS[:1]
    board_columns = _columns(board)
    interval_values = [f"{column.name}_{end}" for column in board_columns if column.interval for end in BOUND_COLUMNS]
    columns = (
        *runs,
        *(column.name for column in board_columns),
        *interval_values,
        *(["cluster_by"] if interval_values else []),
    )
    return with_model_labels(store, Table(columns, [tuple(row.get(column) for column in columns) for row in rows]))


def _rows(store: Store, query: ReportQuery, benchmark: str, board: Board) -> list[BoardRow]:
    models = entries(store, query, benchmark)
    scores = (row for row in read_ranked_scores(store).dicts() if row["benchmark"] == benchmark)
    bounds = {row["run_id"]: unit_of(benchmark) * sort_score(row) for row in scores}
    if key := board.order_number:
        models = _among_runs(
            models,
            lambda entry: entry.run_id is not None,
            lambda entry: bounds.get(entry.run_id or "") if entry.note else entry.numbers.get(key),
        )
    words = _mean_words(store, benchmark, board.length_rule) if board.length_rule and models else {}
    rows = []
    for part in board.parts:
        part_models = _on_curves(models, curves(store, benchmark, query.runs), part.curve) if part.curve else models
        sides = (
            pair_entries(part_models, BENCHMARKS[benchmark].boards.reference_models)
            if board.pairs_modes
            else [(entry,) for entry in part_models]
        )
        part_rows = [row for models_of_row in sides if (row := _row(board, part, models_of_row, words, bounds))]
        if rank_by := board.rank_by:

            def rank(row: BoardRow, by: Callable[[BoardRow], float | None] = rank_by) -> float | None:
                return by(row) if row["bound"] is None else float(row["bound"])

            part_rows = _among_runs(part_rows, lambda row: any(row.get(name) for name in _RUNS), rank)
        rows += board.postprocess_rows(part_rows) if board.postprocess_rows else part_rows
    return rows


def _row(
    board: Board,
    part: BoardPart,
    sides: Sequence[BoardEntry | None],
    words: Mapping[str, float],
    bounds: Mapping[str, float],
) -> BoardRow | None:
    """Build a row with numbers and ends of intervals ("overall_low").

    Returns None if there is no number, unless the board keeps such rows.

    Args:
        sides: the entry of the model, or in a table of pairs the plain and the reasoning entry.
        bounds: scores with missing answers as 0, which place incomplete runs among published models.
    """
    models = [entry for entry in sides if entry]
    first = models[0]
    numbers: BoardRow = dict.fromkeys([*part.numbers, *part.reasoning_numbers])
    interval_values: BoardRow = {}
    for entry, keys in zip(sides, (part.numbers, part.reasoning_numbers), strict=False):
        if entry:
            numbers |= {column: entry.numbers.get(key) for column, key in keys.items()}
            interval_values |= {
                f"{column}_{end}": value for column, key in keys.items() for end, value in _ends(entry, key)
            }
    if board.length_rule:
        numbers["length"] = words.get(first.run_id or "")
    if not board.keeps_empty and all(value is None for value in numbers.values()):
        return None
    return {
        "model": board.model_label(first) if board.model_label else first.model,
        **{name: getattr(first, name) for name in ("backend", "differs_in")},
        "mode": first.mode_without_reasoning if board.pairs_modes else first.mode,
        **{name: entry.run_id if entry else None for name, entry in zip(_RUNS, sides, strict=False)},
        "note": _join_texts(text for entry in models for text in (_hindrance(part, entry), entry.remark)),
        "bound": next(
            (
                bounds.get(e.run_id, -math.inf) if e.note else -math.inf
                for e in models
                if e.run_id and _hindrance(part, e)
            ),
            None,
        ),
        "cluster_by": _cluster_by(models),
        **part.texts,
        **{column.name: column.value(models) for column in board.columns if column.value},
        **numbers,
        **interval_values,
    }


def _ends(entry: BoardEntry, key: NumberKey) -> Iterable[tuple[str, object]]:
    return zip(BOUND_COLUMNS, entry.intervals.get(key, ()), strict=False)


def _join_texts(texts: Iterable[str | None]) -> str | None:
    return "; ".join(dict.fromkeys(filter(None, texts))) or None


def _hindrance(part: BoardPart, entry: BoardEntry) -> str | None:
    return (entry.judged_note if part.has_ratings else entry.note) or (
        "not all tasks" if entry.unofficial & {*part.numbers.values(), *part.reasoning_numbers.values()} else None
    )


def _cluster_by(models: Iterable[BoardEntry]) -> str | None:
    clusters = [entry.cluster_by for entry in models if entry.cluster_by]
    return "sample" if "sample" in clusters else next(iter(clusters), None)


def _among_runs(models: Sequence[T], is_run: Callable[[T], bool], number_of: Callable[[T], float | None]) -> list[T]:
    """Insert published models, best first, each before the first run with a lower number. Runs keep their order."""

    def number(model: T) -> float:
        value = number_of(model)
        return -math.inf if value is None else value

    published = sorted((model for model in models if not is_run(model)), key=lambda model: -number(model))
    ordered: list[T] = []
    for run in filter(is_run, models):
        while published and number(published[0]) > number(run):
            ordered.append(published.pop(0))
        ordered.append(run)
    return ordered + published


def _on_curves(models: Iterable[BoardEntry], curve_of_run: Curves, grouping: str) -> list[BoardEntry]:
    """Make board entries of the runs with a length curve, whose numbers are points and counts of tasks and answers."""
    on_curves = []
    for entry in models:
        if curve := curve_of_run.get((entry.run_id or "", grouping)):
            values = {name: point.value for name, point in curve.points.items()}
            values |= {"tasks": len(curve.tasks), "n": curve.n, "fewest": curve.min_task_n}
            numbers = {group_number(grouping, metric=name): value for name, value in values.items()}
            interval_values = {
                group_number(grouping, metric=name): (point.low, point.high, point.method, curve.cluster_by)
                for name, point in curve.points.items()
            }
            on_curves.append(
                replace(
                    entry,
                    numbers=numbers,
                    intervals=interval_values,
                    unofficial=frozenset(),
                    cluster_by=curve.cluster_by,
                )
            )
    return on_curves


def _mean_words(store: Store, benchmark: str, rule: AnswerLengthRule) -> dict[str, float]:
    by = ", ".join(f"a.meta->>'{key}'" for key in rule.meta_keys)
    words_of: dict[str, list[tuple[float, int]]] = {}
    counted = store.compute_once(
        ("words", benchmark, by),
        lambda: store.query(_WORDS.format(by=by, count=COUNT_WORDS.format(text="g.output")), [benchmark]).rows,
    )
    for run_id, task, marks, n, words in counted:
        if rule.is_counted(task, marks):
            words_of.setdefault(run_id, []).append((words, n))
    return {run: sum(w * n for w, n in words) / sum(n for _, n in words) for run, words in words_of.items()}


NameAndMark = Callable[[Row], tuple[str, int]]
"""Function that returns the name and mark of a row's model in a chart."""


Picture = tuple[str, str]
"""Title and SVG."""


MOST = 8
"""Maximum number of models in a line chart, runs first. Heat maps and dot charts show up to ``MOST_ROWS``."""


MOST_ROWS = 40


def draw_charts(board: Board, rows: Sequence[Row], name_and_mark: NameAndMark) -> list[Picture]:
    """Draw the charts of a board from rows, best first, or return [] without charts or with too few rows."""
    return [picture for chart in board.charts for picture in _DRAW_FUNCTIONS[type(chart)](chart, rows, name_and_mark)]


def _parts(chart: Chart, rows: Sequence[Row]) -> dict[str, list[Row]]:
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(row[chart.split_by] if chart.split_by else "", []).append(row)
    return {value: part for value, part in parts.items() if not chart.only_value or value == chart.only_value}


def _series(chart: Chart, rows: Iterable[Row], who: NameAndMark, columns: Iterable[str]) -> list[Series]:
    names = list(columns)
    series = []
    for row in rows:
        points = [None if row[name] is None else _point(row, name, chart.scale) for name in names]
        if any(points):
            series.append(Series(*who(row), points))
    return series


def _point(row: Row, name: str, scale: float) -> Point:
    low, high = (None if end is None else scale * end for end in (row.get(f"{name}_low"), row.get(f"{name}_high")))
    return Point(scale * row[name], low, high, row["note"] or "")


def _select_rows(rows: Sequence[Row]) -> list[Row]:
    """Select the first ``MOST`` rows, runs before published models, in the order of the board."""
    published = [row["run_id"] is None and row.get("reasoning_run_id") is None for row in rows]
    places = sorted(range(len(rows)), key=published.__getitem__)[:MOST]
    return [rows[place] for place in sorted(places)]


def _draw_columns(chart: Chart, rows: Sequence[Row], who: NameAndMark) -> list[Picture]:
    """Draw charts with the columns as axes or ticks, and a shape or line per model."""
    labels = list(chart.columns.values())
    shapes_of = {
        value: shapes
        for value, part in _parts(chart, rows).items()
        if (shapes := _series(chart, _select_rows(part), who, chart.columns))
    }
    ends = extent(shape for shapes in shapes_of.values() for shape in shapes)
    pictures = []
    for value, shapes in shapes_of.items():
        title, models = chart.title.format(value), "model" if len(shapes) == 1 else "models"
        about = f"{chart.about}, of {len(shapes)} {models}; the numbers are in the table."
        is_radar = isinstance(chart, RadarChart)
        svg = radar(title, about, labels, shapes) if is_radar else curve(title, about, labels, shapes, ends=ends)
        pictures.append((title, svg))
    return pictures


def _draw_dots(chart: Chart, rows: Sequence[Row], who: NameAndMark) -> list[Picture]:
    top_rows = rows[:MOST]
    lines = [(group, series) for group in chart.columns for series in _series(chart, top_rows, who, [group])]
    about = f"{len(top_rows)} models {chart.about}; the numbers are in the table."
    return [(chart.title, dots(chart.title, about, lines))] if lines else []


def _draw_model_dots(chart: Chart, rows: Sequence[Row], who: NameAndMark) -> list[Picture]:
    lines = []
    for row in rows[:MOST_ROWS]:
        name, mark = who(row)
        for column, words in chart.columns.items():
            if row[column] is not None:
                label = f"{name}, {words}" if words else name
                lines.append((label, Series(label, mark, [_point(row, column, 1.0)])))
    about = f"{len(rows)} models, {chart.about}."
    return [(chart.title, dots(chart.title, about, lines))] if lines else []


def _draw_heat(chart: Chart, rows: Sequence[Row], who: NameAndMark) -> list[Picture]:
    if not chart.split_by:
        shown_rows = rows[:MOST_ROWS]
        models = [who(row) for row in shown_rows]
        return _draw_map(chart, chart.title, "models", models, list(enumerate(shown_rows)))
    names = list(dict.fromkeys(row[chart.split_by] for row in rows if row[chart.split_by] != chart.only_value))
    heats = []
    for group in dict.fromkeys(who(row) for row in rows[:MOST]):
        indexed_rows = [
            (names.index(row[chart.split_by]), row)
            for row in rows
            if row[chart.split_by] in names and who(row) == group
        ]
        labels = [(name, None) for name in names]
        heats += _draw_map(chart, chart.title.format(group[0]), chart.about, labels, indexed_rows)
    return heats


def _draw_map(
    chart: Chart, title: str, what: str, names: Sequence[tuple[str, int | None]], rows: Sequence[tuple[int, Row]]
) -> list[Picture]:
    cells = {
        (at, column): Point(chart.scale * row[name], note=row["note"] or "")
        for at, row in rows
        for column, name in enumerate(chart.columns)
        if row[name] is not None
    }
    about = f"{len(names)} {what} by {len(chart.columns)} lengths, the darker the higher; the numbers are in the cells."
    if not cells:
        return []
    columns, marks, ends = (
        list(chart.columns.values()),
        [mark for _, mark in names],
        (0, 100) if chart.split_by else None,
    )
    labels = [name for name, _ in names]
    return [(title, heat(title, about, rows=labels, columns=columns, cells=cells, ends=ends, marks=marks))]


_DRAW_FUNCTIONS: Mapping[type[Chart], Callable[[Chart, Sequence[Row], NameAndMark], list[Picture]]] = {
    RadarChart: _draw_columns,
    LineChart: _draw_columns,
    DotChart: _draw_dots,
    ModelDotChart: _draw_model_dots,
    HeatMap: _draw_heat,
}


def board_mark(source: FigureSource, row: Row) -> int:
    """Mark of the run or published model in a row of a board."""
    mark = source.mark(row["run_id"] or row.get("reasoning_run_id"))
    return source.mark_of(row["model"]) if mark is None else mark


def _draw_figures(source: FigureSource, name: str) -> list[Figure]:
    """Draw the charts of a board."""
    data = BOARDS[name]
    pictures = draw_charts(data.board, source.rows(name), lambda row: (str(row["label"]), board_mark(source, row)))
    return [Figure(*picture, benchmark=data.benchmark, is_small=data.board.small_charts) for picture in pictures]


def _columns(board: Board) -> tuple[Column, ...]:
    who = (
        Column("model", "model"),
        Column("backend", "backend", optional=True, rank=3),
        Column("differs_in", "differs in", optional=True),
    )
    return (*board.leading_columns, *who, *board.columns, Column("note", "note", optional=True))


def _section(name: str, board: Board) -> Report:
    return Report(
        name=name,
        title=board.title,
        columns=_columns(board),
        rows=partial(table, name=name),
        notes=partial(_notes, further=board.note),
        empty=board.empty,
        takes=PUBLISHED,
        reads="coverage",
        draw=partial(_draw_figures, name=name) if board.charts else None,
        page=BOARD.page,
        section_of=BOARD.name,
    )


BOARD = Report(
    name="board",
    title="The benchmarks' leaderboards",
    columns=(),
    page=PagePlace("Scores", 3, layout="boards"),
    next_step=3,
    sections=lambda: {name: _section(name, entry.board) for name, entry in BOARDS.items()},
)
