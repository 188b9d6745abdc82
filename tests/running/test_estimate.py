"""An estimate adds up what a plan costs, and is near what the batched loop costs by the same prices."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import numpy as np
import pytest
from toy import EOS, TOKENIZER, ToyMemory

from lbx.base.records import Request, SampleKey
from lbx.inference.batching import DecodeBatch
from lbx.inference.model import Extend
from lbx.inference.prefix import DecodeCapacity, plan_prefixes
from lbx.planning.estimate import Costs, costs_from, estimate
from lbx.planning.run_plan import RunPlan, TaskPlan, Walk
from lbx.store.sessions import History

PRICES = Costs(
    token_s=0.01, seen_s=1e-5, step_s=0.02, answer_s=0.005, answer_seen_s=1e-5, wall_factor=1.0, answers={}, basis="us"
)
TASK = "toy/task"


def plan_of(prompts: Sequence[Sequence[int]], most: int | Sequence[int]) -> RunPlan:
    branches = plan_prefixes(prompts).branches
    kept = [0, *(branch.kept for branch in branches[1:])]
    longest = [most if isinstance(most, int) else most[branch.index] for branch in branches]
    arrays = ([0] * len(branches), [branch.length for branch in branches], kept, longest)
    walk = Walk(*(np.array(numbers, np.int64) for numbers in arrays))
    return RunPlan([[TaskPlan(TASK, samples=len(prompts))]], [walk])


def test_one_prompt_after_the_other() -> None:
    plan = plan_of([[1] * 100, [1] * 60 + [2] * 40], 10)
    found = estimate(plan, PRICES, DecodeCapacity(1, 1000, 0, step=32), other_s=5.0)
    # Of the second one's 60 shared tokens a whole piece of 32 is kept.
    read = 100 * (0.01 + 1e-5 * 50) + 68 * (0.01 + 1e-5 * (32 + 34))
    assert found.prefill_s == pytest.approx(read)
    assert found.decode_s == pytest.approx(2 * 10 * (0.02 + 0.005 + 1e-5 * 105))
    assert found.total_s == pytest.approx(found.prefill_s + found.decode_s + 5.0)
    assert (found.computed_tokens, found.answer_tokens) == (168, {TASK: 20})
    forgetful = estimate(plan, PRICES, DecodeCapacity(1, 1000, 0, step=0))
    assert forgetful.computed_tokens == 200
    assert estimate(plan, PRICES, DecodeCapacity(1, 1000, 0, 32), processes=2).total_s == pytest.approx(
        (found.total_s - 5.0) / 2
    )


def test_lengths_of_answers() -> None:
    known = dataclasses.replace(PRICES, answers={"a/b": 12.4, "": 0.25})
    assert known.answer_tokens("a/b", 100) == 12
    assert known.answer_tokens("a/b", 5) == 5, "never longer than it may be"
    assert known.answer_tokens("c/d", 100) == 25
    assert PRICES.answer_tokens("c/d", 100) == 100
    assert known.answer_tokens("c/d", 1) == 1


class PricedMemory(ToyMemory):
    """Costs by the same prices what the passes of the real loop would cost."""

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self.seconds = 0.0

    def extend(self, items: Sequence[Extend]) -> list[np.ndarray | None]:
        prompts = sum(len(item.tokens) for item in items if len(item.tokens) > 1 or not item.wants_logits)
        answers = sum(1 for item in items if len(item.tokens) == 1 and item.wants_logits)
        found = super().extend(items)
        used = self.used_cells
        if prompts:
            self.seconds += (prompts + answers) * (PRICES.token_s + PRICES.seen_s * used)
        else:
            self.seconds += PRICES.step_s + answers * (PRICES.answer_s + PRICES.answer_seen_s * used)
        return found


@pytest.mark.parametrize("documents", [1, 6])
@pytest.mark.parametrize("questions", [1, 5, 12])
@pytest.mark.parametrize("cells", [700, 5000])
@pytest.mark.parametrize("new", [3, 40])
def test_near_what_the_loop_costs(documents: int, questions: int, cells: int, new: int) -> None:
    chance = random.Random(f"{documents} {questions}")
    prompts = []
    for _ in range(documents):
        text = [chance.randrange(97, 110) for _ in range(chance.randrange(200, 400))]
        prompts += [text + [chance.randrange(97, 110) for _ in range(20)] for _ in range(questions)]
    requests = [
        Request(SampleKey("toy", "task", str(n)), tuple(ids), max_new_tokens=new, min_new_tokens=new)
        for n, ids in enumerate(prompts)
    ]
    memory = PricedMemory(max_sequences=10, max_cells=cells, max_step=64, pass_price=500)
    answers = dict(DecodeBatch(memory, requests, TOKENIZER, {EOS}).run())
    assert {one.output_tokens for one in answers.values()} == {new}
    room = DecodeCapacity(min(8, 64), cells, memory.pass_price, memory.max_step)
    expected = estimate(plan_of(prompts, new), PRICES, room)
    assert expected.computed_tokens == pytest.approx(memory.computed - sum(new - 1 for _ in prompts), rel=0.02)
    assert 1 / 1.25 < expected.total_s / memory.seconds < 1.25


def test_equal_prompts_cost_a_token_each() -> None:
    plan = plan_of([[1] * 50] * 3, 4)
    assert estimate(plan, PRICES, DecodeCapacity(8, 1000, 100, 64)).computed_tokens == 52


def test_earlier_sessions_give_a_rate_of_reading_and_one_of_answering() -> None:
    history = History([("r1", 2), ("r1", 1)], 10_200, 200, prefill_s=30.0, decode_s=10.0, wall_s=50.0)
    costs = costs_from(history, {TASK: 7.0})
    assert (costs.token_s, costs.answer_s) == pytest.approx((0.003, 0.05))
    assert (costs.seen_s, costs.step_s, costs.answer_seen_s) == (0.0, 0.0, 0.0)
    assert (costs.wall_factor, costs.once_s, costs.basis) == (1.15, 2.0, "session 2 of r1 and 1 earlier")
    found = estimate(plan_of([[1] * 10], 100), costs, DecodeCapacity(8, 1000, 100, 64))
    assert found.answer_tokens == {TASK: 7}
    assert found.decode_s == pytest.approx(7 * 0.05)


def test_what_a_session_of_moments_does_once_is_no_factor_of_a_long_run() -> None:
    moments = History([("r1", 1)], 1_000, 10, prefill_s=0.01, decode_s=0.01, wall_s=1.5)
    found = estimate(
        plan_of([[n] * 100 for n in range(500)], 1), costs_from(moments, {}), DecodeCapacity(8, 1000, 100, 64)
    )
    model_s = found.prefill_s + found.decode_s
    assert found.total_s == pytest.approx(1.48 + model_s) and model_s < 1.5


def session_of(plan: RunPlan, tokens: int, token_s: float, seen_s: float) -> History:
    """What a session takes whose prompts' tokens take longer the more they see."""
    (walk,) = plan.walks
    computed = [(n - k, (n * n - k * k) / 2) for n, k in zip(walk.length.tolist(), walk.kept.tolist(), strict=True)]
    read_s = sum(token_s * a + seen_s * b for a, b in computed)
    made_s = sum(0.01 * tokens + 1e-6 * tokens * (n + tokens / 2) for n in walk.length.tolist())
    made = tokens * len(computed)
    return History([("r1", 1)], sum(a for a, _ in computed) + made, made, read_s, made_s, 2 * (read_s + made_s))


