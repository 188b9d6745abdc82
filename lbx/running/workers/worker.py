"""Main program of a worker process, which runs jobs with a loaded model.

A worker communicates through one pipe with the process that writes the results file, and ends when that process ends.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from lbx.base.errors import LbxError
from lbx.base.processes import end_with_parent
from lbx.base.standard_streams import prepare_standard_streams
from lbx.results import GenerationRow, RunRow
from lbx.running.answering import answer_job
from lbx.running.jobs import Job, PendingSample, Prepare, Work

REPORT_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """Message of a worker: the model is loaded."""

    rows: tuple[RunRow, ...]


@dataclass(frozen=True, slots=True)
class AskJob:
    """Message to a worker: run a job. With ``one_by_one``, ask one prompt at a time, and announce each."""

    job: Job
    one_by_one: bool


@dataclass(frozen=True, slots=True)
class CallFunction:
    """Message to a worker: call a function with the works, and return the result."""

    function: Callable[[Sequence[Work]], Any]


@dataclass(frozen=True, slots=True)
class PromptStarted:
    """Message of a worker that asks one by one: it begins the item at ``index``."""

    index: int
    iteration: int


@dataclass(frozen=True, slots=True)
class AnswerReady:
    """Message of a worker: the answer to the item at ``index``."""

    index: int
    row: GenerationRow


@dataclass(frozen=True, slots=True)
class TokensComputed:
    """Message of a worker: number of tokens computed since the last such message."""

    tokens: int


@dataclass(frozen=True, slots=True)
class JobDone:
    """Message of a worker: the job or call is finished."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class LogLine:
    record: logging.LogRecord


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """Message of a worker: it cannot continue."""

    error: LbxError


def main() -> None:
    """Run a worker process. Arguments: the parent's process id, the pipe's file descriptor, cores, worker number.

    All workers load the same model, so only worker 0 logs notes about it.
    """
    parent, descriptor, number = (int(sys.argv[index]) for index in (1, 2, 4))
    cores = [int(core) for core in sys.argv[3].split(",")]
    end_with_parent(parent)  # a worker in a long computation would not notice for hours
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)  # before any library counts them
    prepare_standard_streams()
    sys.stdout = sys.stderr  # scripts read answers from the parent's standard output
    pipe = Connection(descriptor)
    log = logging.getLogger("lbx")
    log.addHandler(_PipeHandler(pipe))
    log.setLevel(logging.WARNING if number else logging.INFO)
    try:
        prepare: Prepare = pipe.recv()
        works = prepare()
        log.setLevel(logging.INFO)
        pipe.send(ModelLoaded(tuple(work.row for work in works)))
        while (message := pipe.recv()) is not None:
            if isinstance(message, CallFunction):
                pipe.send(JobDone(message.function(works)))
            else:
                _answer(pipe, works, message)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent has ended
    except LbxError as exc:
        pipe.send(WorkerFailed(exc))


class _PipeHandler(logging.Handler):
    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        self._pipe.send(LogLine(record))


def _answer(pipe: Connection, works: Sequence[Work], message: AskJob) -> None:
    reporter = _TokenReporter(pipe)
    if message.one_by_one:
        for index, item in enumerate(message.job):
            for iteration in item.iterations:
                pipe.send(PromptStarted(index, iteration))
                _ask(pipe, works, [item.with_iterations({iteration})], reporter, first=index)
    else:
        _ask(pipe, works, message.job, reporter, first=0)
    reporter.report()
    pipe.send(JobDone())


def _ask(
    pipe: Connection, works: Sequence[Work], job: Sequence[PendingSample], reporter: _TokenReporter, *, first: int
) -> None:
    for index, row in answer_job(works, job, on_tokens=reporter.count):
        pipe.send(AnswerReady(first + index, row))


class _TokenReporter:
    """Reporter that sends ``TokensComputed`` a few times per second."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._tokens = 0
        self._last_report = time.monotonic()

    def count(self, tokens: int) -> None:
        self._tokens += tokens
        if time.monotonic() - self._last_report >= REPORT_INTERVAL_S:
            self.report()

    def report(self) -> None:
        self._pipe.send(TokensComputed(self._tokens))
        self._tokens, self._last_report = 0, time.monotonic()
