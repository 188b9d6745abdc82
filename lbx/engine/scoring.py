"""Scores from outputs: while a run goes on, at its end, and again later from what is stored."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lbx.benchmarks.base import Benchmark
from lbx.engine.scoring_pool import ScoringInput, ScoringPool
from lbx.engine.similarity import Similarities
from lbx.records import GroupScore, Sample, SampleKey, Score, ScoredSample
from lbx.store import GroupRow, ResultRow, ScoreRow, Store
from lbx.store.rows import stored_sample

Progress = Callable[[int, int], None]
"""Called with how many outputs are scored, and of how many."""


def score_rows(run_id: str, key: SampleKey, benchmark: Benchmark, scores: Sequence[Score]) -> list[ScoreRow]:
    """One output's scores as rows; the first metric is the headline."""
    return [
        ScoreRow(
            run_id, *key, score.metric, benchmark.metric_version, score.score, score.extracted,
            headline=position == 0, error=score.error, partial=score.partial,
        )
        for position, score in enumerate(scores)
    ]  # fmt: skip


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
    tasks: dict[str, list[ScoredSample]] = {}
    for task in _in_order(benchmark, {task for task, _, _ in scores}):
        for row in store.samples(run_id, benchmark.name, task):
            key = (task, row["sample_id"], row["iteration"])
            if key in scores:
                sample = stored_sample(benchmark.name, task, row)
                tasks.setdefault(task, []).append(ScoredSample(sample, scores[key], row["iteration"], key in partial))
    places = _places(benchmark, tasks)
    known = _bundle_samples(store, run_id, benchmark.name)
    results = [
        row
        for task, rows in tasks.items()
        for row in _result_rows(run_id, benchmark, task, rows, places[task], whole=_whole(rows, known.get(task)))
    ]
    store.write_results(results, _group_rows(run_id, benchmark, tasks, known))


def _bundle_samples(store: Store, run_id: str, benchmark: str) -> dict[str, int]:
    """{task: its samples in the bundle}, where the file knows."""
    ((text,),) = store.query("SELECT task_samples FROM runs WHERE run_id = ?", [run_id]).rows
    counts: dict[str, int] = json.loads(text or "{}")
    return {task.removeprefix(f"{benchmark}/"): count for task, count in counts.items()}


def _whole(rows: Sequence[ScoredSample], samples: int | None) -> bool:
    """Whether every sample of the task has a score, as often as any of them; an unknown number counts as all."""
    return samples is None or len(rows) >= samples * (1 + max(row.iteration for row in rows))


def _result_rows(
    run_id: str, benchmark: Benchmark, task: str, rows: Sequence[ScoredSample], place: int, *, whole: bool
) -> list[ResultRow]:
    """A task's numbers; over a part of its samples none of them is official."""
    return [
        ResultRow(
            run_id, benchmark.name, task, result.metric, benchmark.metric_version, result.n, result.score,
            result.official if whole else None, headline=position == 0, position=position,
            partial=result.partial or not whole, task_position=place,
        )
        for position, result in enumerate(benchmark.aggregate(task, rows))
    ]  # fmt: skip


def _group_rows(
    run_id: str, benchmark: Benchmark, tasks: Mapping[str, Sequence[ScoredSample]], known: Mapping[str, int]
) -> list[GroupRow]:
    """Numbers over tasks. Those that a task without all of its samples has a part in are not official."""
    groups = benchmark.groups(tasks) if tasks else []
    whole = {task: rows for task, rows in tasks.items() if _whole(rows, known.get(task))}
    if len(whole) < len(tasks):
        sure = {_place(group): group.n for group in (benchmark.groups(whole) if whole else ())}
        groups = [
            group if sure.get(_place(group)) == group.n else replace(group, official=None, partial=True)
            for group in groups
        ]
    return [
        GroupRow(
            run_id, benchmark.name, group.grouping, group.name, group.metric, benchmark.metric_version, group.n,
            group.score, group.official, group.partial, position,
        )
        for position, group in enumerate(groups)
    ]  # fmt: skip


def _place(group: GroupScore) -> tuple[str, str, str]:
    return group.grouping, group.name, group.metric


def _places(benchmark: Benchmark, tasks: Iterable[str]) -> dict[str, int]:
    """Each task's place in the paper, not among the tasks of a run: runs of different tasks share the paper's table."""
    return {task: place for place, task in enumerate(dict.fromkeys([*benchmark.known_tasks, *tasks]))}


def _in_order(benchmark: Benchmark, tasks: Iterable[str]) -> list[str]:
    """The tasks as the paper orders them; those it does not know (needle's) by name, after the others."""
    known = {task: place for place, task in enumerate(benchmark.known_tasks)}
    return sorted(tasks, key=lambda task: (known.get(task, len(known)), task))


