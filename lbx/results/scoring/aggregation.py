"""Aggregation of scores: per task, per length and over tasks, with intervals and bounds for failed answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lbx.base.marks import QUESTION_REMOVED
from lbx.base.number import COMPLETENESS_COLUMNS, INTERVAL_COLUMNS, Number
from lbx.base.records import ScoredSample
from lbx.benchmarks.base.aggregates import Average, ScoredRows
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.base.predictions import UNOFFICIAL_TASKS
from lbx.benchmarks.judge import NAME as JUDGE
from lbx.benchmarks.registry import CustomBenchmark
from lbx.opinions import aggregation as opinions
from lbx.results import Store
from lbx.results.file.imports import harnesses_of_runs
from lbx.results.rows import PROMPT_TOKENS, stored_sample
from lbx.results.scoring.score_columns import (
    find_benchmark,
    headline_of,
    plain_numbers,
    query_scores,
    score_interval_columns,
)
from lbx.statistics.estimates import Estimate, decode_labels, interval

# While answers are scored again, some tasks still have scores of an older version.
_INEXACT_CUT = 8
"""Tokens by which a cut prompt may differ from its limit, because the rest of a document may have other tokens."""
_NEWEST_VERSION = "SELECT max(metric_version) FROM scores WHERE run_id = ? AND benchmark = ?"


def aggregate_scores_by_name(store: Store, run_id: str, benchmark: str, *, is_complete: bool) -> None:
    """Call ``aggregate_scores`` for a benchmark by name. An unknown benchmark counts as a user's own."""
    aggregate_scores(store, run_id, find_benchmark(benchmark) or CustomBenchmark(benchmark), is_complete=is_complete)


def aggregate_scores(store: Store, run_id: str, benchmark: Benchmark, *, is_complete: bool = True) -> None:
    """Aggregate a run's stored scores of a benchmark to numbers, and write these numbers and the opinions on the run.

    For a judge's run, write the opinions on the judged runs.

    Args:
        is_complete: whether a task without a known number of samples counts as fully answered.
    """
    if benchmark.name == JUDGE:
        opinions.aggregate_judge_opinions(store, run_id)
        return
    found = store.query(_NEWEST_VERSION, [run_id, benchmark.name]).rows[0][0]
    version = benchmark.metric_version if found is None else int(found)
    of_version = f"(SELECT * FROM scores WHERE metric_version = {version})"
    samples = query_scores(store, [run_id], [benchmark.name], of_version)
    adding = _ScoreAggregator(store, run_id, benchmark, version, is_complete=is_complete)
    store.write_results(adding.numbers(samples.get((run_id, benchmark.name), {})))
    opinions.aggregate_opinions(store, [run_id])


def recompute_completed_samples(store: Store, benchmarks: Mapping[str, Benchmark]) -> None:
    """Recompute the numbers of tasks whose samples were completed, for example with documents from another run."""
    tasks = [f"{benchmark}/{task}" for benchmark, task in store.completed_tasks]
    runs = (
        "SELECT DISTINCT run_id, benchmark FROM generations "
        "WHERE list_contains(?::VARCHAR[], benchmark || '/' || task) ORDER BY ALL"
    )
    for run_id, name in store.query(runs, [tasks]).rows if tasks else ():
        if name in benchmarks:
            aggregate_scores(store, run_id, benchmarks[name])
    store.completed_tasks.clear()


