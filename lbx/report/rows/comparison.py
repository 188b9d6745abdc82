"""The report ``comparison``: pairs of runs, with paired tests and verdicts.

Runs are compared sample by sample, on the samples that both answered. Every number is computed on these samples by the
rules of the benchmark, and each comparison gets a verdict in words. For a single baseline (or pair), the average of a
benchmark is one test. Tasks and groups of a benchmark, and several runs against the baseline, are corrected for
multiple testing (Holm).

Two runs that differ in more than the model are not compared on the benchmarks that the difference can affect, unless
the query allows it. Rows of such a pair have no numbers and the verdict ``NOT_COMPARED``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lbx.base.columns import Column
from lbx.base.number import OVERALL
from lbx.base.units import format_count
from lbx.report.draw.charts import Point, dots
from lbx.report.draw.figures import (
    MOST_RUNS,
    Figure,
    FigureSource,
    group_rows,
    point_of_row,
    run_series,
)
from lbx.report.format.labels import Row
from lbx.report.pairs import (
    CommonStrata,
    ComparisonSide,
    PairChecks,
    RefusedPair,
    RunScore,
    have_equal_strata,
    read_sides,
    refusal,
    restrict_to_common,
    select_pairs,
)
from lbx.report.query import ReportQuery
from lbx.report.report import COVERAGE, PagePlace, Report
from lbx.results import Store, Table
from lbx.results.read.stored_answers import resolve_tasks
from lbx.results.rows import interval_columns
from lbx.results.scoring.score_columns import INTERVAL_COLUMNS, as_table, find_benchmark
from lbx.statistics import LEVEL
from lbx.statistics.differences import (
    Difference,
    clusters_to_decide,
    difference,
    half_width_90,
    holm,
    is_above,
    required_clusters,
)

COLUMNS = (
    "run_a", "run_b", "benchmark", "task", "metric", "n", "score_a", "score_b", "difference", "same_outputs",
    "samples", "bundle_samples", "coverage", "level", *INTERVAL_COLUMNS, "p", "p_holm", "test", "wins", "ties",
    "losses", "detectable", "verdict", "caution",
)  # fmt: skip
NOT_COMPARED = "not compared"
ON_MARGIN = "undecided: the difference is the margin"
"""Verdict of a pair that differs in more than the model."""
_WIDER_THAN_EXACT = (
    "an exact test of the documents that differ decides, and the interval, by Student's t, allows for more that might "
    "differ"
)
_WIDER_THAN_T = (
    "with fewer than thirty documents, intervals are wider for differences in one direction, and the test is not"
)


@dataclass(slots=True)
class ComparisonRow:
    """Comparison of two runs in one number, as a row of the report.

    Attributes:
        same_outputs: number of answers with equal outputs, or None if unknown.
        equal_outputs: whether all known outputs are equal.
        caution: reason why the numbers may not be comparable, or "".
        tests: factor by which Holm's correction multiplies p.
    """

    run_a: str
    run_b: str
    benchmark: str
    first: RunScore
    second: RunScore
    difference: Difference
    same_outputs: int | None
    equal_outputs: bool
    caution: str
    p_holm: float | None = None
    tests: float = 1.0

    @property
    def pair(self) -> tuple[str, str, str]:
        """Both runs and the benchmark."""
        return self.run_a, self.run_b, self.benchmark

    @property
    def family(self) -> tuple[str, str]:
        """Key of the comparisons that are corrected together for multiple testing."""
        return self.benchmark, self.first.level


def table(store: Store, query: ReportQuery) -> Table:
    """Build the rows of the report. Raises UsageError like ``compare_runs``."""
    lines, refused = compare_runs(store, query)
    rows = _rows(lines, scorable_samples(store), query.margin)
    return Table(COLUMNS, [*rows, *as_table(COLUMNS, map(_refused_row, refused)).rows])


def average_rows(store: Store, query: ReportQuery) -> list[dict[str, Any]]:
    """Rows of the report for the benchmarks' averages only, which are computed much faster. Raises UsageError."""
    lines, _ = compare_pairs(store, query, level="benchmark")
    return Table(COLUMNS, _rows(lines, {}, query.margin)).dicts()


