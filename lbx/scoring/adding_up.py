"""Numbers from scores: of tasks, of lengths, over tasks, each with how sure it is and what failures leave open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lbx.base.odd_values import refusing_odd_values
from lbx.base.records import GroupScore, ScoredSample, TaskScore
from lbx.benchmarks.base.aggregates import Average
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.judge.judging import NAME as JUDGE
from lbx.scoring.scored import told
from lbx.statistics.estimates import Estimate, interval, labels_of
from lbx.store import GroupRow, ResultRow, Store, opinions
from lbx.store.rows import PROMPT_TOKENS, BenchmarkRow, LengthRow, stored_sample


@dataclass(slots=True)
class Answers:
    """A task's answers.

    Attributes:
        rows: those that are scored, in the data's order.
        tokens: of each one's prompt before truncation; None where nobody counted.
        failed: those that are not there, without scores.
    """

    rows: list[ScoredSample] = field(default_factory=list)
    tokens: list[int | None] = field(default_factory=list)
    failed: list[ScoredSample] = field(default_factory=list)

    def filled(self, benchmark: Benchmark, value: float) -> list[ScoredSample]:
        """All rows, with this score for what failed and for what the official number does not count."""
        metrics = dict.fromkeys(metric for row in self.rows for metric in row.scores)
        found = [
            row if benchmark.counts(row) else replace(row, scores=benchmark.scores_if(metrics, value))
            for row in self.rows
        ]
        for row in self.failed:
            # An empty answer has the same metrics as any other; none, where a question is not scored at all.
            if own := [one.metric for one in benchmark.score(row.sample, "")]:
                found.append(replace(row, scores=benchmark.scores_if(metrics or own, value)))
        return found


def scored_row(benchmark: Benchmark, task: str, row: Mapping[str, Any], scores: Mapping[str, float]) -> ScoredSample:
    """A row of ``Store.samples`` beside its scores."""
    sample = stored_sample(benchmark.name, task, row)
    return ScoredSample(sample, scores, row["iteration"], cluster=benchmark.cluster(sample, row["document"]))


def failed_rows(store: Store, run_id: str, benchmark: Benchmark, task: str) -> list[ScoredSample]:
    """What a run asked of a task without getting an answer."""
    return [scored_row(benchmark, task, row, {}) for row in store.samples(run_id, benchmark.name, task, failed=True)]


@refusing_odd_values
def add_up(store: Store, run_id: str, benchmark: Benchmark) -> None:
    """Write a run's numbers of one benchmark, task by task and over tasks, from the scores in the results file."""
    scores: dict[tuple[str, str, int], dict[str, float]] = {}
    partial: set[tuple[str, str, int]] = set()
    for task, sample_id, iteration, metric, score, lacks in store.query(
        "SELECT task, sample_id, iteration, metric, score, partial FROM scores "
        "WHERE run_id = ? AND benchmark = ? AND metric_version = ?",
        [run_id, benchmark.name, benchmark.metric_version],
    ).rows:
        scores.setdefault((task, sample_id, iteration), {})[metric] = score
        if lacks:
            partial.add((task, sample_id, iteration))
    tasks: dict[str, Answers] = {}
    for task in in_order(benchmark, {task for task, _, _ in scores if benchmark.knows(task)}):
        answers = Answers(failed=failed_rows(store, run_id, benchmark, task))
        for row in store.samples(run_id, benchmark.name, task):
            key = (task, row["sample_id"], row["iteration"])
            if key in scores:
                scored = scored_row(benchmark, task, row, scores[key])
                answers.rows.append(replace(scored, partial=True) if key in partial else scored)
                answers.tokens.append(row["original_tokens"])
        if answers.rows:
            tasks[task] = answers
    adding = AddingUp(store, run_id, benchmark)
    adding.write_tasks(tasks)
    adding.write_groups(tasks)


@refusing_odd_values
def add_up_completed(store: Store, benchmarks: Mapping[str, Benchmark]) -> None:
    """Make anew what is made of samples of which the file knows more now: another run has told their documents, say."""
    tasks = [f"{benchmark}/{task}" for benchmark, task in store.completed]
    runs = (
        "SELECT DISTINCT run_id, benchmark FROM generations "
        "WHERE list_contains(?::VARCHAR[], benchmark || '/' || task) ORDER BY ALL"
    )
    for run_id, name in store.query(runs, [tasks]).rows if tasks else ():
        if name in benchmarks:
            add_up(store, run_id, benchmarks[name])
    store.completed.clear()


