"""The report ``paper``: tables of the papers, with a row for each run and columns of tasks, categories or lengths.

The view ``paper`` contains a row for each number, and benchmarks determine the number's position in tables
(``benchmarks.base.paper_tables``). Curves by length, which benchmarks define (``ScoringRules.curves``), are added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from lbx.base.columns import Column
from lbx.base.number import NumberKey, group_number, key_of
from lbx.base.units import format_count
from lbx.base.visible import one_line, visible
from lbx.benchmarks.base.paper_tables import LengthCurve, Paper, TableCell
from lbx.benchmarks.registry import BENCHMARKS, CustomBenchmark
from lbx.opinions import result_rows
from lbx.report.format.labels import number_label
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import cell_text, interval_notes, missing_interval_notes
from lbx.report.query import PUBLISHED, ReportQuery
from lbx.report.report import PagePlace, Report
from lbx.report.rows import reference
from lbx.report.rows.comparison import compare_runs
from lbx.results import Store, Table
from lbx.results.file.numbers import KEY_COLUMNS
from lbx.results.rows import interval_columns
from lbx.results.scoring.score_columns import read_scores
from lbx.results.views import PAPER_NUMBERS
from lbx.statistics import LEVEL
from lbx.statistics.differences import holm

Curves = Mapping[tuple[str, str], LengthCurve]
"""{(run, grouping): curve}."""

_READ: WeakKeyDictionary[Store, tuple[object, Curves]] = WeakKeyDictionary()
"""Cache of the curves of read-only files, which the report ``paper`` and boards share."""


def curves(store: Store, benchmark: str, runs: Collection[str] = ()) -> Curves:
    """Compute the curves of a benchmark for some runs, or for all with ()."""
    key = (benchmark, sorted(runs))
    if (cached := _READ.get(store)) and cached[0] == key:
        return cached[1]
    result = {
        (run, group): curve
        for (run, _), tasks in read_scores(store, runs, [benchmark]).items()
        for group, curve in BENCHMARKS[benchmark].scoring.curves(tasks).items()
    }
    if store.read_only:
        _READ[store] = (key, result)
    return result


_NUMBER = Column("official", "official", "number", interval=True)


_OPINIONS = {"judge": "judge", "people": "people_pairs"}
OPINION_TITLES = {
    "judge": "judges' win rates (percent)",
    "judge_rating": "judges' mean ratings",
    "people_pairs": "people's win rates (percent)",
    "people_rating": "people's mean ratings",
}
"""{table of judges or raters: title}."""


OVERALL_COLUMNS = ("overall", "average")
"""Columns of a benchmark's overall average in papers."""


def paper_of(benchmark: str) -> Paper:
    """Definition of a benchmark's paper tables, empty for unknown benchmarks, which foreign files may contain."""
    family = BENCHMARKS.get(benchmark)
    return family.paper if family else Paper()


def has_paper(benchmark: str) -> bool:
    """Whether a benchmark is built in, so that there is a paper."""
    family = BENCHMARKS.get(benchmark)
    return family is not None and not isinstance(family, CustomBenchmark)


KEY = "key"
"""Column with the ``NumberKey`` of a number, which reports omit."""


def paper_numbers(store: Store, runs: Sequence[str]) -> Table:
    """Read the view ``paper`` with the column ``KEY``, for some runs, or for all if ``runs`` is empty."""
    condition = "WHERE list_contains(?::VARCHAR[], run_id)" if runs else ""
    order = "ORDER BY benchmark, part, place, position, line, run"
    result = store.query(f"FROM ({PAPER_NUMBERS}) {condition} {order}", [list(runs)] if runs else [])
    columns = result.columns[: -len(KEY_COLUMNS)]
    return Table(
        [*columns, KEY],
        [(*row[: len(columns)], key_of(fields)) for row, fields in zip(result.rows, result.dicts(), strict=True)],
    )


def without_keys(table: Table) -> Table:
    """Drop the column ``KEY`` of a table."""
    at = list(table.columns).index(KEY)
    return Table([*table.columns[:at], *table.columns[at + 1 :]], [(*row[:at], *row[at + 1 :]) for row in table.rows])


def with_table_positions(table: Table, curves: Callable[[str], Curves] = lambda _: {}) -> Table:
    """Add curves to numbers of papers, and columns with the position: "table", "row" and "column".

    The position is NULL for a number that the paper's tables do not contain.

    Args:
        curves: Function that computes the curves of a benchmark. It is called only if numbers of the curves' tasks
            exist.
    """
    names = ["table", "row", "column"]
    rows = table.dicts()
    rows += _curve_numbers(rows, curves)
    placed = [(row, _table_position(row[KEY]) or (None, None, None)) for row in rows]
    return Table(
        [*table.columns, *names], [(*(row.get(name) for name in table.columns), *position) for row, position in placed]
    )