def test_an_estimate_from_a_session_gives_the_session_back() -> None:
    """Whatever stood in the memory beside each prompt is in the rates already."""
    plan = plan_of([[n] * 100 + [7] * (10 * n) for n in range(1, 9)] * 2, 30)
    history = session_of(plan, 30, 0.002, 1e-5)
    found = estimate(plan, costs_from(history, {TASK: 30.0}), DecodeCapacity(8, 100_000, 10_000, 64))
    assert found.total_s == pytest.approx(history.wall_s, rel=0.01)


def test_a_pilot_of_some_prompts_tells_of_all() -> None:
    """Prompts of 2,000 to 16,000 tokens, whose attention takes as long as the rest of the model at 10,000."""
    prompts = [[n] * (2_000 * (1 + n % 8)) for n in range(64)]
    pilot, whole = (session_of(plan_of(some, 30), 30, 0.002, 2e-7) for some in (prompts[3:13], prompts))
    plan = plan_of(prompts, 30)
    found = estimate(plan, costs_from(pilot, {TASK: 30.0}), DecodeCapacity(8, 1_000_000, 10_000, 64))
    assert found.total_s == pytest.approx(whole.wall_s, rel=0.1)


def test_a_session_without_answers_has_no_rate_of_answering() -> None:
    costs = costs_from(History([("r1", 1)], 100, 0, 1.0, 0.0, 1.0), {})
    assert (costs.token_s, costs.answer_s) == (0.01, 0.0)
