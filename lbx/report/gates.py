"""Check of conditions on a run's scores (``lbx check``): each is passed, failed or undecided.

A condition is passed or failed if a one-sided test at the 5% level decides: the 90% interval of a score is on one side
of the threshold, or ``is_no_worse`` decides on a difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.tables import suggest_names
from lbx.base.units import format_count
from lbx.report.format.digits import why_no_interval
from lbx.report.pairs import ComparisonSide, RunScore, find_run, refusal
from lbx.report.query import ReportQuery
from lbx.report.rows.comparison import ComparisonRow, compare_runs, is_no_worse
from lbx.report.rows.revisions import open_baseline
from lbx.results import Store
from lbx.results.read.runs import failed_samples, only_run, run_names, unfinished_part
from lbx.results.scoring.score_columns import find_benchmark, read_scores
from lbx.statistics.estimates import Interval, interval

_LEVEL = 0.9
"""Level of intervals whose ends are one-sided tests at the 5% level."""


class GateVerdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Condition:
    """Outcome of a condition on a run.

    Attributes:
        task: benchmark or BENCHMARK/TASK.
        condition: the condition in words.
        n, clusters: number of samples and of documents.
        value, low, high: score in percent, or difference in points, with the 90% interval.
        verdict: "passed", "failed" or "undecided".
        reason: reason why the condition is undecided.
        caution: tasks without all samples, or differences between the two runs other than their models.
    """

    task: str
    condition: str
    n: int
    clusters: int
    value: float
    low: float | None
    high: float | None
    verdict: GateVerdict
    reason: str = ""
    caution: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """Outcomes of all conditions on a run."""

    run: str
    conditions: Sequence[Condition]

    @property
    def verdict(self) -> GateVerdict:
        """Failed if a condition failed, else undecided if a condition is undecided, else passed."""
        verdicts = {condition.verdict for condition in self.conditions}
        return next((v for v in (GateVerdict.FAILED, GateVerdict.UNDECIDED) if v in verdicts), GateVerdict.PASSED)


def check_run(
    store: Store, run: str | None, least_scores: Mapping[str, float], others: Sequence[str], query: ReportQuery
) -> CheckedRun:
    """Check a run's scores by conditions.

    Args:
        run: name of the run, or None for the only run besides ``others``.
        least_scores: {benchmark or BENCHMARK/TASK: least score in percent}.
        others: runs, of ``query.baseline_file`` if given, than which the run must not be worse by ``query.margin``.
        query: selection of tasks to compare. Without tasks, the average of each benchmark is compared.

    Raises:
        UsageError: there is no such run or task, the runs answered different samples, or they differ in prompts or
            settings and ``query.allow_different_settings`` is not set.
    """
    run = _find_run(store, run, () if query.baseline_file else others)
    scores = _scores(store, run)
    failed, partial = failed_samples(store, run), _partial_tasks(store, run)
    gap = unfinished_part(store, run)
    conditions = [
        _at_least(name, _find(name, scores, run), least, failed.get(name, 0), partial, gap=gap)
        for name, least in least_scores.items()
    ]
    for other in others:
        conditions += _not_worse(store, run, other, query, scores=scores, failed=failed, partial=partial)
    return CheckedRun(run, conditions)


def _find_run(store: Store, run: str | None, others: Sequence[str]) -> str:
    if run is not None:
        return find_run(store, run)
    excluded = {find_run(store, other) for other in others}
    rest = [name for name in run_names(store) if name not in excluded]
    return rest[0] if len(rest) == 1 else only_run(store)


def _scores(store: Store, run: str) -> dict[str, RunScore]:
    """Read the scores of a run, as {benchmark or BENCHMARK/TASK: score}."""
    scores: dict[str, RunScore] = {}
    for (_, benchmark), tasks in read_scores(store, {run}, outputs=True).items():
        if family := find_benchmark(benchmark):
            for score in ComparisonSide(family, tasks).numbers.values():
                if score.level != "group":
                    scores.setdefault(_full_name(benchmark, score), score)
    return scores


def _full_name(benchmark: str, score: RunScore) -> str:
    return benchmark if score.level == "benchmark" else f"{benchmark}/{score.name}"


def _find(name: str, scores: Mapping[str, RunScore], run: str) -> RunScore:
    if name not in scores:
        raise UsageError(f"{run} has no score of {name!r}.", fix=suggest_names(name, scores))
    return scores[name]


def _partial_tasks(store: Store, run: str) -> dict[str, str]:
    """Describe the tasks that the run answered only in part, as {BENCHMARK/TASK: "6 of 180 samples"}."""
    sql = """
        SELECT benchmark, task, answers, bundle_answers, iterations FROM coverage
        WHERE run_id = ? AND answers < bundle_answers
    """
    return {
        f"{benchmark}/{task}": f"{some:,} of {format_count(all_, 'sample' if iterations == 1 else 'answer')}"
        for benchmark, task, some, all_, iterations in store.query(sql, [run]).rows
    }


def _judge(
    decision: bool | None, reason: str, failed: int, *, gap: str, other_gap: str = ""
) -> tuple[GateVerdict, str]:
    """Return the verdict, and the reason of an undecided verdict."""
    if gap:
        return GateVerdict.UNDECIDED, f"the run {gap}"
    if failed:
        return (
            GateVerdict.UNDECIDED,
            f"{format_count(failed, 'sample')} failed; repeat the run's command with --retry-failed",
        )
    if other_gap:
        return GateVerdict.UNDECIDED, other_gap
    if decision is None:
        return GateVerdict.UNDECIDED, reason
    return (GateVerdict.PASSED if decision else GateVerdict.FAILED), ""


def _at_least(
    name: str, score: RunScore, least: float, failed: int, partial: Mapping[str, str], *, gap: str
) -> Condition:
    bounds = interval(score.estimate, _LEVEL)
    low, high = _percent(bounds.low), _percent(bounds.high)
    reason = _no_interval(bounds) if low is None else f"{least:g} is inside the interval"
    decision = True if low is not None and low >= least else False if high is not None and high < least else None
    tasks = _tasks_of(name, partial)
    return Condition(
        name, f"at least {least:g}", bounds.n, bounds.clusters, 100 * score.score, low, high,
        *_judge(decision, reason, failed, gap=gap if tasks else ""),
        "; ".join(f"{task}: {text}" for task, text in tasks.items()),
    )  # fmt: skip


def _tasks_of(name: str, partial: Mapping[str, str]) -> dict[str, str]:
    """Select the partial tasks of a benchmark, or the task itself."""
    return {task: text for task, text in partial.items() if f"{task}/".startswith(f"{name}/")}


def _not_worse(
    store: Store,
    run: str,
    other: str,
    query: ReportQuery,
    *,
    scores: Mapping[str, RunScore],
    failed: Mapping[str, int],
    partial: Mapping[str, str],
) -> Iterator[Condition]:
    tasks = query.tasks
    query = ReportQuery(
        runs=[run], baseline=other, baseline_file=query.baseline_file, margin=query.margin,
        allow_different_settings=query.allow_different_settings,
    )  # fmt: skip
    if (opened := open_baseline(store, query)) is None and find_run(store, other) == run:
        raise UsageError(f"{run} cannot be compared with itself.", fix="Pass another run with --not-worse-than.")
    baseline = opened.names[run] if opened else find_run(store, other)
    lines, refused = compare_runs(store, query)
    if needed := [
        pair for pair in refused if not tasks or any(f"{name}/".startswith(f"{pair.benchmark}/") for name in tasks)
    ]:
        raise refusal(needed)
    rows = {_full_name(row.benchmark, row.second): row for row in lines if row.second.level != "group"}
    names = tasks or [name for name, row in rows.items() if row.second.level == "benchmark"]
    if not names:
        raise UsageError(
            f"{run} and {other} have no benchmark in common.", fix="Check a run with answers to the same tasks."
        )
    theirs = _scores(store, baseline)
    gaps = {side: part for side in dict.fromkeys((run, baseline)) if (part := unfinished_part(store, side))}
    their_failed = failed_samples(store, baseline)
    for name in names:
        for side, its_scores in ((run, scores), (other, theirs)):
            _find(name, its_scores, side)
        if opened and (unpaired := opened.unpaired_questions(name)):
            raise UsageError(
                f"{run} and {other} answered different samples of {name}: {rows[name].difference.interval.n:,} in "
                f"common, {unpaired:,} not.",
                fix=_finish(gaps)
                or "Run both with the same --limit, --sample or --ids. The report `revisions` lists what differs.",
            )
        row = rows[name]
        counts = [interval(side.estimate).n for side in (scores[name], theirs[name])]
        gap = gaps.get(run, "") if _tasks_of(name, partial) else ""
        count = failed.get(name, 0)
        other_gap = ""
        if any(count != row.difference.interval.n for count in counts):
            if baseline in gaps:
                other_gap = f"{other} {gaps[baseline]}"
            elif name in their_failed:
                failures = format_count(their_failed[name], "sample")
                other_gap = f"{failures} of {other} failed; repeat its command with --retry-failed"
            elif not gap and not count:
                raise UsageError(
                    f"{run} and {other} answered different samples of {name}: {counts[0]:,} and {counts[1]:,}, "
                    f"{row.difference.interval.n:,} of them in common.",
                    fix="Run both with the same --limit, --sample or --ids.",
                )
        yield _compare(name, other, row, query.margin, count, gap=gap, other_gap=other_gap)


def _finish(gaps: Mapping[str, str]) -> str:
    """Describe the remedy for unfinished runs, or ""."""
    return " ".join(f"{run} {part}." for run, part in gaps.items())


def _compare(
    name: str, other: str, row: ComparisonRow, margin: float, failed: int, *, gap: str, other_gap: str
) -> Condition:
    difference = row.difference
    low, high = _percent(difference.low_90), _percent(difference.high_90)
    decision, missing = is_no_worse(row, margin)
    judged = _judge(decision, missing.removeprefix("undecided: "), failed, gap=gap, other_gap=other_gap)
    return Condition(
        name, f"not worse than {other} by {margin:g} points", difference.interval.n, difference.interval.clusters,
        100 * difference.interval.value, low, high, *judged, row.caution,
    )  # fmt: skip


def _no_interval(missing: Interval) -> str:
    reason = why_no_interval(missing.method, None, missing.clusters)
    return f"no interval: {reason[1]}" if reason else "no interval"


def _percent(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else 100 * value
