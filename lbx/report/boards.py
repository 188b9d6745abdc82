"""The reports ``board_...``: results in the columns of each benchmark's own leaderboards.

Benchmarks define the tables as data (``benchmarks.base.layout``). Numbers are official ones. A run without an official
number (with only some samples or tasks) shows its score so far and a note, and follows the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from lbx.base.columns import Column
from lbx.base.marks import COUNT_WORDS
from lbx.base.number_key import NumberKey, group_number
from lbx.benchmarks.base.layout import AnswerLengthRule, Board, BoardEntry, BoardPart, BoardRow
from lbx.benchmarks.registry import BENCHMARKS
from lbx.report.board_entries import entries, pair_entries
from lbx.report.cells import interval_notes
from lbx.report.curves import Curves, curves
from lbx.report.report_types import PUBLISHED, ReportDefinition, ReportQuery
from lbx.store import Store, Table
from lbx.store.rows import BOUND_COLUMNS


class BenchmarkBoard(NamedTuple):
    """A board and its benchmark."""

    benchmark: str
    board: Board


BOARDS: dict[str, BenchmarkBoard] = {
    name: BenchmarkBoard(family.name, board)
    for family in BENCHMARKS.values()
    for name, board in family.boards.tables.items()
}
"""Boards by report name."""

_RUNS = ("run_id", "reasoning_run_id")

_WORDS = """
    SELECT g.run_id, a.task, [{by}] AS marks, count(*) AS n,
           avg(coalesce(g.output_words, {count})) AS words
    FROM generations g JOIN samples a USING (benchmark, task, sample_id)
    WHERE g.benchmark = ? AND coalesce(g.output_sha256, g.output) IS NOT NULL GROUP BY ALL
