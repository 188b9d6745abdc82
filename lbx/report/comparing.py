"""The reports ``comparison`` and ``changes``, and ties in the report ``paper``.

Runs are compared in pairs, sample by sample, on the samples that both answered. Every number is computed on these
samples by its benchmark's rules, and each comparison has a verdict in words. For a single baseline (or pair), a
benchmark's average is one test; numbers within it, and several runs against the baseline, are corrected for multiple
testing (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbx.base.marks import WORST_FIRST
from lbx.report.labels import number_label
from lbx.report.pairs import cautions_of, runs_unlike, select_pairs
from lbx.report.report_types import ReportQuery
from lbx.report.sides import CommonStrata, ComparisonSide, RunScore, have_equal_strata, restrict_to_common
from lbx.results import Store, Table
from lbx.results.read.answers import resolve_tasks
from lbx.results.rows import interval_columns
from lbx.results.scoring.score_columns import INTERVAL_COLUMNS, find_benchmark, read_scores
from lbx.results.views import HEADS
from lbx.statistics import LEVEL
from lbx.statistics.differences import Difference, difference, holm, required_clusters

COLUMNS = (
    "run_a", "run_b", "benchmark", "task", "metric", "n", "score_a", "score_b", "difference", "same_outputs",
    "samples", "bundle_samples", "coverage", "level", *INTERVAL_COLUMNS, "p", "p_holm", "test", "wins", "ties",
    "losses", "detectable", "verdict", "caution",
)  # fmt: skip


@dataclass(slots=True)
class ComparisonRow:
    """Row of the report.

    Attributes:
        equal_outputs: whether all known outputs are equal.
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
    def family(self) -> tuple[str, str]:
        """Key of the comparisons that are corrected together for multiple testing."""
        return self.benchmark, self.first.level


def table(store: Store, query: ReportQuery) -> Table:
    """Build the report. Raises UsageError like ``compare_runs``."""
    lines = compare_runs(store, query)
    in_bundles = _scorable_samples(store)
    return Table(COLUMNS, [_row(line, in_bundles, query.margin) for line in lines])


def compare_runs(store: Store, query: ReportQuery) -> list[ComparisonRow]:
    """Compare the numbers of the chosen pairs of runs.

    Raises:
        UsageError: a run does not exist; there are too many runs without a baseline; or two runs had different inputs
            and ``query.force`` is not set.
    """
    pairs = select_pairs(store, query)
    sides = {
        key: ComparisonSide(family, tasks)
        for key, tasks in read_scores(store, {run for pair in pairs for run in pair}, outputs=True).items()
        if (family := find_benchmark(key[1]))
    }
    cautions = cautions_of(store, pairs, sides, query)
    lines = [
        line
        for run_a, run_b in pairs
        for benchmark in dict.fromkeys(name for run, name in sides if run == run_a)
        if (run_b, benchmark) in sides
        for line in _compare_benchmark(run_a, run_b, benchmark, sides, cautions)
    ]
    _correct(lines)
    return lines


