"""A run while it goes on: its pace and memory, its log, and its sessions in the results file."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from lbx.base.errors import StoreError, UsageError
from lbx.base.outputs import appended_file
from lbx.base.records import Task
from lbx.base.visible import one_line
from lbx.planning.memory_use import gpu_memory, memory_in_use, peak_of_this_process
from lbx.planning.meter import RunCounts, RunMeter
from lbx.planning.outlook import Outlook
from lbx.planning.run_plan import added
from lbx.running.listening import Listener, RunProgress
from lbx.store import GenerationRow, RunRow, SessionRow, Store
from lbx.store.sessions import keep_sessions, next_session

LOG_SECONDS = 60.0
_TICK_S = 1.0
_GPU_TICKS = 30
"""A GPU's memory is asked of a program, which takes a while."""


def log_beside(output: Path, log: Path | None) -> Path:
    """Where a run's log goes: as told, or beside the results file, under its name and ``.log``.

    Raises:
        UsageError: it cannot be written.
    """
    path = log or output.with_name(f"{output.name}.log")
    if log is None and not path.parent.is_dir():
        return path  # what is wrong with the results file's place is for the store to say
    known = path.exists()
    if path.is_fifo():
        raise UsageError(f"The log {path} is a pipe, and nobody may be reading it.", fix="Name a file with --log FILE.")
    try:
        appended_file(path).close()
        if not known:
            path.unlink()  # the run may be refused yet
    except OSError as exc:
        raise UsageError(
            f"The log {path} cannot be written: {exc.strerror or exc}.", fix="Name another file with --log FILE."
        ) from exc
    return path


@contextlib.contextmanager
def watched(
    store: Store,
    rows: Sequence[RunRow],
    outlook: Outlook | None,
    watch: Watch,
    *,
    workers: int,
    spec: Mapping[str, Any],
) -> Iterator[None]:
    """Keep the runs' sessions. They are in the results file from the start, so that a killed one is seen, too.

    Args:
        rows: of the runs that are made together.
        outlook: None where nothing was counted.
        workers: as ``RunSpec.workers``.
        spec: what the session was asked to do.

    Raises:
        StoreError: the results file cannot be written.
    """
    begun = [_begun(row, next_session(store, row.run_id), workers, outlook, run) for run, row in enumerate(rows)]
    begun = [dataclasses.replace(row, spec=spec) for row in begun]
    keep_sessions(store, begun)

    def end(status: str) -> None:
        peak = max(watch.peak_bytes, peak_of_this_process())
        keep_sessions(store, [_ended(row, watch.meter, status, peak) for row in begun])

    try:
        with watch:
            yield
    except BaseException as exc:
        with contextlib.suppress(StoreError):  # what went wrong first is what counts
            end("interrupted" if isinstance(exc, KeyboardInterrupt) else "failed")
        raise
    end("done")


class Watch:
    """Measures a run and tells its listener once a second, its log file once a minute.

    A thread of its own does so while the model computes and nothing is heard.

    Args:
        log: the file; None writes none.
        workers: process ids of those that hold the model, beside this one.
    """

    def __init__(
        self, meter: RunMeter, listener: Listener, log: Path | None = None, workers: Callable[[], Sequence[int]] = tuple
    ) -> None:
        self.meter = meter
        self.peak_bytes = 0
        self._listener = listener
        self._log = log
        self._workers = workers
        self._task = ""
        self._memory = 0
        self._gpu: int | None = None
        self._ticks = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, name="lbx-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._look_at_memory()
        self._tell(ended=True, logged=True)

    def task(self, task: Task, samples: int) -> None:
        self._task = self._task or task.full_name

    def sample(self, row: GenerationRow | None) -> None:
        self.meter.sample(row)
        if row is not None:
            self._task = f"{row.benchmark}/{row.task}"

    def computed(self, tokens: int) -> None:
        self.meter.count(tokens)

    def progress(self, *, ended: bool = False) -> RunProgress:
        """How far the run is."""
        meter = self.meter
        return RunProgress(
            over=meter.over,
            samples=meter.samples - meter.found,
            failed=sum(run.failed for run in list(meter.runs.values())),
            fraction=meter.fraction,
            prompt_tokens=meter.prompt_tokens,
            planned_prompt_tokens=meter.planned_prompt_tokens,
            tokens_per_s=meter.tokens_per_s(),
            left_s=meter.left_s(),
            memory_bytes=self._memory,
            gpu_bytes=self._gpu,
            task=self._task,
            ended=ended,
        )

    def _keep_up(self) -> None:
        waited = 0.0
        while not self._stopping.wait(_TICK_S):
            waited += _TICK_S
            due = waited >= LOG_SECONDS
            waited = 0.0 if due else waited
            self._look_at_memory()
            self._tell(ended=False, logged=due)

    def _look_at_memory(self) -> None:
        self._memory = memory_in_use(self._workers())
        self.peak_bytes = max(self.peak_bytes, self._memory)
        if self._ticks % _GPU_TICKS == 0:
            gpu = gpu_memory()
            self._gpu = gpu.used if gpu else None
        self._ticks += 1

    def _tell(self, *, ended: bool, logged: bool) -> None:
        progress = self.progress(ended=ended)
        self._listener.progress(progress)
        if logged and self._log is not None:
            # A log that cannot be written any more ends no run.
            with contextlib.suppress(OSError), appended_file(self._log) as file:
                file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {one_line(str(progress))}\n".encode())


def _begun(row: RunRow, session: int, workers: int, outlook: Outlook | None, run: int) -> SessionRow:
    begun = SessionRow(row.run_id, session, workers, row.hardware)
    if outlook is None:
        return begun
    plan = added(row.run_id, outlook.runs[run])
    time = outlook.time
    expected = sum(time.answer_tokens.values()) if time else outlook.total.new_tokens
    return dataclasses.replace(
        begun,
        planned_samples=plan.samples,
        planned_prompt_tokens=plan.prompt_tokens,
        planned_distinct_tokens=plan.distinct_tokens,
        planned_new_tokens=expected * plan.new_tokens // max(1, outlook.total.new_tokens),
        estimated_s=time.total_s if time else None,
        estimate_basis=time.basis if time else None,
    )


def _ended(begun: SessionRow, meter: RunMeter, status: str, peak_bytes: int) -> SessionRow:
    sums = dataclasses.asdict(meter.runs.get(begun.run_id, RunCounts()))
    return dataclasses.replace(
        begun,
        **sums,
        status=status,
        finished_at=datetime.now(UTC),
        wall_s=meter.elapsed_s,
        peak_memory_bytes=peak_bytes,
    )
