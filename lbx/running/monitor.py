"""Monitoring of a run: progress, speed, memory, log file, and the sessions in the results file."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from lbx.base.errors import StoreError, UsageError
from lbx.base.listener import Listener, RunProgress
from lbx.base.outputs import open_append
from lbx.base.processes import is_interruption
from lbx.base.records import CountedIn
from lbx.base.visible import one_line
from lbx.results import GenerationRow, RunRow, SessionRow, Store
from lbx.results.file.sessions import LOAD_S, next_session, store_sessions
from lbx.running.forecast.run_forecast import Forecast, gpu_memory, memory_in_use, peak_memory
from lbx.running.forecast.run_plan import sum_plans

RATE_S = 60.0
"""Time span over which the rate of tokens per second is measured."""
_TRUST_SHARE = 0.05
_MOST_TRUST_S = 60.0
"""An estimate outweighs measurements for ``_TRUST_SHARE`` of the estimated time, at most for ``_MOST_TRUST_S``."""
_FEW_ANSWERS = 4


@dataclass(slots=True)
class RunCounts:
    """Counts of one run in this session."""

    answered: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    output_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    unknown: set[str] = field(default_factory=set)

    def add(self, row: GenerationRow) -> None:
        if row.error is not None:
            self.failed += 1
            return
        self.answered += 1
        self.unknown |= {name for name in ("prompt_tokens", "output_tokens") if getattr(row, name) is None}
        self.prompt_tokens += row.prompt_tokens or 0
        self.computed_tokens += (row.prompt_tokens or 0) - (row.cached_tokens or 0) + (row.output_tokens or 0)
        self.output_tokens += row.output_tokens or 0
        self.prefill_s += row.prefill_s or 0.0
        self.decode_s += row.decode_s or 0.0


@dataclass(slots=True)
class _TaskProgress:
    planned_answers: int
    planned_tokens: float
    answer_count: int = 0
    tokens: int = 0

    @property
    def remaining_tokens(self) -> float:
        """Expected number of tokens of the remaining answers, from the mean length so far."""
        expected = self.planned_tokens / self.planned_answers if self.planned_answers else 0.0
        mean = self.tokens / self.answer_count if self.answer_count >= _FEW_ANSWERS else expected
        return max(0, self.planned_answers - self.answer_count) * mean


class ProgressTracker:
    """Tracker of a run's progress, compared with the forecast. One thread may count while another reads.

    Args:
        forecast: forecast of the run. Without token counts (None, or counts of characters), progress is measured in
            samples.
        samples: total samples, including samples of earlier sessions.
        clock: clock in seconds, such as ``time.monotonic``.
    """

    def __init__(self, forecast: Forecast | None, samples: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.samples = samples
        self.existing_samples = 0
        self.finished_samples = 0
        self._reported_tokens = 0
        self._answered_tokens = 0
        self.runs: dict[str, RunCounts] = {}
        self._forecast = forecast = None if forecast is None or forecast.counted_in == "characters" else forecast
        self._clock = clock
        self._start = clock()
        self._rate_window: deque[tuple[float, int]] = deque([(self._start, 0)])
        self._tasks: dict[str, _TaskProgress] = {}
        self._prompts_per_answer: dict[str, int] = {}
        if forecast is not None:
            answers = forecast.time.answer_tokens if forecast.time else {}
            self._tasks = {
                task.task: _TaskProgress(task.samples, answers.get(task.task, task.new_tokens))
                for task in forecast.tasks
            }
            self._prompts_per_answer = {task.task: task.prompts_per_answer for task in forecast.tasks}

    def count_sample(self, row: GenerationRow | None) -> None:
        """Count a finished sample, given the row, or None for a sample that was finished in an earlier session."""
        if row is None:
            self.existing_samples += 1
            return
        self.finished_samples += 1
        self.runs.setdefault(row.run_id, RunCounts()).add(row)
        if row.error is None:
            self._answered_tokens += _planned_tokens(
                row, self._prompts_per_answer.get(f"{row.benchmark}/{row.task}", 1)
            )
        task = self._tasks.get(f"{row.benchmark}/{row.task}")
        if task is not None and row.error is None:
            task.answer_count += 1
            task.tokens += row.output_tokens or 0

    def count_tokens(self, tokens: int) -> None:
        self._reported_tokens += tokens

    @property
    def computed_tokens(self) -> int:
        """Number of computed tokens of prompts and answers, at least those of the finished answers."""
        return max(self._reported_tokens, sum(run.computed_tokens for run in list(self.runs.values())))

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._start

    @property
    def counted_in(self) -> CountedIn:
        return "tokens" if self._forecast is None else self._forecast.counted_in

    @property
    def planned_prompt_tokens(self) -> int | None:
        return None if self._forecast is None else self._forecast.total.prompt_tokens

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens in answered prompts that plans count (``TaskPlan.prompts``)."""
        return self._answered_tokens

    @property
    def fraction(self) -> float:
        """Progress from 0 to 1 by prompt tokens, or by samples if tokens are unknown."""
        planned = self.planned_prompt_tokens
        if planned:
            return min(1.0, self.prompt_tokens / planned)
        remaining = self.samples - self.existing_samples
        return min(1.0, self.finished_samples / remaining) if remaining > 0 else 1.0

    def tokens_per_s(self) -> float:
        """Number of tokens computed per second during the last minute."""
        now = self._clock()
        while len(self._rate_window) > 1 and now - self._rate_window[1][0] >= RATE_S:
            self._rate_window.popleft()
        then, before = self._rate_window[0]
        if now - self._rate_window[-1][0] >= RATE_S / 60:
            self._rate_window.append((now, self.computed_tokens))
        return (self.computed_tokens - before) / (now - then) if now > then else 0.0

    def left_s(self) -> float | None:
        """Estimated seconds to the end, from the rest of the forecast and the speed so far, or None if unknown."""
        elapsed = self.elapsed_s
        done, remaining, estimated = self._work()
        if remaining <= 0:
            return 0.0
        trust = min(_TRUST_SHARE * estimated, _MOST_TRUST_S)
        if done + trust <= 0:
            return None
        return remaining * (elapsed + trust) / (done + trust)

    def _work(self) -> tuple[float, float, float]:
        """Return (finished work, remaining work, estimate of the whole run), all in estimated seconds.

        Without an estimate, work is in tokens or samples and the estimate is 0.
        """
        if self._forecast is None:
            return (
                float(self.finished_samples),
                float(self.samples - self.existing_samples - self.finished_samples),
                0.0,
            )
        expected = self._forecast.time
        outputs = sum(run.output_tokens for run in list(self.runs.values()))
        left_outputs = sum(task.remaining_tokens for task in self._tasks.values())
        prompts = max(0, self.computed_tokens - outputs)
        if expected is None:
            return (
                float(self.computed_tokens),
                max(0, self._forecast.total.distinct_tokens - prompts) + left_outputs,
                0.0,
            )
        left_prompts = max(0, expected.computed_tokens - prompts)
        wall = expected.total_s / max(1e-9, expected.prefill_s + expected.decode_s)
        answers = sum(expected.answer_tokens.values())
        prompt_s = wall * expected.prefill_s / max(1, expected.computed_tokens)
        answer_s = wall * expected.decode_s / max(1, answers)
        done = prompt_s * prompts + answer_s * outputs
        return done, prompt_s * left_prompts + answer_s * left_outputs, expected.total_s