def compare_runs(store: Store, query: ReportQuery) -> tuple[list[ComparisonRow], list[RefusedPair]]:
    """Compare the numbers of the selected pairs of runs. Returns the numbers, and the pairs without any.

    Raises:
        UsageError: a run or task does not exist, there are too many runs without a baseline, or all pairs had different
            inputs and ``query.allow_different_settings`` is not set.
    """
    lines, refused = compare_pairs(store, query)
    if refused and not lines:
        raise refusal(refused)
    return lines, refused


def compare_pairs(
    store: Store, query: ReportQuery, benchmark: str = "", level: str = ""
) -> tuple[list[ComparisonRow], list[RefusedPair]]:
    """Compare pairs of runs like ``compare_runs``, even without a pair of equal inputs.

    Args:
        benchmark: The only benchmark, or "" for all.
        level: Level of the numbers, "benchmark" for the average only, or "" for all.
    """
    names = (benchmark, level, *query.runs, None, *query.tasks)
    key = (query.baseline, query.baseline_file, query.allow_different_settings, *names)
    return store.compute_once(("comparison", *key), partial(_compare_pairs, store, query, benchmark, level))


def _compare_pairs(
    store: Store, query: ReportQuery, benchmark_name: str, level: str
) -> tuple[list[ComparisonRow], list[RefusedPair]]:
    pairs = select_pairs(store, query)
    tasks = {name.partition("/")[::2] for name in resolve_tasks(store, query.tasks)}
    benchmarks = [benchmark for benchmark, _ in tasks]
    sides = {
        key: side
        for key, side in read_sides(store, {run for pair in pairs for run in pair}, outputs=True).items()
        if (not tasks or key[1] in benchmarks) and benchmark_name in ("", key[1])
    }
    checks = PairChecks(store, query)
    lines: list[ComparisonRow] = []
    refused: list[RefusedPair] = []
    for run_a, run_b in pairs:
        for benchmark in [name for run, name in sides if run == run_a and (run_b, name) in sides]:
            found = checks.check(run_a, run_b, benchmark, sides[run_a, benchmark], sides[run_b, benchmark])
            if found.differences and not query.allow_different_settings:
                refused.append(RefusedPair(run_a, run_b, benchmark, ", ".join(found.differences)))
            else:
                lines += _compare_benchmark(run_a, run_b, benchmark, sides, found.caution, level=level)
    _correct(lines)
    return _select_tasks(lines, tasks, sides), refused


def _select_tasks(
    lines: list[ComparisonRow],
    tasks: Collection[tuple[str, str]],
    sides: Mapping[tuple[str, str], ComparisonSide],
) -> list[ComparisonRow]:
    """Select the numbers of some tasks, or of all tasks. Averages and groups of a benchmark need all tasks.

    The selection follows the correction, so that no number depends on the selection.
    """
    if not tasks:
        return lines
    every = {(name, task) for (_, name), side in sides.items() for task in side.tasks}
    whole = {name for name, _ in every} - {name for name, task in every - {*tasks}}
    return [row for row in lines if row.benchmark in whole or (row.benchmark, row.second.name) in tasks]


def _compare_benchmark(
    run_a: str,
    run_b: str,
    benchmark: str,
    sides: Mapping[tuple[str, str], ComparisonSide],
    caution: str,
    *,
    level: str,
) -> Iterator[ComparisonRow]:
    first, second = sides[run_a, benchmark], sides[run_b, benchmark]
    both = [task for task in first.tasks if task in second.tasks]
    if not both:
        return
    first, second = first.on_tasks(both), second.on_tasks(both)
    here, theirs = first.answer_arrays.restrict_to_common(second.answer_arrays)
    equal = here.output == theirs.output
    counts = np.bincount(here.task, minlength=len(both)).tolist()
    same = np.bincount(here.task[equal], minlength=len(both)).tolist()
    for a, b in _numbers_on_both(first, second, level):
        # Equal answers are counted by task. Of a group only the totals over all tasks are known, so it has no count.
        at = both.index(a.name) if a.level == "task" else None
        of_these, alike = (sum(every) if at is None else every[at] for every in (counts, same))
        count = None if a.level == "group" else alike
        yield ComparisonRow(
            run_a, run_b, benchmark, a, b, difference(a.estimate, b.estimate), count, 0 < of_these == alike, caution
        )


