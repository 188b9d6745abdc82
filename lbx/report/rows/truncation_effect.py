"""The report ``truncation_effect``: scores on prompts that were read whole, and on prompts that were cut.

Cut prompts are the longer ones, so the difference is not due to truncation only. Two runs are compared on the samples
that both read whole, which truncation does not affect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from lbx.base.columns import Column
from lbx.base.number import Number, task_number
from lbx.benchmarks.base.aggregates import Array, ScoredRows, average
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.report.format.labels import Row
from lbx.report.pairs import RunScore, find_run, restrict_to_common
from lbx.report.query import ReportQuery
from lbx.report.ranks import by_benchmark_and_rank
from lbx.report.report import TWIN, WHO, PagePlace, Report
from lbx.report.rows.comparison import document_notes
from lbx.results import Store, Table
from lbx.results.scoring.score_columns import (
    INTERVAL_COLUMNS,
    RUN_COLUMNS,
    RowsByTask,
    as_table,
    find_benchmark,
    headline_of,
    read_scores,
    runs_by_id,
    score_interval_columns,
)
from lbx.statistics.differences import clip_difference, difference
from lbx.statistics.estimates import Estimate, Stratum, interval

WHOLE, CUT, LOST, UNKNOWN = "read whole", "cut", "cut, only reference lost", "unknown"
LESS = "whole less cut, unpaired"
BOTH, PAIRED = "read whole by both", "second less first, paired"
COLUMNS = (
    *RUN_COLUMNS, "benchmark", "task", "tasks", "prompts", "against", "n", "score", *INTERVAL_COLUMNS, "p",
    "cut_prompts",
)  # fmt: skip

_PARTS: Mapping[str, Callable[[ScoredRows], Array]] = {
    WHOLE: lambda rows: rows.column("truncated") == 0,
    CUT: lambda rows: rows.column("truncated") == 1,
    LOST: lambda rows: rows.column("reference_cut") == 1,
    UNKNOWN: lambda rows: np.isnan(rows.column("truncated")),
}

_MOST_NAMED = 3

TruncationLine = dict[str, Any]


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report: of every run, then of each pair of the selected runs, or of a baseline and others.

    Raises:
        UsageError: The baseline does not exist.
    """
    first = find_run(store, query.baseline) if query.baseline else ""
    names, samples = runs_by_id(store), read_scores(store, {*query.runs, first} if first and query.runs else query.runs)
    lines: list[TruncationLine] = []
    for (run, benchmark), tasks in by_benchmark_and_rank(store, samples).items():
        cut_prompts = sum(int(_PARTS[CUT](rows).sum()) for rows in tasks.values())
        who = names[run] | {"benchmark": benchmark, "cut_prompts": cut_prompts}
        lines += [who | line for line in _run_lines(benchmark, tasks)]
    others = dict.fromkeys([*query.runs] or [run for run, _ in samples])
    pairs = [(first, run) for run in others if run != first] if first else combinations(query.runs, 2)
    for run_a, run_b in pairs:
        for benchmark in [name for run, name in samples if run == run_a and (run_b, name) in samples]:
            for run, line in _pair_lines(
                (run_a, run_b), benchmark, samples[run_a, benchmark], samples[run_b, benchmark]
            ):
                lines.append(names[run] | {"benchmark": benchmark} | line)
    return as_table(COLUMNS, lines)


def _run_lines(benchmark: str, tasks: RowsByTask) -> Iterator[TruncationLine]:
    family = find_benchmark(benchmark)
    both: list[dict[str, Number]] = []
    for task, rows in tasks.items():
        parts: dict[str, Number] = {}
        for part, belongs in _PARTS.items():
            if score := headline_of(benchmark, task, rows.take(belongs(rows))):
                parts[part] = score
                yield {"task": task, "prompts": part, **_numbers(family, score.estimate)}
        if WHOLE in parts and CUT in parts:
            both.append(parts)
            yield {
                "task": task,
                "prompts": LESS,
                **_unpaired_difference(family, parts[WHOLE].estimate, parts[CUT].estimate),
            }
    if len(both) > 1:
        complete, cut = (average([parts[part].estimate for parts in both]) for part in (WHOLE, CUT))
        for part, estimate in ((WHOLE, complete), (CUT, cut)):
            yield {"tasks": len(both), "prompts": part, **_numbers(family, estimate)}
        yield {"tasks": len(both), "prompts": LESS, **_unpaired_difference(family, complete, cut)}