def _planned_tokens(row: GenerationRow, prompts: int) -> int:
    """Tokens of the first prompts of an answer in one or several steps."""
    counts = [step["prompt_tokens"] or 0 for step in row.steps or ()]
    return sum([*counts, (row.prompt_tokens or sum(counts)) - sum(counts)][:prompts])


LOG_SECONDS = 60.0
_TICK_S = 1.0
_GPU_TICKS = 30
"""Ticks between GPU memory queries, because each one runs an external program."""


def log_path(output: Path, log: Path | None) -> Path:
    """Path of a run's log: the given path, or the results file's path with ``.log`` appended.

    Raises:
        UsageError: the log cannot be written.
    """
    path = log or output.with_name(f"{output.name}.log")
    if log is None and not path.parent.is_dir():
        return path  # the store reports problems with the results file's folder
    existed = path.exists()
    if path.is_fifo():
        raise UsageError(
            f"The log {path} is a pipe, which may have no reader.", fix="Pass a regular file with --log FILE."
        )
    try:
        open_append(path).close()
        if not existed:
            path.unlink()  # the run may still be refused
    except OSError as exc:
        raise UsageError(
            f"The log {path} cannot be written: {exc.strerror or exc}.", fix="Pass another file with --log FILE."
        ) from exc
    return path