"""


def board_report(board: Board) -> ReportDefinition:
    """Report definition of a board."""
    who = (
        Column("model", "model"),
        Column("backend", "backend", optional=True, rank=3),
        Column("differs_in", "differs in", optional=True),
    )
    columns = (*board.first, *who, *board.columns, Column("note", "note", optional=True))
    return ReportDefinition(
        board.title, "", columns, notes=partial(_notes, further=board.note), empty=board.empty, takes=PUBLISHED,
        reads="coverage", page=3,
    )  # fmt: skip


def _notes(board_table: Table, further: str) -> list[str]:
    lows = [at for at, name in enumerate(board_table.columns) if name.endswith("_low")]
    by = board_table.columns.index("cluster_by") if lows else 0
    bounds = [(next((row[at] for at in lows if row[at] is not None), None), row[by]) for row in board_table.rows]
    intervals = interval_notes(replace(board_table, columns=["low", "cluster_by"], rows=bounds)) if lows else []
    return [*intervals, *filter(None, [further])]


def table(store: Store, query: ReportQuery, name: str) -> Table:
    """Build a board; in a table of pairs ``reasoning_run_id`` is the run with reasoning."""
    benchmark, board = BOARDS[name]
    rows = _rows(store, query, benchmark, board)
    runs = _RUNS if board.pairs_modes else _RUNS[:1]
    board_columns = board_report(board).columns
    sure = [f"{column.name}_{end}" for column in board_columns if column.interval for end in BOUND_COLUMNS]
    columns = (*runs, *(column.name for column in board_columns), *sure, *(["cluster_by"] if sure else []))
    return Table(columns, [tuple(row.get(column) for column in columns) for row in rows])


def _rows(store: Store, query: ReportQuery, benchmark: str, board: Board) -> list[BoardRow]:
    models = entries(store, query, benchmark)
    if key := board.ordered_by:
        models.sort(key=lambda entry: (entry.note is not None, -entry.figures.get(key, 0)))
    words = _mean_words(store, benchmark, board.words) if board.words and models else {}
    rows = []
    for part in board.parts:
        part_models = _on_curves(models, curves(store, benchmark, query.runs), part.curve) if part.curve else models
        sides = (
            pair_entries(part_models, BENCHMARKS[benchmark].boards.reference_models)
            if board.pairs_modes
            else [(entry,) for entry in part_models]
        )
        part_rows = [row for models_of_row in sides if (row := _row(board, part, models_of_row, words))]
        if board.by:
            part_rows.sort(key=partial(_rank, board.by))
        rows += board.postprocess_rows(part_rows) if board.postprocess_rows else part_rows
    return rows


def _row(
    board: Board, part: BoardPart, sides: Sequence[BoardEntry | None], words: Mapping[str, float]
) -> BoardRow | None:
    """Build a row with the interval of each number ("overall_low").

    Returns None if there is no number, unless the board keeps such rows.

    Args:
        sides: the model's entry; in a table of pairs the plain and the reasoning one.
    """
    models = [entry for entry in sides if entry]
    first = models[0]
    numbers: BoardRow = dict.fromkeys([*part.numbers, *part.reasoning_numbers])
    sure: BoardRow = {}
    for entry, keys in zip(sides, (part.numbers, part.reasoning_numbers), strict=False):
        if entry:
            numbers |= {column: entry.figures.get(key) for column, key in keys.items()}
            sure |= {f"{column}_{end}": value for column, key in keys.items() for end, value in _ends(entry, key)}
    if board.words:
        numbers["length"] = words.get(first.run_id or "")
    if not board.keeps_empty and all(value is None for value in numbers.values()):
        return None
    return {
        "model": board.model_label(first) if board.model_label else first.model,
        **{name: getattr(first, name) for name in ("backend", "differs_in")},
        "mode": first.mode_without_reasoning if board.pairs_modes else first.mode,
        **{name: entry.run_id if entry else None for name, entry in zip(_RUNS, sides, strict=False)},
        "note": _join_texts(text for entry in models for text in (_hindrance(part, entry), entry.remark)),
        "hindered": any(_hindrance(part, entry) for entry in models),
        "cluster_by": _cluster_by(models),
        **part.texts,
        **{column.name: column.value(models) for column in board.columns if column.value},
        **numbers,
        **sure,
    }


def _ends(entry: BoardEntry, key: NumberKey) -> Iterable[tuple[str, object]]:
    return zip(BOUND_COLUMNS, entry.intervals.get(key, ()), strict=False)


def _join_texts(texts: Iterable[str | None]) -> str | None:
    return "; ".join(dict.fromkeys(filter(None, texts))) or None


def _hindrance(part: BoardPart, entry: BoardEntry) -> str | None:
    return entry.note or (
        "not all tasks" if entry.unofficial & {*part.numbers.values(), *part.reasoning_numbers.values()} else None
    )


def _cluster_by(models: Iterable[BoardEntry]) -> str | None:
    clusters = [entry.cluster_by for entry in models if entry.cluster_by]
    return "sample" if "sample" in clusters else next(iter(clusters), None)


def _rank(by: Callable[[BoardRow], float | None], row: BoardRow) -> tuple[bool, bool, float]:
    """Sort key: complete rows by score, then "hindered" ones by score, and rows without a score at the end."""
    score = by(row)
    return score is None, row["hindered"], -(score or 0)


def _on_curves(models: Iterable[BoardEntry], curve_of_run: Curves, grouping: str) -> list[BoardEntry]:
    """Entries of the runs that have the curve; their figures are its points and the counts of its tasks and answers."""
    on_curves = []
    for entry in models:
        if curve := curve_of_run.get((entry.run_id or "", grouping)):
            values = {name: point.value for name, point in curve.points.items()}
            values |= {"tasks": len(curve.tasks), "n": curve.n, "fewest": curve.fewest}
            figures = {group_number(grouping, metric=name): value for name, value in values.items()}
            sure = {
                group_number(grouping, metric=name): (point.low, point.high, point.method, curve.cluster_by)
                for name, point in curve.points.items()
            }
            on_curves.append(
                replace(entry, figures=figures, intervals=sure, unofficial=frozenset(), cluster_by=curve.cluster_by)
            )
    return on_curves


def _mean_words(store: Store, benchmark: str, rule: AnswerLengthRule) -> dict[str, float]:
    by = ", ".join(f"a.meta->>'{key}'" for key in rule.by)
    words_of: dict[str, list[tuple[float, int]]] = {}
    counted = store.compute_once(
        ("words", benchmark, by),
        lambda: store.query(_WORDS.format(by=by, count=COUNT_WORDS.format(text="g.output")), [benchmark]).rows,
    )
    for run_id, task, marks, n, words in counted:
        if rule.counts(task, marks):
            words_of.setdefault(run_id, []).append((words, n))
    return {run: sum(w * n for w, n in some) / sum(n for _, n in some) for run, some in words_of.items()}