def compare_averages(first: ComparisonSide, second: ComparisonSide) -> Difference | None:
    """Difference of two runs' overall averages, as the report tests it, or None without common samples."""
    both = [task for task in first.tasks if task in second.tasks]
    pairs = _numbers_on_both(first.on_tasks(both), second.on_tasks(both), "benchmark") if both else ()
    averages = (difference(a.estimate, b.estimate) for a, b in pairs)
    return next(averages, None)


def _numbers_on_both(
    first: ComparisonSide, second: ComparisonSide, level: str = ""
) -> Iterator[tuple[RunScore, RunScore]]:
    """Yield the scores (of one ``level``, or of all) of both sides on the common samples.

    A score that is linear in its samples is restricted to these samples. Other scores are recomputed.
    """
    anew: list[ComparisonSide] = []
    shared = CommonStrata()
    for key in [key for key in first.numbers if key in second.numbers and level in ("", key[0])]:
        a, b = first.numbers[key], second.numbers[key]
        if first.samples != second.samples and not have_equal_strata(a, b):
            anew = anew or [first.restrict_to(second), second.restrict_to(first)]
            if not all(key in side.numbers for side in anew):
                continue
            a, b = (side.numbers[key] for side in anew)
        if pair := restrict_to_common(a, b, shared):
            yield pair


def _correct(lines: Sequence[ComparisonRow]) -> None:
    families: dict[tuple[str, str], list[ComparisonRow]] = {}
    for line in lines:
        if line.difference.p is not None:
            families.setdefault(line.family, []).append(line)
    for family in families.values():
        ps = [row.difference.p or 0.0 for row in family]
        ascending = sorted(ps)
        for line, p, p_holm in zip(family, ps, holm(ps), strict=True):
            line.p_holm = p_holm
            line.tests = p_holm / p if p > 0 and p_holm < 1 else float(len(ps) - bisect_left(ascending, p))


def verdict(line: ComparisonRow, margin: float, sign: int = 1) -> str:
    """Describe the result of a comparison: "better", "same within 1", "undecided: ...". ``margin`` is in points.

    Args:
        sign: 1 for the second run minus the first, -1 for the first run minus the second.
    """
    estimate, value = line.difference, sign * line.difference.interval.value
    equal_within = equality_limit(line)
    if line.equal_outputs and not (estimate.wins or estimate.losses):
        return "same outputs"
    inside = estimate.low_90 is not None and estimate.high_90 is not None and (
        -margin / 100 < estimate.low_90 and estimate.high_90 < margin / 100
    )  # fmt: skip
    if line.p_holm is not None and line.p_holm < LEVEL and value:
        return ("better" if value > 0 else "worse") + (f", by less than {margin:g}" if inside else "")
    if inside or (equal_within is not None and 100 * equal_within <= margin):
        return f"same within {margin:g}"
    if equal_within is not None:
        return f"equal scores, within {format_upper_limit(equal_within)}"
    if not (further := further_samples(line, margin)):
        return f"undecided: {missing_spread(estimate)}"
    outlook = "; the difference is near 0" if further.samples is None else f" {_condition(value)}"
    return f"undecided: needs {further}{outlook}"


def equality_limit(line: ComparisonRow) -> float | None:
    """Largest true difference of two runs with equal scores on all samples, with three further differences assumed.

    None if scores differ, or if the samples are too few to rule out any difference.
    """
    found = line.difference
    if found.wins or found.losses or (bound := half_width_90(found, found.interval.clusters)) >= 1:
        return None
    return bound


def format_upper_limit(value: float) -> str:
    """Format an upper bound of a difference in points, which rounding must not lower."""
    return f"{math.ceil(1000 * value - 1e-6) / 10:g}"


