"""The run: every sample asked once, every answer scored and committed, whatever happens in between."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from lbx.benchmarks.base import Benchmark
from lbx.engine.asking import Question, again, answer_all, prepare
from lbx.engine.scoring import add_up, catch_up, score_rows
from lbx.engine.work import Work
from lbx.records import Sample, SampleKey, Task
from lbx.store import GenerationRow, SampleRow, ScoreRow, Store, uninterrupted

BATCH_ROWS = 64
BATCH_SECONDS = 5.0
LOOKAHEAD_TOKENS = 2_000_000
LOOKAHEAD_QUESTIONS = 512
"""How many prompts, and tokens of them, are held to find out what they share; in the data, questions on one document
follow each other. A token takes some 36 bytes here."""


@dataclass(slots=True)
class Outcome:
    """What a run did.

    Attributes:
        answered, failed: now.
        unclosed: of those answered, how many spent their whole budget on reasoning.
        found: done by an earlier call.
        failures: how many the results file holds of this run.
    """

    answered: int = 0
    failed: int = 0
    unclosed: int = 0
    found: int = 0
    failures: int = 0


class Listener(Protocol):
    """Who watches a run: a progress bar, a log, nobody."""

    def task(self, task: Task, samples: int) -> None:
        """A task begins; samples counts its iterations too."""

    def sample(self, row: GenerationRow | None) -> None:
        """A sample is over; None for one that an earlier run has done."""


class _Batch:
    """Rows on their way to the file: committed when there are enough of them or they have waited long enough."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._samples: list[SampleRow] = []
        self._generations: list[GenerationRow] = []
        self._scores: list[ScoreRow] = []
        self._since = time.monotonic()

    def add(self, sample: SampleRow, generation: GenerationRow, scores: Sequence[ScoreRow]) -> None:
        self._samples.append(sample)
        self._generations.append(generation)
        self._scores += scores
        if len(self._generations) >= BATCH_ROWS or time.monotonic() - self._since >= BATCH_SECONDS:
            self.flush()

    def flush(self) -> None:
        if self._generations:
            self._store.write(samples=self._samples, generations=self._generations, scores=self._scores)
        self._samples, self._generations, self._scores = [], [], []
        self._since = time.monotonic()


@dataclass(slots=True)
class Runner:
    """Runs one piece of work into one results file.

    Args:
        done: what ``Store.begin_run`` returned.
    """

    work: Work
    store: Store
    done: set[SampleKey]
    listener: Listener
    outcome: Outcome = field(default_factory=Outcome)

    def run(self) -> Outcome:
        """Ask what is not done yet. Whatever ends it, all answers so far are committed and the tasks added up.

        Raises:
            StoreError: the results file cannot be written.
            BundleError: a data file is damaged.
            KeyboardInterrupt: passed on, after everything is safe.
        """
        status = "failed"
        batch = _Batch(self.store)
        names = dict.fromkeys(task.benchmark for task in self.work.tasks)
        try:
            for name in names if self.done else ():
                catch_up(self.store, self.work.run_id, self.work.benchmarks[name])
            for task in self.work.tasks:
                self._run_task(task, batch)
            status = "done"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            with uninterrupted():
                batch.flush()
                for name in names:
                    add_up(self.store, self.work.run_id, self.work.benchmarks[name])
                self.store.finish_run(self.work.run_id, status)
        failures = self.store.query("SELECT count(*) FROM failures WHERE run_id = ?", [self.work.run_id])
        self.outcome.failures = failures.rows[0][0]
        return self.outcome

    def _run_task(self, task: Task, batch: _Batch) -> None:
        benchmark = self.work.benchmarks[task.benchmark]
        self.listener.task(task, self.work.samples_in(task) * self.work.iterations_of(task))
        waiting: list[Question] = []
        tokens = 0
        for position, sample in self._samples(benchmark, task):
            question: Question | GenerationRow | None = None
            for iteration in range(self.work.iterations_of(task)):
                if sample.key._replace(iteration=iteration) in self.done:
                    self.outcome.found += 1
                    self.listener.sample(None)
                    continue
                if isinstance(question, Question):
                    question = again(self.work, question, iteration)
                else:
                    question = prepare(self.work, benchmark, sample, position, iteration)
                if isinstance(question, GenerationRow):
                    self._keep(batch, benchmark, sample, position, question)
                    continue
                waiting.append(question)
                tokens += len(question.request.token_ids)
                if tokens >= LOOKAHEAD_TOKENS or len(waiting) >= LOOKAHEAD_QUESTIONS:
                    self._answer(batch, waiting)
                    waiting, tokens = [], 0
        self._answer(batch, waiting)

    def _samples(self, benchmark: Benchmark, task: Task) -> Iterator[tuple[int, Sample]]:
        return enumerate(islice(benchmark.samples(self.work.bundle, task.name), self.work.limit))

    def _answer(self, batch: _Batch, questions: Sequence[Question]) -> None:
        for question, row in answer_all(self.work, questions):
            self._keep(batch, question.benchmark, question.sample, question.position, row)

    def _keep(
        self, batch: _Batch, benchmark: Benchmark, sample: Sample, position: int, generation: GenerationRow
    ) -> None:
        """Score an answer and put it on its way to the file."""
        scores: list[ScoreRow] = []
        if generation.error is not None:
            self.outcome.failed += 1
        else:
            self.outcome.answered += 1
            self.outcome.unclosed += generation.reasoning_closed is False
            key = sample.key._replace(iteration=generation.iteration)
            scores = score_rows(self.work.run_id, key, benchmark, benchmark.score(sample, generation.output or ""))
        batch.add(SampleRow(sample, position), generation, scores)
        self.listener.sample(generation)
