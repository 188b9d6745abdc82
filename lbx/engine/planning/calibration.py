"""What a token and a decode step cost on this machine, measured in a few seconds on the plan's own prompts."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lbx.backends.base import Backend, LocalBackend
from lbx.backends.sequence_memory import NOTHING_FOLLOWS, Extend, SequenceMemory
from lbx.engine.admission import DecodeCapacity, capacity_of
from lbx.engine.completing import complete_all
from lbx.engine.planning.estimate import Costs
from lbx.engine.planning.run_plan import RunPlan
from lbx.records import Completion, Request

log = logging.getLogger("lbx")

SECONDS = 6.0
_TRIAL_SHARE = 0.4
_TRIAL_TOKENS = 48
"""Answers that go on after so many tokens are taken to go on to their limit."""
_STEPS = 4
_SECOND_AND_LAST = 2.5
"""What a second pass behind the first and the last decode steps take at most, in times of the first of both."""
_TOGETHER = 8
_TRUNK = 0


def room_of(backend: Backend, *, batching: bool) -> DecodeCapacity:
    """How the backend answers prompts, as ``complete_all`` does it."""
    info = backend.info
    if not isinstance(backend, LocalBackend):  # a server; or a model that is loaded to count only
        return DecodeCapacity(1, info.context_window, 0, 0 if info.weights_bytes is None else 1)
    room = capacity_of(backend.sequences(), batching=batching)
    # One at a time, every token that is shared is kept all the same.
    return room if room.answers > 1 else replace(room, step=int(room.follow_limit != NOTHING_FOLLOWS))


def calibrate(backend: Backend, plan: RunPlan, *, batching: bool, seconds: float = SECONDS) -> Costs | None:
    """Measure costs; None where the plan has no prompt short enough to measure with, or no model computes here.

    Takes about ``seconds``; longer where the model needs longer for two passes. The memory's sequences are dropped.

    Raises:
        BackendError: the model failed.
    """
    if not plan.trials or not isinstance(backend, LocalBackend):
        return None
    start = time.perf_counter()
    room = room_of(backend, batching=batching)
    tokens = max((request.token_ids for request in plan.trials), key=len)
    memory = backend.sequences()
    log.info(f"Measuring how fast the model is: up to {seconds:.0f} s, or as long as two passes take.")
    slow = _Slow(start, seconds)
    together = min(_TOGETHER, room.answers)
    share = 1 - _TRIAL_SHARE
    measured = _measure_memory(memory, tokens, plan.total.longest, seconds * share, slow, together=together)
    costs = measured.costs(memory.traits.cheap_cells)
    answers = _try_answers(backend, plan, costs, batching=batching, seconds=seconds * _TRIAL_SHARE)
    basis = f"a calibration of {time.perf_counter() - start:.0f} s"
    if not answers:
        basis += ", with answers as long as they may be"
    return replace(costs, answers=answers, basis=basis)


@dataclass(frozen=True, slots=True)
class _Slow:
    """Says how long the measuring takes where a first pass shows that it takes longer than was said.

    Args:
        start: when it began.
        seconds: how long it was to take.
    """

    start: float
    seconds: float

    def elapsed(self) -> float:
        return time.perf_counter() - self.start

    def warn(self, left: float) -> None:
        """``left``: seconds of what is yet to be measured, the trial of answers not counted."""
        most = self.elapsed() + left + self.seconds * _TRIAL_SHARE
        if most > 2 * self.seconds:
            log.info(f"The model is slow here: measuring takes up to {most:.0f} s in all.")


@dataclass(slots=True)
class _Measured:
    """Seconds of passes, beside what was in them."""

    prefill: list[tuple[float, float, float]] = field(default_factory=list)  # seconds, tokens, tokens x seen
    decode: list[tuple[float, float, float]] = field(default_factory=list)  # seconds a step, answers, answers x seen

    def costs(self, cheap_cells: int) -> Costs:
        token_s, seen_s = _fit([(tokens, pairs) for _, tokens, pairs in self.prefill], [p[0] for p in self.prefill])
        if len(self.prefill) < _FEWEST_FOR_SLOPE and cheap_cells:
            # Too slow a model to reach far: attention to so many cells takes as much as the rest of the model.
            seconds, tokens, pairs = (sum(column) for column in zip(*self.prefill, strict=True))
            token_s = seconds / (tokens + pairs / cheap_cells)
            seen_s = token_s / cheap_cells
        step_s, answer_s, answer_seen_s = _fit(
            [(1.0, answers, pairs) for _, answers, pairs in self.decode], [d[0] for d in self.decode]
        )
        return Costs(token_s, seen_s, step_s, answer_s, answer_seen_s, 1.0, {}, "")


_FEWEST_FOR_SLOPE = 3
_WHOLE_WARM_UP = 100
_WHOLE_CHUNK = 512
"""By so many tokens prompts get longer where each is computed whole."""


def _fit(rows: Sequence[tuple[float, ...]], seconds: Sequence[float]) -> list[float]:
    """Least squares of relative errors, with no factor below 0: what came out negative is left out."""
    matrix = np.asarray(rows, dtype=np.float64)
    wanted = np.asarray(seconds, dtype=np.float64)
    scaled: NDArray[np.float64] = matrix / wanted[:, None]
    columns = [i for i in range(matrix.shape[1]) if matrix[:, i].any()]
    found = np.zeros(matrix.shape[1])
    while columns:
        solved = np.linalg.lstsq(scaled[:, columns], np.ones(len(wanted)), rcond=None)[0]
        if (solved >= 0).all():
            found[columns] = solved
            break
        del columns[int(solved.argmin())]
    return [float(value) for value in found]


def _measure_memory(
    memory: SequenceMemory, tokens: Sequence[int], longest: int, seconds: float, slow: _Slow, *, together: int
) -> _Measured:
    """Passes of a prompt as far as the plan's longest, while there is time, and decode steps here and there."""
    measured = _Measured()
    chunk = min(memory.max_step, memory.max_cells // 4)
    if memory.traits.follow_limit < chunk:
        chunk = min(chunk, _WHOLE_CHUNK)
    try:
        _warm_up(memory, tokens, chunk, seconds)
        farthest = min(memory.max_cells // 2, max(2 * chunk, longest))
        while memory.length(_TRUNK) + chunk <= farthest:
            began = slow.elapsed()
            _timed_chunk(memory, tokens, chunk, measured)
            if len(measured.prefill) in (1, 2):
                _measure_decoding(memory, tokens, together, measured)
            if len(measured.prefill) == 1:
                slow.warn(_SECOND_AND_LAST * (slow.elapsed() - began))
            elif slow.elapsed() > seconds:
                break
        _measure_decoding(memory, tokens, together, measured)
    finally:
        for sequence in range(memory.max_sequences):
            memory.drop(sequence)
    return measured


def _warm_up(memory: SequenceMemory, tokens: Sequence[int], chunk: int, seconds: float) -> None:
    """What only the first pass takes: weights are read in, kernels chosen, memory is found."""
    began = time.perf_counter()
    memory.extend([Extend(_TRUNK, _take(tokens, 0, min(16, chunk)), True)])
    _timed_steps(memory, tokens, 1, 1)
    memory.drop(_TRUNK)
    if time.perf_counter() - began < seconds / _WHOLE_WARM_UP:
        memory.extend([Extend(_TRUNK, _take(tokens, 0, chunk), True)])
        memory.drop(_TRUNK)


def _timed_chunk(memory: SequenceMemory, tokens: Sequence[int], chunk: int, measured: _Measured) -> None:
    before = memory.length(_TRUNK)
    if memory.traits.follow_limit < memory.max_step:  # so many cannot follow: the whole prompt again, a chunk longer
        memory.drop(_TRUNK)
        before, chunk = 0, min(before + chunk, memory.max_step)
    part = _take(tokens, before, chunk)
    began = time.perf_counter()
    memory.extend([Extend(_TRUNK, part, True)])  # a GPU is waited for only where something is wanted of it
    measured.prefill.append((time.perf_counter() - began, chunk, chunk * (before + chunk / 2)))


def _measure_decoding(memory: SequenceMemory, tokens: Sequence[int], together: int, measured: _Measured) -> None:
    for answers in sorted({1, together}):
        room = memory.max_cells - memory.used_cells
        if answers * (_STEPS + 1) <= room:
            seen = memory.used_cells + answers * _STEPS / 2
            measured.decode.append((_timed_steps(memory, tokens, answers, _STEPS), answers, answers * seen))


def _timed_steps(memory: SequenceMemory, tokens: Sequence[int], answers: int, steps: int) -> float:
    """Seconds of one decode step of so many answers to the trunk; the first step is not counted."""
    sequences = range(1, 1 + answers)
    memory.fork(_TRUNK, memory.length(_TRUNK), list(sequences))
    took: list[float] = []
    for step in range(steps + 1):
        began = time.perf_counter()
        memory.extend([Extend(one, _take(tokens, step + one, 1), True) for one in sequences])
        took.append(time.perf_counter() - began)
    for one in sequences:
        memory.drop(one)
    return sum(took[1:]) / steps


def _take(tokens: Sequence[int], start: int, count: int) -> list[int]:
    """So many tokens of a text that begins again where it ends."""
    return [tokens[(start + i) % len(tokens)] for i in range(count)]


def _try_answers(backend: Backend, plan: RunPlan, costs: Costs, *, batching: bool, seconds: float) -> dict[str, float]:
    """How long answers are: those to the shortest prompts that there is time for, up to some tokens.

    Returns:
        {task: tokens}, and under "" the share of their budgets that they took.
    """
    chosen: list[Request] = []
    for request in sorted(plan.trials, key=lambda one: len(one.token_ids)):
        length = len(request.token_ids)
        seconds -= length * (costs.token_s + costs.seen_s * length / 2)
        seconds -= _TRIAL_TOKENS * (costs.answer_s + costs.answer_seen_s * length + (0 if chosen else costs.step_s))
        if seconds < 0:
            break
        chosen.append(replace(request, max_new_tokens=min(_TRIAL_TOKENS, request.max_new_tokens)))
    budgets = {request.key: request.max_new_tokens + request.thinking_tokens for request in plan.trials}
    tried: dict[str, list[float]] = {}
    shares: list[float] = []
    for index, said in complete_all(backend, chosen, batching=batching):
        key = chosen[index].key
        if isinstance(said, Completion):
            cut = said.finish_reason == "length"
            tokens = float(budgets[key] if cut else said.output_tokens + 1)
            tried.setdefault(f"{key.benchmark}/{key.task}", []).append(tokens)
            shares.append(min(1.0, tokens / budgets[key]))
    answers = {task: sum(tokens) / len(tokens) for task, tokens in tried.items()}
    return answers | {"": sum(shares) / len(shares)} if shares else {}
