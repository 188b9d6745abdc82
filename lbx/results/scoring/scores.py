"""Scoring of outputs: during a run, at its end, and again later from stored outputs.

Metrics are pure functions, so outputs are distributed over processes on all cores. Similarities, which some metrics
need, come from an embedding model. Each text is embedded once, and the vector is stored in the results file.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import parent_process
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from lbx.base.errors import LbxError, UsageError
from lbx.base.limits import WORKERS
from lbx.base.processes import defer_signals, worker_pool
from lbx.base.records import Sample, SampleKey, Score, SimilarityInput, sha256_text
from lbx.base.resources import usable_cpu_count
from lbx.base.visible import as_command
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.results import ScoreRow, Store
from lbx.results.file.caches import EmbeddedText, embedding_models, find_vectors, store_vectors
from lbx.results.read.runs import set_metric_version
from lbx.results.rows import stored_sample
from lbx.results.scoring.aggregation import aggregate_scores, recompute_completed_samples, sort_tasks

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from lbx.backends.embedding import Embedder


FEWEST = 256
"""Number of outputs below which starting processes takes longer than scoring in this process."""

_CHUNK = 24
_PRELOADED = ["lbx.benchmarks.registry", "lbx.results.scoring.scores"]


class ScoringInput(NamedTuple):
    """Arguments of a call of ``Benchmark.score``."""

    sample: Sample
    output: str
    similarity: float | None = None


class ScoringPool:
    """Pool of scoring processes. Few outputs are scored in the current process.

    Args:
        outputs: total number of outputs.
        processes: maximum number of processes, or None for a process per usable CPU.

    Raises:
        UsageError: ``processes`` is above the limit.
    """

    def __init__(self, outputs: int, processes: int | None = None) -> None:
        if processes is not None and not 1 <= processes <= WORKERS:
            raise UsageError(f"--processes must be from 1 to {WORKERS:,}, not {processes:,}.")
        processes = min(processes or usable_cpu_count(), outputs // _CHUNK + 1)
        self._processes = processes if outputs >= FEWEST else 1
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._processes > 1:
            self._executor = worker_pool(self._processes, preload=_PRELOADED, initializer=_initialize_worker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=kind is None, cancel_futures=True)

    def score(self, benchmark: Benchmark, answers: Sequence[ScoringInput]) -> Iterator[list[list[Score]]]:
        """Yield the scores of all answers in order, in chunks.

        Raises:
            LbxError: a process was killed, by the system for lack of memory or by a person.
        """
        parts = [answers[start : start + _CHUNK] for start in range(0, len(answers), _CHUNK)]
        if self._executor is None:
            for part in parts:
                yield _score(benchmark, part)
            return
        try:
            # An executor that a signal interrupts while it starts its processes waits for them forever at exit.
            with defer_signals(), _no_main_module():
                futures: list[Future[list[list[Score]]]] = [
                    self._executor.submit(_score, benchmark, part) for part in parts
                ]
            for future in futures:
                yield future.result()
        except BrokenProcessPool as exc:
            raise LbxError(
                f"One of the {self._processes} scoring processes was killed, perhaps because memory ran out. Tasks "
                "scored before that keep their new scores.",
                fix="Score again, with fewer processes if memory is short: lbx score RESULTS --processes 1.",
            ) from exc


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Prevent new processes from importing the caller's main module.

    Scoring does not need the module. Importing it takes time, and would run a script without a main guard again.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _initialize_worker() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal; the parent decides


def _end_with_parent() -> None:
    """Exit when the parent is killed. A waiting worker cannot notice it otherwise: both ends of the queue are open."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _score(benchmark: Benchmark, answers: Sequence[ScoringInput]) -> list[list[Score]]:
    return [benchmark.score(answer.sample, answer.output, similarity=answer.similarity) for answer in answers]


_BATCH = 256


