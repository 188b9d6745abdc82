"""The run: every sample asked once, every answer scored and committed, whatever happens in between.

One process writes. Who asks is another matter: this process, or several others (``lbx.running.answering``).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from lbx.base.interrupts import uninterrupted
from lbx.base.records import SampleKey, encodable
from lbx.running.answering import Asker
from lbx.running.watching import Watch
from lbx.scoring.adding_up import add_up, add_up_completed
from lbx.scoring.scores import score_rows
from lbx.spec.jobs import Agenda, JobSize, PendingSample, make_jobs
from lbx.store import GenerationRow, SampleRow, ScoreRow, Store

BATCH_ROWS = 64
_MARK = re.compile(r"\s*([<\[][^<>\[\]\s]{0,20}(?:think|thought|reason)[^<>\[\]\s]{0,20}[>\]])", re.IGNORECASE)
BATCH_SECONDS = 2.0
"""How long an answer may wait for others to be committed with it."""


@dataclass(slots=True)
class Outcome:
    """What a run did.

    Attributes:
        answered, failed: now.
        reasoned: of those answered, how many show or count reasoning.
        unclosed: of those answered, how many spent their whole budget on reasoning.
        empty: of the others answered, how many hold no text.
        only_reasoning: how many of the empty ones hold reasoning.
        marks: of those answered, how many begin with a mark of reasoning that was not taken for one, by the mark.
        unextracted: of those answered, in how many the headline's metric found no answer.
        found: done by an earlier call.
        failures: how many the results file holds of this run.
        samples: of the tasks that were asked, those that have an answer in the results file.
        bundle_samples: all that the bundle has of these tasks.
        prompt_tokens, output_tokens: of those answered.
        computed_tokens: of prompts and answers, what went through the model: shared prefixes once.
    """

    answered: int = 0
    failed: int = 0
    reasoned: int = 0
    unclosed: int = 0
    empty: int = 0
    only_reasoning: int = 0
    marks: dict[str, int] = field(default_factory=dict)
    unextracted: int = 0
    found: int = 0
    failures: int = 0
    samples: int = 0
    bundle_samples: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    computed_tokens: int = 0

    def count(self, row: GenerationRow) -> None:
        if row.error is not None:
            self.failed += 1
            return
        self.answered += 1
        self.reasoned += row.reasoning_closed is not None or bool(row.reasoning_tokens)
        self.unclosed += row.reasoning_closed is False
        if row.reasoning_closed is not False and not (row.output or "").strip():
            self.empty += 1
            self.only_reasoning += bool(row.reasoning)
        if mark := _MARK.match(row.output or ""):
            self.marks[mark[1]] = self.marks.get(mark[1], 0) + 1
        self.prompt_tokens += row.prompt_tokens or 0
        self.output_tokens += row.output_tokens or 0
        self.computed_tokens += (row.prompt_tokens or 0) - (row.cached_tokens or 0) + (row.output_tokens or 0)


@contextmanager
def closing(store: Store, run_ids: Sequence[str]) -> Iterator[None]:
    """Store in the runs' rows how the block ended: "done", "interrupted" or "failed"."""
    status = "failed"
    try:
        yield
        status = "done"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        with uninterrupted():
            for run_id in run_ids:
                store.finish_run(run_id, status)


