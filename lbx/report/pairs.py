"""Pairs of runs to compare, checks that prompts and settings match, and the runs' numbers on common samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lbx.base.errors import UsageError
from lbx.base.number import ALL as ONLY_GROUP
from lbx.base.number import OVERALL, NumberKey, group_number, task_number
from lbx.benchmarks.base.aggregates import Array, Bools, overall_number
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.report.query import ALL, ReportQuery
from lbx.report.rows.harness import harness_differences
from lbx.report.rows.revisions import open_baseline
from lbx.results import Store
from lbx.results.read.runs import resolve_runs
from lbx.results.scoring.score_columns import RowsByTask, find_benchmark, headline_of, read_scores, starts_of
from lbx.results.views import MODE_OF_RUN
from lbx.statistics.estimates import Codes, Estimate, Floats, Stratum

MOST_RUNS = 6
"""Maximum number of runs without a baseline, because a table of more pairs would be unreadable."""


def select_pairs(store: Store, query: ReportQuery) -> list[tuple[str, str]]:
    """Select the pairs to compare: the baseline with each other run, or without a baseline each two runs."""
    if other := open_baseline(store, query):
        return [(baseline, run) for run, baseline in other.names.items()]
    run_ids = [
        row[0]
        for row in store.query(
            "SELECT run_id FROM runs ANTI JOIN judges ON run_id = judge_id ORDER BY started_at, run_id"
        ).rows
    ]
    if query.baseline:
        baseline = find_run(store, query.baseline)
        others = [find_run(store, run) for run in query.runs] or run_ids
        return [(baseline, run) for run in dict.fromkeys(others) if run != baseline]
    runs = [run for run in run_ids if not query.runs or run in query.runs]
    if len(runs) > MOST_RUNS and not query.allow_different_settings:
        raise UsageError(
            f"There are too many pairs to compare: {len(runs)} runs make {len(runs) * (len(runs) - 1) // 2:,} pairs.",
            fix=f"Pass --baseline RUN to compare the others with one run. Runs: {', '.join(runs)}.",
        )
    return list(combinations(runs, 2))


def find_run(store: Store, name: str) -> str:
    """Resolve the name of a run that is not a judge, as ``resolve_runs`` does. Raises UsageError."""
    return resolve_runs(store, [name], judges=False)[0]


@dataclass(frozen=True, slots=True)
class PairCheck:
    """Differences between two runs on a benchmark, other than the models.

    Attributes:
        differences: Known differences, which the comparison refuses.
        caution: All reasons why the numbers may not be comparable, or "".
    """

    differences: Sequence[str]
    caution: str


@dataclass(frozen=True, slots=True)
class RefusedPair:
    """Pair of runs that is not compared on a benchmark, and why."""

    run_a: str
    run_b: str
    benchmark: str
    reason: str


class PairChecks:
    """Checks of pairs of runs for differences other than the models."""

    def __init__(self, store: Store, query: ReportQuery = ALL) -> None:
        self._store, self._other = store, open_baseline(store, query)
        self._unlike, self._differ_by_harness = known_differences(store, query), harness_differences(store)
        self._kinds = _kinds_of_runs(store)
        self._versions: dict[tuple[str, str], set[int]] = {}
        sql = "SELECT DISTINCT run_id, benchmark, metric_version FROM scores"
        for run, benchmark, version in store.query(sql).rows:
            self._versions.setdefault((run, benchmark), set()).add(version)

    def kind(self, run: str, benchmark: str) -> Hashable:
        """Key of a run's settings on a benchmark. Runs with equal keys differ at most in the prompts."""
        return self._kinds[run], frozenset(self._versions.get((run, benchmark), ()))

    def check(
        self, a: str, b: str, benchmark: str, first: ComparisonSide | None, second: ComparisonSide | None
    ) -> PairCheck:
        """Check two runs on a benchmark.

        Cut prompts count only among the common samples of the two sides, and without sides not at all.
        """
        other = self._other
        differ, unknown, known = self._unlike(a, b), [], []
        if other is None and not (self._kinds[a].bundle and self._kinds[b].bundle):
            unknown.append("whether the bundles are the same")
        if other and (other_count := _count_instruction_mismatches(self._store, a, b, benchmark)) is None:
            unknown.append("whether the instructions are the same")
        elif other and other_count:
            differ.append(f"{other_count:,} prompts with other instructions")
        if other and b in other.rescored_runs:
            known.append(other.rescored_runs[b])
        elif self._versions.get((a, benchmark)) != self._versions.get((b, benchmark)):
            differ.append("different metric versions")
        cut = _count_truncation_mismatches(first, second) if first and second else 0
        if cut is None:
            unknown.append("whether the same prompts were cut")
        elif cut:
            differ.append(f"{cut:,} prompts cut in only one run, with the same tokenizer")
        if unknown:
            unknown = [f"unknown {' and '.join(unknown)}"]
        return PairCheck(differ, "; ".join([*known, *differ, *self._differ_by_harness(a, b), *unknown]))


