"""Time estimate of a plan from the costs of prefill and decode steps, without measurements.

The cost of a prompt token grows with the tokens that it attends to. A decode step has a fixed cost, a cost per answer
in the batch, and a cost per attended token. The batch size follows from the memory's capacity, by the rules of
``lbx.inference.batching`` without its single passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbx.forecast.run_plan import PrefixOrder, RunPlan, TaskPlan
from lbx.inference.prefix import Admission, AnswerLengths, DecodeCapacity
from lbx.store.sessions import History


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost model of a backend on this machine, in seconds: prefill rate by position, decode rate by batch.

    Attributes:
        token_s: per prompt token, without attention to other tokens.
        seen_s: per token that a prompt token attends to.
        step_s: per decode step.
        answer_s: per answer in a step.
        answer_seen_s: per answer in a step and token that it attends to.
        wall_factor: wall seconds per second of the model, from earlier sessions; below 1 if several processes shared
            the work.
        answers: {task: expected tokens of an answer}; "" is the share of their budgets that other tasks' answers take.
        basis: origin of the figures, as the end of a sentence: "a calibration of 4 s".
        by_prompt: the figures are means over answers of earlier sessions, at the batch width of those sessions.
        once_s: fixed cost of a session.
        longest_prompt, answer_count: in the earlier sessions; None for a calibration, which measures the plan's own
            prompts.
    """

    token_s: float
    seen_s: float
    step_s: float
    answer_s: float
    answer_seen_s: float
    wall_factor: float
    answers: Mapping[str, float]
    basis: str
    by_prompt: bool = False
    once_s: float = 0.0
    longest_prompt: int | None = None
    answer_count: int | None = None

    def prefill_rate(self, position: float) -> float:
        """Seconds per prompt token at a position."""
        return self.token_s + self.seen_s * position

    def prefill_s(self, tokens: int, start: float) -> float:
        """Seconds of ``tokens`` consecutive prompt tokens from a position."""
        return tokens * self.prefill_rate(start + tokens / 2)

    def decode_rate(self, answers: int, position: float) -> float:
        """Seconds per decode step of a batch; ``position`` is the number of tokens that each answer attends to."""
        return self.step_s + answers * (self.answer_s + self.answer_seen_s * position)

    def answer_tokens(self, task: str, most: int) -> int:
        """Expected tokens of an answer; its budget if the lengths of the task's answers are unknown."""
        return max(1, min(most, round(self.answers.get(task, self.answers.get("", 1.0) * most))))

    def covers(self, total: TaskPlan) -> bool:
        """Whether the earlier sessions predict the cost of a plan.

        They do if its prompts are at most twice as long as theirs, and they answered enough prompts for a full batch.
        """
        enough = self.answer_count is None or self.answer_count >= min(BATCH_ANSWERS, total.samples)
        return enough and self._has_prompts_as_long_as(total.longest)

    def basis_for(self, tasks: Sequence[str], longest_prompt: int) -> str:
        """Basis of the figures for a plan, with its limits: longer prompts than measured, answers of unknown length."""
        parts = [self.basis]
        if not self._has_prompts_as_long_as(longest_prompt):
            parts.append(f"whose prompts had at most {self.longest_prompt:,} tokens")
        unknown = 0 if "" in self.answers else sum(task not in self.answers for task in tasks)
        if unknown:
            share = f" of {unknown} of {len(tasks)} tasks" if unknown < len(tasks) else ""
            parts.append(f"with answers{share} as long as they may be")
        return ", ".join(parts)

    def _has_prompts_as_long_as(self, longest_prompt: int) -> bool:
        return self.longest_prompt is None or 2 * self.longest_prompt >= longest_prompt


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Predicted time of a plan.

    Attributes:
        prefill_s, decode_s: model time, summed over all processes.
        other_s: time outside the model, such as tokenizing.
        total_s: wall time.
        computed_tokens: prompt tokens.
        answer_tokens: {task: total tokens of its answers}.
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
"""Minimum batch size that predicts the cost of decode steps in larger batches."""
_ONCE_S = 2.0
"""Upper limit of a session's fixed cost. If it were a factor instead, the start-up of a very short session would
multiply a long run's estimate.
"""


def costs_from(history: History, answers: Mapping[str, float]) -> Costs:
    """Fit costs by prompt length and answer length to the answers of earlier sessions.

    Args:
        answers: {task: mean tokens of an answer}.
    """
    model_s = history.prefill_s + history.decode_s
    once_s = min(_ONCE_S, max(0.0, history.wall_s - model_s) / len(history.sessions))
    (run_id, number), n_earlier = history.sessions[0], len(history.sessions) - 1
    more = f" and {n_earlier} earlier" if n_earlier else ""
    token_s, seen_s = _rates(history.prefill)
    answer_s, answer_seen_s = _rates(history.decode)
    return Costs(
        token_s=token_s,
        seen_s=seen_s,
        step_s=0.0,
        answer_s=answer_s,
        answer_seen_s=answer_seen_s,
        wall_factor=(history.wall_s - once_s * len(history.sessions)) / model_s,
        answers=answers,
        basis=f"session {number} of {run_id}{more}",
        by_prompt=True,
        once_s=once_s,
        longest_prompt=history.longest_prompt,
        answer_count=history.answer_count,
    )