@contextlib.contextmanager
def record_sessions(
    store: Store,
    rows: Sequence[RunRow],
    forecast: Forecast | None,
    watch: RunMonitor,
    *,
    answer_counts: Sequence[int],
    workers: int,
    spec: Mapping[str, Any],
    facts: Callable[[], Mapping[str, Any]] = dict,
    load_s: float,
) -> Iterator[None]:
    """Record the sessions of runs. Rows are written at the start, so that killed sessions are recorded, too.

    Args:
        rows: rows of the runs that are executed together.
        forecast: forecast of the runs, or None.
        answer_counts: number of existing answers of each run.
        workers: see ``RunSpec.workers``.
        facts: function that returns facts for ``hardware`` at the end.
        load_s: seconds that loading the model took.

    Raises:
        StoreError: the results file cannot be written.
    """
    now, loading = datetime.now(UTC), {LOAD_S: round(load_s, 1)}
    begun = [_new_session(row, next_session(store, row.run_id), workers, forecast, run) for run, row in enumerate(rows)]
    begun = [
        dataclasses.replace(row, spec=spec, started_at=now, done_before=count, hardware={**row.hardware, **loading})
        for row, count in zip(begun, answer_counts, strict=True)
    ]
    store_sessions(store, begun)

    def end(status: str) -> None:
        peak = max(watch.peak_bytes, peak_memory())
        rows = [dataclasses.replace(row, hardware={**row.hardware, **facts()}) for row in begun]
        finished_sessions: list[SessionRow] = []
        for row in rows:
            sums = dataclasses.asdict(watch.tracker.runs.get(row.run_id, RunCounts()))
            if unknown := sums.pop("unknown"):
                sums |= dict.fromkeys([*unknown, "computed_tokens"])
            finished_sessions.append(
                dataclasses.replace(
                    row,
                    **sums,
                    status=status,
                    finished_at=datetime.now(UTC),
                    wall_s=watch.tracker.elapsed_s,
                    peak_memory_bytes=peak,
                )
            )
        store_sessions(store, finished_sessions)

    try:
        with watch:
            yield
        end("done")
    except BaseException as exc:
        with contextlib.suppress(StoreError):  # the first error matters more
            end("interrupted" if is_interruption(exc) else "failed")
        raise


class RunMonitor:
    """Monitor of a run, which updates a listener every second and a log file every minute.

    The updates come from a separate thread, because the model may compute for a long time between answers.

    Args:
        log: path of the log file; None disables it.
        workers: function that returns the process ids of workers that have loaded the model.
    """

    def __init__(
        self,
        tracker: ProgressTracker,
        listener: Listener,
        log: Path | None = None,
        task: str = "",
        workers: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        self.tracker = tracker
        self.peak_bytes = 0
        self._listener = listener
        self._log = log
        self._workers = workers
        self._task = task
        self._memory = 0
        self._gpu: int | None = None
        self._ticks = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._report_regularly, name="lbx-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._measure_memory()
        self._report(is_final=True, to_log=True)

    def count_sample(self, row: GenerationRow | None) -> None:
        self.tracker.count_sample(row)
        if row is not None:
            self._task = f"{row.benchmark}/{row.task}"

    def count_tokens(self, tokens: int) -> None:
        self.tracker.count_tokens(tokens)

    def progress(self, *, is_final: bool = False) -> RunProgress:
        tracker = self.tracker
        return RunProgress(
            n_finished=tracker.finished_samples,
            samples=tracker.samples - tracker.existing_samples,
            failed=sum(run.failed for run in list(tracker.runs.values())),
            fraction=tracker.fraction,
            prompt_tokens=tracker.prompt_tokens,
            planned_prompt_tokens=tracker.planned_prompt_tokens,
            tokens_per_s=tracker.tokens_per_s(),
            left_s=tracker.left_s(),
            memory_bytes=self._memory,
            gpu_bytes=self._gpu,
            task=self._task,
            ended=is_final,
            counted_in=tracker.counted_in,
        )

    def _report_regularly(self) -> None:
        waited = LOG_SECONDS  # write the first line immediately, to show that the run has begun
        while not self._stopping.wait(_TICK_S):
            waited += _TICK_S
            due = waited >= LOG_SECONDS
            waited = 0.0 if due else waited
            self._measure_memory()
            self._report(is_final=False, to_log=due)

    def _measure_memory(self) -> None:
        self._memory = memory_in_use(self._workers())
        self.peak_bytes = max(self.peak_bytes, self._memory)
        if self._ticks % _GPU_TICKS == 0:
            gpu = gpu_memory()
            self._gpu = gpu.used if gpu else None
        self._ticks += 1

    def _report(self, *, is_final: bool, to_log: bool) -> None:
        progress = self.progress(is_final=is_final)
        self._listener.on_progress(progress)
        if to_log and self._log is not None:
            # Failure to write the log does not end the run.
            with contextlib.suppress(OSError), open_append(self._log) as file:
                file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {one_line(str(progress))}\n".encode())


def _new_session(row: RunRow, session: int, workers: int, forecast: Forecast | None, run: int) -> SessionRow:
    begun = SessionRow(row.run_id, session, workers, row.hardware)
    if forecast is None:
        return begun
    plan = sum_plans(row.run_id, forecast.runs[run])
    time = forecast.time
    expected = sum(time.answer_tokens.values()) if time else forecast.total.new_tokens
    return dataclasses.replace(
        begun,
        planned_samples=plan.samples,
        to_ask=plan.samples + plan.refused,
        planned_prompt_tokens=plan.prompt_tokens,
        planned_distinct_tokens=plan.distinct_tokens,
        planned_new_tokens=expected * plan.new_tokens // max(1, forecast.total.new_tokens),
        estimated_s=time.total_s if time else None,
        estimate_basis=time.basis if time else None,
    )