class _ScoreAggregator:
    """Aggregation of a run's scores of a benchmark.

    For the two bounds of a number, failed answers count as all wrong and as all right. Of an imported failure, only
    the sample's name may be known. Such a failure counts only in numbers over all samples, and other numbers of the
    task get no bounds.
    """

    def __init__(self, store: Store, run_id: str, benchmark: Benchmark, version: int, *, is_complete: bool) -> None:
        self._store, self._benchmark, self._version, self._is_complete = store, benchmark, version, is_complete
        self._names: dict[str, Any] = {"run_id": run_id, "benchmark": benchmark.name}
        names = [run_id, benchmark.name]
        harness = harnesses_of_runs(store).get(run_id)
        self._unofficial = harness.unofficial_tasks if harness else self._cut_tasks() | self._other_tasks()
        sql = "SELECT task, scorable_samples, iterations, answers FROM coverage WHERE run_id = ? AND benchmark = ?"
        coverage = store.query(sql, names).rows
        self._scorable: dict[str, int | None] = {task: samples for task, samples, *_ in coverage}
        self._iterations: dict[str, int] = {task: iterations for task, _, iterations, _ in coverage}
        without_answers = {task for task, samples, _, answers in coverage if samples and not answers}
        self._empty_tasks = set(filter(benchmark.catalogue.has_task, without_answers))
        counts = store.query(
            "SELECT task, count(DISTINCT sample_id), count(error), count(*) FROM generations "
            "WHERE run_id = ? AND benchmark = ? AND error_type IS DISTINCT FROM ? GROUP BY ALL",
            [*names, QUESTION_REMOVED],
        ).rows
        # Samples that only judges and people rate are not part of any number.
        self._sample_counts = {task: min(count, self._scorable.get(task) or count) for task, count, *_ in counts}
        self._answer_counts = {
            task: every if self._scorable.get(task) is None else self._sample_counts[task] * self._iterations[task]
            for task, _, _, every in counts
        }
        self._failed = {
            task: rows
            for task, count, failed, every in counts
            if (rows := self._missing_rows(task, failed=failed, unasked=count * self._iterations[task] - every))
        }
        self._unanswered_tasks = [
            task for task, _, failed, every in counts if failed == every and benchmark.catalogue.has_task(task)
        ]
        self._bare_failures: dict[str, list[tuple[str, int]]] = {}
        for task, sample_id, iteration in store.query(
            "SELECT task, sample_id, iteration FROM generations ANTI JOIN samples USING (benchmark, task, sample_id) "
            "WHERE run_id = ? AND benchmark = ? AND error IS NOT NULL ORDER BY ALL",
            names,
        ).rows:
            self._bare_failures.setdefault(task, []).append((sample_id, iteration))
        self._heads: dict[str, Number] = {}

    def _cut_tasks(self) -> frozenset[str]:
        """Tasks with a prompt that was cut to fewer tokens than by the authors, or is longer."""
        if not (limits := self._benchmark.scoring.prompt_limits):
            return frozenset()
        sql = (
            "SELECT task, min(original_tokens - tokens_cut) FILTER (truncated), max(prompt_tokens) FROM generations "
            "WHERE run_id = ? AND benchmark = ? GROUP BY ALL"
        )
        return frozenset(
            task
            for task, least, most in self._store.query(sql, [*self._names.values()]).rows
            if task in limits
            and (
                (least is not None and least < limits[task] - _INEXACT_CUT)
                or (most is not None and most > limits[task] + _INEXACT_CUT)
            )
        )

    def _other_tasks(self) -> frozenset[str]:
        """Tasks of an imported run whose files state other settings than the authors'."""
        sql = f"SELECT unnest(json_keys(settings, '$.{UNOFFICIAL_TASKS}')) FROM runs WHERE run_id = ?"
        return frozenset(task for (task,) in self._store.query(sql, [self._names["run_id"]]).rows)

    def _missing_rows(self, task: str, *, failed: int, unasked: int) -> list[ScoredSample]:
        """List failed answers, and iterations that an interrupted run has not asked of samples that it asked before."""
        rows = [*self._store.samples(**self._names, task=task, failed=True)] if failed else []
        if unasked and self._scorable.get(task) is not None:  # imports have as many answers as their files
            stored = [*rows, *self._store.samples(**self._names, task=task)]
            keys = {(row["sample_id"], row["iteration"]) for row in stored}
            rows += [
                {**row, "iteration": iteration}
                for name, row in {row["sample_id"]: row for row in stored}.items()
                for iteration in range(self._iterations[task])
                if (name, iteration) not in keys
            ]
        samples = [stored_sample(self._benchmark.name, task, row) for row in rows]
        return [
            ScoredSample(sample, {}, row["iteration"], cluster=self._benchmark.cluster(sample, row["document"]))
            for sample, row in zip(samples, rows, strict=True)
        ]

    def numbers(self, tasks: Mapping[str, ScoredRows]) -> list[Number]:
        """Compute the numbers of tasks, of tasks by length, and over tasks."""
        positions = _task_positions(self._benchmark, sort_tasks(self._benchmark, self._sample_counts))
        results = [row for task, rows in tasks.items() for row in self._task_numbers(task, rows, positions[task])]
        self._heads = {row.task: row for row in results if row.headline}
        lengths = [row for task, rows in tasks.items() for row in self._lengths(task, rows)]
        of_family = {task: rows for task, rows in tasks.items() if self._benchmark.catalogue.has_task(task)}
        groups = self._groups(of_family)
        return [*results, *lengths, *groups, *self._benchmark_rows(tasks, groups)]

    def _task_numbers(self, task: str, rows: ScoredRows, task_position: int) -> list[Number]:
        """Compute the numbers of a task, which are official only if all samples are scored and officially asked."""
        is_complete = self._has_all_scores(task, rows)
        numbers = self._aggregate(task, rows)
        head = headline_of(self._benchmark.name, task, rows)
        bounds = [
            {score.metric: score for score in self._aggregate(task, filled[task])}
            for filled in self._with_failures({task: rows})
        ]
        return [
            replace(
                score,
                **self._names,
                task=task,
                metric_version=self._version,
                official=score.official if is_complete and task not in self._unofficial else None,
                unit=self._benchmark.scoring.unit,
                partial=score.partial or not is_complete,
                headline=head is not None and score.metric == head.metric,
                in_paper=head is not None and self._benchmark.scoring.is_in_paper(score.metric, head.metric),
                position=position,
                task_position=task_position,
                **self._interval_columns(score, [bound.get(score.metric) for bound in bounds]),
            )
            for position, score in enumerate(numbers)
        ]

    def _lengths(self, task: str, rows: ScoredRows) -> list[Number]:
        """Compute the headline by length of documents in the benchmark's unit, and of prompts in the model's tokens."""
        head = self._heads[task].metric if task in self._heads else None
        tokens = np.nan_to_num(rows.column("original_tokens"))
        units = {str(unit): rows.column("length") for unit in rows.column("length_unit")[:1]}
        if tokens.any():
            units[PROMPT_TOKENS] = tokens
        results = []
        for unit, lengths in units.items():
            bins = np.array([1 << (length - 1).bit_length() if length > 0 else 0 for length in map(int, lengths)])
            for position, up_to in enumerate(np.unique(bins).tolist()):
                for score in (
                    score for score in self._aggregate(task, rows.take(bins == up_to)) if score.metric == head
                ):
                    results.append(
                        Number(
                            **self._names,
                            kind="length",
                            task=task,
                            metric=score.metric,
                            length_unit=unit,
                            length_up_to=up_to,
                            metric_version=self._version,
                            n=score.n,
                            score=score.score,
                            partial=None,
                            position=position,
                            **_interval(self._benchmark, score),
                        )
                    )
        return results

    def _groups(self, tasks: Mapping[str, ScoredRows]) -> list[Number]:
        """Compute numbers over tasks. They are not official if they include a task with missing samples."""
        rules = self._benchmark.scoring
        groups = self._benchmark.groups(tasks) if tasks else []
        complete_tasks = {task: rows for task, rows in tasks.items() if self._has_all_scores(task, rows)}
        if len(complete_tasks) < len(tasks):
            groups = [
                group if is_sure else replace(group, official=None, partial=True)
                for group, is_sure in self._covered_groups(groups, complete_tasks)
            ]
        if self._unofficial:
            official_tasks = {task: rows for task, rows in tasks.items() if task not in self._unofficial}
            groups = [
                group if is_official else replace(group, official=None)
                for group, is_official in self._covered_groups(groups, official_tasks)
            ]
        unanswered = {task: ScoredRows.of(()) for task in self._unanswered_tasks}
        ends = self._with_failures({**tasks, **unanswered})
        failed = {task: ends[0][task] for task in unanswered if ends and task in ends[0]}
        if failed:
            groups = [
                group if is_sure else replace(group, official=None, partial=True)
                for group, is_sure in self._covered_groups(groups, ends[0])
            ]
        if (self._empty_tasks | unanswered.keys()) - failed.keys():
            groups = [
                replace(group, official=None, partial=True) if rules.is_of_any_tasks(group.key) else group
                for group in groups
            ]
        bounds = [{group.key: group for group in self._benchmark.groups(rows)} for rows in ends]
        return [
            replace(
                group,
                **self._names,
                metric_version=self._version,
                unit=self._benchmark.scoring.unit,
                position=position,
                **self._interval_columns(group, [bound.get(group.key) for bound in bounds]),
            )
            for position, group in enumerate(groups)
        ]

    def _covered_groups(self, groups: Sequence[Number], tasks: Mapping[str, ScoredRows]) -> list[tuple[Number, bool]]:
        """Return each group, and whether these tasks contain all samples of the group."""
        counts = {group.key: group.n for group in (self._benchmark.groups(tasks) if tasks else ())}
        return [(group, counts.get(group.key) == group.n) for group in groups]

    def _benchmark_rows(self, tasks: Mapping[str, ScoredRows], groups: Sequence[Number]) -> list[Number]:
        """Compute the benchmark's leaderboard score: the paper's average, else the mean of the tasks' headlines.

        Tasks with only failed answers count in the bounds.
        """
        if overall := next((group for group in groups if group.grouping == "overall"), None):
            columns = {name: getattr(overall, name) for name in (*INTERVAL_COLUMNS, *COMPLETENESS_COLUMNS)}
            return [self._benchmark_number(overall, columns)]
        heads = [head for task, rows in tasks.items() if (head := headline_of(self._benchmark.name, task, rows))]
        average = Average.of(heads, complete=False)
        if average is None:
            return []
        lost = len(self._unanswered_tasks)
        ends = [[row.failed_as_0, row.failed_as_1] for row in self._heads.values()]
        lowest, highest = ([end for end in side if end is not None] for side in zip(*ends, strict=True))
        columns = _interval(self._benchmark, average) | {
            "answered": sum(row.answered or 0 for row in self._heads.values()),
            "asked": sum(row.asked or self._answer_counts[row.task] for row in self._heads.values())
            + sum(self._answer_counts[task] for task in self._unanswered_tasks),
            "failed_as_0": sum(lowest) / (len(ends) + lost) if len(lowest) == len(ends) else None,
            "failed_as_1": (sum(highest) + lost) / (len(ends) + lost) if len(highest) == len(ends) else None,
        }
        return [self._benchmark_number(average, columns)]

    def _benchmark_number(self, average: Number | Average, columns: Mapping[str, Any]) -> Number:
        return Number(
            **self._names,
            kind="mean",
            metric_version=self._version,
            n=average.n,
            score=average.score,
            partial=None,
            **columns,
        )

    def _aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        return (
            self._benchmark.aggregate(task, rows) if self._benchmark.catalogue.has_task(task) else plain_numbers(rows)
        )

    def _with_failures(self, tasks: Mapping[str, ScoredRows]) -> list[dict[str, ScoredRows]]:
        """Return the tasks' rows with failures all wrong, and with failures all right, or [] without failures."""
        rules = self._benchmark.scoring
        complete = not rules.uncounted_metric or all(rules.is_counted(row) for rows in tasks.values() for row in rows)
        if complete and not any(task in self._failed or task in self._bare_failures for task in tasks):
            return []
        filled_rows: list[dict[str, ScoredRows]] = [{}, {}]
        for task, rows in tasks.items():
            failed = self._failed.get(task, [])
            like = next(iter((*rows, *failed)), None)
            if like is None:
                return [{}, {}]  # no row to copy from: numbers over the task get no bounds
            unnamed = [
                replace(like, sample=replace(like.sample, sample_id=name), iteration=iteration, cluster="")
                for name, iteration in self._bare_failures.get(task, ())
            ]
            for value, filled in enumerate(filled_rows):
                filled[task] = _fill_failures(self._benchmark, rows, [*failed, *unnamed], float(value))
        return filled_rows

    def _interval_columns(self, number: Number, bounds: Sequence[Number | None]) -> dict[str, Any]:
        columns = _interval(self._benchmark, number)
        ends = [end for end in bounds if end and end.estimate and self._covers_complete_tasks(end.estimate)]
        if number.estimate is None or len(ends) < len(bounds):
            return columns
        low, high = ends or (number, number)
        return columns | {
            "answered": _answer_count(number),
            "asked": max(map(_answer_count, (low, high))),
            "failed_as_0": low.score,
            "failed_as_1": high.score,
        }

    def _covers_complete_tasks(self, estimate: Estimate) -> bool:
        """Whether an estimate includes all samples of each task with bare failures, as bounds of a number require.

        A bare failure is an imported failed answer of which only the sample's name is known.
        """
        for stratum in estimate.strata if self._bare_failures else ():
            tasks = Counter(str(sample).partition("/")[0] for sample in decode_labels(set(stratum.samples.tolist())))
            if any(task in self._bare_failures and count < self._sample_counts[task] for task, count in tasks.items()):
                return False
        return True

    def _has_all_scores(self, task: str, rows: ScoredRows) -> bool:
        """Whether all samples that metrics count are scored in all iterations."""
        samples = self._scorable.get(task)
        if samples is None:
            return self._is_complete
        return len(rows) >= samples * self._iterations[task]