def is_no_worse(line: ComparisonRow, margin: float) -> tuple[bool | None, str]:
    """Whether the second run is worse by less than ``margin`` points, by a one-sided test at the 5% level.

    None if undecided, with the reason: "about 300 more questions needed; worse if the difference stays at -4.4".
    """
    found, bound = line.difference, -margin / 100
    if (is_shown := is_above(found, bound)) is not None:
        return is_shown, ""
    value = found.interval.value
    if further := samples_up_to(line, clusters_to_decide(found, bound), abs(value - bound)):
        answer = f"{'no worse' if value > bound else 'worse'} {_condition(value)}"
        return None, f"{further} needed; {'the difference is at the margin' if further.samples is None else answer}"
    return None, ON_MARGIN if abs(value - bound) < 1e-9 else f"undecided: {missing_spread(found)}"


def _condition(value: float) -> str:
    return f"if the difference stays at {100 * value:z.1f}"


@dataclass(frozen=True, slots=True)
class FurtherSamples:
    """Further samples that would decide a comparison, rounded up: "about 2 more documents (10 questions)".

    Attributes:
        clusters: Number of clusters, or None if the difference is too near 0 or the margin for a number.
        samples: Expected number of samples on the clusters, or None.
        cluster_noun: Noun for a cluster, or "" if each sample is on its own cluster.
    """

    clusters: int | None
    samples: int | None
    cluster_noun: str

    def __str__(self) -> str:
        noun = "sample" if self.cluster_noun == "question" else "question"
        if self.clusters is None or self.samples is None:
            return f"many more {self.cluster_noun or noun}s"
        if not self.cluster_noun:
            return f"about {format_count(self.samples, f'more {noun}')}"
        return f"about {format_count(self.clusters, f'more {self.cluster_noun}')} ({format_count(self.samples, noun)})"


def further_samples(line: ComparisonRow, margin: float) -> FurtherSamples | None:
    """Samples that would decide a comparison besides those at hand, or None if the spread is unknown."""
    size = abs(line.difference.interval.value)
    clusters = required_clusters(line.difference, margin / 100, line.tests)
    return samples_up_to(line, clusters, max(size, margin / 100 - size))


def samples_up_to(line: ComparisonRow, clusters: int | None, gap: float) -> FurtherSamples | None:
    """Further samples up to a total number of clusters, or None for an unknown total.

    Args:
        gap: Distance of the difference from 0 or the margin. Below the standard error, the total would be chance.
    """
    interval = line.difference.interval
    noun = "" if interval.n == interval.clusters else cluster_noun(line)
    if interval.df and gap < (interval.se or 0.0):
        return FurtherSamples(None, None, noun)
    if clusters is None:
        return None
    further = clusters - interval.clusters
    samples = math.ceil(further * interval.n / interval.clusters - 1e-9)
    return FurtherSamples(round_up(further), round_up(samples), noun)


def cluster_noun(line: ComparisonRow) -> str:
    """Noun for a cluster of the compared samples."""
    family = find_benchmark(line.benchmark)
    return family.scoring.cluster_name if family and line.first.estimate.clustered else "document"


def missing_spread(estimate: Difference) -> str:
    """Reason why the spread of a difference is unknown, in a few words."""
    if estimate.interval.method == "no number":
        return "no number"
    if estimate.interval.method == "one cluster":
        return "one document" + (" in a part" if estimate.interval.clusters > 1 else "")
    if estimate.interval.method == "all alike in a part":
        return "all differ alike in a part"
    return "all differ alike" if estimate.wins or estimate.losses else "no score differs"


def round_up(count: int) -> int:
    """Round a number up to two significant digits, because only the order of magnitude is meaningful."""
    step = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // step) * step


def _rows(
    lines: Sequence[ComparisonRow], in_bundles: Mapping[tuple[str, str], Mapping[str, int | None]], margin: float
) -> list[tuple[Any, ...]]:
    """Build the rows of comparisons. Averages and groups count all tasks that both runs were asked for."""
    answered = Counter[tuple[str, str, str]]()
    for line in lines:
        answered[line.pair] += line.difference.interval.n if line.first.level == "task" else 0
    rows = []
    for line in lines:
        samples, asked = line.difference.interval.n, in_bundles.get((line.run_a, line.benchmark), {})
        if line.first.level == "task":
            in_bundle = asked.get(line.first.name)
        else:
            samples = answered[line.pair] or samples
            counts = [n for task, n in asked.items() if task in in_bundles.get((line.run_b, line.benchmark), {})]
            in_bundle = None if None in counts else sum(filter(None, counts)) or None
        rows.append(_row(line, samples, in_bundle, margin))
    return rows


