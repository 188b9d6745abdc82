"""Who watches a run: a bar, a log, and the run's sessions in the results file."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn

from lbx.cli.output import note, progress_bar
from lbx.cli.planning import duration, size
from lbx.errors import StoreError, UsageError
from lbx.visible import one_line

if TYPE_CHECKING:
    from lbx.engine.planning.meter import Meter
    from lbx.engine.planning.outlook import Outlook
    from lbx.records import Task
    from lbx.store import GenerationRow, RunRow, SessionRow, Store

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
        with path.open("a", encoding="utf-8"):
            pass
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
    *,
    samples: int,
    workers: int,
    process_ids: Callable[[], Sequence[int]] = tuple,
    log: Path | None = None,
) -> Iterator[RunProgress]:
    """Watch a run. Its sessions are in the results file from the start, so that a killed one is seen, too.

    Args:
        rows: of the runs that are made together.
        outlook: None where nothing was counted.
        samples: to be asked in all, those that are done included.
        workers: as ``lbx run --workers`` has it.
        process_ids: of the workers that live.
        log: a file that gets a line a minute.

    Raises:
        StoreError: the results file cannot be written.
    """
    from lbx.engine.planning.memory_use import peak_of_this_process
    from lbx.engine.planning.meter import Meter
    from lbx.store.sessions import keep_sessions, next_session

    begun = [_planned(row, next_session(store, row.run_id), workers, outlook, run) for run, row in enumerate(rows)]
    keep_sessions(store, begun)
    progress = RunProgress(Meter(outlook, samples), log, process_ids)

    def end(status: str) -> None:
        peak = max(progress.peak_bytes, peak_of_this_process())
        keep_sessions(store, [_ended(row, progress.meter, status, peak) for row in begun])

    try:
        with progress:
            yield progress
    except BaseException as exc:
        with contextlib.suppress(StoreError):  # what went wrong first is what counts
            end("interrupted" if isinstance(exc, KeyboardInterrupt) else "failed")
        raise
    end("done")


class RunProgress:
    """A listener: a bar on a terminal, a line a minute elsewhere, the same line in the log file.

    A thread of its own keeps both up while the model computes and nothing is heard.

    Args:
        log: the file; None writes none.
        workers: process ids of those that hold the model, beside this one.
    """

    def __init__(self, meter: Meter, log: Path | None, workers: Callable[[], Sequence[int]]) -> None:
        self.meter = meter
        self.peak_bytes = 0
        self._log = log
        self._workers = workers
        self._task = ""
        self._memory = self._of_gpu = ""
        self._ticks = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, name="lbx-progress", daemon=True)
        self._bar = progress_bar("{task.fields[name]}", BarColumn(), "{task.percentage:>3.0f}%", "{task.fields[said]}")
        self._id = self._bar.add_task("", total=1.0, name="", said="") if self._bar else None

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._look_at_memory()
        if self._bar:
            self._show()
            self._bar.stop()
        self._say()

    def task(self, task: Task, samples: int) -> None:
        self._task = self._task or task.full_name

    def sample(self, row: GenerationRow | None) -> None:
        self.meter.sample(row)
        if row is not None:
            self._task = f"{row.benchmark}/{row.task}"

    def computed(self, tokens: int) -> None:
        self.meter.count(tokens)

    def line(self) -> str:
        """How far the run is."""
        meter = self.meter
        failed = sum(run.failed for run in list(meter.runs.values()))
        parts = [f"{100 * meter.fraction:.0f}%"]
        if meter.planned_prompt_tokens is not None:
            parts.append(f"{meter.prompt_tokens:,} of {meter.planned_prompt_tokens:,} prompt tokens answered")
        parts.append(
            f"{meter.over:,} of {meter.samples - meter.found:,} samples" + (f" ({failed:,} failed)" if failed else "")
        )
        return ", ".join(part for part in [*parts, *self._pace(), self._task] if part)

    def _pace(self) -> list[str]:
        left = self.meter.left_s()
        return [
            f"{self.meter.tokens_per_s():,.0f} tokens/s computed",
            "time left unknown" if left is None else f"{duration(left)} left",
            self._memory,
        ]

    def _keep_up(self) -> None:
        waited = 0.0
        while not self._stopping.wait(_TICK_S):
            waited += _TICK_S
            self._look_at_memory()
            if self._bar:
                self._show()
            if waited >= LOG_SECONDS:
                waited = 0.0
                self._say()

    def _look_at_memory(self) -> None:
        from lbx.engine.planning.memory_use import gpu_memory, memory_in_use

        now = memory_in_use(self._workers())
        self.peak_bytes = max(self.peak_bytes, now)
        if self._ticks % _GPU_TICKS == 0:
            gpu = gpu_memory()
            self._of_gpu = f" and {size(gpu.used)} of GPU memory" if gpu else ""
        self._ticks += 1
        self._memory = f"{size(now)} of memory{self._of_gpu}"

    def _show(self) -> None:
        if self._bar is None or self._id is None:
            return
        self._bar.update(
            self._id, completed=self.meter.fraction, name=one_line(self._task), said=", ".join(self._pace())
        )

    def _say(self) -> None:
        line = self.line()
        if self._bar is None:
            note(line)
        self._write(line)

    def _write(self, line: str) -> None:
        """A line with its time. A log that cannot be written any more ends no run."""
        if self._log is None:
            return
        with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {one_line(line)}\n")


def _planned(row: RunRow, session: int, workers: int, outlook: Outlook | None, run: int) -> SessionRow:
    from lbx.engine.planning.plan import added
    from lbx.store import SessionRow

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


def _ended(begun: SessionRow, meter: Meter, status: str, peak_bytes: int) -> SessionRow:
    from lbx.engine.planning.meter import Sums

    sums = dataclasses.asdict(meter.runs.get(begun.run_id, Sums()))
    return dataclasses.replace(
        begun,
        **sums,
        status=status,
        finished_at=datetime.now(UTC),
        wall_s=meter.elapsed_s,
        peak_memory_bytes=peak_bytes,
    )
