"""How long a plan would take, from what a token and a decode step cost: pure arithmetic.

A prompt's token costs more the more tokens it attends to; a decode step costs something however many answers grow in
it, something for each of them, and more the more tokens they attend to. How many answers grow together follows from
what the memory holds, by the rules of ``lbx.inference.batching`` without its single passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from lbx.inference.prefix import Admission, DecodeCapacity
from lbx.planning.run_plan import RunPlan, Walk
from lbx.store.sessions import History


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds.

    Attributes:
        token_s: a prompt's token that attends to nothing.
        seen_s: more, for each token of the memory that a prompt's token attends to.
        step_s: a decode step.
        answer_s: more, for each answer that grows in it.
        answer_seen_s: more, for each token of the memory and each answer.
        wall_factor: wall seconds for a second of the model's, where earlier sessions tell; below 1 where several
            processes shared the work.
        answers: {task: tokens of an answer}, as far as known; "" stands for the share of its budget that an answer
            takes elsewhere.
        basis: where all this is from, a sentence's end: "a calibration of 4 s".
        by_prompt: whether these are means over prompts as they were answered, many at a time or not, and what else
            was in the memory is in them.
        once_s: what a session takes beside, however long it is.
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

    def answer_tokens(self, task: str, most: int) -> int:
        """How long an answer is expected to be; as long as it may be, where nothing is known."""
        return max(1, min(most, round(self.answers.get(task, self.answers.get("", 1.0) * most))))


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """What a plan is expected to take.

    Attributes:
        prefill_s, decode_s: of the model, in all processes together.
        other_s: what is done beside it, such as tokenizing.
        total_s: wall.
        computed_tokens: of prompts.
        answer_tokens: {task: all its answers together}.
        basis: what it is based on.
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


_ONCE_S = 2.0
"""So much of a session at most is taken for what it does once: a factor of it would make a long run's estimate many
times too long after a session of moments."""


def costs_from(history: History, answers: Mapping[str, float]) -> Costs:
    """What earlier sessions say: one rate for reading and one for answering, whatever was in the memory.

    Args:
        answers: {task: mean tokens of an answer}.
    """
    read_tokens = history.computed_tokens - history.output_tokens
    model_s = history.prefill_s + history.decode_s
    once_s = min(_ONCE_S, max(0.0, history.wall_s - model_s) / len(history.sessions))
    (run_id, number), others = history.sessions[0], len(history.sessions) - 1
    more = f" and {others} earlier" if others else ""
    return Costs(
        token_s=history.prefill_s / max(1, read_tokens),
        seen_s=0.0,
        step_s=0.0,
        answer_s=history.decode_s / max(1, history.output_tokens),
        answer_seen_s=0.0,
        wall_factor=(history.wall_s - once_s * len(history.sessions)) / model_s,
        answers=answers,
        basis=f"session {number} of {run_id}{more}",
        by_prompt=True,
        once_s=once_s,
    )


@dataclass(slots=True)
class _Sum:
    prefill_s: float = 0.0
    decode_s: float = 0.0
    computed: int = 0


def estimate(
    plan: RunPlan, costs: Costs, room: DecodeCapacity, other_s: float = 0.0, *, processes: int = 1
) -> TimeEstimate:
    """Add up what each piece of the plan would take.

    Args:
        other_s: seconds beside the model's.
        processes: how many share all of it.
    """
    total = _Sum()
    answer_tokens = {task.task: 0 for task in plan.tasks}
    names = list(answer_tokens)
    for walk in plan.walks:
        new = [
            costs.answer_tokens(names[task], most)
            for task, most in zip(walk.task.tolist(), walk.most.tolist(), strict=True)
        ]
        for task, tokens in zip(walk.task.tolist(), new, strict=True):
            answer_tokens[names[task]] += tokens
        if room.answers > 1 and not costs.by_prompt:
            _Together(walk, new, costs, room, total).run()
        else:
            _one_by_one(walk, new, costs, 1 if room.answers > 1 else room.step, total)
    model_s = total.prefill_s + total.decode_s
    return TimeEstimate(
        total.prefill_s,
        total.decode_s,
        other_s,
        costs.once_s + (model_s + other_s) * costs.wall_factor / processes,
        total.computed,
        answer_tokens,
        costs.basis,
    )


def _one_by_one(walk: Walk, new: list[int], costs: Costs, piece: int, total: _Sum) -> None:
    """Kept prefixes are reused in pieces of so many tokens; 0: not at all."""
    for length, kept, tokens in zip(walk.length.tolist(), walk.kept.tolist(), new, strict=True):
        reused = min(kept, max(0, length - 1)) // piece * piece if piece else 0
        computed = length - reused
        total.computed += computed
        total.prefill_s += computed * (costs.token_s + costs.seen_s * (reused + computed / 2))
        seen = length + tokens / 2
        total.decode_s += tokens * (costs.step_s + costs.answer_s + costs.answer_seen_s * seen)


class _Together:
    """One piece of a plan, answered many prompts at a time."""

    def __init__(self, walk: Walk, new: list[int], costs: Costs, room: DecodeCapacity, total: _Sum) -> None:
        # The last token is computed for each of several equal prompts.
        kept = np.minimum(walk.kept, np.maximum(walk.length - 1, 0))
        self._rule = Admission(room, walk.length.tolist(), kept.tolist(), walk.most.tolist())
        self._new, self._costs, self._room, self._total = new, costs, room, total
        self._made: dict[int, int] = {}  # by place, of the answers that grow

    def run(self) -> None:
        place = 0
        while place < len(self._new) or self._made:
            before = self._total.computed
            while place < len(self._new) and self._rule.admits(place, self._made, self._used()):
                self._read(place)
                place += 1
            passes = (self._total.computed - before) / self._room.step
            self._total.prefill_s += (math.ceil(passes) - passes) * self._costs.step_s  # the last one is not full
            self._decode()

    def _used(self) -> int:
        """Tokens in the memory."""
        held = sum(self._rule.length[place] + made for place, made in self._made.items())
        return held - sum(self._rule.shared(a, b) for a, b in pairwise(self._made))

    def _read(self, place: int) -> None:
        """Compute what is new of a prompt; answers that grow take a token in each pass meanwhile."""
        costs, used, kept = self._costs, self._used(), self._rule.kept[place]
        computed = self._rule.length[place] - kept
        self._total.computed += computed
        seen = max(used, kept) + computed / 2
        self._total.prefill_s += computed * (costs.token_s + costs.seen_s * seen)
        passes = math.floor(computed / max(1, self._room.step - len(self._made)))
        if passes and self._made:
            made = sum(min(passes, self._new[one] - done) for one, done in self._made.items())
            self._total.decode_s += made * (costs.token_s + costs.seen_s * seen)
            self._grow(passes)
        self._made[place] = 0

    def _decode(self) -> None:
        """Steps until the first answer ends."""
        if not self._made:
            return
        costs, answers = self._costs, len(self._made)
        steps = min(self._new[place] - made for place, made in self._made.items())
        used = self._used() + steps * answers / 2
        step_s = costs.step_s + answers * (costs.answer_s + costs.answer_seen_s * used)
        self._total.decode_s += steps * step_s
        self._grow(steps)

    def _grow(self, tokens: int) -> None:
        grown = {place: made + tokens for place, made in self._made.items()}
        self._made = {place: made for place, made in grown.items() if made < self._new[place]}
