"""The planner and the batched loop, against a model that answers one prompt at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.errors import BackendError
from lbx.base.records import Completion, Request, SampleKey
from lbx.engine.batching import BatchFailedError, DecodeBatch, complete_all
from lbx.engine.model import NEVER_EXTENDS, NO_CROSS_ATTENTION, NO_LIMIT, MemoryTraits, SequenceExtension
from lbx.engine.prefix import common_prefix_length, is_worth_joining, plan_prefixes
from tests.toy import EOS, TOKENIZER, ToyBackend, ToyMemory, alone

PROMPTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=14)


def tree_size(prompts: Sequence[Sequence[int]]) -> int:
    return len({tuple(p[: i + 1]) for p in prompts for i in range(len(p))})


@given(PROMPTS)
def test_every_prompt_once_and_every_prefix_once(prompts: list[list[int]]) -> None:
    plan = plan_prefixes(prompts)
    assert sorted(branch.index for branch in plan.branches) == list(range(len(prompts)))
    assert plan.tree_tokens == tree_size(prompts)
    # The logits after a prompt's last token are its own: where another one goes on from there, it is computed again.
    again = sum(
        any(p == q[: len(p)] and (len(p) < len(q) or i < j) for j, q in enumerate(prompts) if j != i)
        for i, p in enumerate(prompts)
    )
    assert plan.computed_tokens == plan.tree_tokens + again
    for before, branch in zip(plan.branches, plan.branches[1:], strict=False):
        assert prompts[before.index][: branch.reused_tokens] == prompts[branch.index][: branch.reused_tokens]
        assert branch.reused_tokens <= before.fork_at
    assert all(b.reused_tokens <= b.fork_at < b.length == len(prompts[b.index]) for b in plan.branches)


@given(PROMPTS, st.randoms())
def test_shuffling_changes_nothing(prompts: list[list[int]], chance: random.Random) -> None:
    def walk(given_prompts: list[list[int]]) -> list[tuple[object, ...]]:
        plan = plan_prefixes(given_prompts)
        return [(given_prompts[b.index], b.reused_tokens, b.fork_at) for b in plan.branches]

    shuffled = list(prompts)
    chance.shuffle(shuffled)
    assert walk(shuffled) == walk(prompts)


@given(st.lists(st.integers(0, 2), max_size=9), st.lists(st.integers(0, 2), max_size=9))
def test_common_prefix(first: list[int], second: list[int]) -> None:
    n = common_prefix_length(first, second)
    assert first[:n] == second[:n]
    assert n == min(len(first), len(second)) or first[n] != second[n]


def request(number: int, prompt: Sequence[int], new: int, thinking: int = 0) -> Request:
    return Request(SampleKey("toy", "task", str(number)), tuple(prompt), new, stop=("ab",), thinking_tokens=thinking)


def said(completion: Completion) -> tuple[str, int, str]:
    return completion.text, completion.output_tokens, completion.finish_reason


def run_batch(
    memory: ToyMemory, requests: Sequence[Request], **options: object
) -> tuple[DecodeBatch, dict[int, Completion]]:
    """Answers of a batch, which must be those of each request alone and leave the memory empty."""
    batch = DecodeBatch(memory, requests, TOKENIZER, {EOS}, **options)
    answers = dict(batch.run())
    assert {index: said(answer) for index, answer in answers.items()} == {
        index: said(alone(request)) for index, request in enumerate(requests)
    }
    assert not memory.sequences
    return batch, answers


@settings(deadline=None)
@given(
    PROMPTS,
    st.integers(1, 9),
    st.integers(3, 9),
    st.integers(1, 20),
    st.integers(0, 60),
    st.integers(0, 600),
    st.integers(1, 7),
    st.sampled_from([None, 1, 2]),
)
def test_answers_are_those_of_one_at_a_time(
    prompts: list[list[int]],
    new: int,
    sequences: int,
    step: int,
    spare: int,
    price: int,
    grain: int,
    answers: int | None,
) -> None:
    """The toy refuses more cells, sequences or tokens of a pass than it has. Whole budgets have room, as where tokens
    may follow only so far."""
    requests = [request(n, prompt, new, thinking=n % 3) for n, prompt in enumerate(prompts)]
    need = max(len(r.token_ids) + r.thinking_tokens + r.max_new_tokens for r in requests)
    cells = -(-(need + spare) // grain) * grain
    memory = ToyMemory(sequences, cells, step, pass_price=price, grain=grain, follow_limit=NO_LIMIT - 1)
    told: list[int] = []
    batch, found = run_batch(memory, requests, on_tokens=told.append, max_answers=answers)
    assert batch.prompt_tokens == batch.plan.computed_tokens
    assert memory.computed == batch.prompt_tokens + sum(c.output_tokens for c in found.values()) - uncounted(found)
    assert told == [sum(len(item.tokens) for item in items) for items in memory.passes]
    assert answers != 1 or all(len(items) == 1 for items in memory.passes)


@settings(deadline=None)
@given(
    PROMPTS,
    st.integers(1, 9),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 20),
    st.sampled_from([NEVER_EXTENDS, 0, 3, NO_LIMIT]),
)
def test_answers_are_the_same_where_the_trunk_is_never_cut(
    prompts: list[list[int]], new: int, trunks: int, answers: int, step: int, follow: int
) -> None:
    """The toy refuses to fork a sequence anywhere but at its end."""
    requests = [request(n, prompt, new) for n, prompt in enumerate(prompts)]
    memory = ToyMemory(
        max_sequences=trunks + answers,
        trunks=trunks,
        max_step=step,
        max_cells=10_000,
        forks_anywhere=False,
        follow_limit=follow,
    )
    batch, found = run_batch(memory, requests)
    depth = max(map(len, batch.plan.rewind_lengths()), default=0)
    if trunks > depth and follow == NO_LIMIT:
        assert batch.prompt_tokens == batch.plan.computed_tokens
    kept = sum(completion.cached_tokens for completion in found.values())
    assert kept == 0 or follow != NEVER_EXTENDS
    assert batch.prompt_tokens == sum(map(len, prompts)) - kept >= batch.plan.computed_tokens


def test_copies_make_room_for_a_longer_prompt() -> None:
    """Copies are left where the first prompt has room for them; the second one has less."""
    ends = {60: 1, 58: 32, 56: 1, 54: 1, 52: 1, 50: 1, 48: 1}
    requests = [request(n, [*[1] * begin, *[2] * rest], 10) for n, (begin, rest) in enumerate(ends.items())]
    memory = ToyMemory(max_cells=400, forks_anywhere=False, trunks=7, copies=True)
    run_batch(memory, requests)


@pytest.mark.parametrize("cells", [81, 125, 150, 1000])
def test_prompts_that_share_less_in_memory_than_in_text_do_not_overflow_it(cells: int) -> None:
    """Six lengths to return to, and three sequences for copies: what else prompts share is computed twice, and held."""
    memory = ToyMemory(8, cells, pass_price=NO_CROSS_ATTENTION, forks_anywhere=False, trunks=4)
    prompts = [[*[1] * begin, 2] for begin in (60, 50, 40, 30, 20, 10)]
    requests = [replace(request(n, prompt, 20), stop=(), min_new_tokens=20) for n, prompt in enumerate(prompts)]
    batch, _ = run_batch(memory, requests)
    assert batch.prompt_tokens > batch.plan.computed_tokens


def test_where_tokens_follow_singly_long_texts_are_read_afresh() -> None:
    """A line of instructions before each of several documents is no beginning to go on from, token by token."""
    memory = ToyMemory(max_step=600, max_cells=4000, forks_anywhere=False, trunks=7, copies=True, follow_limit=50)
    requests = [request(n, [*[1] * 10, *[2 + n // 2] * 500, 7, n], 3) for n in range(5)]
    requests.append(request(5, [1] * 10 + [5] * 30, 3))
    batch, answers = run_batch(memory, requests)
    assert sorted(answer.cached_tokens for answer in answers.values()) == [0, 0, 0, 0, 511, 511]
    assert batch.plan.tree_tokens == 10 + 3 * 500 + 5 + 3 + 30


def test_long_prompts_share_what_is_long_itself_and_short_ones_with_each_other() -> None:
    begin = [1] * 20
    ends = [[2] * 5, [3], [4] * 30 + [5], [4] * 30 + [6], [4] * 5 + [7] * 30]
    prompts = [begin + end for end in ends]
    kept = {branch.index: branch.reused_tokens for branch in plan_prefixes(prompts, long_from=30).branches}
    assert kept == {0: 0, 1: 20, 2: 0, 3: 50, 4: 0}
    equal = plan_prefixes([[1] * 31, [1] * 31, [1] * 32, [1] * 32], long_from=30).branches
    assert [branch.reused_tokens for branch in equal] == [0, 0, 0, 31], "the last token of a prompt is its own"


@pytest.mark.parametrize("trunks", [5, 7])
def test_two_documents_with_questions_that_share_their_words_are_read_once_without_a_cut(trunks: int) -> None:
    begin, ends = [9] * 5, [[2, 3, 4], [2, 3, 5], [2, 6], [7]]
    requests = [
        request(n, [*begin, *[document] * 100, *end], 3)
        for n, (document, end) in enumerate((document, end) for document in (1, 8) for end in ends)
    ]
    memory = ToyMemory(max_sequences=8, trunks=trunks, max_step=32, max_cells=2000, forks_anywhere=False)
    batch, _ = run_batch(memory, requests)
    assert batch.prompt_tokens == batch.plan.computed_tokens == batch.plan.tree_tokens


@settings(deadline=None)
@given(PROMPTS, st.integers(3, 9), st.integers(1, 20), st.integers(0, 60), st.randoms())
def test_shuffled_requests_take_the_same_passes(
    prompts: list[list[int]], sequences: int, step: int, spare: int, chance: random.Random
) -> None:
    need = max(map(len, prompts)) + 5

    def passes(given_prompts: Sequence[Sequence[int]]) -> list[tuple[SequenceExtension, ...]]:
        memory = ToyMemory(max_sequences=sequences, max_step=step, max_cells=need + spare, pass_price=100)
        requests = [request(n, prompt, 5) for n, prompt in enumerate(given_prompts)]
        run_batch(memory, requests)
        return memory.passes

    shuffled = list(prompts)
    chance.shuffle(shuffled)
    assert passes(shuffled) == passes(prompts)


def uncounted(found: dict[int, Completion]) -> int:
    """Tokens that are chosen but never fed: the last one of an answer that ran out of budget."""
    return sum(c.finish_reason == "length" for c in found.values())


def test_questions_on_one_document_share_it() -> None:
    document = [1] * 100
    requests = [request(n, [*document, 2, n], 4) for n in range(20)]
    memory = ToyMemory(max_sequences=12, max_step=32, max_cells=400)
    batch, _ = run_batch(memory, requests)
    assert batch.prompt_tokens == 100 + 1 + 20
    assert memory.most_cells <= 100 + 1 + 10 * 5
    assert memory.steps < 30  # ten answers grow at once


@settings(deadline=None)
@given(
    PROMPTS,
    st.integers(20, 200),
    st.integers(4, 12),
    st.integers(4, 40),
    st.integers(0, 200),
    st.sampled_from([0, 1_000, NO_CROSS_ATTENTION]),
    st.integers(1, 7),
)
def test_answers_that_were_thrown_out_are_those_of_one_at_a_time(
    prompts: list[list[int]], new: int, sequences: int, step: int, spare: int, price: int, grain: int
) -> None:
    requests = [replace(request(n, prompt, new + n), stop=()) for n, prompt in enumerate(prompts)]
    need = max(len(r.token_ids) + r.max_new_tokens for r in requests)
    cells = -(-(need + spare) // grain) * grain
    memory = ToyMemory(max_sequences=sequences, max_step=step, max_cells=cells, pass_price=price, grain=grain)
    run_batch(memory, requests)


class Walk(NamedTuple):
    steps: int
    computed: int


def walk_of(requests: Sequence[Request], *, cells: int, hopeful: bool, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """How many passes and tokens the answers take, with room for what they are likely to take, or may."""
    memory = ToyMemory(max_sequences=40, max_step=64, max_cells=cells, pass_price=NO_CROSS_ATTENTION)
    with monkeypatch.context() as patch:
        if not hopeful:
            patch.setattr(MemoryTraits, "resumes", False)
        run_batch(memory, requests)
    return Walk(memory.steps, memory.computed)


def test_answers_that_end_far_below_their_budget_grow_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many questions on one document; answers take a fortieth of their budget, and three whole budgets have room."""
    requests = [replace(request(n, [*[1] * 200, 2, n], 400), stop=()) for n in range(120)]
    before = walk_of(requests, cells=1600, hopeful=False, monkeypatch=monkeypatch)
    now = walk_of(requests, cells=1600, hopeful=True, monkeypatch=monkeypatch)
    assert before.steps >= 4 * now.steps
    assert now.computed <= 1.1 * before.computed


