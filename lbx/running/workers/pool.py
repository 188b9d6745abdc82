"""Pool of worker processes, which each load the model, on separate cores or GPUs.

When a worker dies, its finished answers are kept and the rest of its job is asked again, prompt by prompt. A prompt
that was the only one in progress at two deaths becomes a failed sample, and the run continues with a new worker.

Cores and GPUs are assigned to the workers.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Self, TypeVar

from lbx.base.errors import BackendError
from lbx.base.inputs import SMALL, read_input
from lbx.base.marks import UNFINISHED
from lbx.base.processes import DEVNULL, POLL_INTERVAL_S, Popen, TimeoutExpired, start_python
from lbx.base.records import SampleKey
from lbx.base.resources import CPU_COUNT, bound_cpus, usable_cpu_count, visible_gpus
from lbx.engine.batching import ignore_tokens
from lbx.results import GenerationRow, RunRow
from lbx.results.rows import differing_keys, show_setting
from lbx.running.jobs import Job, PendingSample, Prepare, Work
from lbx.running.workers.worker import (
    AnswerReady,
    AskJob,
    CallFunction,
    JobDone,
    LogLine,
    ModelLoaded,
    PromptStarted,
    TokensComputed,
    WorkerFailed,
)

_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_CUDA, _HIP, _ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class MachineShare:
    """Share of the machine that a worker may use.

    Attributes:
        cores: numbers of the CPUs that the worker may run on.
        cpu_count: number of CPUs that the worker may use, fewer than ``cores`` under a quota.
        gpus: {environment variable: GPUs}; other variables stay unchanged.
    """

    cores: tuple[int, ...]
    cpu_count: int
    gpus: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that limit a process to the share."""
        return {CPU_COUNT: str(self.cpu_count), **self.gpus}


def divide_machine(workers: int) -> list[MachineShare]:
    """Divide this process's cores and GPUs among workers, keeping each worker on a NUMA node if possible.

    With fewer cores or GPUs than workers, workers share them.
    """
    near, usable, lists = _cores_by_nearness(), range(usable_cpu_count()), _gpu_lists()
    return [
        MachineShare(
            tuple(_nth_slice(near, number, workers)),
            len(_nth_slice(usable, number, workers)),
            {
                variable: ",".join(_nth_slice(gpus, number, workers))
                for variable, gpus in lists.items()
                if len(gpus) > 1
            },
        )
        for number in range(workers)
    ]


def _nth_slice(items: Sequence[T], number: int, count: int) -> Sequence[T]:
    """Slice ``number`` of ``count`` nearly equal slices, or a single item if there are fewer items than slices."""
    if len(items) < count:
        return items[number % len(items) :][:1]
    return items[len(items) * number // count : len(items) * (number + 1) // count]


def _cores_by_nearness() -> list[int]:
    """Numbers of the CPUs that this process may run on, sorted by NUMA node, then by physical core."""
    node = {cpu: number for number, listed in _nodes() for cpu in listed}
    return sorted(bound_cpus(), key=lambda cpu: (node.get(cpu, 0), _physical_core(cpu), cpu))


def _nodes() -> list[tuple[int, list[int]]]:
    try:
        folders = [path for path in _NODES.iterdir() if re.fullmatch(r"node\d+", path.name)]
        return [(int(path.name[4:]), _cpu_list(read_input(path / "cpulist", SMALL).decode())) for path in folders]
    except (OSError, ValueError):
        return []


def _cpu_list(text: str) -> list[int]:
    """Parse a CPU list in the kernel's format: "0-3,8"."""
    ranges = (part.partition("-") for part in text.strip().split(",") if part.strip())
    return [cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)]


def _physical_core(cpu: int) -> int:
    """Number of the first hardware thread of the CPU's physical core."""
    try:
        return _cpu_list(read_input(_CPUS / f"cpu{cpu}/topology/thread_siblings_list", SMALL).decode())[0]
    except (OSError, ValueError, IndexError):
        return cpu