def refusal(pairs: Sequence[RefusedPair]) -> UsageError:
    """Error of a comparison without any pair left."""
    reasons = "; ".join(f"{pair.benchmark}, {pair.run_a} and {pair.run_b}: {pair.reason}" for pair in pairs)
    return UsageError(
        f"These runs have different prompts or settings: {reasons}.",
        fix="Compare runs with equal prompts and settings, or pass --allow-different-settings: each row "
        "then lists the differences.",
    )


def known_differences(store: Store, query: ReportQuery = ALL) -> Callable[[str, str], list[str]]:
    """Make a function that lists the known differences between two runs, except the models.

    The bundle of a baseline from another file may differ, because only equal questions are paired.
    """
    runs = _kinds_of_runs(store)

    def unlike(a: str, b: str) -> list[str]:
        (bundle, mode, cut, *limits), (other_bundle, other_mode, other_cut, *other_limits) = runs[a], runs[b]
        return [
            *(
                ["different bundles"]
                if bundle and other_bundle and bundle != other_bundle and not query.baseline_file
                else []
            ),
            *([f"different modes ({mode}, {other_mode})"] if mode != other_mode else []),
            *(
                f"different {name} ({value or 'default'}, {other or 'default'})"
                for name, value, other in zip(_LIMITS, limits, other_limits, strict=True)
                if value != other and (cut or other_cut) and bundle and other_bundle
            ),
        ]

    return unlike


_LIMITS = ("max_new_tokens", "thinking_tokens")
"""Settings that end answers early, which count only in runs that may have such answers; unknown for imports."""


class _RunKind(NamedTuple):
    bundle: str | None
    mode: str
    has_cut_answers: bool
    max_new_tokens: str | None
    thinking_tokens: str | None


def _kinds_of_runs(store: Store) -> dict[str, _RunKind]:
    limits = ", ".join(f"settings->>'{name}'" for name in _LIMITS)
    cut = "FROM generations WHERE error IS NULL AND (finish_reason IS DISTINCT FROM 'stop' OR NOT reasoning_closed)"
    sql = f"SELECT run_id, bundle_digest, {MODE_OF_RUN}, run_id IN (SELECT run_id {cut}), {limits} FROM runs r"  # noqa: S608
    rows = store.compute_once("kinds of runs", lambda: store.query(sql).rows)
    return {run: _RunKind(bundle, mode or "plain", *others) for run, bundle, mode, *others in rows}


def _count_instruction_mismatches(store: Store, first: str, second: str, benchmark: str) -> int | None:
    """Count pairs of answers to a question with different instructions, or None if instructions are unknown."""
    sql = """
        SELECT count(*) FILTER (WHERE a.instructions_sha256 <> b.instructions_sha256),
               count(*) FILTER (WHERE a.instructions_sha256 IS NULL OR b.instructions_sha256 IS NULL)
        FROM generations a JOIN generations b USING (benchmark, task, sample_id, iteration)
        WHERE a.run_id = ? AND b.run_id = ? AND benchmark = ? AND a.error IS NULL AND b.error IS NULL
    """
    ((different, unknown),) = store.query(sql, [first, second, benchmark]).rows
    return None if unknown and not different else int(different)


def _count_truncation_mismatches(first: ComparisonSide, second: ComparisonSide) -> int | None:
    """Count prompts that were truncated for one run only, if the tokenizers agree on the prompts' lengths.

    Returns None if token counts or cuts are unknown.
    """
    if not (first.answer_arrays.has_cuts or second.answer_arrays.has_cuts):
        return 0
    a, b = first.answer_arrays.restrict_to_common(second.answer_arrays)
    if any((values < 0).any() for values in (a.tokens, a.truncated, b.tokens, b.truncated)):
        return None
    if (a.tokens != b.tokens).any():
        return 0  # different tokenizers: a prompt may fit into the window of only one
    return int((a.truncated != b.truncated).sum())