class AddingUp:
    """A run's numbers of one benchmark, from rows to rows.

    A failed answer counts as all wrong, then as all right, in every number that it would have had a part in. Of an
    imported failure nobody may know more than its name: it counts in the numbers over everything, and those over a
    part of its task have no bounds.
    """

    def __init__(self, store: Store, run_id: str, benchmark: Benchmark) -> None:
        self._store, self._benchmark = store, benchmark
        self._names = (run_id, benchmark.name)
        known = "SELECT task, scorable_samples FROM coverage WHERE run_id = ? AND benchmark = ?"
        self._scorable: dict[str, int | None] = dict(store.query(known, self._names).rows)
        counts = store.query(
            "SELECT task, count(DISTINCT sample_id), bool_and(error IS NOT NULL) FROM generations "
            "WHERE run_id = ? AND benchmark = ? GROUP BY ALL",
            self._names,
        ).rows
        # What only judges and people read is no part of what a number could have been made of.
        self._asked: dict[str, int] = {task: min(count, self._scorable.get(task) or count) for task, count, _ in counts}
        self._lost = [task for task, _, all_failed in counts if all_failed and benchmark.knows(task)]
        self._unnamed: dict[str, list[tuple[str, int]]] = {}
        for task, sample_id, iteration in store.query(
            "SELECT task, sample_id, iteration FROM generations ANTI JOIN samples USING (benchmark, task, sample_id) "
            "WHERE run_id = ? AND benchmark = ? AND error IS NOT NULL ORDER BY ALL",
            self._names,
        ).rows:
            self._unnamed.setdefault(task, []).append((sample_id, iteration))
        self._heads: dict[str, ResultRow] = {}

    def write_tasks(self, tasks: Mapping[str, Answers]) -> None:
        """Write tasks' numbers, and their curves."""
        places = _places(self._benchmark, in_order(self._benchmark, self._asked))
        results = [row for task, one in tasks.items() for row in self._results(task, one, places[task])]
        self._heads |= {row.task: row for row in results if row.headline}
        lengths = [row for task, one in tasks.items() for row in self._lengths(task, one)]
        self._store.write_results([*results, *lengths])

    def write_groups(self, tasks: Mapping[str, Answers]) -> None:
        """Write the numbers over tasks, and what judges and people say of the run; of a judge, of those it judged."""
        self._store.write_results([*self._groups(tasks), *self._whole(tasks)])
        if self._benchmark.name == JUDGE:
            opinions.add_up_judge(self._store, self._names[0])
        else:
            opinions.add_up(self._store, [self._names[0]])

    def _results(self, task: str, answers: Answers, place: int) -> list[ResultRow]:
        """A task's numbers; over a part of its samples none of them is official."""
        version, whole = self._benchmark.metric_version, self._is_whole(task, answers)
        numbers = self._aggregate(task, answers.rows)
        head = self._benchmark.headline(task, answers.rows)
        bounds = [
            {one.metric: one for one in self._aggregate(task, rows[task])} for rows in self._filled({task: answers})
        ]
        return [
            ResultRow(
                *self._names, task, one.metric, version, one.n, one.score, one.official if whole else None,
                headline=head is not None and one.metric == head.metric, position=position,
                partial=one.partial or not whole, task_position=place,
                **self._sureness(one, [found.get(one.metric) for found in bounds]),
            )
            for position, one in enumerate(numbers)
        ]  # fmt: skip

    def _lengths(self, task: str, answers: Answers) -> list[LengthRow]:
        """The headline by length: of documents as the benchmark counts them, and of prompts in the model's tokens."""
        units = {row.sample.length_unit: [row.sample.length for row in answers.rows] for row in answers.rows[:1]}
        if any(answers.tokens):
            units[PROMPT_TOKENS] = [tokens or 0 for tokens in answers.tokens]
        found, head = [], self._heads[task].metric if task in self._heads else None
        for unit, lengths in units.items():
            bins: dict[int, list[ScoredSample]] = {}
            for row, length in zip(answers.rows, lengths, strict=True):
                bins.setdefault(1 << (length - 1).bit_length() if length > 0 else 0, []).append(row)
            for position, up_to in enumerate(sorted(bins)):
                for one in (one for one in self._aggregate(task, bins[up_to]) if one.metric == head):
                    found.append(LengthRow(
                        *self._names, task, one.metric, self._benchmark.metric_version, unit, position, up_to or None,
                        one.n, one.score, **_interval(self._benchmark, one),
                    ))  # fmt: skip
        return found

    def _groups(self, tasks: Mapping[str, Answers]) -> list[GroupRow]:
        """Numbers over tasks. Those that a task without all of its samples has a part in are not official."""
        rows = {task: answers.rows for task, answers in tasks.items()}
        groups = self._benchmark.groups(rows) if tasks else []
        whole = {task: rows[task] for task, answers in tasks.items() if self._is_whole(task, answers)}
        if len(whole) < len(tasks):
            sure = {_place(group): group.n for group in (self._benchmark.groups(whole) if whole else ())}
            groups = [
                group if sure.get(_place(group)) == group.n else replace(group, official=None, partial=True)
                for group in groups
            ]
        lost = {
            task: Answers(failed=failed_rows(self._store, self._names[0], self._benchmark, task)) for task in self._lost
        }
        bounds = [
            {_place(group): group for group in self._benchmark.groups(rows)} for rows in self._filled({**tasks, **lost})
        ]
        return [
            GroupRow(
                *self._names, group.grouping, group.name, group.metric, self._benchmark.metric_version, group.n,
                group.score, group.official, group.partial, position,
                **self._sureness(group, [found.get(_place(group)) for found in bounds]),
            )
            for position, group in enumerate(groups)
        ]  # fmt: skip

    def _whole(self, tasks: Mapping[str, Answers]) -> list[BenchmarkRow]:
        """The mean of the headlines, which the leaderboard shows. A task of which all answers failed counts, too, in
        what they leave open.
        """
        heads = [one for task, answers in tasks.items() if (one := self._benchmark.headline(task, answers.rows))]
        found = Average.of(heads, whole=False)
        if found is None:
            return []
        lost = len(self._lost)
        ends = [[row.failed_as_0, row.failed_as_1] for row in self._heads.values()]
        lowest, highest = ([end for end in side if end is not None] for side in zip(*ends, strict=True))
        columns = _interval(self._benchmark, found) | {
            "answered": sum(row.answered or 0 for row in self._heads.values()),
            "asked": sum(row.asked or self._asked[row.task] for row in self._heads.values())
            + sum(self._asked[task] for task in self._lost),
            "failed_as_0": sum(lowest) / (len(ends) + lost) if len(lowest) == len(ends) else None,
            "failed_as_1": (sum(highest) + lost) / (len(ends) + lost) if len(highest) == len(ends) else None,
        }
        return [BenchmarkRow(*self._names, self._benchmark.metric_version, found.n, found.score, **columns)]

    def _aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        return self._benchmark.aggregate(task, rows)

    def _filled(self, tasks: Mapping[str, Answers]) -> list[dict[str, list[ScoredSample]]]:
        """The tasks' rows with failures all wrong, and all right; [] without failures."""
        complete = all(self._benchmark.counts(row) for answers in tasks.values() for row in answers.rows)
        if complete and not any(answers.failed or task in self._unnamed for task, answers in tasks.items()):
            return []
        found: list[dict[str, list[ScoredSample]]] = [{}, {}]
        for task, answers in tasks.items():
            like = next(iter((*answers.rows, *answers.failed)), None)
            if like is None:
                return [{}, {}]  # nothing to go by: no number over the task has bounds
            unnamed = [
                replace(like, sample=replace(like.sample, sample_id=name), iteration=iteration, cluster="")
                for name, iteration in self._unnamed.get(task, ())
            ]
            every = replace(answers, failed=[*answers.failed, *unnamed])
            for value, rows in enumerate(found):
                rows[task] = every.filled(self._benchmark, float(value))
        return found

    def _sureness(
        self, number: TaskScore | GroupScore, bounds: Sequence[TaskScore | GroupScore | None]
    ) -> dict[str, Any]:
        """The columns of ``NumberRow``."""
        columns = _interval(self._benchmark, number)
        ends = [end for end in bounds if end and end.estimate and self._holds_whole_tasks(end.estimate)]
        if number.estimate is None or len(ends) < len(bounds):
            return columns
        low, high = ends or (number, number)
        return columns | {
            "answered": number.estimate.design.n,
            "asked": max(end.estimate.design.n for end in (low, high) if end.estimate),
            "failed_as_0": low.score,
            "failed_as_1": high.score,
        }

    def _holds_whole_tasks(self, estimate: Estimate) -> bool:
        """Whether failures of which only the name is known have their part in a number, wherever they belong."""
        for stratum in estimate.strata if self._unnamed else ():
            tasks = Counter(str(sample).partition("/")[0] for sample in labels_of(set(stratum.samples.tolist())))
            if any(task in self._unnamed and count < self._asked[task] for task, count in tasks.items()):
                return False
        return True

    def _is_whole(self, task: str, answers: Answers) -> bool:
        """Whether every sample that the metrics count has a score, as often as any; an unknown number counts as all."""
        samples = self._scorable.get(task)
        return samples is None or len(answers.rows) >= samples * (1 + max(row.iteration for row in answers.rows))


def _interval(benchmark: Benchmark, number: TaskScore | GroupScore | Average) -> dict[str, Any]:
    """The columns of ``NumberRow`` that say how sure it is."""
    if number.estimate is None:
        return {}
    return told(interval(number.estimate), benchmark, clustered=number.estimate.clustered)


def _place(group: GroupScore) -> tuple[str, str, str]:
    return group.grouping, group.name, group.metric


def _places(benchmark: Benchmark, tasks: Iterable[str]) -> dict[str, int]:
    """Each task's place in the paper, not among the tasks of a run: runs of different tasks share the paper's table."""
    return {task: place for place, task in enumerate(dict.fromkeys([*benchmark.known_tasks, *tasks]))}


def in_order(benchmark: Benchmark, tasks: Iterable[str]) -> list[str]:
    """The tasks as the paper orders them; those it does not know (needle's) by name, after the others."""
    known = {task: place for place, task in enumerate(benchmark.known_tasks)}
    return sorted(tasks, key=lambda task: (known.get(task, len(known)), task))
