"""Prefix tree of prompts, and the decision when a prompt joins a batch. Pure arithmetic, without a model.

The tree is walked so that every distinct prefix is computed once. In sorted order a prompt shares more with the
previous prompt than with any earlier prompt, so one sequence, the trunk, is enough: for each prompt it is cut back to
the prefix shared with the previous prompt and extended by the prefix shared with the next; the rest of the prompt is a
branch. If sequences cannot be cut back, snapshots of the trunk are kept at the lengths that are needed again
(``PrefixPlan.rewind_lengths``). ``Admission`` is used by the batch (``batching``) and by its forecast (``forecast``).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from lbx.engine.model import NO_LIMIT, SequenceMemory, bulk_tokens

_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class Branch:
    """Branch of the prefix tree: one prompt in the order of computation. Counts are numbers of leading tokens.

    Attributes:
        index: index of the prompt in the given list.
        length: tokens of the prompt.
        shared_with_previous: tokens in common with the previous prompt.
        reused_tokens: tokens already in the trunk.
        fork_at: length of the trunk when the prompt forks off, reused_tokens <= fork_at < length: the last token is
            never on the trunk, because the logits after it belong to one prompt.
    """

    index: int
    length: int
    shared_with_previous: int
    reused_tokens: int
    fork_at: int


@dataclass(frozen=True, slots=True)
class PrefixPlan:
    """Plan of the prefix tree: the branches in the order of computation.

    Attributes:
        tree_tokens: number of nodes of the prefix tree: the least number of tokens to compute for all prompts.
    """

    branches: tuple[Branch, ...]
    tree_tokens: int

    @property
    def computed_tokens(self) -> int:
        """Number of tokens to compute for all prompts. Limits of the memory may add tokens to ``tree_tokens``.

        One more token is computed for each prompt that is a prefix of another prompt.
        """
        return sum(branch.length - branch.reused_tokens for branch in self.branches)

    def rewind_lengths(self) -> list[tuple[int, ...]]:
        """Lengths to which the trunk is cut back after each branch, the longest first."""
        branches: list[tuple[int, ...]] = [()]
        for branch in reversed(self.branches[1:]):
            branches.append(
                tuple(filter(None, (branch.reused_tokens, *(n for n in branches[-1] if n < branch.reused_tokens))))
            )
        return branches[::-1]


def plan_prefixes(
    prompts: Sequence[Sequence[int] | bytes], follow_limit: int = NO_LIMIT, long_from: int = NO_LIMIT, bulk: int = 0
) -> PrefixPlan:
    """Order prompts so that neighbours share the longest prefixes. The order of equal prompts is kept.

    Args:
        prompts: token ids, or tokens packed by ``pack_tokens``.
        follow_limit: prompts with more than ``follow_limit`` tokens after a common prefix do not share the prefix.
        long_from: prompts with more than ``long_from`` tokens only share prefixes that are also longer.
        bulk: prompts only share tokens that both compute in bulk, or neither does.
            All limits are as in ``lbx.engine.model.MemoryTraits``.

    Raises:
        ValueError: a prompt is empty.
    """
    packed = [pack_tokens(prompt) for prompt in prompts]
    if not all(packed):
        raise ValueError("a prompt has no token")
    bulks = [bulk_tokens(len(prompt) // _TOKEN_BYTES, bulk) for prompt in packed]
    order = sorted(range(len(packed)), key=lambda index: (packed[index][: bulks[index] * _TOKEN_BYTES], packed[index]))
    lengths = [len(packed[index]) // _TOKEN_BYTES for index in order]
    shared_with_previous = [0]
    for a, b in pairwise(order):
        limits = {bulks[a], bulks[b]}
        common = _common_length(packed[a], packed[b])
        shared_with_previous.append(min(common, *limits) if len(limits) > 1 else common)
    shared = [
        n if most - n <= follow_limit and (most <= long_from or n - 1 > long_from) else 0  # the trunk may have one less
        for n, most in zip(shared_with_previous[1:], map(max, pairwise(lengths)), strict=True)
    ]
    shared = [0, *shared, 0]
    branches: list[Branch] = []
    trunk = 0
    for position, (index, length) in enumerate(zip(order, lengths, strict=True)):
        reused = min(shared[position], trunk, length - 1)
        trunk = max(reused, min(shared[position + 1], length - 1))
        branches.append(Branch(index, length, shared_with_previous[position], reused, trunk))
    return PrefixPlan(tuple(branches), sum(lengths) - sum(shared_with_previous[: len(lengths)]))


def pack_tokens(prompt: Sequence[int] | bytes) -> bytes:
    """Pack token ids into bytes with the same sort order and a ninth of the memory. Packed prompts stay unchanged."""
    return prompt if isinstance(prompt, bytes) else np.asarray(prompt, dtype=">u4").tobytes()


def common_prefix_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Number of leading tokens that two prompts share."""
    return _common_length(pack_tokens(first), pack_tokens(second))


