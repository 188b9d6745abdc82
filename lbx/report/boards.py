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
from lbx.base.number_key import NumberKey, group_number
from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.base.layout import Board, Entry, Part, Row, Words
from lbx.report.board_entries import entries, paired
from lbx.report.cells import interval_notes
from lbx.report.curves import Curves, curves
from lbx.report.shapes import PUBLISHED, Report, ReportQuery
from lbx.store import Store, Table
from lbx.store.rows import ENDS


class Shown(NamedTuple):
    """A board and its benchmark."""

    benchmark: str
    board: Board


BOARDS: dict[str, Shown] = {
    name: Shown(family.name, board) for family in BENCHMARKS.values() for name, board in family.boards.tables.items()
}
"""Boards by report name."""

_RUNS = ("run_id", "reasoning_run_id")

_WORDS = r"""
    SELECT g.run_id, a.task, [{by}] AS marks, count(*) AS n,
           avg(len(regexp_extract_all(g.output, '[^\t-\r\x{{1c}}-\x{{1f}}\x{{85}}\p{{Z}}]+'))) AS words
    FROM generations g JOIN samples a USING (benchmark, task, sample_id)
    WHERE g.benchmark = ? AND g.output IS NOT NULL GROUP BY ALL
"""


def report_of(board: Board) -> Report:
    """Report definition of a board."""
    who = (
        Column("model", "model"),
        Column("backend", "backend", optional=True, rank=3),
        Column("differs_in", "differs in", optional=True),
    )
    columns = (*board.first, *who, *board.columns, Column("note", "note", optional=True))
    return Report(
        board.title, "", columns, notes=partial(_notes, further=board.note), empty=board.empty, takes=PUBLISHED,
        reads="coverage", page=3,
    )  # fmt: skip


def _notes(made: Table, further: str) -> list[str]:
    """Notes on the intervals of a board, and the board's own note."""
    lows = [at for at, name in enumerate(made.columns) if name.endswith("_low")]
    by = made.columns.index("cluster_by") if lows else 0
    bounds = [(next((row[at] for at in lows if row[at] is not None), None), row[by]) for row in made.rows]
    intervals = interval_notes(replace(made, columns=["low", "cluster_by"], rows=bounds)) if lows else []
    return [*intervals, *filter(None, [further])]


def table(store: Store, query: ReportQuery, name: str) -> Table:
    """Build a board; in a table of pairs ``reasoning_run_id`` is the run with reasoning."""
    benchmark, board = BOARDS[name]
    rows = _rows(store, query, benchmark, board)
    runs = _RUNS if board.paired else _RUNS[:1]
    shown = report_of(board).columns
    sure = [f"{column.name}_{end}" for column in shown if column.interval for end in ENDS]
    columns = (*runs, *(column.name for column in shown), *sure, *(["cluster_by"] if sure else []))
    return Table(columns, [tuple(row.get(column) for column in columns) for row in rows])


def _rows(store: Store, query: ReportQuery, benchmark: str, board: Board) -> list[Row]:
    models = entries(store, query, benchmark)
    if key := board.ordered_by:
        models.sort(key=lambda one: (one.note is not None, -one.figures.get(key, 0)))
    words = _mean_words(store, benchmark, board.words) if board.words and models else {}
    rows = []
    for part in board.parts:
        shown = _on_curves(models, curves(store, benchmark, query.runs), part.curve) if part.curve else models
        sides = paired(shown, BENCHMARKS[benchmark].boards.always) if board.paired else [(one,) for one in shown]
        made = [row for models_of_row in sides if (row := _row(board, part, models_of_row, words))]
        if board.by:
            made.sort(key=partial(_rank, board.by))
        rows += board.shown(made) if board.shown else made
    return rows


def _row(board: Board, part: Part, sides: Sequence[Entry | None], words: Mapping[str, float]) -> Row | None:
    """Build a row with the interval of each number ("overall_low").

    None without any number, unless the board keeps such rows.

    Args:
        sides: the model's entry; in a table of pairs the plain and the reasoning one.
    """
    models = [one for one in sides if one]
    first = models[0]
    numbers: Row = dict.fromkeys([*part.numbers, *part.reasoned])
    sure: Row = {}
    for one, keys in zip(sides, (part.numbers, part.reasoned), strict=False):
        if one:
            numbers |= {column: one.figures.get(key) for column, key in keys.items()}
            sure |= {f"{column}_{end}": value for column, key in keys.items() for end, value in _ends(one, key)}
    if board.words:
        numbers["length"] = words.get(first.run_id or "")
    if not board.keeps_empty and all(value is None for value in numbers.values()):
        return None
    return {
        "model": board.called(first) if board.called else first.model,
        **{name: getattr(first, name) for name in ("backend", "differs_in")},
        "mode": first.way if board.paired else first.mode,
        **{name: one.run_id if one else None for name, one in zip(_RUNS, sides, strict=False)},
        "note": _joined(text for one in models for text in (_hindrance(part, one), one.remark)),
        "hindered": any(_hindrance(part, one) for one in models),
        "cluster_by": _cluster_by(models),
        **part.texts,
        **{column.name: column.value(models) for column in board.columns if column.value},
        **numbers,
        **sure,
    }


def _ends(one: Entry, key: NumberKey) -> Iterable[tuple[str, object]]:
    return zip(ENDS, one.sure.get(key, ()), strict=False)


def _joined(texts: Iterable[str | None]) -> str | None:
    return "; ".join(dict.fromkeys(filter(None, texts))) or None


def _hindrance(part: Part, one: Entry) -> str | None:
    return one.note or ("not all tasks" if one.open & {*part.numbers.values(), *part.reasoned.values()} else None)


def _cluster_by(models: Iterable[Entry]) -> str | None:
    known = [one.cluster_by for one in models if one.cluster_by]
    return "sample" if "sample" in known else next(iter(known), None)


def _rank(by: Callable[[Row], float | None], row: Row) -> tuple[bool, bool, float]:
    """Sort key: best first, then rows with a hindrance, and last those without a score."""
    score = by(row)
    return score is None, row["hindered"], -(score or 0)


def _on_curves(models: Iterable[Entry], made: Curves, grouping: str) -> list[Entry]:
    """Runs that have the curve, with its points and their components as figures."""
    on_curves = []
    for one in models:
        if curve := made.get((one.run_id or "", grouping)):
            values = {name: point.value for name, point in curve.points.items()}
            values |= {"tasks": len(curve.tasks), "n": curve.n, "fewest": curve.fewest}
            figures = {group_number(grouping, metric=name): value for name, value in values.items()}
            sure = {
                group_number(grouping, metric=name): (point.low, point.high, point.method, curve.cluster_by)
                for name, point in curve.points.items()
            }
            on_curves.append(replace(one, figures=figures, sure=sure, open=frozenset(), cluster_by=curve.cluster_by))
    return on_curves


def _mean_words(store: Store, benchmark: str, rule: Words) -> dict[str, float]:
    """Mean number of words of a run's counted answers."""
    by = ", ".join(f"a.meta->>'{key}'" for key in rule.by)
    words_of: dict[str, list[tuple[float, int]]] = {}
    counted = store.once(("words", benchmark, by), lambda: store.query(_WORDS.format(by=by), [benchmark]).rows)
    for run_id, task, marks, n, words in counted:
        if rule.counts(task, marks):
            words_of.setdefault(run_id, []).append((words, n))
    return {run: sum(w * n for w, n in some) / sum(n for _, n in some) for run, some in words_of.items()}
