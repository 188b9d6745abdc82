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
from lbx.forecast.run_plan import RunPlan, ignore_progress
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

ProgressCallback = Callable[[int, int], None]
"""Callback for the used share of the calibration time, in percent, and for 100."""


def decode_capacity_of(backend: Backend, *, batching: bool) -> DecodeCapacity:
    info = backend.info
    if not isinstance(backend, LocalBackend):  # a server, or a model loaded only to count tokens
        return DecodeCapacity(1, info.context_window, 0, 0 if info.weights_bytes is None else 1)
    room = decode_capacity(backend.sequences(), batching=batching)
    # Without batching, all shared tokens are still kept.
    return room if room.answers > 1 else replace(room, step=int(room.follow_limit != NEVER_EXTENDS))


def calibrate(
    backend: Backend, plan: RunPlan, *, batching: bool, on_progress: ProgressCallback = ignore_progress
) -> Costs | None:
    """Measure costs; None if the plan has no prompt short enough to measure with, or no model runs in this process.

    Takes at most ``LEAST_S`` seconds or ``SHARE`` of the run's predicted time, whichever is more, after the model has
    computed its first tokens, for which weights may have to be read. All sequences in memory are dropped.

    Raises:
        BackendError: the model failed.
    """
    if not plan.trials or not isinstance(backend, LocalBackend):
        return None
    log.info(f"Measuring the model's speed: at most {LEAST_S:.0f} s, or {SHARE:.0%} of the run's time.")
    room = decode_capacity_of(backend, batching=batching)
    tokens = max((request.token_ids for request in plan.trials), key=len)
    clock = _Clock(on_progress, plan.total.distinct_tokens)
    memory = backend.sequences()
    together = min(BATCH_ANSWERS, room.answers)
    measured = _time_passes(memory, tokens, plan.total.longest, clock, batch_size=together)
    costs = measured.costs(memory.traits.cheap_cells)
    answers = _try_answers(backend, plan, costs, batching=batching, clock=clock)
    return replace(costs, answers=answers, basis=f"a calibration of {clock.elapsed_s():.0f} s")


class _TimeIsUpError(Exception):
    """Time for measuring is over."""


class _Clock:
    """Time limit of a calibration, refined as measurements arrive.

    Args:
        tokens: minimum number of tokens that the run will compute.
    """

    def __init__(self, on_progress: ProgressCallback, tokens: int) -> None:
        self._on_progress, self._tokens = on_progress, tokens
        self._start = time.perf_counter()
        self._limit_s = LEAST_S
        self.has_estimate = False

    def elapsed_s(self) -> float:
        return time.perf_counter() - self._start

    def update_limit(self, token_s: float) -> None:
        """Update the limit with a lower bound on the seconds per token."""
        self.has_estimate, self._limit_s = True, max(LEAST_S, SHARE * token_s * self._tokens)
        self._on_progress(min(100, round(100 * self.elapsed_s() / self._limit_s)), 100)

    @property
    def remaining_s(self) -> float:
        """Seconds left for passes, reserving time to try answers."""
        return self._limit_s * (1 - _TRIAL_SHARE) - self.elapsed_s()

    def has_time_for(self, seconds: float) -> bool:
        """Whether there is time for an optional pass."""
        return seconds <= min(self.remaining_s, SECONDS * (1 - _TRIAL_SHARE) - self.elapsed_s())

    def answer_time_s(self) -> float:
        return min(SECONDS * _TRIAL_SHARE, self._limit_s - self.elapsed_s())

    def check_time(self, _tokens: int) -> None:
        """Raise _TimeIsUpError if there is no time for another pass."""
        if self.elapsed_s() > self._limit_s:
            raise _TimeIsUpError


@dataclass(slots=True)
class _PassTimes:
    """Measured seconds of passes, with the work of each."""

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
_WARM_UP_PASSES = 100
_RECOMPUTED_CHUNK = 512
"""Tokens by which prompts get longer if each is computed from its start."""