class _CommitBuffer:
    """Rows on their way to the file: committed when there are enough of them or they have waited long enough.

    A thread of its own watches the clock, for the next answer may take hours. While a batch is open nobody else uses
    the store. Use it as a context manager; its end commits what is left.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._samples: list[SampleRow] = []
        self._generations: list[GenerationRow] = []
        self._scores: list[ScoreRow] = []
        self._changed = threading.Condition()
        self._open = True
        self._problem: Exception | None = None
        self._clock = threading.Thread(target=self._keep_time, name="lbx-commits", daemon=True)

    def __enter__(self) -> Self:
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        with uninterrupted():
            with self._changed:
                self._open = False
                self._changed.notify()
            self._clock.join()
            self._flush()

    def add(self, sample: SampleRow, generation: GenerationRow, scores: Sequence[ScoreRow]) -> None:
        """Add an answer. Raises the error of a commit since the last call."""
        with self._changed:
            self._samples.append(sample)
            self._generations.append(generation)
            self._scores += scores
            if self._problem:
                raise self._problem
            if len(self._generations) >= BATCH_ROWS:
                self._flush()
            self._changed.notify()

    def _keep_time(self) -> None:
        with self._changed:
            while self._open and not self._problem:
                self._changed.wait_for(lambda: self._generations or not self._open)
                # Answers that come close together are one commit: it begins when the first of them has waited.
                if not self._changed.wait_for(lambda: not self._open, BATCH_SECONDS):
                    try:
                        self._flush()
                    except Exception as exc:  # the thread that asks is told, and what is left is tried again at the end
                        self._problem = exc

    def _flush(self) -> None:
        if self._generations:
            self._store.write(samples=self._samples, generations=self._generations, scores=self._scores)
        self._samples, self._generations, self._scores = [], [], []


@dataclass(slots=True)
class Runner:
    """Runs what agendas hold into one results file.

    Args:
        run_ids: the names that the runs have in this file.
        agendas: of runs that are made together: the same tasks of the same bundle, each asked in its own way.
        done: for each what ``Store.begin_run`` returned.
        size: of the jobs that the asker is given.
    """

    run_ids: Sequence[str]
    agendas: Sequence[Agenda]
    store: Store
    done: Sequence[AbstractSet[SampleKey]]
    watch: Watch
    asker: Asker
    size: JobSize = field(default_factory=JobSize)
    outcomes: list[Outcome] = field(init=False)

    def __post_init__(self) -> None:
        self.outcomes = [Outcome() for _ in self.agendas]

    def run(self) -> list[Outcome]:
        """Ask what is not done yet. Whatever ends it, all answers so far are committed and the tasks added up.

        Returns:
            What each of the runs did.

        Raises:
            StoreError: the results file cannot be written.
            BundleError: a data file is damaged.
            BackendError, EndpointError: nothing more can be asked.
            KeyboardInterrupt: passed on, after everything is safe.
        """
        benchmarks = self.agendas[0].benchmarks
        names = dict.fromkeys(task.benchmark for task in self.agendas[0].tasks)
        try:
            jobs = make_jobs(self.agendas, self.done, self.size, self._found)
            with _CommitBuffer(self.store) as batch:
                for item, row in self.asker.ask(jobs, self.watch.computed):
                    self._keep(batch, item, row)
        finally:
            with uninterrupted():
                for run_id in self.run_ids:
                    for name in dict.fromkeys([*names, *self._not_added_up(run_id)]):
                        if name in benchmarks:
                            add_up(self.store, run_id, benchmarks[name])
                add_up_completed(self.store, benchmarks)
        for run_id, outcome in zip(self.run_ids, self.outcomes, strict=True):
            self._look_back(run_id, outcome)
        return self.outcomes

    def _not_added_up(self, run_id: str) -> list[str]:
        """Other benchmarks of a run that a kill has left without their numbers."""
        answered = self.store.query(
            "SELECT DISTINCT benchmark FROM scores ANTI JOIN benchmark_results USING (run_id, benchmark) "
            "WHERE run_id = ? ORDER BY ALL",
            [run_id],
        )
        return [name for (name,) in answered.rows]

    def _look_back(self, run_id: str, outcome: Outcome) -> None:
        """Count failures and answered samples in the results file."""
        failures = self.store.query("SELECT count(*) FROM failures WHERE run_id = ?", [run_id])
        outcome.failures = failures.rows[0][0]
        stored = {
            f"{benchmark}/{task}": samples
            for benchmark, task, samples in self.store.query(
                "SELECT benchmark, task, count(DISTINCT sample_id) FROM generations WHERE run_id = ? AND error IS NULL "
                "GROUP BY ALL",
                [run_id],
            ).rows
        }
        tasks = self.agendas[0].tasks
        outcome.samples = sum(stored.get(task.full_name, 0) for task in tasks)
        outcome.bundle_samples = sum(task.samples for task in tasks)

    def _found(self, run: int) -> None:
        self.outcomes[run].found += 1
        self.watch.sample(None)

    def _keep(self, batch: _CommitBuffer, item: PendingSample, generation: GenerationRow) -> None:
        """Score an answer and hand it to the commit buffer."""
        run_id, outcome, sample = self.run_ids[item.run], self.outcomes[item.run], item.sample
        generation = replace(generation, run_id=run_id)  # who answered may not know its name in this file
        benchmark = self.agendas[item.run].benchmarks[sample.benchmark]
        outcome.count(generation)
        scores: list[ScoreRow] = []
        if generation.error is None:
            key = sample.key._replace(iteration=generation.iteration)
            # Score what the file will hold: it has no half of a surrogate pair, and `lbx score` reads it later.
            stored = replace(sample, references=tuple(map(encodable, sample.references)))
            scored = benchmark.score(stored, encodable(generation.output or ""))
            scores = score_rows(run_id, key, benchmark, scored)
            outcome.unextracted += any(score.headline and score.extracted == "" for score in scores)
        batch.add(SampleRow(sample, item.position), generation, scores)
        self.watch.sample(generation)