class Similarities:
    """Computation of the maximum cosine similarity between a text and its references.

    Args:
        embedder: embedding model, or None to use only stored vectors.
        model: without an embedder, name of the model of stored vectors, or None for the only model with vectors of
            any of the answers.
        progress: called with the number of embedded texts and their total.
    """

    def __init__(
        self,
        embedder: Embedder | None = None,
        *,
        model: str | None = None,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        self._embedder = embedder
        self._model = embedder_identity(embedder) if embedder else model
        self._progress = progress

    def compute(self, store: Store, comparisons: Sequence[SimilarityInput | None]) -> list[float | None]:
        """Compute a float32 cosine for each of ``comparisons``, or None if a vector is missing.

        Texts without a stored vector are embedded and stored first. Each batch is committed.

        Raises:
            UsageError: the file contains vectors of several models, and no model was chosen.
            BackendError: the embedding model failed.
        """
        texts = {
            sha256_text(text): text
            for comparison in comparisons
            if comparison is not None
            for text in (comparison.text, *comparison.references)
        }
        model = self._model or (
            _only_model(store, [comparison.text for comparison in comparisons if comparison is not None])
            if texts
            else None
        )
        if not texts or model is None:
            return [None] * len(comparisons)
        vector_of = {key: np.frombuffer(value, "<f4") for key, value in find_vectors(store, model, list(texts)).items()}
        vector_of |= self._embed(store, model, {key: text for key, text in texts.items() if key not in vector_of})
        return [None if comparison is None else _largest_cosine(comparison, vector_of) for comparison in comparisons]

    def _embed(self, store: Store, model: str, missing: dict[str, str]) -> dict[str, np.ndarray]:
        if self._embedder is None:
            return {}
        new_vectors: dict[str, np.ndarray] = {}
        # By length, like the embedder's batches: texts of equal length need no padding.
        keys = sorted(missing, key=lambda key: len(missing[key]))
        for start in range(0, len(keys), _BATCH):
            part = keys[start : start + _BATCH]
            rows = self._embedder.embed([missing[key] for key in part]).astype("<f4")
            new_vectors |= dict(zip(part, rows, strict=True))
            store_vectors(store, [EmbeddedText(model, key, new_vectors[key].tobytes()) for key in part])
            self._progress(len(new_vectors), len(keys))
        return new_vectors


def embedder_identity(embedder: Embedder) -> str:
    """Return the name of an embedding model for results files. Models with equal names give equal vectors."""
    return f"{embedder.info.name}/{embedder.info.fingerprint[:12]}"


def _only_model(store: Store, texts: Sequence[str]) -> str | None:
    """Find the model that embedded the answers. References may also belong to other runs."""
    models = embedding_models(store, list(map(sha256_text, texts)))
    if len(models) > 1:
        raise UsageError(
            f"{store.path} has embeddings from several models: {', '.join(models)}.",
            fix="Choose one with --embedding: pass its card or one of these names.",
            command=as_command("lbx", "score", store.path, "--embedding", "NAME"),
        )
    return models[0] if models else None


def _largest_cosine(comparison: SimilarityInput, vector_of: dict[str, np.ndarray]) -> float | None:
    vector = vector_of.get(sha256_text(comparison.text))
    reference_vectors = [vector_of.get(sha256_text(reference)) for reference in comparison.references]
    if vector is None or not reference_vectors or any(other is None for other in reference_vectors):
        return None
    return max(float(np.float32(other @ vector)) for other in reference_vectors if other is not None)


ScoringProgress = Callable[[int, int], None]
"""Called with the number of scored outputs and their total."""


def score_rows(run_id: str, key: SampleKey, benchmark: Benchmark, scores: Sequence[Score]) -> list[ScoreRow]:
    """Convert the scores of an output to rows. The first metric is the headline."""
    return [
        ScoreRow(
            run_id, *key, score.metric, benchmark.metric_version, score.score, score.extracted,
            headline=position == 0, error=score.error, partial=score.partial, loose=score.loose,
        )
        for position, score in enumerate(scores)
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rescoring:
    """Options of ``rescore``.

    Attributes:
        run_ids: runs to score, or () for all.
        similarities: similarities for metrics that need an embedding model.
        processes: maximum number of processes, or None for a process per usable CPU.
    """

    benchmarks: Mapping[str, Benchmark]
    run_ids: Sequence[str] = ()
    similarities: Similarities | None = None
    processes: int | None = None


def rescore(
    store: Store,
    rescoring: Rescoring,
    progress: ScoringProgress = lambda _done, _total: None,
    warn: Callable[[str], None] = lambda _: None,
) -> int:
    """Score stored outputs with the current metrics, replacing earlier scores.

    Scores are committed task by task, so that an interrupted call loses only one task. Missing numbers are computed
    when the file is next read.

    Args:
        warn: called with a sentence for each task that its benchmark does not contain.

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
            f"SELECT run_id, benchmark, task, count(*) FROM generations WHERE error IS NULL {run_condition} "
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
    with ScoringPool(total, rescoring.processes) as pool:
        for run_id, name in sorted({key[:2] for key in counts}):
            benchmark = rescoring.benchmarks[name]
            family = _Family(benchmark, store, run_id, rescoring.similarities, pool)
            for task in sort_tasks(family.benchmark, (task for *run, task in counts if run == [run_id, name])):
                for count in family.rescore(task):
                    done += count
                    progress(done, total)
            set_metric_version(store, run_id, name, benchmark.metric_version)
            aggregate_scores(store, run_id, benchmark)
    recompute_completed_samples(store, rescoring.benchmarks)
    return done


@dataclass(frozen=True, slots=True)
class _Family:
    """Outputs of a run for a benchmark, during rescoring."""

    benchmark: Benchmark
    store: Store
    run_id: str
    similarities: Similarities | None
    pool: ScoringPool

    def rescore(self, task: str) -> Iterator[int]:
        """Score the outputs of a task, yield the numbers of newly scored outputs, and commit all scores at the end."""
        benchmark = self.benchmark
        rows = list(self.store.samples(self.run_id, benchmark.name, task))
        samples = [stored_sample(benchmark.name, task, row) for row in rows]
        outputs = [row["output"] or "" for row in rows]
        inputs = [
            ScoringInput(*values) for values in zip(samples, outputs, self._similarities(samples, outputs), strict=True)
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