def _table_position(key: NumberKey) -> TableCell | None:
    if key.kind == "opinion":
        table = _OPINIONS[key.grouping] if key.metric == "win_rate" else f"{key.grouping}_rating"
        return TableCell(table, "", key.name)
    return paper_of(key.benchmark).cell_of(key)


def _curve_numbers(rows: Iterable[Mapping[str, Any]], curves: Callable[[str], Curves]) -> Iterator[dict[str, Any]]:
    """Yield the points of curves as rows, for runs with an official number for every task of the curve."""
    official: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        key: NumberKey = row[KEY]
        for grouping, tasks in paper_of(key.benchmark).curves.items():
            if key.task in tasks and not key.metric and row["run_id"] and row["official"] is not None:
                official.setdefault((key.benchmark, row["run_id"], grouping), {})[key.task] = row
    benchmark_curves = {benchmark: curves(benchmark) for benchmark in {names[0] for names in official}}
    for (benchmark, run, grouping), numbers in official.items():
        curve = benchmark_curves[benchmark].get((run, grouping))
        if curve is None or not numbers.keys() >= set(curve.tasks):
            continue
        like = {name: numbers[curve.tasks[0]][name] for name in ("run", "run_id", "benchmark")}
        for at, (bucket, point) in enumerate(curve.points.items()):
            key = replace(group_number(grouping, metric=bucket), run=run, benchmark=benchmark)
            interval_values = interval_columns(point, curve.cluster_by)
            ends = {
                end: None if interval_values[end] is None else 100 * interval_values[end]
                for end in ("low", "high", "se")
            }
            yield {
                **like, "line": number_label(key), "official": 100 * point.value, "part": 1, "place": 1000 + at,
                "position": 0, **interval_values, **ends, KEY: key,
            }  # fmt: skip


def average_numbers(table: Table) -> dict[str, list[dict[str, Any]]]:
    """Select the averages of papers: {benchmark: rows}, with the heading as ``column``."""
    numbers: dict[str, list[dict[str, Any]]] = {}
    for row in table.dicts():
        if row["part"] != 1 or row["table"] in OPINION_TITLES:
            continue
        paper = paper_of(row["benchmark"])
        if not paper.averages or (row["table"], row["row"]) in paper.averages:
            heading = paper.average_heading(row[KEY]) if paper.average_heading else row["column"]
            numbers.setdefault(row["benchmark"], []).append({**row, "column": heading})
    return numbers


_FAILED = """
    SELECT run_id, benchmark, count(DISTINCT (task, sample_id)) FROM failures GROUP BY ALL ORDER BY ALL
"""


def failures(store: Store, table: Table) -> list[str]:
    """Write a note on failed samples, which official numbers leave out, for each run and benchmark."""
    run_names = {
        (row["run_id"], row["benchmark"]): one_line(row["run"]) for row in table.dicts() if row["official"] is not None
    }
    return [
        f"{run_names[run, benchmark]}, {benchmark}: official numbers leave out its "
        f"{format_count(failed, 'failed sample')}; "
        "groups with only failed samples are not shown."
        for run, benchmark, failed in store.query(_FAILED).rows
        if (run, benchmark) in run_names
    ]


def sheets(table: Table, further: Sequence[str] = ()) -> list[Sheet]:
    """Make the sheets of papers' tables, averages first, with the best score of each column marked.

    Args:
        further: Notes below the last table.
    """
    rows = [row for row in table.dicts() if row["table"] is not None]
    tables: dict[tuple[str, str], list[dict[str, Any]]] = {
        (row["benchmark"], row["table"]): [] for row in sorted(rows, key=lambda row: (row["benchmark"], -row["part"]))
    }
    for row in rows:
        tables[row["benchmark"], row["table"]].append(row)
    paper_sheets = [_sheet(_title(*key), rows) for key, rows in tables.items()]
    if not paper_sheets:
        return []
    notes = [*paper_sheets[-1].notes, *interval_notes(table), *missing_interval_notes(table, [_NUMBER]), *further]
    return [*paper_sheets[:-1], replace(paper_sheets[-1], notes=notes)]


def _title(benchmark: str, table: str) -> str:
    titles = paper_of(benchmark).titles
    return titles.get(table, f"{benchmark}: {OPINION_TITLES.get(table, table)}")


