"""Estimate of a plan's time from the costs of prefill and decode steps, and the calibration that measures the costs.

The cost of a prompt token grows with the tokens that it attends to. A decode step has a fixed cost, a cost per answer
in the batch, and a cost per attended token. The batch size follows from the memory's capacity, as in
``lbx.engine.batching``, but without simulating single passes.

The costs are measured on this machine in a few seconds, on the plan's own prompts.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lbx.base.phases import phases
from lbx.base.records import Completion, Request
from lbx.base.units import format_duration
from lbx.engine.batching import complete_all
from lbx.engine.model import NEVER_EXTENDS, Backend, BulkExtension, LocalBackend, SequenceExtension, SequenceMemory
from lbx.engine.prefix import Admission, AnswerLengths, DecodeCapacity, decode_capacity
from lbx.results.file.sessions import History
from lbx.running.forecast.run_plan import PrefixOrder, RunPlan, TaskPlan, ignore_progress


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost model of a backend on this machine, in seconds: prefill rate by position, decode rate by batch.

    Attributes:
        token_s: seconds per prompt token, without attention to other tokens.
        attended_s: seconds per token that a prompt token attends to.
        step_s: seconds per decode step.
        answer_s: seconds per answer in a decode step.
        answer_attended_s: seconds per answer in a decode step and token that the answer attends to.
        wall_factor: wall seconds per second of the model, from earlier sessions; below 1 if several processes shared
            the work.
        answers: {task: expected tokens of an answer}; "" is the share of the budget that answers of other tasks take.
        basis: origin of the costs, as the end of a sentence: "a calibration of 4 s".
        per_prompt: the costs are means over answers of earlier sessions, at the batch width of those sessions.
        once_s: fixed cost of a session.
        longest_prompt, answer_count: longest prompt and number of answers of the earlier sessions, or None for a
            calibration, which measures the plan's own prompts.
    """

    token_s: float
    attended_s: float
    step_s: float
    answer_s: float
    answer_attended_s: float
    wall_factor: float
    answers: Mapping[str, float]
    basis: str
    per_prompt: bool = False
    once_s: float = 0.0
    longest_prompt: int | None = None
    answer_count: int | None = None

    def prefill_s_per_token(self, position: float) -> float:
        """Seconds of prefill per prompt token at a position."""
        return self.token_s + self.attended_s * position

    def prefill_s(self, tokens: int, start: float) -> float:
        """Seconds of prefill for ``tokens`` consecutive prompt tokens from position ``start`` on."""
        return tokens * self.prefill_s_per_token(start + tokens / 2)

    def decode_step_s(self, answers: int, position: float) -> float:
        """Seconds per decode step of a batch of answers that each attend to ``position`` tokens."""
        return self.step_s + answers * (self.answer_s + self.answer_attended_s * position)

    def answer_tokens(self, task: str, budget: int) -> int:
        """Expected number of tokens of an answer, or the budget if the task's answer lengths are unknown."""
        return max(1, min(budget, round(self.answers.get(task, self.answers.get("", 1.0) * budget))))

    def covers(self, total: TaskPlan) -> bool:
        """Whether the earlier sessions predict the cost of a plan.

        They do if the plan's prompts are at most twice as long, and enough prompts for a full batch were answered.
        """
        enough = self.answer_count is None or self.answer_count >= min(BATCH_ANSWERS, total.samples)
        return enough and self._has_prompts_as_long_as(total.longest)

    def basis_for(self, tasks: Sequence[str], longest_prompt: int) -> str:
        """Basis of the estimate of a plan, with caveats: longer prompts than measured, answers of unknown length."""
        parts = [self.basis]
        if not self._has_prompts_as_long_as(longest_prompt):
            parts.append(f"whose prompts had at most {self.longest_prompt:,} tokens")
        unknown = 0 if "" in self.answers else sum(task not in self.answers for task in tasks)
        if unknown:
            share = f" of {unknown} of {len(tasks)} tasks" if unknown < len(tasks) else ""
            parts.append(f"an upper bound with every answer{share} at its limit")
        return ", ".join(parts)

    def _has_prompts_as_long_as(self, longest_prompt: int) -> bool:
        return self.longest_prompt is None or 2 * self.longest_prompt >= longest_prompt


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Predicted time of a plan.

    Attributes:
        prefill_s, decode_s: model time, summed over all processes.
        other_s: seconds outside the model, such as tokenizing.
        total_s: wall seconds.
        computed_tokens: number of computed prompt tokens.
        answer_tokens: {task: total tokens of the task's answers}.
    """

    prefill_s: float
    decode_s: float
    other_s: float
    total_s: float
    computed_tokens: int
    answer_tokens: Mapping[str, int]
    basis: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


BATCH_ANSWERS = 8
"""Least batch size that predicts the cost of decode steps in larger batches."""
_ONCE_S = 2.0
"""Upper limit of a session's fixed cost. If it were a factor instead, the start-up of a very short session would
multiply a long run's estimate.
"""


def costs_from(history: History, answers: Mapping[str, float]) -> Costs:
    """Fit costs to the answers of earlier sessions, by prompt length and answer length.

    Args:
        answers: {task: mean tokens of an answer}.
    """
    model_s = history.prefill_s + history.decode_s
    once_s = min(_ONCE_S, max(0.0, history.wall_s - model_s) / len(history.sessions))
    (run_id, number), n_earlier = history.sessions[0], len(history.sessions) - 1
    more = f" and {n_earlier} earlier" if n_earlier else ""
    token_s, attended_s = _rates(history.prefill)
    answer_s, answer_attended_s = _rates(history.decode)
    return Costs(
        token_s=token_s,
        attended_s=attended_s,
        step_s=0.0,
        answer_s=answer_s,
        answer_attended_s=answer_attended_s,
        wall_factor=(history.wall_s - once_s * len(history.sessions)) / model_s,
        answers=answers,
        basis=f"session {number} of {run_id}{more}",
        per_prompt=True,
        once_s=once_s,
        longest_prompt=history.longest_prompt,
        answer_count=history.answer_count,
    )


def _rates(work: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Fit seconds per token and per attended token that together account for all seconds of the work."""
    rows = [row for row in work if row[0] > 0 and row[1] > 0]
    if not rows:
        return 0.0, 0.0
    token_s, attended_s = fit_costs([row[1:] for row in rows], [row[0] for row in rows])
    seconds, tokens, pairs = (sum(column) for column in zip(*rows, strict=True))
    scale = seconds / (token_s * tokens + attended_s * pairs)
    return token_s * scale, attended_s * scale


def fit_costs(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Fit non-negative coefficients by least squares of relative errors.

    Negative coefficients are replaced by 0; with fewer rows than columns, the last columns' coefficients are 0.

    Args:
        rows: quantities, one column per coefficient.
        seconds: measured seconds of each row, above 0.
    """
    matrix = np.asarray(rows, dtype=np.float64)
    scaled: NDArray[np.float64] = matrix / np.asarray(seconds, dtype=np.float64)[:, None]
    columns = [i for i in range(matrix.shape[1]) if matrix[:, i].any()][: len(rows)]
    coefficients = np.zeros(matrix.shape[1])
    while columns:
        solution = np.linalg.lstsq(scaled[:, columns], np.ones(len(rows)), rcond=None)[0]
        if (solution >= 0).all():
            coefficients[columns] = solution
            break
        del columns[int(solution.argmin())]
    return [float(value) for value in coefficients]


@dataclass(slots=True)
class _WorkSum:
    prefill_s: float = 0.0
    decode_s: float = 0.0
    computed_tokens: int = 0


def estimate(
    plan: RunPlan, costs: Costs, capacity: DecodeCapacity, other_s: float = 0.0, *, processes: int = 1
) -> TimeEstimate:
    """Estimate the time of a plan, summed over the jobs of the run.

    Args:
        other_s: seconds outside the model.
        processes: number of processes that share the work.
    """
    total = _WorkSum()
    answer_tokens = {task.task: 0 for task in plan.tasks}
    names = list(answer_tokens)
    for order in plan.prefix_orders:
        new = [
            costs.answer_tokens(names[task], most)
            for task, most in zip(order.task.tolist(), order.answer_limit.tolist(), strict=True)
        ]
        for task, tokens in zip(order.task.tolist(), new, strict=True):
            answer_tokens[names[task]] += tokens
        if capacity.max_answers > 1 and not costs.per_prompt:
            _BatchedPrompts(order, new, costs, capacity, total).run()
        else:
            _one_by_one(order, new, costs, 1 if capacity.max_answers > 1 else capacity.step, total)
    model_s = total.prefill_s + total.decode_s
    return TimeEstimate(
        total.prefill_s,
        total.decode_s,
        other_s,
        costs.once_s + (model_s + other_s) * costs.wall_factor / processes,
        total.computed_tokens,
        answer_tokens,
        costs.basis_for(names, plan.total.longest),
    )


def _one_by_one(order: PrefixOrder, new: list[int], costs: Costs, grain: int, total: _WorkSum) -> None:
    """Add the time of prompts without batching. Prefixes are reused in multiples of ``grain``, or never if 0."""
    for length, shared, tokens in zip(order.length.tolist(), order.reused_tokens.tolist(), new, strict=True):
        reused = min(shared, max(0, length - 1)) // grain * grain if grain else 0
        computed = length - reused
        total.computed_tokens += computed
        total.prefill_s += costs.prefill_s(computed, reused)
        total.decode_s += tokens * costs.decode_step_s(1, length + tokens / 2)


class _BatchedPrompts:
    """Simulation of a job with batched prompts, which adds the predicted time to ``total``."""

    def __init__(
        self, order: PrefixOrder, new: list[int], costs: Costs, capacity: DecodeCapacity, total: _WorkSum
    ) -> None:
        # Of several equal prompts, each computes its last token.
        shared = np.minimum(order.reused_tokens, np.maximum(order.length - 1, 0))
        self._lengths = AnswerLengths()
        lengths = self._lengths if capacity.resumes else None
        self._rule = Admission(capacity, order.length.tolist(), shared.tolist(), order.answer_limit.tolist(), lengths)
        self._new, self._costs, self._capacity, self._total = new, costs, capacity, total
        self._tokens_in_progress: dict[int, int] = {}  # {place: tokens generated so far}, for answers in progress

    def run(self) -> None:
        index = 0
        while index < len(self._new) or self._tokens_in_progress:
            before = self._total.computed_tokens
            while index < len(self._new) and self._rule.admits(index, self._tokens_in_progress, self._used_cells()):
                self._prefill(index)
                index += 1
            passes = (self._total.computed_tokens - before) / self._capacity.step
            self._total.prefill_s += (math.ceil(passes) - passes) * self._costs.step_s  # the last pass is not full
            self._decode()

    def _used_cells(self) -> int:
        cells = sum(self._rule.prompt_tokens[index] + tokens for index, tokens in self._tokens_in_progress.items())
        return cells - sum(self._rule.shared_cells(a, b) for a, b in pairwise(self._tokens_in_progress))

    def _prefill(self, index: int) -> None:
        """Add the time of a prompt's prefill. Each pass also decodes a token of every answer in progress."""
        costs, used, shared = self._costs, self._used_cells(), self._rule.shared_tokens[index]
        computed = self._rule.prompt_tokens[index] - shared
        self._total.computed_tokens += computed
        start = max(used, shared)
        self._total.prefill_s += costs.prefill_s(computed, start)
        passes = math.floor(computed / max(1, self._capacity.step - len(self._tokens_in_progress)))
        if passes and self._tokens_in_progress:
            new_tokens = sum(min(passes, self._new[answer] - done) for answer, done in self._tokens_in_progress.items())
            self._total.decode_s += new_tokens * costs.prefill_s_per_token(start + computed / 2)
            self._advance(passes)
        self._tokens_in_progress[index] = 0

    def _decode(self) -> None:
        """Add the time of decode steps until the first answer ends."""
        if not self._tokens_in_progress:
            return
        costs, answers = self._costs, len(self._tokens_in_progress)
        steps = min(self._new[index] - tokens for index, tokens in self._tokens_in_progress.items())
        used = self._used_cells() + steps * answers / 2
        self._total.decode_s += steps * costs.decode_step_s(answers, used)
        self._advance(steps)

    def _advance(self, tokens: int) -> None:
        grown = {index: length + tokens for index, length in self._tokens_in_progress.items()}
        self._tokens_in_progress = {index: length for index, length in grown.items() if length < self._new[index]}
        for index in grown.keys() - self._tokens_in_progress.keys():
            self._lengths.add(self._new[index])


log = logging.getLogger("lbx")

T = TypeVar("T")

LEAST_S, USUAL_S = 0.5, 3.0
SHORT_SHARE, SHARE = 0.1, 0.02
"""Calibration takes at most ``USUAL_S`` seconds or ``SHARE`` of the run's predicted time, whichever is more. Before a
run of seconds it takes at most ``SHORT_SHARE`` of that time, or ``LEAST_S``.
"""
SECONDS = 6.0
"""Upper limit of a calibration, which suffices for runs of any length."""
_TRIAL_SHARE = 0.4
_TRIAL_TOKENS = 48
"""Answers that continue after this number of tokens are assumed to reach their limit."""
_FIRST = 16
"""Number of tokens of the first passes, which determine the number of passes that fit into the time limit."""
_STEPS = 4
_TRUNK = 0

ProgressCallback = Callable[[int, int], None]
"""Callback for the used share of the calibration time, in percent, and for 100."""


def decode_capacity_of(backend: Backend, *, batching: bool) -> DecodeCapacity:
    info = backend.info
    if not isinstance(backend, LocalBackend):  # a server, or a model loaded only to count tokens
        return DecodeCapacity(1, info.context_window, 0, 0 if info.weights_bytes is None else 1)
    capacity = decode_capacity(backend.sequences(), batching=batching)
    # Without batching, all shared tokens are still kept.
    return capacity if capacity.max_answers > 1 else replace(capacity, step=int(capacity.follow_limit != NEVER_EXTENDS))


@phases.measure("calibration")
def calibrate(
    backend: Backend,
    plan: RunPlan,
    *,
    batching: bool,
    least_s: float = USUAL_S,
    on_progress: ProgressCallback = ignore_progress,
) -> Costs | None:
    """Measure the costs of a model, or return None if no prompt of the plan is short enough or no model runs here.

    Takes at most ``USUAL_S`` seconds or ``SHARE`` of the run's predicted time, whichever is more, after the model has
    computed its first tokens, for which weights may have to be read. All sequences in memory are dropped.

    Args:
        least_s: seconds that the calibration may take before the shortest run.

    Raises:
        BackendError: the model failed.
    """
    if not plan.trials or not isinstance(backend, LocalBackend):
        return None
    log.info(f"Measuring the model's speed: at most {USUAL_S:.0f} s, or {SHARE:.0%} of the run's time.")
    capacity = decode_capacity_of(backend, batching=batching)
    tokens = max((request.token_ids for request in plan.trials), key=len)
    clock = _Clock(on_progress, plan.total.distinct_tokens, least_s)
    memory = backend.sequences()
    together = min(BATCH_ANSWERS, capacity.max_answers)
    measured = _time_passes(memory, tokens, plan.total.longest, clock, batch_size=together)
    costs = measured.costs(memory.traits.cheap_cells)
    answers = _try_answers(backend, plan, costs, batching=batching, clock=clock)
    return replace(costs, answers=answers, basis=f"a calibration of {format_duration(clock.elapsed_s())}")


class _TimeIsUpError(Exception):
    """The time limit of the calibration is exceeded."""


class _Clock:
    """Time limit of a calibration, refined as measurements arrive.

    Args:
        tokens: minimum number of tokens that the run will compute.
    """

    def __init__(self, on_progress: ProgressCallback, tokens: int, least_s: float) -> None:
        self._on_progress, self._tokens, self._least_s = on_progress, tokens, least_s
        self._start = time.perf_counter()
        self._limit_s = least_s
        self.has_estimate = False

    def elapsed_s(self) -> float:
        return time.perf_counter() - self._start

    def update_limit(self, token_s: float) -> None:
        """Update the time limit by a lower bound on the seconds per token of the run."""
        self.has_estimate, run_s = True, token_s * self._tokens
        self._limit_s = max(self._least_s, min(USUAL_S, SHORT_SHARE * run_s), SHARE * run_s)
        self._on_progress(min(100, round(100 * self.elapsed_s() / self._limit_s)), 100)

    @property
    def remaining_s(self) -> float:
        """Seconds left for passes, without the time reserved for trying answers."""
        return self._limit_s * (1 - _TRIAL_SHARE) - self.elapsed_s()

    def has_time_for(self, seconds: float) -> bool:
        """Whether an optional pass of this duration is within the limit."""
        return seconds <= min(self.remaining_s, SECONDS * (1 - _TRIAL_SHARE) - self.elapsed_s())

    def answer_time_s(self) -> float:
        return min(SECONDS * _TRIAL_SHARE, self._limit_s - self.elapsed_s())

    def check_time(self, _tokens: int) -> None:
        """Raise _TimeIsUpError if the time limit is exceeded. A callback for computed tokens."""
        if self.elapsed_s() > self._limit_s:
            raise _TimeIsUpError


@dataclass(slots=True)
class _PassTimes:
    """Measured seconds of passes, with the work in each pass."""

    prefill: list[tuple[float, float, float]] = field(default_factory=list)  # seconds, tokens, tokens x attended tokens
    decode: list[tuple[float, float, float]] = field(
        default_factory=list
    )  # seconds per step, answers, answers x attended tokens

    def costs(self, cheap_cells: int) -> Costs:
        token_s, attended_s = fit_costs(
            [(tokens, pairs) for _, tokens, pairs in self.prefill], [p[0] for p in self.prefill]
        )
        if len(self.prefill) < _FEWEST_FOR_SLOPE and cheap_cells:
            # The model is too slow to measure long prompts. By definition of ``cheap_cells``, attention to that number
            # of cells takes as much time as the rest of the model.
            seconds, tokens, pairs = (sum(column) for column in zip(*self.prefill, strict=True))
            token_s = seconds / (tokens + pairs / cheap_cells)
            attended_s = token_s / cheap_cells
        step_s, answer_s, answer_attended_s = fit_costs(
            [(1.0, answers, pairs) for _, answers, pairs in self.decode], [d[0] for d in self.decode]
        )
        return Costs(token_s, attended_s, step_s, answer_s, answer_attended_s, 1.0, {}, "")


_FEWEST_FOR_SLOPE = 3
_WARM_UP_PASSES = 100
_RECOMPUTED_CHUNK = 512
"""Number of tokens by which prompts get longer if each is computed from the start."""


def _time_passes(
    memory: SequenceMemory, tokens: Sequence[int], longest: int, clock: _Clock, *, batch_size: int
) -> _PassTimes:
    """Time passes of a prompt of up to ``longest`` tokens, and decode steps at some positions of the prompt."""
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
        if chunk == longest_pass and first_s < USUAL_S / _WARM_UP_PASSES:
            memory.extend([SequenceExtension(_TRUNK, _take_tokens(tokens, 0, chunk), True)])
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
    """Time a pass of a few tokens and a decode step, which must suffice for slow models.

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
    # Logits are requested, because otherwise a GPU is not waited for.
    item = (
        BulkExtension(_TRUNK, part, False) if 0 < memory.traits.bulk <= chunk else SequenceExtension(_TRUNK, part, True)
    )
    began = time.perf_counter()
    memory.extend([item])
    took = time.perf_counter() - began
    times.prefill.append((took, chunk, chunk * (before + chunk / 2)))
    return took


def _time_decoding(
    memory: SequenceMemory, tokens: Sequence[int], batch_size: int, times: _PassTimes, clock: _Clock
) -> None:
    for answers in sorted({1, batch_size}):
        free_cells = memory.max_cells - memory.used_cells
        step_s = answers * times.decode[0][0] if times.decode else 0.0  # upper bound
        steps = _STEPS if step_s * (_STEPS + 1) <= clock.remaining_s else 1
        free_cells //= _private_cells(memory, steps + 1)
        if answers <= free_cells and (len(times.decode) < 2 or clock.has_time_for(step_s * (steps + 1))):
            seen = memory.used_cells + answers * steps / 2
            times.decode.append((_time_steps(memory, tokens, answers, steps), answers, answers * seen))


def _private_cells(memory: SequenceMemory, tokens: int) -> int:
    """Number of cells that an answer of ``tokens`` tokens does not share with the trunk."""
    traits, length = memory.traits, memory.length(_TRUNK)
    return -(-((length if traits.copies else length % traits.grain) + tokens) // traits.grain) * traits.grain


def _time_steps(memory: SequenceMemory, tokens: Sequence[int], answers: int, steps: int) -> float:
    """Mean seconds of a decode step with several answers that share the trunk, ignoring the first step."""
    sequences = range(1, 1 + answers)
    memory.fork(_TRUNK, memory.length(_TRUNK), list(sequences))
    took: list[float] = []
    for step in range(steps + 1):
        began = time.perf_counter()
        memory.extend(
            [SequenceExtension(sequence, _take_tokens(tokens, step + sequence, 1), True) for sequence in sequences]
        )
        took.append(time.perf_counter() - began)
    for sequence in sequences:
        memory.drop(sequence)
    return sum(took[1:]) / max(1, steps)


def _take_tokens(tokens: Sequence[int], start: int, count: int) -> list[int]:
    """Take consecutive tokens of a text, wrapping around at the end of the text."""
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
        seconds -= _TRIAL_TOKENS * (costs.decode_step_s(1, length) - (costs.step_s if requests else 0))
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