def _gpu_lists() -> dict[str, list[str]]:
    """Return {environment variable: GPUs} of the lists to divide, without loading a GPU library.

    Without CUDA_VISIBLE_DEVICES, the device files name NVIDIA's GPUs. ROCm reads HIP_VISIBLE_DEVICES, or else
    CUDA_VISIBLE_DEVICES, as indices into the GPUs of ROCR_VISIBLE_DEVICES, which therefore stays unchanged with either.
    """
    cuda, hip, rocr = map(visible_gpus, (_CUDA, _HIP, _ROCR))
    devices = (path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
    lists = {_CUDA: sorted(filter(str.isdecimal, devices), key=int) if cuda is None else cuda}
    if hip is not None:
        lists[_HIP] = [
            *itertools.takewhile(lambda gpu: rocr is None or not gpu.isdecimal() or int(gpu) < len(rocr), hip)
        ]
    elif rocr is not None and cuda is None:
        lists[_ROCR] = rocr
    return lists


T = TypeVar("T")
log = logging.getLogger("lbx")

_MAX_DEATHS = 4
"""Number of consecutive deaths, without an answer in between, that a single prompt cannot cause."""

_DEATHS_OF_PROMPT = 2
"""Number of deaths after which the only prompt in progress is considered the cause, since one death may be chance."""

_PATIENCE_S = 10.0

_PROGRAM = """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
from lbx.running.workers.worker import main
main()
"""
"""Signals sent to every process of a job: the parent handles them, so workers ignore them from the start."""


@dataclass(slots=True, eq=False)
class _Worker:
    """Worker process with its state.

    Attributes:
        job: current job, or None if idle.
        remaining: {index of the item in the job: iterations without an answer}.
        one_by_one: whether the worker asks one prompt at a time and reports each.
        current_prompt: (index, iteration) that a worker last reported to be in progress.
    """

    number: int
    process: Popen[bytes]
    pipe: Connection
    ready: bool = False
    job: Job | None = None
    one_by_one: bool = False
    remaining: dict[int, set[int]] = field(default_factory=dict)
    current_prompt: tuple[int, int] | None = None

    def assign(self, job: Job, *, one_by_one: bool) -> None:
        self.job, self.one_by_one, self.current_prompt = job, one_by_one, None
        self.remaining = {index: set(item.iterations) for index, item in enumerate(job)}
        self.pipe.send(AskJob(job, one_by_one))

    def remaining_items(self) -> list[PendingSample]:
        items = enumerate(self.job or ())
        return [item.with_iterations(self.remaining[index]) for index, item in items if self.remaining[index]]

    def end(self) -> int:
        """Kill the process, and return the exit code as in ``subprocess``."""
        self.pipe.close()
        self.process.kill()
        return self.process.wait()


class WorkerPool:
    """Asker that distributes jobs to worker processes. Use as a context manager.

    Args:
        prepare: loads the model in each worker.

    Raises:
        LbxError: raised by ``prepare`` in the first worker.
        BackendError: the first worker died before its model was loaded.
    """

    def __init__(self, prepare: Prepare, size: int) -> None:
        self._prepare = prepare
        self._shares = divide_machine(size)
        self._workers: list[_Worker] = []
        self._retries: deque[Job] = deque()
        self._deaths = 0
        self._suspects: Counter[tuple[int, SampleKey]] = Counter()
        self._loaded_workers: set[int] = set()  # numbers of workers that have once been ready
        self.rows: tuple[RunRow, ...] = ()
        try:
            # Start the first worker by itself: problems with the model are reported once, and its file is then in
            # memory for the others.
            first = self._start(0)
            self._wait_for_first(first)
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
        """Call a function with the works in a worker process, and return the result.

        Raises:
            LbxError: raised by the function.
            BackendError: the call kills worker after worker.
        """
        while True:
            worker = next((candidate for candidate in self._workers if candidate.ready), self._workers[0])
            if not worker.ready:
                for _ in self._handle_message(worker, ignore_tokens):
                    pass
                continue
            try:
                worker.pipe.send(CallFunction(function))
                message = _receive(worker.pipe)
            except (EOFError, ConnectionResetError, BrokenPipeError):
                for _ in self._replace_dead(worker):
                    pass
                continue
            if isinstance(message, WorkerFailed):
                raise message.error
            self._deaths = 0
            result: T = message.result
            return result

    def ask(
        self, jobs: Iterator[Job], on_tokens: Callable[[int], None]
    ) -> Iterator[tuple[PendingSample, GenerationRow]]:
        """Distribute jobs and yield answers as they arrive (see ``lbx.running.answering.Asker``).

        Raises:
            LbxError: a worker cannot continue, for example because a model server is gone.
            BackendError: worker after worker dies.
        """
        more = True
        while True:
            for worker in self._workers:
                if not worker.ready or worker.job is not None:
                    continue
                if self._retries:
                    self._assign(worker, self._retries.popleft(), one_by_one=True)
                elif more:
                    job = next(jobs, None)
                    if job is None:
                        more = False
                    else:
                        self._assign(worker, job, one_by_one=False)
            busy = [worker for worker in self._workers if worker.job is not None]
            loading = [worker for worker in self._workers if not worker.ready]
            if not busy and not self._retries and not more:
                return
            heard = wait([worker.pipe for worker in busy + loading], POLL_INTERVAL_S)
            for worker in busy + loading:
                if worker.pipe in heard:
                    yield from self._handle_message(worker, on_tokens)

    def close(self) -> None:
        for worker in self._workers:
            with suppress(OSError, TimeoutExpired):
                if worker.ready and worker.job is None:
                    worker.pipe.send(None)
                    worker.process.wait(_PATIENCE_S)
            worker.end()
        self._workers.clear()

    def _start(self, number: int) -> _Worker:
        share = self._shares[number]
        ours, theirs = Pipe()
        arguments = [str(os.getpid()), str(theirs.fileno()), ",".join(map(str, share.cores)), str(number)]
        process = start_python(
            _PROGRAM,
            *arguments,
            pass_fds=[theirs.fileno()],
            stdin=DEVNULL,
            process_group=0,  # a terminal's Ctrl-C reaches only the parent
            env={**os.environ, **share.environment},
        )
        theirs.close()
        worker = _Worker(number, process, ours)
        self._workers.append(worker)
        with suppress(BrokenPipeError, ConnectionResetError):  # a dead worker is detected when its pipe is read
            ours.send(self._prepare)
        return worker

    def _wait_for_first(self, worker: _Worker) -> None:
        try:
            message = _receive(worker.pipe)
        except (EOFError, ConnectionResetError) as exc:
            raise self._startup_error(worker) from exc
        if isinstance(message, WorkerFailed):
            raise message.error
        self.rows, worker.ready = message.rows, True
        self._loaded_workers.add(worker.number)

    def _refuse_other_model(self, rows: Sequence[RunRow]) -> None:
        """Raise BackendError if a worker's model or options differ from those of the first worker."""
        for mine, other in zip(self.rows, rows, strict=True):
            if names := differing_keys(mine.settings, other.settings):
                theirs, here = other.settings, mine.settings
                differences = (
                    f"{name} is {show_setting(theirs.get(name))}, not {show_setting(here.get(name))}" for name in names
                )
                raise BackendError(
                    f"A worker process loaded a different model than the first one: {'; '.join(differences)}.",
                    fix="The model's files have changed, or not every worker has a GPU. Set the card's options so that "
                    "all workers compute alike, or pass fewer --workers.",
                )

    def _startup_error(self, worker: _Worker) -> BackendError:
        return BackendError(
            f"The first worker process {_describe_exit(worker.end())} before its first prompt.",
            fix="If memory ran out, use a smaller model, cache or context_window. To see the messages of the model's "
            "library, load the model in this process: remove --workers and pass --debug.",
        )

    def _assign(self, worker: _Worker, job: Job, *, one_by_one: bool) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the rest of its job is requeued when its pipe is read
            worker.assign(job, one_by_one=one_by_one)

    def _handle_message(
        self, worker: _Worker, on_tokens: Callable[[int], None]
    ) -> Iterator[tuple[PendingSample, GenerationRow]]:
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            yield from self._replace_dead(worker)
            return
        match message:
            case LogLine(record=record):
                log.handle(record)
            case ModelLoaded(rows=rows):
                self._refuse_other_model(rows)
                worker.ready = True
                self._loaded_workers.add(worker.number)
            case TokensComputed(tokens=tokens):
                on_tokens(tokens)
            case PromptStarted(index=index, iteration=iteration):
                worker.current_prompt = (index, iteration)
            case AnswerReady(index=index, row=row):
                item = (worker.job or ())[index]
                if row.error_type == UNFINISHED:
                    item.finished_steps[row.iteration] = row.steps or ()
                else:
                    worker.remaining[index].discard(row.iteration)
                self._deaths = 0
                yield item, row
            case JobDone():
                worker.job = None
            case WorkerFailed(error=error):
                if worker.number in self._loaded_workers or len(self._workers) == 1:
                    raise error
                self._dismiss(worker, f"could not load the model: {error.cause}")

    def _replace_dead(self, worker: _Worker) -> Iterator[tuple[PendingSample, GenerationRow]]:
        ending = _describe_exit(worker.end())
        if worker.number not in self._loaded_workers and len(self._workers) > 1:
            self._dismiss(worker, f"{ending} while loading the model")  # memory may not suffice for all copies
            return
        self._workers.remove(worker)
        self._deaths += 1
        remaining = worker.remaining_items()
        if worker.job and worker.one_by_one and worker.current_prompt is not None:
            index, iteration = worker.current_prompt
            item = worker.job[index]
            suspect = (item.run, item.sample.key._replace(iteration=iteration))
            if iteration in worker.remaining[index]:
                self._suspects[suspect] += 1
                if self._suspects[suspect] == _DEATHS_OF_PROMPT:
                    worker.remaining[index].discard(iteration)
                    remaining = worker.remaining_items()
                    yield item, self._failed_row(item, iteration, ending)
        if self._deaths >= _MAX_DEATHS:
            raise BackendError(
                f"Worker processes keep dying: {self._deaths} without an answer in between; the last one {ending}.",
                fix=_FIX,
            )
        if remaining:
            self._retries.append(remaining)
        log.info(f"Worker {worker.number + 1} {ending}. Starting a new one; no answer is lost.")
        self._start(worker.number)

    def _failed_row(self, item: PendingSample, iteration: int, ending: str) -> GenerationRow:
        error = BackendError(f"The worker process {ending} during this prompt.", fix=_FIX)
        return GenerationRow(
            self.rows[item.run].run_id,
            *item.sample.key._replace(iteration=iteration),
            error=str(error),
            error_type=type(error).__name__,
            steps=item.finished_steps.get(iteration) or None,
        )

    def _dismiss(self, worker: _Worker, reason: str) -> None:
        """Remove a worker that never became ready, and log the reason."""
        worker.end()
        self._workers.remove(worker)
        log.info(f"Worker {worker.number + 1} {reason}. The run continues with {len(self._workers)}.")


_FIX = (
    "If memory ran out (dmesg shows the kernel's OOM killer), lower --workers, or kv_cells or context_window in the "
    "model card. Then repeat the command with --retry-failed."
)


def _receive(pipe: Connection) -> Any:
    while isinstance(message := pipe.recv(), LogLine):
        log.handle(message.record)
    return message


def _describe_exit(code: int) -> str:
    """Describe an exit code of a process, as the end of a sentence."""
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        return f"was killed ({name})"
    return f"ended with exit code {code}"