def _row(line: ComparisonRow, samples: int, in_bundle: int | None, margin: float) -> tuple[Any, ...]:
    estimate, interval = line.difference, line.difference.interval
    part = f"{samples:,} of {in_bundle:,}" if in_bundle and samples < in_bundle else None
    interval_values = interval_columns(interval, "document" if line.first.estimate.clustered else "sample")
    return (
        line.run_a, line.run_b, line.benchmark, line.first.name, line.first.metric, interval.n, line.first.score,
        line.second.score, interval.value, line.same_outputs, samples, in_bundle, part, line.first.level,
        *(interval_values[name] for name in INTERVAL_COLUMNS), estimate.p, line.p_holm, estimate.test, estimate.wins,
        estimate.ties,
        estimate.losses, estimate.detectable, verdict(line, margin), line.caution or None,
    )  # fmt: skip


def _refused_row(pair: RefusedPair) -> dict[str, Any]:
    return {
        "run_a": pair.run_a, "run_b": pair.run_b, "benchmark": pair.benchmark, "task": OVERALL, "level": "benchmark",
        "verdict": NOT_COMPARED, "caution": pair.reason,
    }  # fmt: skip


def scorable_samples(store: Store) -> dict[tuple[str, str], dict[str, int | None]]:
    """{(run, benchmark): {task: number of the bundle's samples that metrics count, or None if unknown}}."""
    found: dict[tuple[str, str], dict[str, int | None]] = {}
    for run, name, task, count in store.query("SELECT run_id, benchmark, task, scorable_samples FROM coverage").rows:
        found.setdefault((run, name), {})[task] = count
    return found


def has_numbers(row: Row) -> bool:
    """Whether a row of the report contains numbers."""
    return str(row["verdict"]) != NOT_COMPARED


def _refusal_notes(rows: Sequence[Row]) -> list[str]:
    """Write a sentence for each pair of runs that is not compared."""
    benchmarks: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        pair = str(row.get("label_a") or row["run_a"]), str(row.get("label_b") or row["run_b"])
        benchmarks.setdefault(pair, {}).setdefault(row["caution"], []).append(row["benchmark"])
    return [
        f"Not compared: {first} and {second}, "
        + "; ".join(f"{', '.join(names)}: {why}" for why, names in by_reason.items())
        + ". --allow-different-settings shows them."
        for (first, second), by_reason in benchmarks.items()
    ]


def _comparison_notes(table: Table) -> list[str]:
    rows = table.dicts()
    pairs = {(row["run_a"], row["run_b"]) for row in rows}
    texts = (
        "A benchmark's average is one test, uncorrected" if len(pairs) == 1 else "Averages are corrected for the pairs"
    )
    lines = [
        "Samples are paired, each with the mean of its answers. "
        f"{texts}; tasks and groups are corrected for their number (Holm). Verdicts are at the 5% level."
    ]
    return [*lines, *document_notes(rows), *verdict_notes(rows), *cautions(table)]


