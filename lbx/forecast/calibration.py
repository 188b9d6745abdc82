"""Costs of prefill and decode steps on this machine, measured in a few seconds on the plan's own prompts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lbx.base.records import Completion, Request
from lbx.forecast.estimate import BATCH_ANSWERS, Costs, fit_costs
from lbx.forecast.run_plan import RunPlan, nothing_told
from lbx.inference.completing import complete_all
from lbx.inference.model import NEVER_EXTENDS, Backend, Extend, LocalBackend, SequenceMemory
from lbx.inference.prefix import DecodeCapacity, decode_capacity

log = logging.getLogger("lbx")

T = TypeVar("T")

LEAST_S, SHARE = 3.0, 0.02
"""Calibration takes at most ``LEAST_S`` seconds or this share of the run's predicted time, whichever is more."""
SECONDS = 6.0
"""Upper limit that suffices for runs of any length."""
_TRIAL_SHARE = 0.4
_TRIAL_TOKENS = 48
"""Answers that continue after this number of tokens are assumed to reach their limit."""
_FIRST = 16
"""Tokens of the first passes, which determine the number of passes that fit into the time limit."""
_STEPS = 4
_TRUNK = 0

Told = Callable[[int, int], None]
"""Called with the used percentage of the calibration time, and 100."""


def room_of(backend: Backend, *, batching: bool) -> DecodeCapacity:
    info = backend.info
    if not isinstance(backend, LocalBackend):  # a server, or a model loaded only to count tokens
        return DecodeCapacity(1, info.context_window, 0, 0 if info.weights_bytes is None else 1)
    room = decode_capacity(backend.sequences(), batching=batching)
    # Without batching, all shared tokens are still kept.
    return room if room.answers > 1 else replace(room, step=int(room.follow_limit != NEVER_EXTENDS))


def calibrate(backend: Backend, plan: RunPlan, *, batching: bool, told: Told = nothing_told) -> Costs | None:
    """Measure costs; None if the plan has no prompt short enough to measure with, or no model runs in this process.

    Takes at most ``LEAST_S`` seconds or ``SHARE`` of the run's predicted time, whichever is more, after the model has
    computed its first tokens, for which weights may have to be read. All sequences in memory are dropped.

    Args:
        told: receives the progress.

    Raises:
        BackendError: the model failed.
    """
    if not plan.trials or not isinstance(backend, LocalBackend):
        return None
    log.info(f"Measuring the model's speed: at most {LEAST_S:.0f} s, or {SHARE:.0%} of the run's time.")
    room = room_of(backend, batching=batching)
    tokens = max((request.token_ids for request in plan.trials), key=len)
    clock = _Clock(told, plan.total.distinct_tokens)
    memory = backend.sequences()
    together = min(BATCH_ANSWERS, room.answers)
    measured = _measure_memory(memory, tokens, plan.total.longest, clock, together=together)
    costs = measured.costs(memory.traits.cheap_cells)
    answers = _try_answers(backend, plan, costs, batching=batching, clock=clock)
    return replace(costs, answers=answers, basis=f"a calibration of {clock.elapsed():.0f} s")


class _TimeIsUpError(Exception):
    """The time for measuring is over."""


class _Clock:
    """Time limit of a calibration, refined as measurements arrive.

    Args:
        tokens: minimum number of tokens that the run will compute.
    """

    def __init__(self, told: Told, tokens: int) -> None:
        self._told, self._tokens = told, tokens
        self._start = time.perf_counter()
        self._most = LEAST_S
        self.told = False

    def elapsed(self) -> float:
        return time.perf_counter() - self._start

    def knows(self, token_s: float) -> None:
        """Update the limit with a lower bound on the seconds per token."""
        self.told, self._most = True, max(LEAST_S, SHARE * token_s * self._tokens)
        self._told(min(100, round(100 * self.elapsed() / self._most)), 100)

    @property
    def left(self) -> float:
        """Seconds left for passes, reserving time to try answers."""
        return self._most * (1 - _TRIAL_SHARE) - self.elapsed()

    def has(self, seconds: float) -> bool:
        """Whether there is time for an optional pass."""
        return seconds <= min(self.left, SECONDS * (1 - _TRIAL_SHARE) - self.elapsed())

    def for_answers(self) -> float:
        return min(SECONDS * _TRIAL_SHARE, self._most - self.elapsed())

    def computed(self, _tokens: int) -> None:
        """Raise _TimeIsUpError if there is no time for another pass."""
        if self.elapsed() > self._most:
            raise _TimeIsUpError