@dataclass(frozen=True, slots=True)
class RunScore:
    """Score of a run for a benchmark, a group or a task (``level``)."""

    level: str
    key: NumberKey
    name: str
    metric: str
    score: float
    estimate: Estimate


class ComparisonSide:
    """One side of a comparison: a run's answers to a benchmark, with numbers computed on first use."""

    def __init__(self, benchmark: Benchmark, tasks: RowsByTask) -> None:
        self._benchmark, self.tasks = benchmark, tasks
        self._parts: dict[frozenset[str], ComparisonSide] = {}

    @cached_property
    def samples(self) -> dict[str, bytes]:
        """{task: sorted distinct sample codes as bytes}. Equal bytes mean equal samples."""
        columns = {task: rows.column("samples") for task, rows in self.tasks.items()}
        return {task: codes[starts_of(codes)].tobytes() for task, codes in columns.items()}

    def on_tasks(self, tasks: Iterable[str]) -> ComparisonSide:
        """Restrict the side to some tasks. For all tasks, the result is ``self``."""
        key = frozenset(tasks)
        if key == self.tasks.keys():
            return self
        if key not in self._parts:
            self._parts[key] = ComparisonSide(
                self._benchmark, {task: rows for task, rows in self.tasks.items() if task in key}
            )
        return self._parts[key]

    def restrict_to(self, other: ComparisonSide) -> ComparisonSide:
        """Restrict the side to the samples shared with another side."""
        both = {
            task: rows.take(np.isin(rows.column("samples"), other.tasks[task].column("samples")))
            for task, rows in self.tasks.items()
        }
        return ComparisonSide(self._benchmark, {task: rows for task, rows in both.items() if rows})

    @cached_property
    def numbers(self) -> dict[tuple[str, str, str], RunScore]:
        """{(level, name, metric): score} of the benchmark's average, the groups and the tasks, in this order."""
        tasks = self.tasks
        heads = {
            task: score for task, rows in tasks.items() if (score := headline_of(self._benchmark.name, task, rows))
        }
        has_task = self._benchmark.catalogue.has_task  # a foreign file may have other tasks
        groups = self._benchmark.groups(
            {task: rows for task, rows in tasks.items() if has_task(task)}, averages_only=True
        )
        average = overall_number(groups, [*heads.values()])
        if average and average not in groups:
            groups.append(average)
        scores = [
            RunScore(
                level="benchmark" if score.grouping == OVERALL else "group",
                key=group_number(score.grouping, score.name, metric=score.metric),
                name=_group_name(score.grouping, score.name),
                metric=score.metric,
                score=score.score,
                estimate=score.estimate,
            )
            for score in groups
            if score.estimate
        ]
        scores.sort(key=lambda number: number.level)
        scores += [
            RunScore("task", task_number(task), task, score.metric, score.score, score.estimate)
            for task, score in heads.items()
            if score.estimate
        ]
        return {(score.level, score.name, score.metric): score for score in scores}

    @cached_property
    def answer_arrays(self) -> AnswerArrays:
        """Arrays for the comparison of single answers."""
        every = list(self.tasks.values())
        sample, iteration, output, tokens, cut = (
            np.concatenate([rows.column(name) for rows in every])
            for name in ("samples", "iteration", "output_hash", "original_tokens", "truncated")
        )
        task = np.repeat(np.arange(len(every)), [len(rows) for rows in every])
        return AnswerArrays(
            (sample << 32) + iteration, task, output, *(np.nan_to_num(values, nan=-1) for values in (tokens, cut))
        )


def read_sides(
    store: Store, runs: Collection[str], benchmarks: Collection[str] = (), *, outputs: bool = False
) -> dict[tuple[str, str], ComparisonSide]:
    """Read {(run, benchmark): side}, from the same answers the same side, so that its numbers are computed once."""
    return {
        key: store.compute_once(("side", id(tasks)), partial(ComparisonSide, family, tasks))  # keeps ``tasks`` alive
        for key, tasks in read_scores(store, runs, benchmarks, outputs=outputs).items()
        if (family := find_benchmark(key[1]))
    }