def _rates(work: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Seconds per token and per attended token that together account for all seconds of the work."""
    rows = [row for row in work if row[0] > 0 and row[1] > 0]
    if not rows:
        return 0.0, 0.0
    token_s, seen_s = fit_costs([row[1:] for row in rows], [row[0] for row in rows])
    seconds, tokens, pairs = (sum(column) for column in zip(*rows, strict=True))
    scale = seconds / (token_s * tokens + seen_s * pairs)
    return token_s * scale, seen_s * scale


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
    plan: RunPlan, costs: Costs, room: DecodeCapacity, other_s: float = 0.0, *, processes: int = 1
) -> TimeEstimate:
    """Sum the predicted time over all pieces of the plan.

    Args:
        other_s: seconds outside the model.
        processes: number of processes that share the work.
    """
    total = _WorkSum()
    answer_tokens = {task.task: 0 for task in plan.tasks}
    names = list(answer_tokens)
    for walk in plan.walks:
        new = [
            costs.answer_tokens(names[task], most)
            for task, most in zip(walk.task.tolist(), walk.answer_limit.tolist(), strict=True)
        ]
        for task, tokens in zip(walk.task.tolist(), new, strict=True):
            answer_tokens[names[task]] += tokens
        if room.answers > 1 and not costs.by_prompt:
            _BatchedPrompts(walk, new, costs, room, total).run()
        else:
            _one_by_one(walk, new, costs, 1 if room.answers > 1 else room.step, total)
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


def _one_by_one(walk: PrefixOrder, new: list[int], costs: Costs, piece: int, total: _WorkSum) -> None:
    """Add the time of prompts without batching; prefixes are reused in multiples of ``piece``, or never if it is 0."""
    for length, shared, tokens in zip(walk.length.tolist(), walk.reused_tokens.tolist(), new, strict=True):
        reused = min(shared, max(0, length - 1)) // piece * piece if piece else 0
        computed = length - reused
        total.computed_tokens += computed
        total.prefill_s += costs.prefill_s(computed, reused)
        total.decode_s += tokens * costs.decode_rate(1, length + tokens / 2)


class _BatchedPrompts:
    """Simulation of a plan's piece with batched prompts."""

    def __init__(self, walk: PrefixOrder, new: list[int], costs: Costs, room: DecodeCapacity, total: _WorkSum) -> None:
        # Of several equal prompts, each computes its last token.
        shared = np.minimum(walk.reused_tokens, np.maximum(walk.length - 1, 0))
        self._lengths = AnswerLengths()
        lengths = self._lengths if room.resumes else None
        self._rule = Admission(room, walk.length.tolist(), shared.tolist(), walk.answer_limit.tolist(), lengths)
        self._new, self._costs, self._room, self._total = new, costs, room, total
        self._tokens_in_progress: dict[int, int] = {}  # {place: tokens generated so far}, for answers in progress

    def run(self) -> None:
        index = 0
        while index < len(self._new) or self._tokens_in_progress:
            before = self._total.computed_tokens
            while index < len(self._new) and self._rule.admits(index, self._tokens_in_progress, self._used_cells()):
                self._prefill(index)
                index += 1
            passes = (self._total.computed_tokens - before) / self._room.step
            self._total.prefill_s += (math.ceil(passes) - passes) * self._costs.step_s  # the last pass is not full
            self._decode()

    def _used_cells(self) -> int:
        cells = sum(self._rule.prompt_tokens[index] + tokens for index, tokens in self._tokens_in_progress.items())
        return cells - sum(self._rule.shared_cells(a, b) for a, b in pairwise(self._tokens_in_progress))

    def _prefill(self, index: int) -> None:
        """Add the time of a prompt's new tokens; each pass also decodes a token of every answer in progress."""
        costs, used, shared = self._costs, self._used_cells(), self._rule.shared_tokens[index]
        computed = self._rule.prompt_tokens[index] - shared
        self._total.computed_tokens += computed
        start = max(used, shared)
        self._total.prefill_s += costs.prefill_s(computed, start)
        passes = math.floor(computed / max(1, self._room.step - len(self._tokens_in_progress)))
        if passes and self._tokens_in_progress:
            new_tokens = sum(min(passes, self._new[answer] - done) for answer, done in self._tokens_in_progress.items())
            self._total.decode_s += new_tokens * costs.prefill_rate(start + computed / 2)
            self._advance(passes)
        self._tokens_in_progress[index] = 0

    def _decode(self) -> None:
        """Add the time of decode steps until the first answer ends."""
        if not self._tokens_in_progress:
            return
        costs, answers = self._costs, len(self._tokens_in_progress)
        steps = min(self._new[index] - tokens for index, tokens in self._tokens_in_progress.items())
        used = self._used_cells() + steps * answers / 2
        self._total.decode_s += steps * costs.decode_rate(answers, used)
        self._advance(steps)

    def _advance(self, tokens: int) -> None:
        grown = {index: length + tokens for index, length in self._tokens_in_progress.items()}
        self._tokens_in_progress = {index: length for index, length in grown.items() if length < self._new[index]}
        for index in grown.keys() - self._tokens_in_progress.keys():
            self._lengths.add(self._new[index])