def doubts(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Write a sentence for each doubt about the judges in some rows."""
    return [f"{doubt}." for doubt in dict.fromkeys(row.get("fitness") for row in rows) if doubt]


def _sheet(title: str, rows: Sequence[Mapping[str, Any]]) -> Sheet:
    columns = list(dict.fromkeys(row["column"] for row in rows))
    labels = list(dict.fromkeys(row["row"] for row in rows))
    runs = sorted({(row["run"], row["run_id"] or "") for row in rows})
    cells = {(row["row"], row["run"], row["run_id"] or "", row["column"]): row for row in rows}
    keys = [(label, *run) for label in labels for run in runs]
    keys = [key for key in keys if any((*key, column) in cells for column in columns)]
    head = [Column("row", "of"), Column("run", "run")] if any(labels) else [Column("run", "run")]
    body = [
        [
            *map(visible, key[2 - len(head) : 2]),
            *(cell_text(cells[*key, c], _NUMBER) if (*key, c) in cells else "" for c in columns),
        ]
        for key in keys
    ]
    sheet_columns = [*head, *(Column(column, one_line(column), "number", across=True) for column in columns)]
    best = frozenset(_best_cells(keys, columns, cells, len(head)))
    notes = ["* published elsewhere"] if any(not run_id for _, run_id in runs) else []
    notes += [TIES_NOTE] if len(runs) > 1 and "alike" in rows[0] else []
    if any(row["official"] is None for row in rows):
        notes.append(
            "-: no official number, because the run has no score for some of the samples, or another evaluation "
            "harness asked in another way (report harness). The report task_scores has all scores."
        )
    notes += doubts(rows)
    return Sheet(title, sheet_columns, body, notes, best)


def _best_cells(
    keys: Sequence[tuple[str, str, str]],
    columns: Sequence[str],
    cells: Mapping[tuple[str, str, str, str], Mapping[str, Any]],
    n_head_columns: int,
) -> Iterator[tuple[int, int]]:
    """Yield (row, column) of the best score of each column and of ties, if the column contains several scores."""
    for at, column in enumerate(columns):
        for label in dict.fromkeys(key[0] for key in keys):
            scores = {
                number: row["official"]
                for number, key in enumerate(keys)
                if key[0] == label and (row := cells.get((*key, column))) and row["official"] is not None
            }
            top = max(scores.values(), default=0)
            for number, score in scores.items() if len(scores) > 1 else ():
                if score == top or cells[*keys[number], column].get("alike"):
                    yield number, n_head_columns + at


LineValues = dict[tuple[str, str], dict[str, Any]]
"""{(benchmark, line): {run: value}}."""


TIES_NOTE = "Bold: the best, and all that do not differ significantly from it (paired tests, 5%, Holm within a column)."


def mark_ties(store: Store, query: ReportQuery, paper: Table) -> Table:
    """Add a last column ``alike`` to the report: whether a number does not differ significantly from the best run's.

    A line led by a published score has no ties, because a published score has no samples to compare.
    """
    rows = paper.dicts()
    scores: LineValues = {}
    for row in rows:
        if row["official"] is not None:
            by_run = scores.setdefault((row["benchmark"], row["line"]), {})
            by_run[row["run_id"]] = max(row["official"], by_run.get(row["run_id"], row["official"]))
    best = {key: max(by_run, key=lambda run: by_run[run]) for key, by_run in scores.items() if len(by_run) > 1}
    tests: LineValues = {}
    # All pairs, to read samples once
    comparisons, _ = compare_runs(store, replace(query, baseline="", allow_different_settings=True))
    for comparison in comparisons:
        number = (comparison.benchmark, number_label(comparison.first.key))
        pair = (comparison.run_a, comparison.run_b)
        if (top := best.get(number)) in pair:
            tests.setdefault(number, {})[pair[pair[0] == top]] = comparison.difference.p
    alike = {(*key, run) for key, by_run in tests.items() for run in _ties(by_run)}
    same = [(row["benchmark"], row["line"], row["run_id"]) in alike for row in rows]
    return Table([*paper.columns, "alike"], [(*row, is_tie) for row, is_tie in zip(paper.rows, same, strict=True)])


def _ties(p_values: dict[str, float | None]) -> list[str]:
    """Runs without a significant difference from the best run, or without a test."""
    corrected = holm([1.0 if p is None else p for p in p_values.values()])
    return [run for run, p in zip(p_values, corrected, strict=True) if p >= LEVEL]


def read_paper(store: Store, query: ReportQuery) -> Table:
    """Read the rows of the report ``paper`` with the column ``KEY``, but without labels."""
    table = paper_numbers(store, query.runs)
    if query.with_published_models:
        table = reference.add_published_rows(table, reference.find_published(store, query))
    return result_rows.with_judge_warnings(
        store, with_table_positions(table, lambda benchmark: curves(store, benchmark, query.runs))
    )


PAPER = Report(
    name="paper",
    title="Numbers as printed in the papers (official; tasks in the paper's order, then its averages)",
    order="benchmark, part, place, position, line, run",
    columns=(Column("benchmark", "benchmark"), Column("line", "task")),
    pivot=("run", Column("official", "official", "number", interval=True)),
    empty="No answer has been scored yet.",
    takes=PUBLISHED,
    reads="coverage",
    rows=lambda store, query: without_keys(read_paper(store, query)),
    make_sheets=lambda table, notes, _: sheets(table, notes),
    read_notes=failures,
    mark_ties=mark_ties,
    page=PagePlace("Scores", 2, title="The papers' tables", layout="paper"),
    default=3,
    next_step=2,
)
