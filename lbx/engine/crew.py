"""Several worker processes under one writer: each holds the model, on its own cores or GPU.

A worker that dies costs no answer that it has given. What it was asked is asked again, prompt by prompt; a prompt that
kills a worker again is a failed sample, and the run goes on with a new worker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import Self, TypeVar

from lbx.engine.devices import VISIBLE, Share, share_out
from lbx.engine.jobs import Item, Job
from lbx.engine.work import Prepare, Work
from lbx.engine.worker import Answered, Ask, Begun, Call, Computed, Done, Failed, Ready
from lbx.errors import BackendError
from lbx.store import GenerationRow, RunRow

T = TypeVar("T")

_MOST_DEATHS = 4
"""So many in a row, without an answer between them, are no accident of one prompt."""

_PATIENCE_S = 10.0
NUMBER = "LBX_WORKER"
"""The environment variable that tells a worker its number, from 1."""

_PROGRAM = "from lbx.engine.worker import main; main()"


@dataclass(slots=True, eq=False)
class _Worker:
    """One process, and what it is doing.

    Attributes:
        job: what it was told to ask; None where it has nothing to do.
        left: {index of the item: iterations without an answer}.
        asking: what a careful worker was asking when it was last heard of.
    """

    number: int
    process: subprocess.Popen[bytes]
    pipe: Connection
    ready: bool = False
    job: Job | None = None
    careful: bool = False
    left: dict[int, set[int]] = field(default_factory=dict)
    asking: tuple[int, int] | None = None

    def give(self, job: Job, *, careful: bool) -> None:
        self.job, self.careful, self.asking = job, careful, None
        self.left = {index: set(item.iterations) for index, item in enumerate(job)}
        self.pipe.send(Ask(job, careful))

    def unanswered(self) -> list[Item]:
        items = enumerate(self.job or ())
        return [item.only(self.left[index]) for index, item in items if self.left[index]]

    def end(self) -> int:
        """Make sure that it is gone; how it ended, as ``subprocess`` has it."""
        self.pipe.close()
        self.process.kill()
        return self.process.wait()


class Crew:
    """Worker processes. Use it as a context manager.

    Args:
        prepare: what each of them loads.
        size: how many there are.
        say: told in a sentence what goes wrong without ending the run.

    Raises:
        LbxError: what the first worker's ``prepare`` raised.
        BackendError: the first worker died before its model was loaded.
    """

    def __init__(self, prepare: Prepare, size: int, say: Callable[[str], None]) -> None:
        self._prepare = prepare
        self._say = say
        self._shares = share_out(size)
        self._workers: list[_Worker] = []
        self._retries: deque[Job] = deque()
        self._deaths = 0
        self.rows: tuple[RunRow, ...] = ()
        try:
            # Alone first: what is wrong with the model is said once, and the others find its file in memory.
            first = self._start(0)
            self._hear_first(first)
            for number in range(1, size):
                self._start(number)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def process_ids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]

    def call(self, function: Callable[[Sequence[Work]], T]) -> T:
        """What a function of the works returns, in the first worker.

        Raises:
            LbxError: what it raised.
            BackendError: the worker died.
        """
        worker = self._workers[0]
        worker.pipe.send(Call(function))
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionResetError) as exc:
            raise self._died_early(worker) from exc
        if isinstance(message, Failed):
            raise message.error
        result: T = message.result
        return result

    def ask(self, jobs: Iterator[Job], computed: Callable[[int], None]) -> Iterator[tuple[Item, GenerationRow]]:
        """Deal jobs out and yield answers as they come (``lbx.engine.runner.Ask``).

        Raises:
            LbxError: what a worker cannot go on after, such as a model server that is gone.
            BackendError: workers die one after the other.
        """
        more = True
        while True:
            for worker in self._workers:
                if not worker.ready or worker.job is not None:
                    continue
                if self._retries:
                    self._give(worker, self._retries.popleft(), careful=True)
                elif more:
                    job = next(jobs, None)
                    if job is None:
                        more = False
                    else:
                        self._give(worker, job, careful=False)
            busy = [worker for worker in self._workers if worker.job is not None]
            loading = [worker for worker in self._workers if not worker.ready]
            if not busy and not self._retries and not more:
                return
            heard = wait([worker.pipe for worker in busy + loading])
            for worker in busy + loading:
                if worker.pipe in heard:
                    yield from self._hear(worker, computed)

    def close(self) -> None:
        """End them all. Those that are at work lose what nobody waits for any more."""
        for worker in self._workers:
            with suppress(OSError, subprocess.TimeoutExpired):
                if worker.ready and worker.job is None:
                    worker.pipe.send(None)
                    worker.process.wait(_PATIENCE_S)
            worker.end()
        self._workers.clear()

    def _start(self, number: int) -> _Worker:
        share = self._shares[number]
        ours, theirs = Pipe()
        arguments = [str(os.getpid()), str(theirs.fileno()), ",".join(map(str, share.cores))]
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=_environment(share, number + 1),
        )
        theirs.close()
        worker = _Worker(number, process, ours)
        self._workers.append(worker)
        with suppress(BrokenPipeError, ConnectionResetError):  # one that is dead already shows when it is heard
            ours.send(self._prepare)
        return worker

    def _hear_first(self, worker: _Worker) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionResetError) as exc:
            raise self._died_early(worker) from exc
        if isinstance(message, Failed):
            raise message.error
        self.rows, worker.ready = message.rows, True

    def _died_early(self, worker: _Worker) -> BackendError:
        return BackendError(
            f"The first worker process {_how(worker.end())} before it asked anything.",
            fix="If memory ran out, use a smaller model, cache or context_window. Without --workers the model is "
            "loaded in this process, and --debug shows what its library says.",
        )

    def _give(self, worker: _Worker, job: Job, *, careful: bool) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # what is left of its job shows when it is heard
            worker.give(job, careful=careful)

    def _hear(self, worker: _Worker, computed: Callable[[int], None]) -> Iterator[tuple[Item, GenerationRow]]:
        """Take in what a worker has to say."""
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            yield from self._bury(worker)
            return
        match message:
            case Ready():
                worker.ready = True
            case Computed(tokens=tokens):
                computed(tokens)
            case Begun(index=index, iteration=iteration):
                worker.asking = (index, iteration)
            case Answered(index=index, row=row):
                worker.left[index].discard(row.iteration)
                self._deaths = 0
                yield (worker.job or ())[index], row
            case Done():
                worker.job = None
            case Failed(error=error):
                if worker.ready or len(self._workers) == 1:
                    raise error
                self._dismiss(worker, f"could not load the model: {error.cause}")

    def _bury(self, worker: _Worker) -> Iterator[tuple[Item, GenerationRow]]:
        """A worker has died: have its job done, and somebody in its place."""
        how = _how(worker.end())
        if not worker.ready:
            if len(self._workers) == 1:
                raise BackendError(f"The last worker process {how} while it loaded the model.", fix=_FIX)
            self._dismiss(worker, f"{how} while it loaded the model")
            return
        self._workers.remove(worker)
        self._deaths += 1
        left = worker.unanswered()
        if worker.careful and worker.asking is not None:
            index, iteration = worker.asking
            if iteration in worker.left[index]:
                worker.left[index].discard(iteration)
                left = worker.unanswered()
                yield (worker.job or ())[index], self._killer((worker.job or ())[index], iteration, how)
        if self._deaths >= _MOST_DEATHS:
            raise BackendError(
                f"Worker processes die one after the other: {self._deaths} without an answer between them; the last "
                f"one {how}.",
                fix=_FIX,
            )
        if left:
            self._retries.append(left)
        self._say(f"Worker {worker.number + 1} {how}. A new one takes its place; nothing it answered is lost.")
        self._start(worker.number)

    def _killer(self, item: Item, iteration: int, how: str) -> GenerationRow:
        """The row of a prompt that killed a worker twice: among others, and alone."""
        error = BackendError(f"The worker process that asked this {how}.", fix=_FIX)
        return GenerationRow(
            self.rows[item.run].run_id,
            *item.sample.key._replace(iteration=iteration),
            error=str(error),
            error_type=type(error).__name__,
        )

    def _dismiss(self, worker: _Worker, why: str) -> None:
        """Go on without one that never got ready."""
        worker.end()
        self._workers.remove(worker)
        self._say(f"Worker {worker.number + 1} {why}. The run goes on with {len(self._workers)}.")


_FIX = (
    "If memory ran out (dmesg shows the kernel's OOM killer), lower --workers, or kv_cells or context_window in the "
    "model card; then repeat the command with --retry-failed."
)


def _how(code: int) -> str:
    """How a process ended, as the end of a sentence."""
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return f"was killed ({name})"
    return f"ended with exit code {code}"


def _environment(share: Share, number: int) -> dict[str, str]:
    return {**os.environ, NUMBER: str(number), **({} if share.gpus is None else {VISIBLE: share.gpus})}