@dataclass(frozen=True, slots=True, eq=False)
class AnswerArrays:
    """Arrays with a value for each answer.

    Attributes:
        name: Code of sample and iteration.
        task: Index of the task.
        output: Hash of the output.
        tokens: Number of tokens of the prompt before truncation, or -1 if unknown.
        truncated: Whether the prompt was truncated, or -1 if unknown.
    """

    name: Codes
    task: Codes
    output: npt.NDArray[np.uint64]
    tokens: Floats
    truncated: Floats

    @property
    def has_cuts(self) -> bool:
        """Whether a prompt was truncated, or was perhaps truncated, or is of unknown length."""
        return bool(self.truncated.any() or (self.tokens < 0).any())

    def restrict_to_common(self, other: AnswerArrays) -> tuple[AnswerArrays, AnswerArrays]:
        """Restrict two runs' arrays to the answers that occur in both."""
        if np.array_equal(self.name, other.name):
            return self, other
        _, here, theirs = np.intersect1d(self.name, other.name, assume_unique=True, return_indices=True)
        return self.select(here), other.select(theirs)

    def select(self, indices: Codes) -> AnswerArrays:
        return AnswerArrays(*(getattr(self, field.name)[indices] for field in fields(self)))


def have_equal_strata(first: RunScore, second: RunScore) -> bool:
    """Whether two scores are linear in strata of equal weights, which can be restricted to shared samples."""
    shapes = ([stratum.weight for stratum in number.estimate.strata] for number in (first, second))
    return first.estimate.linear and second.estimate.linear and next(shapes) == next(shapes)


def have_equal_rows(first: RunScore, second: RunScore) -> bool:
    """Whether two scores are computed from equal rows."""
    return first.estimate.row_key == second.estimate.row_key


class CommonStrata:
    """Cache of the shared samples of two strata, because the same strata occur in many scores."""

    def __init__(self) -> None:
        self._cache: dict[tuple[int, ...], tuple[Stratum, Stratum, Array, Array]] = {}

    def restrict(self, x: Stratum, y: Stratum) -> tuple[Stratum, Stratum]:
        """Restrict two strata to the shared samples."""
        key = (id(x.samples), id(x.clusters), id(y.samples), id(y.clusters))
        if key not in self._cache:
            here, theirs = _occurs_in(x.samples, y.samples), _occurs_in(y.samples, x.samples)
            self._cache[key] = (x.select(here), y.select(theirs), here, theirs)
        a, b, here, theirs = self._cache[key]
        return (
            Stratum(x.weight, a.samples, a.clusters, x.values[here]),
            Stratum(y.weight, b.samples, b.clusters, y.values[theirs]),
        )


def _occurs_in(codes: Codes, others: Codes) -> Bools:
    """Mask of the codes that occur in ``others``.

    Codes from ``encode_labels`` can index a table, which is faster to build than numpy's sort.
    """
    is_present = np.zeros(max(codes.max(initial=0), others.max(initial=0)) + 1, bool)
    is_present[others] = True
    return np.asarray(is_present[codes])


def restrict_to_common(
    first: RunScore, second: RunScore, common_strata: CommonStrata | None = None
) -> tuple[RunScore, RunScore] | None:
    """Restrict two scores to the samples counted in both, with the mean of each sample's answers.

    Returns None if a stratum contains no shared sample.
    """
    if not have_equal_rows(first, second):
        common_strata = common_strata or CommonStrata()
        strata = zip(first.estimate.strata, second.estimate.strata, strict=True)
        parts = [common_strata.restrict(x, y) for x, y in strata]
        if not all(len(x.values) for x, _ in parts):
            return None
        first, second = (
            _with_estimate(score, replace(score.estimate, strata=tuple(part[side] for part in parts)))
            for side, score in enumerate((first, second))
        )
    return _with_estimate(first, first.estimate.by_sample), _with_estimate(second, second.estimate.by_sample)


def _with_estimate(number: RunScore, estimate: Estimate) -> RunScore:
    return number if estimate is number.estimate else replace(number, estimate=estimate, score=_mean(estimate))


def _mean(estimate: Estimate) -> float:
    return float(sum(stratum.weight * (stratum.values.sum() / len(stratum.values)) for stratum in estimate.strata))


def _group_name(grouping: str, name: str) -> str:
    return grouping if name == ONLY_GROUP else f"{grouping} {name}"