@dataclass(slots=True)
class _Measured:
    """Seconds of passes, and their work."""

    prefill: list[tuple[float, float, float]] = field(default_factory=list)  # seconds, tokens, tokens x attended tokens
    decode: list[tuple[float, float, float]] = field(
        default_factory=list
    )  # seconds per step, answers, answers x attended tokens

    def costs(self, cheap_cells: int) -> Costs:
        token_s, seen_s = fit_costs(
            [(tokens, pairs) for _, tokens, pairs in self.prefill], [p[0] for p in self.prefill]
        )
        if len(self.prefill) < _FEWEST_FOR_SLOPE and cheap_cells:
            # The model is too slow to measure long prompts. By definition of ``cheap_cells``, attention to that number
            # of cells takes as much time as the rest of the model.
            seconds, tokens, pairs = (sum(column) for column in zip(*self.prefill, strict=True))
            token_s = seconds / (tokens + pairs / cheap_cells)
            seen_s = token_s / cheap_cells
        step_s, answer_s, answer_seen_s = fit_costs(
            [(1.0, answers, pairs) for _, answers, pairs in self.decode], [d[0] for d in self.decode]
        )
        return Costs(token_s, seen_s, step_s, answer_s, answer_seen_s, 1.0, {}, "")


_FEWEST_FOR_SLOPE = 3
_WHOLE_WARM_UP = 100
_WHOLE_CHUNK = 512
"""Tokens by which prompts get longer if each is computed from its start."""