def _common_length(first: bytes, second: bytes) -> int:
    n = min(len(first), len(second)) // _TOKEN_BYTES
    unequal = np.frombuffer(first, np.uint32, n) != np.frombuffer(second, np.uint32, n)
    length = int(unequal.argmax()) if n else 0
    return length if n and unequal[length] else n


_MIN_LONGER_ANSWERS = 4
"""Minimum number of longer answers to predict a length by their mean."""
_MIN_EXPECTED_LENGTH = 64
"""Minimum expected length of an answer in tokens; with a shorter one, batching would seem too expensive."""


@dataclass(frozen=True, slots=True)
class DecodeCapacity:
    """Capacity of a backend for decoding, as the scheduler and the forecast use it.

    Attributes:
        max_answers: limit of answers decoded together.
        cells: capacity of the memory in tokens.
        pass_price, grain, follow_limit: as in ``lbx.engine.model.MemoryTraits``.
        step: maximum number of tokens per pass, or 0 if prefixes are not reused.
        copied_cells: cells that copies of sequences may take.
        resumes: whether prompts are admitted by expected answer lengths, see ``MemoryTraits.resumes``, or by budgets.
    """

    max_answers: int
    cells: int
    pass_price: int
    step: int
    grain: int = 1
    follow_limit: int = NO_LIMIT
    copied_cells: int = 0
    resumes: bool = False


def decode_capacity(memory: SequenceMemory, *, batching: bool = True) -> DecodeCapacity:
    """Derive the decoding capacity from a memory. Without batching, answers are decoded one by one."""
    traits = memory.traits
    together = max(1, min(memory.max_sequences - traits.trunks, memory.max_step))
    return DecodeCapacity(
        together if batching else 1,
        memory.max_cells,
        traits.pass_price,
        memory.max_step,
        traits.grain,
        traits.follow_limit,
        memory.max_cells if traits.copies else 0,
        traits.resumes,
    )


