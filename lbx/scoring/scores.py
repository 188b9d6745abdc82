"""Scoring of outputs: during a run, at its end, and again later from stored outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lbx.base.records import Sample, SampleKey, Score
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.scoring.adding_up import add_up, in_order, recompute_completed_samples
from lbx.scoring.scoring_pool import ScoringInput, ScoringPool
from lbx.scoring.similarity import Similarities
from lbx.store import ScoreRow, Store
from lbx.store.rows import stored_sample
from lbx.store.runs import set_metric_version

ScoringProgress = Callable[[int, int], None]
"""Called with the number of scored outputs and their total."""


def score_rows(run_id: str, key: SampleKey, benchmark: Benchmark, scores: Sequence[Score]) -> list[ScoreRow]:
    """Convert one output's scores to rows; the first metric is the headline."""
    return [
        ScoreRow(
            run_id, *key, score.metric, benchmark.metric_version, score.score, score.extracted,
            headline=position == 0, error=score.error, partial=score.partial,
        )
        for position, score in enumerate(scores)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rescoring:
    """Options of ``rescore``.

    Attributes:
        run_ids: runs to score; all if empty.
        similarities: source of similarities for metrics that need an embedding model.
        workers: number of processes; 0 for one per usable core.
    """

    benchmarks: Mapping[str, Benchmark]
    run_ids: Sequence[str] = ()
    similarities: Similarities | None = None
    workers: int = 0


def rescore(
    store: Store,
    rescoring: Rescoring,
    progress: ScoringProgress = lambda _done, _total: None,
    warn: Callable[[str], None] = lambda _: None,
) -> int:
    """Score stored outputs with the current metrics, replacing earlier scores.

    Scores are committed task by task, so that an interrupted call loses only one task; the next reader computes its
    numbers.

    Args:
        warn: called with a sentence for each task that its benchmark does not have.

    Returns:
        Number of scored outputs.
    """
    placeholders = ", ".join("?" for _ in rescoring.run_ids)
    # Answers for a judge are to questions that metrics score too, but officially they are never scored by a metric.
    judge_runs = "SELECT run_id FROM runs WHERE json_extract(settings, '$.judged') = 'true'"
    run_condition = f"AND run_id IN ({placeholders})" if rescoring.run_ids else ""
    counts = {
        (run_id, name, task): count
        for run_id, name, task, count in store.query(
            f"SELECT run_id, benchmark, task, count(*) FROM generations WHERE error IS NULL {run_condition} "  # noqa: S608
            f"AND run_id NOT IN ({judge_runs}) GROUP BY ALL",
            list(rescoring.run_ids),
        ).rows
        if name in rescoring.benchmarks
    }
    for run, name, task in [key for key in counts if not rescoring.benchmarks[key[1]].catalogue.has_task(key[2])]:
        outputs = counts.pop((run, name, task))
        warn(f"{name}/{task}: {name} does not have this task, so its {outputs:,} outputs are not scored.")
    done, total = 0, sum(counts.values())
    progress(done, total)
    with ScoringPool(total, rescoring.workers) as pool:
        for run_id, name in sorted({key[:2] for key in counts}):
            benchmark = rescoring.benchmarks[name]
            family = _Family(benchmark, store, run_id, rescoring.similarities, pool)
            for task in in_order(family.benchmark, (task for *run, task in counts if run == [run_id, name])):
                for count in family.rescore(task):
                    done += count
                    progress(done, total)
            set_metric_version(store, run_id, name, benchmark.metric_version)
            add_up(store, run_id, benchmark)
    recompute_completed_samples(store, rescoring.benchmarks)
    return done


@dataclass(frozen=True, slots=True)
class _Family:
    """One run's outputs of one benchmark during rescoring."""

    benchmark: Benchmark
    store: Store
    run_id: str
    similarities: Similarities | None
    pool: ScoringPool

    def rescore(self, task: str) -> Iterator[int]:
        """Score one task's outputs; yields the number of newly scored outputs, and commits all scores at the end."""
        benchmark = self.benchmark
        rows = list(self.store.samples(self.run_id, benchmark.name, task))
        samples = [stored_sample(benchmark.name, task, row) for row in rows]
        outputs = [row["output"] or "" for row in rows]
        inputs = [
            ScoringInput(*three) for three in zip(samples, outputs, self._similarities(samples, outputs), strict=True)
        ]
        new_rows: list[ScoreRow] = []
        done = 0
        for part in self.pool.score(benchmark, inputs):
            for scores in part:
                key = SampleKey(benchmark.name, task, samples[done].sample_id, rows[done]["iteration"])
                new_rows += score_rows(self.run_id, key, benchmark, scores)
                done += 1
            yield len(part)
        self.store.replace_scores(new_rows)

    def _similarities(self, samples: Sequence[Sample], outputs: Sequence[str]) -> Sequence[float | None]:
        if self.similarities is None:
            return [None] * len(samples)
        compared = [
            self.benchmark.similarity_input(sample, output) for sample, output in zip(samples, outputs, strict=True)
        ]
        return self.similarities.compute(self.store, compared)