def _compare_benchmark(
    run_a: str,
    run_b: str,
    benchmark: str,
    sides: Mapping[tuple[str, str], ComparisonSide],
    cautions: Mapping[tuple[str, str, str], str],
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
    caution = cautions.get((run_a, run_b, benchmark), "")
    for a, b in _numbers_on_both(first, second):
        # Equal answers are counted by task. Of a group only the totals over all tasks are known, so it has no count.
        at = both.index(a.name) if a.level == "task" else None
        of_these, alike = (sum(every) if at is None else every[at] for every in (counts, same))
        count = None if a.level == "group" else alike
        yield ComparisonRow(
            run_a, run_b, benchmark, a, b, difference(a.estimate, b.estimate), count, 0 < of_these == alike, caution
        )


def compare_averages(first: ComparisonSide, second: ComparisonSide) -> Difference | None:
    """Difference of two runs' overall averages, as the report tests it; None without common samples."""
    both = [task for task in first.tasks if task in second.tasks]
    pairs = _numbers_on_both(first.on_tasks(both), second.on_tasks(both), "benchmark") if both else ()
    averages = (difference(a.estimate, b.estimate) for a, b in pairs)
    return next(averages, None)


def _numbers_on_both(
    first: ComparisonSide, second: ComparisonSide, level: str = ""
) -> Iterator[tuple[RunScore, RunScore]]:
    """Yield each number (of one ``level``, or of all) of both sides on their common samples.

    A number that is a sum of parts is restricted to these samples; others are recomputed.
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
        for line, p, p_holm in zip(family, ps, holm(ps), strict=True):
            line.p_holm = p_holm
            line.tests = p_holm / p if p > 0 and p_holm < 1 else float(sum(other >= p for other in ps))


def verdict(line: ComparisonRow, margin: float) -> str:
    """Verdict of a comparison in words, with ``margin`` in points."""
    estimate, value = line.difference, line.difference.interval.value
    if line.equal_outputs and not (estimate.wins or estimate.losses):
        return "same outputs"
    inside = estimate.low_90 is not None and estimate.high_90 is not None and (
        -margin / 100 < estimate.low_90 and estimate.high_90 < margin / 100
    )  # fmt: skip
    if line.p_holm is not None and line.p_holm < LEVEL and value:
        return ("better" if value > 0 else "worse") + (f", by less than {margin:g}" if inside else "")
    if inside:
        return f"same within {margin:g}"
    needed = required_clusters(estimate, margin / 100, line.tests)
    return f"undecided: {f'needs about {_size_text(line, _round_up(needed))}' if needed else _missing_spread(estimate)}"


def _missing_spread(estimate: Difference) -> str:
    if estimate.interval.method == "one cluster":
        return "one document" + (" in a part" if estimate.interval.clusters > 1 else "")
    if estimate.interval.method == "all alike in a part":
        return "all differ alike in a part"
    return "all differ alike" if estimate.wins or estimate.losses else "no score differs"


def _size_text(line: ComparisonRow, clusters: int) -> str:
    """Describe a number of clusters, and of questions on as many: "6 documents (30 questions)"."""
    interval = line.difference.interval
    if interval.n == interval.clusters:
        return f"{clusters:,} questions"
    family = find_benchmark(line.benchmark)
    cluster = family.scoring.cluster_name if family and line.first.estimate.clustered else "document"
    samples = _round_up(math.ceil(clusters * interval.n / interval.clusters - 1e-9))
    return f"{clusters:,} {cluster}s ({samples:,} {'samples' if cluster == 'question' else 'questions'})"


def _round_up(count: int) -> int:
    """Round up to two significant digits, as only the order of magnitude is meaningful."""
    step = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // step) * step


def _row(line: ComparisonRow, in_bundles: Mapping[tuple[str, str, str], int], margin: float) -> tuple[Any, ...]:
    estimate, interval = line.difference, line.difference.interval
    in_bundle = in_bundles.get((line.run_a, line.benchmark, line.first.name)) if line.first.level == "task" else None
    part = f"{interval.n:,} of {in_bundle:,}" if in_bundle and interval.n < in_bundle else None
    sure = interval_columns(interval, "document" if line.first.estimate.clustered else "sample")
    return (
        line.run_a, line.run_b, line.benchmark, line.first.name, line.first.metric, interval.n, line.first.score,
        line.second.score, interval.value, line.same_outputs, interval.n, in_bundle, part, line.first.level,
        *(sure[name] for name in INTERVAL_COLUMNS), estimate.p, line.p_holm, estimate.test, estimate.wins,
        estimate.ties,
        estimate.losses, estimate.detectable, verdict(line, margin), line.caution or None,
    )  # fmt: skip


def _scorable_samples(store: Store) -> dict[tuple[str, str, str], int]:
    rows = store.query("SELECT run_id, benchmark, task, scorable_samples FROM coverage").rows
    return {(run, name, task): count for run, name, task, count in rows if count is not None}


def changes(store: Store, query: ReportQuery) -> Table:
    """The report ``changes``: answers of two runs with different scores or outputs, with question and references.

    Each row has the other known differences of the runs.

    Raises:
        UsageError: a run or task does not exist, or there are too many runs without a baseline.
    """
    pairs, tasks = select_pairs(store, query), resolve_tasks(store, query.tasks)
    answers = store.query(
        f"""
        WITH pairs AS (SELECT unnest(?::VARCHAR[]) AS run_a, unnest(?::VARCHAR[]) AS run_b),
        heads AS ({HEADS.format(scores="scores")}),
        scored AS (FROM scores SEMI JOIN heads USING (run_id, benchmark, task, metric)),
        answers AS (
            SELECT run_id, benchmark, task, sample_id, iteration, score, metric, md5_number(output) AS output
            FROM generations JOIN scored USING (run_id, benchmark, task, sample_id, iteration)
            WHERE run_id IN (SELECT unnest([run_a, run_b]) FROM pairs)
                AND (len(?) = 0 OR list_contains(?::VARCHAR[], benchmark || '/' || task))
        ),
        shown AS MATERIALIZED (  -- without texts, which are read for these rows only
            SELECT run_a, run_b, x.benchmark, x.task, x.sample_id, x.iteration, x.score AS score_a, y.score AS score_b,
                   y.score - x.score AS difference
            FROM pairs
            JOIN answers x ON x.run_id = run_a
            JOIN answers y ON y.run_id = run_b AND (x.benchmark, x.task, x.sample_id, x.iteration, x.metric)
                                                 = (y.benchmark, y.task, y.sample_id, y.iteration, y.metric)
            WHERE x.score <> y.score OR x.output <> y.output
            ORDER BY abs(difference) DESC, run_a, run_b, x.benchmark, x.task, x.sample_id, x.iteration
            LIMIT ?
        )
        SELECT shown.*, s.question, s."references", a.output AS output_a, b.output AS output_b,
               {_flags("a")} AS flags_a, {_flags("b")} AS flags_b
        FROM shown
        JOIN generations a ON (a.run_id, a.benchmark, a.task, a.sample_id, a.iteration)
                            = (run_a, shown.benchmark, shown.task, shown.sample_id, shown.iteration)
        JOIN generations b ON (b.run_id, b.benchmark, b.task, b.sample_id, b.iteration)
                            = (run_b, shown.benchmark, shown.task, shown.sample_id, shown.iteration)
        LEFT JOIN samples s ON (s.benchmark, s.task, s.sample_id) = (shown.benchmark, shown.task, shown.sample_id)
        ORDER BY abs(difference) DESC, run_a, run_b, shown.benchmark, shown.task, shown.sample_id, shown.iteration
        """,  # noqa: S608 (our own names)
        [[a for a, _ in pairs], [b for _, b in pairs], tasks, tasks, query.limit],
    )
    unlike = runs_unlike(store, query)
    cautions = {(a, b): "; ".join(unlike(a, b)) or None for a, b in pairs}
    return Table([*answers.columns, "caution"], [(*row, cautions[row[0], row[1]]) for row in answers.rows])


def _flags(row: str) -> str:
    """SQL expression that joins an answer's marks as words; NULL for an answer without marks."""
    marks = (f"CASE WHEN {mark.of(row)} THEN '{mark.words}' END" for mark in WORST_FIRST if not mark.of_score)
    return f"nullif(concat_ws(', ', {', '.join(marks)}), '')"


LineValues = dict[tuple[str, str], dict[str, Any]]
"""Values per run, by (benchmark, line)."""

TIES_NOTE = "Bold: the best, and all that do not differ significantly from it (paired tests, 5%, Holm within a column)."


def mark_ties(store: Store, query: ReportQuery, paper: Table) -> Table:
    """Add a last column ``alike``: whether a number of the paper does not differ significantly from the best run's.

    A line led by a published figure has no ties, since a figure has no samples to compare.
    """
    rows = paper.dicts()
    scores: LineValues = {}
    for row in rows:
        if row["official"] is not None:
            by_run = scores.setdefault((row["benchmark"], row["line"]), {})
            by_run[row["run_id"]] = max(row["official"], by_run.get(row["run_id"], row["official"]))
    best = {key: max(by_run, key=lambda run: by_run[run]) for key, by_run in scores.items() if len(by_run) > 1}
    tests: LineValues = {}
    for comparison in compare_runs(store, replace(query, baseline="", force=True)):  # all pairs, to read samples once
        number = (comparison.benchmark, number_label(comparison.first.key))
        pair = (comparison.run_a, comparison.run_b)
        if (top := best.get(number)) in pair:
            tests.setdefault(number, {})[pair[pair[0] == top]] = comparison.difference.p
    alike = {(*key, run) for key, by_run in tests.items() for run in _ties(by_run)}
    same = [(row["benchmark"], row["line"], row["run_id"]) in alike for row in rows]
    return Table([*paper.columns, "alike"], [(*row, is_tie) for row, is_tie in zip(paper.rows, same, strict=True)])


def _ties(p_values: dict[str, float | None]) -> list[str]:
    """Runs without a significant difference from the best one, or without a test of it."""
    corrected = holm([1.0 if p is None else p for p in p_values.values()])
    return [run for run, p in zip(p_values, corrected, strict=True) if p >= LEVEL]
