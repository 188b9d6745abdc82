"""Loop of a run: ask every sample once, then score and commit every answer, even if the run is interrupted.

Only this process writes; the model may run in this process or in several others (``lbx.running.answering``).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from lbx.base.marks import OUTDATED, UNFINISHED
from lbx.base.processes import defer_signals, is_interruption
from lbx.base.records import SampleKey, replace_surrogates
from lbx.results import GenerationRow, SampleRow, ScoreRow, Store
from lbx.results.scoring.aggregation import aggregate_scores, recompute_completed_samples
from lbx.results.scoring.scores import score_rows
from lbx.running.answering import Asker
from lbx.running.jobs import Job, JobSize, PendingSample, RunQuestions, make_jobs
from lbx.running.monitor import RunMonitor

BATCH_ROWS = 64
_REASONING_TAG = re.compile(r"\s*([<\[][^<>\[\]\s]{0,20}(?:think|thought|reason)[^<>\[\]\s]{0,20}[>\]])", re.IGNORECASE)
_SERVED_MODELS = """
    SELECT served_model, count(*) FROM generations
    WHERE run_id = ? AND error IS NULL AND served_model IS NOT NULL GROUP BY ALL ORDER BY count(*) DESC, served_model
"""
# A server with its own template counts tokens, and lbx the characters or tokens of the message. Prompts with one
# length may have one count; prompts of different lengths share the largest count if the server cut them.
_CUT_AT = """
    SELECT CASE WHEN count(DISTINCT length) >= 3 AND max(length) >= 1.1 * min(length) AND max(prompt_tokens) >= 64
                THEN max(prompt_tokens) END
    FROM (
        SELECT prompt_tokens, original_tokens - coalesce(tokens_cut, 0) AS length
        FROM generations JOIN runs USING (run_id)
        WHERE run_id = ? AND error IS NULL AND steps IS NULL AND settings->>'$."backend.api"' = 'chat'
        QUALIFY prompt_tokens = max(prompt_tokens) OVER ()
    )