def _fill_failures(benchmark: Benchmark, rows: ScoredRows, failed: Sequence[ScoredSample], value: float) -> ScoredRows:
    """Give the score ``value`` to failures, and to answers that the official number does not count."""
    metrics = dict.fromkeys(metric for row in rows for metric in row.scores)
    rules = benchmark.scoring
    filled = [
        row if rules.is_counted(row) else replace(row, scores=rules.missing_scores(metrics, value)) for row in rows
    ]
    for row in failed:
        # An empty answer has the usual metrics, or no metrics if the question is not scored.
        if metric_names := [score.metric for score in benchmark.score(row.sample, "")]:
            filled.append(replace(row, scores=rules.missing_scores(metrics or metric_names, value)))
    return ScoredRows.of(filled)


def _interval(benchmark: Benchmark, number: Number | Average) -> dict[str, Any]:
    if number.estimate is None:
        return {}
    return score_interval_columns(interval(number.estimate), benchmark, clustered=number.estimate.clustered)


def _answer_count(number: Number) -> int:
    return number.n if number.answers is None else number.answers


def _task_positions(benchmark: Benchmark, tasks: Iterable[str]) -> dict[str, int]:
    """Return {task: position in the paper}, because runs of different tasks share the paper's table."""
    return {task: position for position, task in enumerate(dict.fromkeys([*benchmark.catalogue.names, *tasks]))}


def sort_tasks(benchmark: Benchmark, tasks: Iterable[str]) -> list[str]:
    """Sort tasks in the paper's order. Unknown tasks follow, by name."""
    positions = {task: position for position, task in enumerate(benchmark.catalogue.names)}
    return sorted(tasks, key=lambda task: (positions.get(task, len(positions)), task))