def document_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Explain the column "documents" if some of its numbers count something else."""
    others = dict.fromkeys(row["cluster_by"] for row in rows if row.get("clusters") and row["cluster_by"] != "document")
    if not others:
        return []
    return [
        "Documents: groups of answers that belong together in the tests, such as all on one document; of some rows "
        f"each {' or '.join(others)} is a group."
    ]


def verdict_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Explain verdicts that contradict the intervals, once for each reason.

    Such a verdict is undecided with an interval that excludes 0, or better or worse with an interval that contains 0.
    """
    reasons: dict[str, None] = {}
    wider: dict[str, None] = {}
    for row in rows:
        low, high, verdict = row.get("low"), row.get("high"), row.get("verdict") or ""
        if low is None or high is None:
            continue
        if low <= 0 <= high:
            if verdict.startswith(("better", "worse")):
                wider[_WIDER_THAN_T if row["test"] == "t" else _WIDER_THAN_EXACT] = None
            continue
        if not verdict.startswith("undecided"):
            continue
        p, p_holm = row["p"] or 0.0, row["p_holm"] or 0.0
        differing = 1 - round(math.log2(p)) if p else 0
        if p >= LEVEL and row["test"] != "t" and p == 2.0 ** (1 - differing):  # the least p of so few
            reasons[f"the exact test over {format_count(differing, 'document')} cannot go below p = {p:.3g}"] = None
        elif p < LEVEL <= p_holm:
            reasons["p is corrected for the number of comparisons (Holm), intervals are not"] = None
        else:
            reasons["fewer than ten documents differ, so that an exact test decides"] = None
    return [
        *([f"An interval may exclude 0 where the verdict is undecided: {'; '.join(reasons)}."] if reasons else []),
        *([f"An interval may contain 0 where the verdict is better or worse: {'; '.join(wider)}."] if wider else []),
    ]


def cautions(table: Table) -> list[str]:
    """Write notes on known or possible differences between the compared runs, other than the model."""
    return [f"Caution: {text}." for text in dict.fromkeys(row["caution"] for row in table.dicts()) if text]


def _draw_figures(source: FigureSource) -> Iterator[Figure]:
    """Draw the differences from each baseline, by benchmark."""
    rows = sorted(filter(has_numbers, source.rows("comparison")), key=lambda row: (row["run_a"], row["benchmark"]))
    for (run_a, benchmark), group in group_rows(rows, "run_a", "benchmark"):
        others = list(dict.fromkeys(row["run_b"] for row in group))
        if len(others) > MOST_RUNS:  # of each the first line, which is the benchmark's average
            first = {row["run_b"]: row for row in reversed(group)}
            lines = [(source.label(run), run_series(source, run, [_difference(first[run])])) for run in others]
        else:
            task_rows = sorted(group, key=lambda row: list(dict.fromkeys(r["task"] for r in group)).index(row["task"]))
            metrics = {(row["task"], row["metric"]) for row in group}
            several = {task for task, count in Counter(task for task, _ in metrics).items() if count > 1}
            lines = [
                (_task_and_metric(row, several), run_series(source, row["run_b"], [_difference(row)]))
                for row in task_rows
            ]
        title = f"{benchmark}: points more than {source.label(run_a)}"
        about = f"{len(others)} runs; right of 0 is better. The numbers are in the table below."
        yield Figure(title, dots(title, about, lines, zero=True), benchmark=benchmark)


def _task_and_metric(row: Row, several: Collection[str]) -> str:
    return f"{row['task']}, {row['metric']}" if row["task"] in several else str(row["task"])


def _difference(row: Row) -> Point:
    return replace(point_of_row(row, value="difference"), note=str(row.get("verdict") or ""))


COMPARISON = Report(
    name="comparison",
    title="Runs side by side, on the samples that both answered (percent; points: second minus first)",
    columns=(
        Column("run_a", "first run"),
        Column("run_b", "second run"),
        Column("benchmark", "benchmark"),
        Column("task", "task"),
        Column("n", "paired samples", "count"),
        Column("clusters", "documents", "count", rank=7),
        COVERAGE,
        Column("score_a", "first", "percent"),
        Column("score_b", "second", "percent"),
        Column("difference", "points", "points", interval=True),
        Column("p_holm", "p", "p", rank=3),
        Column("wins", "wins", "count", rank=5),
        Column("ties", "ties", "count", rank=6),
        Column("losses", "losses", "count", rank=5),
        Column("same_outputs", "same outputs", "count", rank=4),
        Column("detectable", "detectable", "percent", rank=2),
        Column("verdict", "verdict"),
    ),
    notes=_comparison_notes,
    empty="This needs two runs with answers to the same samples: the file has one run, or runs without common samples.",
    is_informative=has_numbers,
    omission_notes=_refusal_notes,
    takes=("--baseline", "--baseline-file", "--margin", "--allow-different-settings", "--tasks"),
    rows=table,
    draw=_draw_figures,
    page=PagePlace("Scores", 5, title="Comparison", has_best_baseline=True),
    default=5,
)
