"""Prefix tree of the prompts, and the rule by which prompts join a batch. Pure arithmetic, without a model.

The tree is walked so that every distinct prefix is computed once. In sorted order a prompt shares more with the
previous prompt than with any earlier one, so one sequence, the trunk, is enough: for each prompt it is cut back to the
prefix shared with the previous prompt and extended by the prefix shared with the next; the rest of the prompt is a
branch. If sequences cannot be cut back, snapshots of the trunk are kept at the lengths that are needed again
(``PrefixPlan.rewind_lengths``). ``Admission`` is used by the batch (``batching``) and by its forecast (``forecast``).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from lbx.inference.model import NO_LIMIT, SequenceMemory

_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class Branch:
    """One prompt in the order of computation; all counts are of its first tokens.

    Attributes:
        index: of the prompt in the given list.
        length: tokens of the prompt.
        shared_with_previous: tokens in common with the previous prompt.
        reused: tokens already in the trunk.
        fork_at: length of the trunk when the prompt forks off, reused <= fork_at < length: the last token is never on
            the trunk, because the logits after it belong to one prompt.
    """

    index: int
    length: int
    shared_with_previous: int
    reused: int
    fork_at: int


@dataclass(frozen=True, slots=True)
class PrefixPlan:
    """Branches in the order of computation.

    Attributes:
        tree_tokens: nodes of the prefix tree, the least number of tokens that all prompts take.
    """

    branches: tuple[Branch, ...]
    tree_tokens: int

    @property
    def computed_tokens(self) -> int:
        """Tokens computed for all prompts: the tree's, and one more for each prompt that is a prefix of another."""
        return sum(branch.length - branch.reused for branch in self.branches)

    def rewind_lengths(self) -> list[tuple[int, ...]]:
        """Lengths that the trunk is cut back to after each branch, longest first."""
        branches: list[tuple[int, ...]] = [()]
        for branch in reversed(self.branches[1:]):
            branches.append(tuple(filter(None, (branch.reused, *(n for n in branches[-1] if n < branch.reused)))))
        return branches[::-1]