class AnswerLengths:
    """Predictor of the final lengths of unfinished answers, from the lengths of finished answers."""

    def __init__(self) -> None:
        self._lengths: list[int] = []  # in rising order
        self._sums: list[int] = []  # of each length and all longer ones

    def add(self, tokens: int) -> None:
        insort(self._lengths, tokens)
        self._sums = [*accumulate(reversed(self._lengths))][::-1]

    def expected_length(self, n_tokens: int, budget: int) -> int:
        """Predicted final length of an answer that consists of ``n_tokens`` tokens so far, at most ``budget``.

        The mean length of all longer answers, or, if they are few, twice ``n_tokens``, but at least
        ``_MIN_EXPECTED_LENGTH`` and an eighth of the budget. Always more than ``n_tokens``.
        """
        at = bisect_right(self._lengths, n_tokens)
        longer = len(self._lengths) - at
        guess = (
            self._sums[at] // longer
            if longer >= _MIN_LONGER_ANSWERS
            else max(2 * n_tokens, budget // 8, _MIN_EXPECTED_LENGTH)
        )
        return min(budget, max(n_tokens + 1, guess))


@dataclass(frozen=True, slots=True)
class Admission:
    """Admission of prompts to the answers that are being decoded. Prompts are identified by their order.

    Attributes:
        shared_tokens: leading tokens shared with the previous prompt.
        lengths: predictor of answer lengths, or None to predict the budgets.
    """

    capacity: DecodeCapacity
    prompt_tokens: Sequence[int]
    shared_tokens: Sequence[int]
    answer_budgets: Sequence[int]
    lengths: AnswerLengths | None = None

    def admits(
        self,
        position: int,
        tokens_by_prompt: Mapping[int, int],
        used: int,
        *,
        answer_tokens: int = 0,
        reused_tokens: int | None = None,
    ) -> bool:
        """Whether a prompt may join: it is worth the cost, and the memory probably suffices until all answers end.

        Args:
            tokens_by_prompt: {prompt: tokens of its answer so far} of the answers that are being decoded.
            used: number of cells in use once the prompts in ``tokens_by_prompt`` are prefilled.
            answer_tokens: tokens of the prompt's own answer if it was preempted.
            reused_tokens: leading tokens of the prompt that are in the memory, or None for the prompt's shared tokens.
        """
        if not tokens_by_prompt:
            return True
        if reused_tokens is None:
            reused_tokens = self.shared_tokens[position]
        return (
            len(tokens_by_prompt) < self.capacity.max_answers
            and self._is_worth_joining(position, tokens_by_prompt, used, answer_tokens, reused_tokens)
            and self._cells({**tokens_by_prompt, position: answer_tokens}) <= self.capacity.cells
        )

    def shared_cells(self, first: int, second: int) -> int:
        """Number of cells that two prompts (first < second) share."""
        return min(self.shared_tokens[first + 1 : second + 1])

    def expected_tokens(self, position: int, answer_tokens: int = 0) -> int:
        """Expected number of tokens of a prompt and its answer, given ``answer_tokens`` answer tokens so far."""
        return self.prompt_tokens[position] + self._answer_length(position, answer_tokens)

    def peak_cells(self) -> int:
        """Peak number of cells in use if every answer takes its whole budget."""
        with_budgets = replace(self, lengths=None)
        if self.capacity.max_answers == 1:
            return max(with_budgets._cells({position: 0}) for position in range(len(self.prompt_tokens)))
        return min(with_budgets._cells(dict.fromkeys(range(len(self.prompt_tokens)), 0)), self.capacity.cells)

    def _answer_length(self, position: int, answer_tokens: int) -> int:
        budget = self.answer_budgets[position]
        return budget if self.lengths is None else self.lengths.expected_length(answer_tokens, budget)

    def _is_worth_joining(
        self, position: int, tokens_by_prompt: Mapping[int, int], used: int, answer_tokens: int, reused_tokens: int
    ) -> bool:
        return is_worth_joining(
            new=max(1, self.prompt_tokens[position] + answer_tokens - reused_tokens),
            budget=self._answer_length(position, answer_tokens) - answer_tokens,
            foreign_cells=used - reused_tokens,
            growing=[self._answer_length(other, tokens) - tokens for other, tokens in tokens_by_prompt.items()],
            max_step=self.capacity.step,
            pass_price=self.capacity.pass_price,
        )

    def _cells(self, tokens_by_prompt: Mapping[int, int]) -> int:
        grain, positions = self.capacity.grain, sorted(tokens_by_prompt)
        blocks = sum(-(-self.expected_tokens(position, tokens_by_prompt[position]) // grain) for position in positions)
        blocks -= sum(self.shared_cells(*pair) // grain for pair in pairwise(positions))
        return blocks * grain


def is_worth_joining(
    *, new: int, budget: int, foreign_cells: int, growing: Sequence[int], max_step: int, pass_price: int
) -> bool:
    """Whether a prompt should join the answers that are being decoded, rather than wait until an answer has ended.

    A batch takes fewer passes, each with a fixed price. In return every token of a pass attends to every cell in use,
    also to masked cells of other sequences: n answers cost n x n times their own cells. Waiting prompts share passes
    later, too, so joining pays as long as it makes all of them cheaper, which saves 2 / (n + 1) of the shared passes.

    Args:
        new: number of the prompt's tokens that must be computed.
        budget: maximum number of tokens of the prompt's answer.
        foreign_cells: number of cells in use that the prompt does not share.
        growing: remaining tokens of each answer that is being decoded, for at least one answer.
        max_step: tokens per pass.
        pass_price: as in ``lbx.engine.model.MemoryTraits``.
    """
    prefill_passes, longest = -(-new // max_step), max(growing)
    mixed_passes = min(prefill_passes, longest)  # passes that read the prompt and take the others' next tokens along
    joint_passes = min(longest - mixed_passes, budget)  # passes that all answers grow in
    n_answers = len(growing)
    wasted_pairs = min(new, mixed_passes * max_step) * foreign_cells + mixed_passes * n_answers * new // 2
    wasted_pairs += joint_passes * (foreign_cells + n_answers * (new + joint_passes))
    return wasted_pairs * (n_answers + 1) <= 2 * (mixed_passes + joint_passes) * pass_price