def test_answers_that_all_take_their_budget_come_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is thrown out at most once: by then it is known how long they become."""
    requests = [replace(request(n, [*[1] * 200, 2, n], 100), stop=(), min_new_tokens=100) for n in range(16)]
    before = walk_of(requests, cells=540, hopeful=False, monkeypatch=monkeypatch)
    now = walk_of(requests, cells=540, hopeful=True, monkeypatch=monkeypatch)
    assert now.steps <= before.steps
    assert now.computed <= 1.5 * before.computed


def test_strangers_wait_where_attention_is_dear() -> None:
    requests = [request(n, [n] * 60, 8) for n in range(6)]
    dear = ToyMemory(max_step=64, pass_price=100)
    run_batch(dear, requests)
    assert dear.most_cells <= 60 + 8
    cheap = ToyMemory(max_step=64, pass_price=NO_CROSS_ATTENTION)
    run_batch(cheap, requests)
    assert cheap.most_cells > dear.most_cells
    assert cheap.steps < dear.steps


def test_iterations_cost_a_token_each() -> None:
    requests = [request(n, [7] * 50, 3) for n in range(6)]
    batch, _ = run_batch(ToyMemory(), requests)
    assert batch.prompt_tokens == 50 + 5


DOCUMENT, QUESTION, ANSWER, WIDTH = 8000, 100, 32, 4096
CPU, GPU = 4 * 6 * WIDTH, 256 * 6 * WIDTH


@pytest.mark.parametrize(
    ("new", "strangers", "growing", "price", "pays"),
    [
        (DOCUMENT, DOCUMENT, [ANSWER], CPU, False),  # another document: a third more work to read it
        (DOCUMENT, DOCUMENT, [ANSWER], GPU, True),  # where a step for one answer is as long as one for many
        (DOCUMENT, DOCUMENT, [ANSWER], NO_CROSS_ATTENTION, True),
        (QUESTION, 15 * (QUESTION + ANSWER), [ANSWER] * 15, CPU, True),  # the next question on one document
        (QUESTION, 40 * (QUESTION + ANSWER), [ANSWER] * 40, CPU, False),  # one of many, better answered by half of them
        (QUESTION, 15 * (QUESTION + 2000), [ANSWER] * 15, CPU, False),  # beside answers that have become long
        (4000, 4000, [ANSWER], CPU, False),  # on one document that was cut for each question elsewhere
        (300, 300, [ANSWER], CPU, True),  # short documents
        (300, 300, [2], CPU, True),
        (DOCUMENT, 2 * QUESTION, [1], CPU, True),  # its last step is taken along
        (DOCUMENT, DOCUMENT, [1], CPU, False),
    ],
)
def test_when_joining_pays(new: int, strangers: int, growing: list[int], price: int, pays: bool) -> None:
    assert pays is is_worth_joining(
        new=new, budget=ANSWER, foreign_cells=strangers, growing=growing, max_step=256, pass_price=price
    )


def test_a_failing_model_says_who_is_left() -> None:
    requests = [request(n, [1, 2, 3, n], 3) for n in range(10, 20)]
    memory = ToyMemory(max_sequences=4, fails_on=15)
    batch = DecodeBatch(memory, requests, TOKENIZER, {EOS})
    done = []
    with pytest.raises(BatchFailedError, match="the model failed") as failure:
        for index, _ in batch.run():
            done.append(index)
    assert sorted([*done, *failure.value.unanswered_indices]) == list(range(10))
    assert 5 in failure.value.unanswered_indices
    assert not memory.sequences


@dataclass
class FailsToForget(ToyMemory):
    """Whose first answer that ends cannot be dropped."""

    failures: int = 1

    def drop(self, sequence: int) -> None:
        if self.failures and sequence > 1 and self.length(sequence):
            self.failures = 0
            raise BackendError("the model failed")
        super().drop(sequence)


@pytest.mark.parametrize("count", [1, 6])
def test_an_answer_that_ends_with_a_failure_is_asked_again(count: int) -> None:
    requests = [request(n, [1, 2, 3, n], 3) for n in range(10, 10 + count)]
    found = dict(complete_all(ToyBackend(FailsToForget()), requests, batching=True))
    assert {n: said(one) for n, one in found.items() if isinstance(one, Completion)} == {
        n: said(alone(one)) for n, one in enumerate(requests)
    }


@pytest.mark.parametrize("batching", [False, True])
def test_whoever_breaks_a_pass_fails_alone(batching: bool) -> None:
    """Two requests on which the model fails, one that is too long, and an empty one; all others are answered."""
    prompts = [*([1, 2, 3, n] for n in range(10, 20)), [1, 15], [1] * 98, []]
    requests = [request(n, prompt, 3) for n, prompt in enumerate(prompts)]
    memory = ToyMemory(max_sequences=4, fails_on=15)
    found = dict(complete_all(ToyBackend(memory), requests, batching=batching))
    failed = {n: str(one) for n, one in found.items() if not isinstance(one, Completion)}
    assert sorted(found) == list(range(13))
    assert sorted(failed) == [5, 10, 11, 12]
    assert failed[5] == failed[10] == "the model failed"
    assert "the context window is 100" in failed[11]
    assert all(said(found[n]) == said(alone(requests[n])) for n in found if n not in failed)
    assert not memory.sequences


def test_one_bad_prompt_leaves_the_others_together() -> None:
    """What it costs does not grow with the job: those of its pass are asked alone, the others together again."""

    def passes(bad: int | None) -> int:
        requests = [request(n, [1, 2, 3, n], 12) for n in range(10, 210)]
        memory = ToyMemory(max_sequences=10, fails_on=bad)
        outcomes = list(complete_all(ToyBackend(memory), requests, batching=True))
        found = dict(outcomes)
        assert len(outcomes) == len(found) == len(requests)
        failed = [n for n, one in found.items() if not isinstance(one, Completion)]
        assert failed == ([] if bad is None else [bad - 10])
        assert all(said(one) == said(alone(requests[n])) for n, one in found.items() if n not in failed)
        return memory.steps

    alone_steps = 10 * 12
    assert passes(bad=15) <= passes(bad=None) + 2 * alone_steps


@dataclass
class HalfTheRoom(ToyMemory):
    """Fails when more grow together than it says, as a device does whose memory others use, too."""

    room: int = 3

    def extend(self, items: Sequence[SequenceExtension]) -> list[np.ndarray | None]:
        if len(items) > self.room:
            raise BackendError("out of memory")
        return super().extend(items)


def test_what_fails_together_alone_is_asked_by_fewer_at_a_time() -> None:
    requests = [request(n, [1, 2, 3, n], 12) for n in range(10, 90)]
    memory = HalfTheRoom(max_sequences=10)
    found = dict(complete_all(ToyBackend(memory), requests, batching=True))
    assert {n: said(one) for n, one in found.items()} == {n: said(alone(one)) for n, one in enumerate(requests)}
    assert memory.steps < len(requests) * 12 / 2


def test_stopping_in_the_middle_leaves_nothing_behind() -> None:
    requests = [request(n, [1, 2, 3, n], 30) for n in range(10, 20)]
    memory = ToyMemory()
    answers = DecodeBatch(memory, requests, TOKENIZER, {EOS}).run()
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    assert not memory.sequences
