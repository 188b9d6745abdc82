"""The report ``suites``: every benchmark in one table, by length, and the area under each curve of scores by length.

The score of a benchmark at a length is the average that its authors use, over the answers of that length. As in the
report ``effective_context``, it covers only tasks with samples at every compared length. That report weights these
tasks equally, so that its lengths differ in the length only, and an average of questions or categories is another
number. The area is the mean score from 8k to the longest length over the logarithm of the length (trapezoids), on the
lengths common to all runs of the benchmark.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lbx.base.columns import Column
from lbx.base.number import Number
from lbx.benchmarks.base.aggregates import ScoredRows
from lbx.report.format.digits import short_length
from lbx.report.format.labels import Row
from lbx.report.format.sheets import Sheet
from lbx.report.format.table_cells import byte_notes, cell_text, interval_notes
from lbx.report.query import ReportQuery
from lbx.report.ranks import by_benchmark_and_rank
from lbx.report.report import TWIN, WHO, Report
from lbx.report.rows.effective_context import (
    LengthGrid,
    cell_with_interval,
    doubt_legend,
    length_grids,
    notes_on_omissions,
    shaded_cell,
)
from lbx.results import Store, Table
from lbx.results.scoring.score_columns import (
    INTERVAL_COLUMNS,
    RUN_COLUMNS,
    as_table,
    benchmark_score,
    find_benchmark,
    headline_of,
    read_scores,
    runs_by_id,
    score_interval_columns,
)
from lbx.statistics.estimates import Estimate, Stratum, interval

SHORTEST = 8192
"""Shortest length of an area."""
COLUMNS = (
    *RUN_COLUMNS, "benchmark", "length_unit", "tasks", "task_names", "left_out", "length_up_to", "n", "score",
    *INTERVAL_COLUMNS, "official", "doubt",
    "area_from", "area_to", "area", *(f"area_{name}" for name in INTERVAL_COLUMNS),
)  # fmt: skip
_SCORE = Column("score", "score", "percent", interval=True)
_AREA = Column("area", "area", "percent", interval=True, interval_prefix="area_")
_MEANS_OF_TASKS = ("mean of tasks", "mean of lengths")
"""Averages that at one length are the mean of the tasks (``ScoringRules.average_of``)."""


class _Curve(NamedTuple):
    """Scores of a run on a benchmark by length."""

    run: str
    benchmark: str
    grid: LengthGrid
    numbers: Mapping[int, Number]


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report: one per run, benchmark and length, with the area of the run in each."""
    curves = [
        _Curve(run, benchmark, grid, numbers)
        for (run, benchmark), tasks in by_benchmark_and_rank(store, read_scores(store, query.runs)).items()
        for grid in length_grids(benchmark, tasks)
        if (numbers := {at: number for at, of in grid.rows.items() if (number := _average(benchmark, of))})
    ]
    common: dict[tuple[str, str], set[int]] = {}
    for curve in curves:
        lengths = common.setdefault((curve.benchmark, curve.grid.unit), {*curve.numbers})
        lengths &= {length for length in curve.numbers if length >= SHORTEST and not curve.grid.doubt(length)}
    names = runs_by_id(store)
    return as_table(
        COLUMNS,
        [
            names[curve.run] | row
            for curve in curves
            for row in _rows(curve, sorted(common[curve.benchmark, curve.grid.unit]))
        ],
    )


def _average(benchmark: str, tasks: Mapping[str, ScoredRows]) -> Number | None:
    family = find_benchmark(benchmark)
    if family and family.catalogue.length_groups and all(map(family.catalogue.has_task, tasks)):
        of_length = [number for number in family.groups(tasks) if number.grouping == "length" and number.estimate]
        if len(of_length) == 1:
            return of_length[0]
    heads = [head for task, rows in tasks.items() if (head := headline_of(benchmark, task, rows))]
    number = benchmark_score(benchmark, tasks, heads)
    return number if number and number.estimate else None