@dataclass(frozen=True, slots=True)
class Rescoring:
    """What ``rescore`` scores, and with what.

    Attributes:
        run_ids: only these runs; all without any.
        similarities: finds likenesses for metrics that need an embedding model.
        workers: processes; 0 means one for each core that this process may use.
    """

    benchmarks: Mapping[str, Benchmark]
    run_ids: Sequence[str] = ()
    similarities: Similarities | None = None
    workers: int = 0


def rescore(store: Store, wanted: Rescoring, progress: Progress = lambda _done, _total: None) -> int:
    """Score stored outputs with today's metrics, beside the older versions' scores.

    Each task's scores and numbers are committed as soon as it is done, so that an interrupted call loses only one
    task, and the numbers over several.

    Returns:
        How many outputs were scored.
    """
    marks = ", ".join("?" for _ in wanted.run_ids)
    chosen = f"AND run_id IN ({marks})" if wanted.run_ids else ""
    counts = {
        (run_id, name, task): count
        for run_id, name, task, count in store.query(
            f"SELECT run_id, benchmark, task, count(*) FROM generations WHERE error IS NULL {chosen} GROUP BY ALL",  # noqa: S608
            list(wanted.run_ids),
        ).rows
        if name in wanted.benchmarks
    }
    done, total = 0, sum(counts.values())
    progress(done, total)
    with ScoringPool(total, wanted.workers) as pool:
        for run_id, name in sorted({key[:2] for key in counts}):
            known = _bundle_samples(store, run_id, name)
            family = _Family(store, run_id, wanted.benchmarks[name], wanted.similarities, pool, known)
            tasks = _in_order(family.benchmark, (task for *run, task in counts if run == [run_id, name]))
            places = _places(family.benchmark, tasks)
            for task in tasks:
                for count in family.rescore(task, places[task]):
                    done += count
                    progress(done, total)
            store.write_results((), _group_rows(run_id, family.benchmark, family.tasks, family.known))
    return done


def catch_up(store: Store, run_id: str, benchmark: Benchmark) -> None:
    """Score a run's earlier answers where an older lbx has: a task's numbers are made of one metric version."""
    behind = dict(
        store.query(
            """
            SELECT g.task, count(*) FROM generations g
            ANTI JOIN (SELECT * FROM scores WHERE metric_version = ?) s
                USING (run_id, benchmark, task, sample_id, iteration)
            WHERE g.run_id = ? AND g.benchmark = ? AND g.error IS NULL GROUP BY ALL
            """,
            [benchmark.metric_version, run_id, benchmark.name],
        ).rows
    )
    if not behind:
        return
    with ScoringPool(sum(behind.values())) as pool:
        family = _Family(store, run_id, benchmark, None, pool, _bundle_samples(store, run_id, benchmark.name))
        for task, place in _places(benchmark, behind).items():
            if task in behind:
                deque(family.rescore(task, place), maxlen=0)
    add_up(store, run_id, benchmark)


@dataclass(frozen=True, slots=True)
class _Family:
    """One run's outputs of one benchmark, while they are scored again; ``tasks`` grows by what has been.

    ``known`` are the numbers of samples that the bundle has of its tasks.
    """

    store: Store
    run_id: str
    benchmark: Benchmark
    similarities: Similarities | None
    pool: ScoringPool
    known: Mapping[str, int]
    tasks: dict[str, list[ScoredSample]] = field(default_factory=dict)

    def rescore(self, task: str, place: int) -> Iterator[int]:
        """Score one task's outputs; yields how many more are scored, and commits scores and numbers at the end."""
        benchmark = self.benchmark
        rows = list(self.store.samples(self.run_id, benchmark.name, task))
        samples = [stored_sample(benchmark.name, task, row) for row in rows]
        outputs = [row["output"] or "" for row in rows]
        answers = [
            ScoringInput(*three) for three in zip(samples, outputs, self._likenesses(samples, outputs), strict=True)
        ]
        made: list[ScoreRow] = []
        scored: list[ScoredSample] = []
        for part in self.pool.score(benchmark, answers):
            for scores in part:
                sample, iteration = samples[len(scored)], rows[len(scored)]["iteration"]
                key = SampleKey(benchmark.name, task, sample.sample_id, iteration)
                made += score_rows(self.run_id, key, benchmark, scores)
                values = {score.metric: score.score for score in scores}
                scored.append(ScoredSample(sample, values, iteration, any(score.partial for score in scores)))
            yield len(part)
        self.store.replace_scores(made)
        if with_scores := [row for row in scored if row.scores]:
            self.tasks[task] = with_scores
            whole = _whole(with_scores, self.known.get(task))
            self.store.write_results(_result_rows(self.run_id, benchmark, task, with_scores, place, whole=whole))

    def _likenesses(self, samples: Sequence[Sample], outputs: Sequence[str]) -> Sequence[float | None]:
        if self.similarities is None:
            return [None] * len(samples)
        compared = [self.benchmark.compared(sample, output) for sample, output in zip(samples, outputs, strict=True)]
        return self.similarities.of(self.store, compared)