def plan_prefixes(
    prompts: Sequence[Sequence[int] | bytes], follow_limit: int = NO_LIMIT, long_from: int = NO_LIMIT
) -> PrefixPlan:
    """Order prompts, given as ids or packed, so that neighbours share most. The order of equal prompts is kept.

    Args:
        follow_limit: prompts with more tokens than this after a common prefix do not share it.
        long_from: prompts with more tokens than this only share prefixes that are longer than this, too. Both limits
            are as in ``lbx.inference.model.MemoryTraits``.

    Raises:
        ValueError: a prompt is empty.
    """
    packed = [pack(prompt) for prompt in prompts]
    if not all(packed):
        raise ValueError("a prompt has no token")
    order = sorted(range(len(packed)), key=packed.__getitem__)
    lengths = [len(packed[index]) // _TOKEN_BYTES for index in order]
    shared_with_previous = [0, *(_common(packed[a], packed[b]) for a, b in pairwise(order))][: len(order)]
    shared = [
        n if most - n <= follow_limit and (most <= long_from or n - 1 > long_from) else 0  # the trunk may have one less
        for n, most in zip(shared_with_previous[1:], map(max, pairwise(lengths)), strict=True)
    ]
    shared = [0, *shared, 0]
    branches: list[Branch] = []
    trunk = 0
    for place, (index, length) in enumerate(zip(order, lengths, strict=True)):
        reused = min(shared[place], trunk, length - 1)
        trunk = max(reused, min(shared[place + 1], length - 1))
        branches.append(Branch(index, length, shared_with_previous[place], reused, trunk))
    return PrefixPlan(tuple(branches), sum(lengths) - sum(shared_with_previous))


def pack(prompt: Sequence[int] | bytes) -> bytes:
    """Tokens as bytes in the same sort order, in a ninth of the memory; packed prompts are returned unchanged."""
    return prompt if isinstance(prompt, bytes) else np.asarray(prompt, dtype=">u4").tobytes()


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Number of leading tokens that two prompts share."""
    return _common(pack(first), pack(second))


def _common(first: bytes, second: bytes) -> int:
    n = min(len(first), len(second)) // _TOKEN_BYTES
    unequal = np.frombuffer(first, np.uint32, n) != np.frombuffer(second, np.uint32, n)
    length = int(unequal.argmax()) if n else 0
    return length if n and unequal[length] else n


_ENOUGH = 4
"""Minimum number of longer answers to predict a length by their mean."""
_SHORT = 64
"""Minimum expected length of an answer in tokens; with a shorter one, batching would seem too expensive."""


@dataclass(frozen=True, slots=True)
class DecodeCapacity:
    """Limits of decoding on a backend.

    Attributes:
        answers: number of answers decoded together.
        cells: capacity of the memory in tokens.
        pass_price, grain, follow_limit: as in ``lbx.inference.model.MemoryTraits``.
        step: tokens per pass; 0 if prefixes are not reused.
        copied_cells: cells that copies of sequences may take.
        resumes: whether prompts are admitted by expected answer lengths, see ``MemoryTraits.resumes``, or by budgets.
    """

    answers: int
    cells: int
    pass_price: int
    step: int
    grain: int = 1
    follow_limit: int = NO_LIMIT
    copied_cells: int = 0
    resumes: bool = False


def decode_capacity(memory: SequenceMemory, *, batching: bool = True) -> DecodeCapacity:
    """Decode limits of a memory."""
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
    """Expected answer lengths, from the answers that have ended. Reasoning seldom takes its whole budget."""

    def __init__(self) -> None:
        self._ended: list[int] = []  # in rising order
        self._sums: list[int] = []  # of each length and all longer ones

    def add(self, tokens: int) -> None:
        insort(self._ended, tokens)
        self._sums = [*accumulate(reversed(self._ended))][::-1]

    def expected(self, made: int, most: int) -> int:
        """Expected length of an answer with ``made`` tokens and a budget of ``most``.

        The mean of all longer answers; if there are few, twice ``made``, and at least ``_SHORT`` and an eighth of the
        budget.
        """
        at = bisect_right(self._ended, made)
        longer = len(self._ended) - at
        guess = self._sums[at] // longer if longer >= _ENOUGH else max(2 * made, most // 8, _SHORT)
        return min(most, max(made + 1, guess))


@dataclass(frozen=True, slots=True)
class Admission:
    """Rule by which prompts join the answers that are being decoded. Prompts are identified by their order.

    Attributes:
        length: tokens of each prompt.
        kept: leading tokens shared with the previous prompt.
        most: budget of its answer in tokens.
        lengths: expected answer lengths; None: the budgets.
    """

    capacity: DecodeCapacity
    length: Sequence[int]
    kept: Sequence[int]
    most: Sequence[int]
    lengths: AnswerLengths | None = None

    def admits(
        self, place: int, made: Mapping[int, int], used: int, *, begun: int = 0, kept: int | None = None
    ) -> bool:
        """Whether joining pays and the memory is likely to fit all answers until they end.

        Args:
            made: {prompt: tokens of its answer so far} of the answers that are being decoded.
            used: cells in use once these prompts are prefilled.
            begun: tokens of the prompt's own answer if it was preempted.
            kept: leading tokens of the prompt that are in the memory.
        """
        if not made:
            return True
        if kept is None:
            kept = self.kept[place]
        return (
            len(made) < self.capacity.answers
            and self._is_worth_joining(place, made, used, begun, kept)
            and self._fits({**made, place: begun})
        )

    def shared(self, first: int, second: int) -> int:
        """Number of cells that two prompts (first < second) share."""
        return min(self.kept[first + 1 : second + 1])

    def longest(self, place: int, made: int = 0) -> int:
        """Expected tokens of a prompt and its answer, given ``made`` answer tokens so far."""
        return self.length[place] + self._answer(place, made)

    def most_cells(self) -> int:
        """Most cells in use at once, for all prompts with their whole budgets or the largest if answers == 1."""
        longest = replace(self, lengths=None)
        if self.capacity.answers == 1:
            return max(longest._cells({place: 0}) for place in range(len(self.length)))
        return min(longest._cells(dict.fromkeys(range(len(self.length)), 0)), self.capacity.cells)

    def _answer(self, place: int, made: int) -> int:
        most = self.most[place]
        return most if self.lengths is None else self.lengths.expected(made, most)

    def _is_worth_joining(self, place: int, made: Mapping[int, int], used: int, begun: int, kept: int) -> bool:
        return is_worth_joining(
            new=max(1, self.length[place] + begun - kept),
            budget=self._answer(place, begun) - begun,
            strangers=used - kept,
            growing=[self._answer(one, tokens) - tokens for one, tokens in made.items()],
            max_step=self.capacity.step,
            pass_price=self.capacity.pass_price,
        )

    def _fits(self, made: Mapping[int, int]) -> bool:
        return self._cells(made) <= self.capacity.cells

    def _cells(self, made: Mapping[int, int]) -> int:
        grain, places = self.capacity.grain, sorted(made)
        blocks = sum(-(-self.longest(one, made[one]) // grain) for one in places)
        blocks -= sum(self.shared(*pair) // grain for pair in pairwise(places))
        return blocks * grain


def is_worth_joining(
    *, new: int, budget: int, strangers: int, growing: Sequence[int], max_step: int, pass_price: int
) -> bool:
    """Whether a prompt should join the answers that are being decoded, rather than wait until some have ended.

    A batch takes fewer passes, each with a fixed price. In return every token of a pass attends to every cell in use,
    also to masked cells of other sequences: n answers cost n x n times their own cells. Waiting prompts share passes
    later, too, so joining pays as long as it makes all of them cheaper, which saves 2 / (n + 1) of the shared passes.

    Args:
        new: tokens of the prompt that must be computed.
        budget: tokens that its answer may take.
        strangers: cells in use that the prompt does not share.
        growing: remaining tokens of each answer that is being decoded, at least one.
        max_step: tokens per pass.
        pass_price: as in ``lbx.inference.model.MemoryTraits``.
    """
    reading, longest = -(-new // max_step), max(growing)
    riding = min(reading, longest)  # passes that read the prompt and take the others' next tokens along
    together = min(longest - riding, budget)  # passes that all answers grow in
    others = len(growing)
    in_vain = min(new, riding * max_step) * strangers + riding * others * new // 2
    in_vain += together * (strangers + others * (new + together))
    return in_vain * (others + 1) <= 2 * (riding + together) * pass_price