def _time_passes(
    memory: SequenceMemory, tokens: Sequence[int], longest: int, clock: _Clock, *, batch_size: int
) -> _PassTimes:
    """Time passes of a prompt up to the plan's longest, and decode steps at some of its positions."""
    longest_pass = min(memory.max_step, memory.max_cells // 4)
    passes = 2
    if memory.traits.follow_limit < longest_pass:  # each pass recomputes the tokens before it
        longest_pass, passes = min(longest_pass, _RECOMPUTED_CHUNK), 8
    few = min(_FIRST, longest_pass)
    try:
        measured = _time_first_tokens(memory, tokens, few, clock)
        first_s = measured.prefill[0][0]
        if clock.remaining_s < first_s:
            return measured
        measured = _PassTimes()
        chunk = max(few, min(longest_pass, int(few * clock.remaining_s / passes / first_s)))
        if chunk == longest_pass and first_s < LEAST_S / _WARM_UP_PASSES:
            memory.extend([Extend(_TRUNK, _take_tokens(tokens, 0, chunk), True)])
            memory.drop(_TRUNK)
        farthest = min(memory.max_cells // 2, max(2 * chunk, longest))
        while memory.length(_TRUNK) + chunk <= farthest:
            took = _time_chunk(memory, tokens, chunk, measured)
            clock.update_limit(took / measured.prefill[-1][1])
            if len(measured.prefill) in (1, 2):
                _time_decoding(memory, tokens, batch_size, measured, clock)
            if not clock.has_time_for(took):
                break
        if len(measured.prefill) > 2:
            _time_decoding(memory, tokens, batch_size, measured, clock)
    finally:
        for sequence in range(memory.max_sequences):
            memory.drop(sequence)
    return measured


def _time_first_tokens(memory: SequenceMemory, tokens: Sequence[int], count: int, clock: _Clock) -> _PassTimes:
    """Time a few tokens and a decode step, for models that are too slow for more.

    If time allows, the first measurement is repeated, because it includes reading weights, choosing kernels and
    allocating memory.
    """
    while True:
        measured = _PassTimes()
        took = _time_chunk(memory, tokens, count, measured)
        measured.decode.append((_time_steps(memory, tokens, 1, 1), 1, count))
        memory.drop(_TRUNK)
        seconds = clock.has_estimate
        clock.update_limit(took / count)
        if seconds or clock.remaining_s < 4 * took:
            return measured


def _time_chunk(memory: SequenceMemory, tokens: Sequence[int], chunk: int, times: _PassTimes) -> float:
    before = memory.length(_TRUNK)
    if (
        memory.traits.follow_limit < memory.max_step
    ):  # too many to append: compute the whole prompt again, a chunk longer
        memory.drop(_TRUNK)
        before, chunk = 0, min(before + chunk, memory.max_step)
    part = _take_tokens(tokens, before, chunk)
    began = time.perf_counter()
    memory.extend([Extend(_TRUNK, part, True)])  # logits are requested, because otherwise a GPU is not waited for
    took = time.perf_counter() - began
    times.prefill.append((took, chunk, chunk * (before + chunk / 2)))
    return took


def _time_decoding(
    memory: SequenceMemory, tokens: Sequence[int], batch_size: int, times: _PassTimes, clock: _Clock
) -> None:
    for answers in sorted({1, batch_size}):
        room = memory.max_cells - memory.used_cells
        step_s = answers * times.decode[0][0] if times.decode else 0.0  # upper bound
        steps = _STEPS if step_s * (_STEPS + 1) <= clock.remaining_s else 1
        room //= _private_cells(memory, steps + 1)
        if answers <= room and (len(times.decode) < 2 or clock.has_time_for(step_s * (steps + 1))):
            seen = memory.used_cells + answers * steps / 2
            times.decode.append((_time_steps(memory, tokens, answers, steps), answers, answers * seen))


def _private_cells(memory: SequenceMemory, tokens: int) -> int:
    """Number of cells that an answer does not share with the trunk."""
    traits, length = memory.traits, memory.length(_TRUNK)
    return -(-((length if traits.copies else length % traits.grain) + tokens) // traits.grain) * traits.grain


def _time_steps(memory: SequenceMemory, tokens: Sequence[int], answers: int, steps: int) -> float:
    """Seconds of a decode step with several answers that share the trunk, ignoring the first step."""
    sequences = range(1, 1 + answers)
    memory.fork(_TRUNK, memory.length(_TRUNK), list(sequences))
    took: list[float] = []
    for step in range(steps + 1):
        began = time.perf_counter()
        memory.extend([Extend(sequence, _take_tokens(tokens, step + sequence, 1), True) for sequence in sequences])
        took.append(time.perf_counter() - began)
    for sequence in sequences:
        memory.drop(sequence)
    return sum(took[1:]) / max(1, steps)


def _take_tokens(tokens: Sequence[int], start: int, count: int) -> list[int]:
    """Consecutive tokens of a text, wrapping around at its end."""
    return [tokens[(start + i) % len(tokens)] for i in range(count)]


def _try_answers(backend: Backend, plan: RunPlan, costs: Costs, *, batching: bool, clock: _Clock) -> dict[str, float]:
    """Measure the lengths of answers to the shortest prompts that fit into the time limit, up to a few tokens.

    Returns:
        {task: tokens}, with the used share of the token budgets under "".
    """
    requests: list[Request] = []
    seconds = clock.answer_time_s()
    for request in sorted(plan.trials, key=lambda candidate: len(candidate.token_ids)):
        length = len(request.token_ids)
        seconds -= costs.prefill_s(length, 0)
        seconds -= _TRIAL_TOKENS * (costs.decode_rate(1, length) - (costs.step_s if requests else 0))
        if seconds < 0:
            break
        requests.append(replace(request, max_new_tokens=min(_TRIAL_TOKENS, request.max_new_tokens)))
    budgets = {request.key: request.max_new_tokens + request.thinking_tokens for request in plan.trials}
    tried: dict[str, list[float]] = {}
    shares: list[float] = []
    for index, reply in _until_time_is_up(
        complete_all(backend, requests, batching=batching, on_tokens=clock.check_time)
    ):
        key = requests[index].key
        if isinstance(reply, Completion):
            cut = reply.finish_reason == "length"
            tokens = float(budgets[key] if cut else (reply.output_tokens or 0) + 1)
            tried.setdefault(f"{key.benchmark}/{key.task}", []).append(tokens)
            shares.append(min(1.0, tokens / budgets[key]))
    answers = {task: sum(tokens) / len(tokens) for task, tokens in tried.items()}
    return answers | {"": sum(shares) / len(shares)} if shares else {}


def _until_time_is_up(answers: Iterator[T]) -> Iterator[T]:
    with suppress(_TimeIsUpError):
        yield from answers