def _rows(curve: _Curve, lengths: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield a row for each length. The area covers ``lengths``."""
    family = find_benchmark(curve.benchmark)
    line: dict[str, Any] = {
        "benchmark": curve.benchmark,
        "length_unit": curve.grid.unit,
        "tasks": len(curve.grid.tasks),
        "task_names": ", ".join(curve.grid.tasks),
        "left_out": ", ".join(curve.grid.left_out) or None,
    }
    estimates = {length: number.estimate for length, number in curve.numbers.items() if number.estimate}
    if len(lengths) > 1:
        estimate = area({length: estimates[length] for length in lengths})
        of_area = interval(estimate)
        columns = score_interval_columns(of_area, family, clustered=estimate.clustered)
        line |= {"area_from": lengths[0], "area_to": lengths[-1], "area": of_area.value}
        line |= {f"area_{name}": columns[name] for name in INTERVAL_COLUMNS}
    for length, number in curve.numbers.items():
        of_length = interval(estimates[length])
        yield line | {
            "length_up_to": length,
            "n": number.n,
            "score": number.score,
            "official": number.official,
            "doubt": curve.grid.doubt(length),
            **score_interval_columns(of_length, family, clustered=estimates[length].clustered),
        }


def area(estimates: Mapping[int, Estimate]) -> Estimate:
    """Mean of a curve {length: estimate} over the logarithm of the length."""
    at = [math.log2(length) for length in estimates]
    ends = [at[0], *((first + second) / 2 for first, second in itertools.pairwise(at)), at[-1]]
    weights = [(stop - start) / (at[-1] - at[0]) for start, stop in itertools.pairwise(ends)]
    strata = tuple(
        Stratum(weight * stratum.weight, stratum.samples, stratum.clusters, stratum.values)
        for weight, estimate in zip(weights, estimates.values(), strict=True)
        for stratum in estimate.strata
    )
    every = estimates.values()
    return Estimate(strata, all(one.clustered for one in every), all(one.linear for one in every))


def _sheets(table: Table, _: Sequence[str], in_text: bool) -> list[Sheet]:
    rows = table.dicts()
    grids: dict[tuple[str, str], set[int]] = {}
    lines: dict[str, dict[tuple[str, str, int | None], Row]] = {}
    for row in rows:
        suite = row["benchmark"], row["length_unit"]
        grids.setdefault(suite, set()).add(row["length_up_to"])
        cells = lines.setdefault(row["run_id"], {})
        cells[*suite, row["length_up_to"]] = cells[*suite, None] = row
    has_units = len({benchmark for benchmark, _ in grids}) < len(grids)
    columns = [Column("model", "model")]
    keys: list[tuple[str, str, int | None]] = []
    for suite, lengths in sorted(grids.items(), key=lambda item: (-max(item[1]), item[0])):
        name = f"{suite[0]} ({suite[1]})" if has_units else suite[0]
        for length in sorted(lengths):
            heading = f"{name} {short_length(length)}"
            columns.append(Column(heading, heading, "shade" if in_text else "percent", across=True))
            keys.append((*suite, length))
        if any(row["area"] is not None for row in rows if (row["benchmark"], row["length_unit"]) == suite):
            columns.append(replace(_AREA, name=f"{name} area", heading=f"{name} area", across=True))
            keys.append((*suite, None))
    body = [
        [str(next(iter(cells.values()))["label"]), *(_cell(cells.get(key), key[2], in_text) for key in keys)]
        for cells in lines.values()
    ]
    notes = [] if in_text else interval_notes(table)
    return [Sheet(SUITES.title, columns, body, [*notes, *_notes(rows, in_text=in_text), *byte_notes((), rows)])]


def _cell(row: Row | None, length: int | None, in_text: bool) -> str:
    if row is None:
        return ""
    if length is None:
        return cell_text(row, _AREA)
    return shaded_cell(row) if in_text else cell_with_interval(row)


def _notes(rows: Sequence[Row], *, in_text: bool) -> Iterator[str]:
    if legend := doubt_legend(rows, in_text=in_text):
        yield f"{legend}."
    if in_text:
        yield "--format markdown and csv have the intervals of each length."
    if grids := dict.fromkeys((row["area_from"], row["area_to"]) for row in rows if row["area"] is not None):
        spans = ", ".join(f"{short_length(first)} to {short_length(last)}" for first, last in grids)
        yield (
            f"Area: mean score over the logarithm of the length, {spans}, on the lengths that all runs of the "
            "benchmark have, with enough answers and whole prompts. Areas of different benchmarks are not comparable."
        )
    yield from notes_on_omissions(rows)
    tasks: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        tasks.setdefault((row["benchmark"], row["length_unit"]), set()).add(row["task_names"])
    for (benchmark, _), sets in tasks.items():
        if len(sets) > 1:
            yield f"{benchmark}: the runs answered different tasks, so their scores are not comparable (see the CSV)."
    for benchmark in dict.fromkeys(row["benchmark"] for row in rows if row["tasks"] > 1):
        family = find_benchmark(benchmark)
        if family and family.scoring.average_of not in _MEANS_OF_TASKS:
            yield f"{benchmark}: {family.scoring.average_of}; effective_context has the mean of the tasks."
    if partial := dict.fromkeys(row["benchmark"] for row in rows if row["official"] is None):
        yield f"Not the average of all tasks that the authors average: {', '.join(partial)}."


SUITES = Report(
    name="suites",
    title="Benchmarks by length (averages as the authors', percent; a column covers lengths up to its heading)",
    columns=(
        *WHO,
        TWIN,
        Column("benchmark", "benchmark"),
        Column("length_unit", "unit", rank=2),
        Column("tasks", "tasks", "count", rank=1),
        Column("length_up_to", "up to", "count"),
        _SCORE,
        Column("n", "scored", "count"),
        _AREA,
    ),
    empty="No benchmark has two lengths with enough answers to be compared.",
    rows=table,
    make_sheets=_sheets,
)