def _pair_lines(
    runs: tuple[str, str], benchmark: str, first: RowsByTask, second: RowsByTask
) -> Iterator[tuple[str, TruncationLine]]:
    """Yield (run, line) for each task with samples that both read whole, and for the mean of these tasks."""
    family = find_benchmark(benchmark)
    pairs: dict[str, tuple[RunScore, RunScore]] = {}
    for task in [task for task in first if task in second]:
        complete = [rows.take(_PARTS[WHOLE](rows)) for rows in (first[task], second[task])]
        scores = [
            headline_of(benchmark, task, rows.take(np.isin(rows.column("samples"), other_rows.column("samples"))))
            for rows, other_rows in (complete, complete[::-1])
        ]
        sides = [
            RunScore("task", task_number(task), task, score.metric, score.score, score.estimate)
            for score in scores
            if score and score.estimate
        ]
        if len(sides) == 2 and (pair := restrict_to_common(sides[0], sides[1])):
            pairs[task] = pair
    compared: list[tuple[TruncationLine, list[Estimate]]] = [
        ({"task": task}, [score.estimate for score in pair]) for task, pair in pairs.items()
    ]
    if len(pairs) > 1:
        averages = [Estimate.average([pair[side].estimate for pair in pairs.values()]) for side in (0, 1)]
        compared.append(({"tasks": len(pairs)}, averages))
    for line, (first_estimate, second_estimate) in compared:
        yield runs[0], {**line, "prompts": BOTH, "against": runs[1], **_numbers(family, first_estimate)}
        yield runs[1], {**line, "prompts": BOTH, "against": runs[0], **_numbers(family, second_estimate)}
        estimate = difference(first_estimate, second_estimate)
        interval_values = score_interval_columns(
            estimate.interval, family, clustered=first_estimate.clustered and second_estimate.clustered
        )
        numbers = {"n": estimate.interval.n, "score": estimate.interval.value, "p": estimate.p}
        yield runs[1], {**line, "prompts": PAIRED, "against": runs[0], **numbers, **interval_values}


def _numbers(family: Benchmark | None, estimate: Estimate | None, *, bounded: bool = True) -> TruncationLine:
    if estimate is None:
        return {}
    bound = interval(estimate) if bounded else clip_difference(interval(estimate, bounded=False), estimate)
    return {"n": bound.n, "score": bound.value, **score_interval_columns(bound, family, clustered=estimate.clustered)}


def _unpaired_difference(
    family: Benchmark | None, complete: Estimate | None, truncated: Estimate | None
) -> TruncationLine:
    if complete is None or truncated is None:
        return {}
    turned = tuple(
        Stratum(-stratum.weight, stratum.samples, stratum.clusters, stratum.values) for stratum in truncated.strata
    )
    return _numbers(
        family, Estimate(complete.strata + turned, complete.clustered and truncated.clustered), bounded=False
    )


def _truncation_effect_notes(table: Table) -> list[str]:
    parts = {row["prompts"] for row in table.dicts()}
    notes = []
    if "whole less cut, unpaired" in parts:
        notes.append(
            "Longer prompts are cut more often: the cut is not the only cause of the difference between whole and cut."
        )
    if "second less first, paired" in parts:
        notes.append("Pairs: the run's score minus the other run's, on samples with prompts that neither run cut.")
    return [*notes, *document_notes(table.dicts())]


def _is_informative(row: Row) -> bool:
    """Whether a row has scores of prompts that were cut, of others of a run with such prompts, or of a pair of runs."""
    return row["prompts"] != UNKNOWN and (row["cut_prompts"] is None or row["cut_prompts"] > 0)


def _omission_notes(rows: Sequence[Row]) -> list[str]:
    """Name the runs without cut prompts, and the runs of unknown prompts, by benchmark."""
    groups: dict[tuple[bool, str], dict[str, None]] = {}
    for row in rows:
        names = groups.setdefault((row["prompts"] == UNKNOWN, row["benchmark"]), {})
        names[str(row.get("label") or row["model"])] = None
    return [
        f"{benchmark}: unknown whether prompts of {_list_names([*names])} were cut."
        if is_unknown
        else f"{benchmark}: every prompt of {_list_names([*names])} was read whole, so there is nothing to compare."
        for (is_unknown, benchmark), names in groups.items()
    ]


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


TRUNCATION_EFFECT = Report(
    name="truncation_effect",
    title="Scores of complete and of truncated prompts (scores and differences in percent)",
    columns=(
        *WHO,
        TWIN,
        *(Column("benchmark", "benchmark"), Column("task", "task", missing="mean of tasks")),
        Column("tasks", "tasks", "count", optional=True, rank=3),
        Column("prompts", "prompts"),
        Column("against", "against", optional=True, rank=4),
        Column("n", "samples", "count"),
        Column("clusters", "documents", "count", rank=5),
        Column("score", "score", "percent", interval=True),
        Column("p", "p", "p", optional=True),
    ),
    notes=_truncation_effect_notes,
    empty="No answer has been scored yet.",
    is_informative=_is_informative,
    omission_notes=_omission_notes,
    takes=("--baseline",),
    rows=table,
    page=PagePlace("Length", 13, title="Effect of truncation"),
)