def _measure_memory(
    memory: SequenceMemory, tokens: Sequence[int], longest: int, clock: _Clock, *, together: int
) -> _Measured:
    """Time passes of a prompt up to the plan's longest, and decode steps at some of its positions."""
    whole = min(memory.max_step, memory.max_cells // 4)
    passes = 2
    if memory.traits.follow_limit < whole:  # each pass recomputes the tokens before it
        whole, passes = min(whole, _WHOLE_CHUNK), 8
    few = min(_FIRST, whole)
    try:
        measured = _first_look(memory, tokens, few, clock)
        first_s = measured.prefill[0][0]
        if clock.left < first_s:
            return measured
        measured = _Measured()
        chunk = max(few, min(whole, int(few * clock.left / passes / first_s)))
        if chunk == whole and first_s < LEAST_S / _WHOLE_WARM_UP:
            memory.extend([Extend(_TRUNK, _take(tokens, 0, chunk), True)])
            memory.drop(_TRUNK)
        farthest = min(memory.max_cells // 2, max(2 * chunk, longest))
        while memory.length(_TRUNK) + chunk <= farthest:
            took = _timed_chunk(memory, tokens, chunk, measured)
            clock.knows(took / measured.prefill[-1][1])
            if len(measured.prefill) in (1, 2):
                _measure_decoding(memory, tokens, together, measured, clock)
            if not clock.has(took):
                break
        if len(measured.prefill) > 2:
            _measure_decoding(memory, tokens, together, measured, clock)
    finally:
        for sequence in range(memory.max_sequences):
            memory.drop(sequence)
    return measured


def _first_look(memory: SequenceMemory, tokens: Sequence[int], count: int, clock: _Clock) -> _Measured:
    """Time a few tokens and a decode step, for models that are too slow for more.

    If time allows, the first measurement is repeated, because it includes reading weights, choosing kernels and
    allocating memory.
    """
    while True:
        measured = _Measured()
        took = _timed_chunk(memory, tokens, count, measured)
        measured.decode.append((_timed_steps(memory, tokens, 1, 1), 1, count))
        memory.drop(_TRUNK)
        seconds = clock.told
        clock.knows(took / count)
        if seconds or clock.left < 4 * took:
            return measured


def _timed_chunk(memory: SequenceMemory, tokens: Sequence[int], chunk: int, measured: _Measured) -> float:
    before = memory.length(_TRUNK)
    if (
        memory.traits.follow_limit < memory.max_step
    ):  # too many to append: compute the whole prompt again, a chunk longer
        memory.drop(_TRUNK)
        before, chunk = 0, min(before + chunk, memory.max_step)
    part = _take(tokens, before, chunk)
    began = time.perf_counter()
    memory.extend([Extend(_TRUNK, part, True)])  # logits are requested, because otherwise a GPU is not waited for
    took = time.perf_counter() - began
    measured.prefill.append((took, chunk, chunk * (before + chunk / 2)))
    return took


def _measure_decoding(
    memory: SequenceMemory, tokens: Sequence[int], together: int, measured: _Measured, clock: _Clock
) -> None:
    for answers in sorted({1, together}):
        room = memory.max_cells - memory.used_cells
        step_s = answers * measured.decode[0][0] if measured.decode else 0.0  # upper bound
        steps = _STEPS if step_s * (_STEPS + 1) <= clock.left else 1
        room //= _own_cells(memory, steps + 1)
        if answers <= room and (len(measured.decode) < 2 or clock.has(step_s * (steps + 1))):
            seen = memory.used_cells + answers * steps / 2
            measured.decode.append((_timed_steps(memory, tokens, answers, steps), answers, answers * seen))


def _own_cells(memory: SequenceMemory, tokens: int) -> int:
    """Number of cells that an answer does not share with the trunk."""
    traits, length = memory.traits, memory.length(_TRUNK)
    return -(-((length if traits.copies else length % traits.grain) + tokens) // traits.grain) * traits.grain


def _timed_steps(memory: SequenceMemory, tokens: Sequence[int], answers: int, steps: int) -> float:
    """Return the seconds of one decode step of several answers to the trunk, ignoring the first step."""
    sequences = range(1, 1 + answers)
    memory.fork(_TRUNK, memory.length(_TRUNK), list(sequences))
    took: list[float] = []
    for step in range(steps + 1):
        began = time.perf_counter()
        memory.extend([Extend(one, _take(tokens, step + one, 1), True) for one in sequences])
        took.append(time.perf_counter() - began)
    for one in sequences:
        memory.drop(one)
    return sum(took[1:]) / max(1, steps)


def _take(tokens: Sequence[int], start: int, count: int) -> list[int]:
    """Return consecutive tokens of a text, wrapping around at its end."""
    return [tokens[(start + i) % len(tokens)] for i in range(count)]


def _try_answers(backend: Backend, plan: RunPlan, costs: Costs, *, batching: bool, clock: _Clock) -> dict[str, float]:
    """Measure the lengths of answers to the shortest prompts that fit into the time limit, up to a few tokens.

    Returns:
        {task: tokens}, with the used share of the token budgets under "".
    """
    chosen: list[Request] = []
    seconds = clock.for_answers()
    for request in sorted(plan.trials, key=lambda one: len(one.token_ids)):
        length = len(request.token_ids)
        seconds -= costs.prefill_s(length, 0)
        seconds -= _TRIAL_TOKENS * (costs.decode_rate(1, length) - (costs.step_s if chosen else 0))
        if seconds < 0:
            break
        chosen.append(replace(request, max_new_tokens=min(_TRIAL_TOKENS, request.max_new_tokens)))
    budgets = {request.key: request.max_new_tokens + request.thinking_tokens for request in plan.trials}
    tried: dict[str, list[float]] = {}
    shares: list[float] = []
    for index, reply in _while_there_is_time(complete_all(backend, chosen, batching=batching, computed=clock.computed)):
        key = chosen[index].key
        if isinstance(reply, Completion):
            cut = reply.finish_reason == "length"
            tokens = float(budgets[key] if cut else reply.output_tokens + 1)
            tried.setdefault(f"{key.benchmark}/{key.task}", []).append(tokens)
            shares.append(min(1.0, tokens / budgets[key]))
    answers = {task: sum(tokens) / len(tokens) for task, tokens in tried.items()}
    return answers | {"": sum(shares) / len(shares)} if shares else {}


def _while_there_is_time(answers: Iterator[T]) -> Iterator[T]:
    with suppress(_TimeIsUpError):
        yield from answers