"""
BATCH_SECONDS = 2.0
"""Maximum time that an answer waits for others to be committed in the same batch."""


@dataclass(slots=True)
class Outcome:
    """Outcome of a session of a run, in counts.

    Attributes:
        answered, failed: number of samples answered, and failed, in this session.
        reasoned: answered samples with visible or counted reasoning.
        unclosed: answered samples that spent their whole budget on reasoning.
        empty: answered samples without text, except ``unclosed`` ones.
        only_reasoning: empty answers that contain reasoning.
        empty_by_stop: empty answers that began with a stop string.
        marks: {mark: answered samples that begin with this unrecognised mark of reasoning}.
        unextracted: answered samples without an answer that the headline metric recognises.
        done_before: number of samples finished in an earlier session.
        failures: failed samples of this run in the results file.
        unfit_prompts: failed samples whose prompts could not be made or do not fit, so that a repetition fails, too.
        samples: samples of the run's tasks with an answer in the results file.
        bundle_samples: all samples of these tasks in the bundle.
        prompt_tokens, output_tokens: tokens of answered samples, as far as they are known.
        without_counts: answered samples without the server's count of tokens.
        served_models: {name of the model in the server's answers: number of answers in the results file}.
        cut_at: token count shared by the longest prompts, which a server probably truncated; or None.
        computed_tokens: prompt and answer tokens processed by the model, with shared prefixes counted once.
    """

    answered: int = 0
    failed: int = 0
    reasoned: int = 0
    unclosed: int = 0
    empty: int = 0
    only_reasoning: int = 0
    empty_by_stop: int = 0
    marks: dict[str, int] = field(default_factory=dict)
    unextracted: int = 0
    done_before: int = 0
    failures: int = 0
    unfit_prompts: int = 0
    samples: int = 0
    bundle_samples: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    computed_tokens: int = 0
    without_counts: int = 0
    served_models: dict[str, int] = field(default_factory=dict)
    cut_at: int | None = None

    def count(self, row: GenerationRow) -> None:
        if row.error is not None:
            self.failed += 1
            return
        self.answered += 1
        self.reasoned += row.reasoning_closed is not None or bool(row.reasoning_tokens)
        self.unclosed += row.reasoning_closed is False
        if row.reasoning_closed is not False and (row.output_words == 0 or not (row.output or "").strip()):
            self.empty += 1
            self.only_reasoning += bool(row.reasoning)
            self.empty_by_stop += row.ended_by_stop
        if tag := _REASONING_TAG.match(row.output or ""):
            self.marks[tag[1]] = self.marks.get(tag[1], 0) + 1
        self.without_counts += row.prompt_tokens is None or row.output_tokens is None
        self.prompt_tokens += row.prompt_tokens or 0
        self.output_tokens += row.output_tokens or 0
        self.computed_tokens += (row.prompt_tokens or 0) - (row.cached_tokens or 0) + (row.output_tokens or 0)


@contextmanager
def record_end_status(store: Store, run_ids: Sequence[str]) -> Iterator[None]:
    """Store in the runs' rows how the block ends: "done", "interrupted" or "failed"."""

    def finish(status: str) -> None:
        with defer_signals():
            for run_id in run_ids:
                store.finish_run(run_id, status)

    try:
        yield
        finish("done")
    except BaseException as exc:
        finish("interrupted" if is_interruption(exc) else "failed")
        if isinstance(exc, RuntimeError) and is_interruption(exc):
            raise KeyboardInterrupt from exc
        raise


class _CommitBuffer:
    """Buffer of rows, committed when it contains enough rows or when the oldest row has waited long enough.

    A thread watches the clock, because the next answer may take hours. While a batch is open, other code must not use
    the store. ``close`` commits the remaining rows.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._samples: list[SampleRow] = []
        self._generations: dict[tuple[str, SampleKey], GenerationRow] = {}
        self._scores: list[ScoreRow] = []
        self._condition = threading.Condition()
        self._open = True
        self._error: Exception | None = None
        self._clock = threading.Thread(target=self._commit_when_due, name="lbx-commits", daemon=True)
        self._clock.start()

    def close(self) -> None:
        """Commit the remaining rows. May be repeated."""
        with defer_signals():
            with self._condition:
                if not self._open:
                    return
                self._open = False
                self._condition.notify()
            self._clock.join()
            self._flush()

    def add(self, sample: SampleRow, generation: GenerationRow, scores: Sequence[ScoreRow]) -> None:
        """Add an answer. Raises the error of a commit since the last call."""
        with defer_signals(), self._condition:  # an exception while the lock is acquired would leave it closed
            self._samples.append(sample)
            key = SampleKey(generation.benchmark, generation.task, generation.sample_id, generation.iteration)
            self._generations[generation.run_id, key] = generation  # in place of a row with fewer steps
            self._scores += scores
            if self._error:
                raise self._error
            if len(self._generations) >= BATCH_ROWS:
                self._flush()
            self._condition.notify()

    def _commit_when_due(self) -> None:
        with self._condition:
            while self._open and not self._error:
                self._condition.wait_for(lambda: self._generations or not self._open)
                # Answers that arrive close together share a commit, which begins when the first of them has waited.
                if not self._condition.wait_for(lambda: not self._open, BATCH_SECONDS):
                    try:
                        self._flush()
                    except Exception as exc:  # raised in the asking thread; remaining rows are retried at the end
                        self._error = exc

    def _flush(self) -> None:
        if self._generations:
            self._store.write(samples=self._samples, generations=list(self._generations.values()), scores=self._scores)
        self._samples, self._generations, self._scores = [], {}, []


@dataclass(slots=True)
class Runner:
    """Runner of the questions of one or several runs, which writes the answers into one results file.

    Args:
        run_questions: questions of the runs that are executed together, on the same tasks with different settings.
        finished_keys: results of ``Store.begin_run`` for each run.
    """

    run_ids: Sequence[str]
    run_questions: Sequence[RunQuestions]
    store: Store
    finished_keys: Sequence[AbstractSet[SampleKey]]
    watch: RunMonitor
    asker: Asker
    size: JobSize = field(default_factory=JobSize)
    outcomes: list[Outcome] = field(init=False)
    _answered_keys: Sequence[AbstractSet[SampleKey]] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self.outcomes = [Outcome() for _ in self.run_questions]

    def run(self) -> list[Outcome]:
        """Ask the remaining samples. On any error, commit all answers so far and aggregate the tasks.

        Returns:
            Counts of each run.

        Raises:
            StoreError: the results file cannot be written.
            BundleError: a data file is damaged.
            BackendError, EndpointError: the model cannot continue.
            KeyboardInterrupt: re-raised after all answers are safe.
        """
        benchmarks = self.run_questions[0].benchmarks
        names = dict.fromkeys(task.benchmark for task in self.run_questions[0].tasks)
        batch = _CommitBuffer(self.store)
        try:
            jobs = make_jobs(self.run_questions, self.finished_keys, self.size, self._count_existing)
            with closing(batch):
                for item, row in self.asker.ask(self._with_finished_steps(jobs), self.watch.count_tokens):
                    self._store_answer(batch, item, row)
        finally:
            with defer_signals():
                batch.close()  # again: a signal can raise before the end of the block above has deferred it
                for run_id in self.run_ids:
                    for name in dict.fromkeys([*names, *self._benchmarks_without_numbers(run_id)]):
                        if name in benchmarks:
                            aggregate_scores(self.store, run_id, benchmarks[name])
                recompute_completed_samples(self.store, benchmarks)
        for run_id, outcome in zip(self.run_ids, self.outcomes, strict=True):
            self._read_totals(run_id, outcome)
        return self.outcomes

    def _with_finished_steps(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """Give jobs the stored steps of answers that failed or were not finished."""
        stored = [self.store.read_finished_steps(run_id) for run_id in self.run_ids]
        self._answered_keys = [
            self.store.read_answered_keys(run_id) - done
            for run_id, done in zip(self.run_ids, self.finished_keys, strict=True)
        ]
        for job in jobs:
            for item in job:
                for iteration in item.iterations:
                    if steps := stored[item.run].get(item.sample.key._replace(iteration=iteration)):
                        item.finished_steps[iteration] = steps
            yield job

    def _benchmarks_without_numbers(self, run_id: str) -> list[str]:
        """Names of a run's benchmarks that lack aggregates because an earlier process was killed."""
        answered = self.store.query(
            "SELECT DISTINCT benchmark FROM scores ANTI JOIN benchmark_results USING (run_id, benchmark) "
            "WHERE run_id = ? ORDER BY ALL",
            [run_id],
        )
        return [name for (name,) in answered.rows]

    def _read_totals(self, run_id: str, outcome: Outcome) -> None:
        failures = (
            "SELECT count(*), count(*) FILTER (error_type IN ('PromptError', 'EmptyPromptError')) "
            "FROM generations g WHERE run_id = ? AND error IS NOT NULL AND NOT " + OUTDATED
        )
        ((outcome.failures, outcome.unfit_prompts),) = self.store.query(failures.format(g="g"), [run_id]).rows
        stored = {
            f"{benchmark}/{task}": samples
            for benchmark, task, samples in self.store.query(
                "SELECT benchmark, task, count(DISTINCT sample_id) FROM generations WHERE run_id = ? AND error IS NULL "
                "GROUP BY ALL",
                [run_id],
            ).rows
        }
        outcome.served_models = dict(self.store.query(_SERVED_MODELS, [run_id]).rows)
        outcome.cut_at = self.store.query(_CUT_AT, [run_id]).rows[0][0]
        tasks = self.run_questions[0].tasks
        outcome.samples = sum(stored.get(task.full_name, 0) for task in tasks)
        outcome.bundle_samples = sum(task.samples for task in tasks)

    def _count_existing(self, run: int) -> None:
        self.outcomes[run].done_before += 1
        self.watch.count_sample(None)

    def _store_answer(self, batch: _CommitBuffer, item: PendingSample, generation: GenerationRow) -> None:
        run_id, outcome, sample = self.run_ids[item.run], self.outcomes[item.run], item.sample
        generation = replace(generation, run_id=run_id)  # the answering process may not know the name in this file
        if generation.error_type == UNFINISHED:
            # An answer that is asked for again stays until the new one is complete.
            if sample.key._replace(iteration=generation.iteration) not in self._answered_keys[item.run]:
                batch.add(SampleRow(sample, item.position), generation, [])
            return
        benchmark = self.run_questions[item.run].benchmarks[sample.benchmark]
        outcome.count(generation)
        scores: list[ScoreRow] = []
        if generation.error is None:
            key = sample.key._replace(iteration=generation.iteration)
            # Score the text as stored: the file contains no lone surrogates, and `lbx score` reads it later.
            stored = replace(sample, references=tuple(map(replace_surrogates, sample.references)))
            scored = benchmark.score(stored, replace_surrogates(generation.output or ""))
            scores = score_rows(run_id, key, benchmark, scored)
            outcome.unextracted += any(score.headline and score.extracted == "" for score in scores)
        batch.add(SampleRow(sample, item.position), generation, scores)
        self.watch.count_sample(generation)
