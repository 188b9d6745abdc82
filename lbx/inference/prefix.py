"""The order in which prompts share most, and which of them are answered together.

Their prefix tree is walked so that every distinct prefix is computed once.

In sorted order a prompt shares more with the one before it than with any earlier one. So one sequence, the trunk, is
enough to walk the tree: for each prompt it is cut back to what that shares with the one before, grows by what the
next one will share too, and the rest of the prompt is a branch of its own. Where a sequence cannot be cut back, copies
of the trunk are left behind while it grows, at the lengths that it is to be cut back to (``returns``). ``Admission``
is the one rule of who joins, of the walk (``batching``) and of its estimate (``forecast``). Pure arithmetic; no model
is needed.
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
    """One prompt's place in the walk.

    Attributes:
        index: of the prompt, as it was given.
        length: of the prompt, in tokens.
        common: how many of its first tokens the prompt before has, too.
        kept: how many of its first tokens the trunk holds from the prompt before.
        trunk: how many the trunk holds when the prompt branches off, kept <= trunk < length: the last token is never
            on the trunk, because the logits after it are each prompt's own.
    """

    index: int
    length: int
    common: int
    kept: int
    trunk: int


@dataclass(frozen=True, slots=True)
class PrefixPlan:
    """The branches in the order to compute them.

    Attributes:
        tree_tokens: nodes of the prefix tree: no way to compute all prompts takes fewer tokens.
    """

    branches: tuple[Branch, ...]
    tree_tokens: int

    @property
    def computed_tokens(self) -> int:
        """Tokens that this walk computes: the tree's, and one more for each prompt that another one begins with."""
        return sum(branch.length - branch.kept for branch in self.branches)

    def returns(self) -> list[tuple[int, ...]]:
        """For each branch, by its place, the lengths that the trunk will be cut back to after it, longest first."""
        branches: list[tuple[int, ...]] = [()]
        for branch in reversed(self.branches[1:]):
            branches.append(tuple(filter(None, (branch.kept, *(n for n in branches[-1] if n < branch.kept)))))
        return branches[::-1]


def plan_prefixes(
    prompts: Sequence[Sequence[int] | bytes], follow_limit: int = NO_LIMIT, long_from: int = NO_LIMIT
) -> PrefixPlan:
    """Order prompts, each of at least one token, as ids or packed. Equal ones keep the order in which they were given.

    Args:
        follow_limit: two prompts share nothing where one of them has more tokens than this behind what both have.
        long_from: a prompt of more tokens than this is computed otherwise from its first one on. It shares what has
            more tokens itself, and the others share with each other. Both are of
            ``lbx.inference.model.MemoryTraits``.

    Raises:
        ValueError: a prompt is empty.
    """
    packed = [pack(prompt) for prompt in prompts]
    if not all(packed):
        raise ValueError("a prompt has no token")
    order = sorted(range(len(packed)), key=packed.__getitem__)
    lengths = [len(packed[index]) // _TOKEN_BYTES for index in order]
    common = [0, *(_common(packed[a], packed[b]) for a, b in pairwise(order))][: len(order)]
    shared = [
        n if most - n <= follow_limit and (most <= long_from or n - 1 > long_from) else 0  # the trunk may have one less
        for n, most in zip(common[1:], map(max, pairwise(lengths)), strict=True)
    ]
    shared = [0, *shared, 0]
    branches: list[Branch] = []
    trunk = 0
    for place, (index, length) in enumerate(zip(order, lengths, strict=True)):
        kept = min(shared[place], trunk, length - 1)
        trunk = max(kept, min(shared[place + 1], length - 1))
        branches.append(Branch(index, length, common[place], kept, trunk))
    return PrefixPlan(tuple(branches), sum(lengths) - sum(common))


def pack(prompt: Sequence[int] | bytes) -> bytes:
    """Tokens as bytes that sort as the tokens do, in a ninth of the memory; what is packed already stays."""
    return prompt if isinstance(prompt, bytes) else np.asarray(prompt, dtype=">u4").tobytes()


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading tokens two prompts share."""
    return _common(pack(first), pack(second))


def _common(first: bytes, second: bytes) -> int:
    n = min(len(first), len(second)) // _TOKEN_BYTES
    unequal = np.frombuffer(first, np.uint32, n) != np.frombuffer(second, np.uint32, n)
    length = int(unequal.argmax()) if n else 0
    return length if n and unequal[length] else n


_ENOUGH = 4
"""Answers whose mean length says something."""
_SHORT = 64
"""Tokens of an answer that are not worth a hope: of too short ones it would seem not to pay to grow side by side."""


@dataclass(frozen=True, slots=True)
class DecodeCapacity:
    """How a backend answers prompts.

    Attributes:
        answers: how many may grow together; 1 means one prompt after the other.
        cells: tokens that its memory holds.
        pass_price, grain, follow_limit: as of ``lbx.inference.model.MemoryTraits``.
        step: tokens of one pass. One after the other, a kept prefix is reused in pieces of so many; 0: not at all.
        copied_cells: how many of the cells may be taken by copies of sequences, what they have in common by each.
        resumes: whether prompts are admitted by likely answer lengths, see ``MemoryTraits.resumes``, or by budgets.
    """

    answers: int
    cells: int
    pass_price: int
    step: int
    grain: int = 1
    follow_limit: int = NO_LIMIT
    copied_cells: int = 0
    resumes: bool = False


def capacity_of(memory: SequenceMemory, *, batching: bool = True) -> DecodeCapacity:
    """How answers are given in a memory: all at once that there is room for, or one at a time."""
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
    """How long answers are likely to become, by those that have ended. Reasoning seldom takes its whole budget."""

    def __init__(self) -> None:
        self._ended: list[int] = []  # in rising order
        self._sums: list[int] = []  # of each and all longer ones

    def add(self, tokens: int) -> None:
        insort(self._ended, tokens)
        self._sums = [*accumulate(reversed(self._ended))][::-1]

    def expected(self, made: int, most: int) -> int:
        """Tokens of an answer that has so many and may take ``most``.

        As long as those that were longer became on average. Where few were, twice what it has, and at least an eighth
        of what it may take and ``_SHORT``.
        """
        at = bisect_right(self._ended, made)
        longer = len(self._ended) - at
        guess = self._sums[at] // longer if longer >= _ENOUGH else max(2 * made, most // 8, _SHORT)
        return min(most, max(made + 1, guess))


@dataclass(frozen=True, slots=True)
class Admission:
    """Which prompts of a walk may join those that are being answered. Prompts are named by their places in it.

    Attributes:
        length: of each prompt, in tokens.
        kept: how many of its first tokens the one before it has, too.
        most: how many tokens its answer may take.
        lengths: what answers are likely to take; None: all that they may.
    """

    capacity: DecodeCapacity
    length: Sequence[int]
    kept: Sequence[int]
    most: Sequence[int]
    lengths: AnswerLengths | None = None

    def admits(
        self, place: int, made: Mapping[int, int], used: int, *, begun: int = 0, kept: int | None = None
    ) -> bool:
        """Whether a prompt should join, and the memory is likely to hold all until they have ended.

        Args:
            made: {prompt that is being answered: tokens of its answer so far}.
            used: cells in use, or in use as soon as these prompts are read.
            begun: tokens of its own answer, which was thrown out; ``kept``: how many of its tokens are in the memory.
        """
        if not made:
            return True
        if kept is None:
            kept = self.kept[place]
        return (
            len(made) < self.capacity.answers
            and self._pays(place, made, used, begun, kept)
            and self._fits({**made, place: begun})
        )

    def shared(self, first: int, second: int) -> int:
        """How many tokens two prompts (first < second) have in common in the memory."""
        return min(self.kept[first + 1 : second + 1])

    def longest(self, place: int, made: int = 0) -> int:
        """Tokens of a prompt with its answer, of which it has ``made``, when that ends."""
        return self.length[place] + self._answer(place, made)

    def most_cells(self) -> int:
        """Cells that are in use at once at most: all prompts' and the longest answers', or where one answer grows at a
        time, those of the one that takes most.
        """
        longest = replace(self, lengths=None)
        if self.capacity.answers == 1:
            return max(longest._cells({place: 0}) for place in range(len(self.length)))
        return min(longest._cells(dict.fromkeys(range(len(self.length)), 0)), self.capacity.cells)

    def _answer(self, place: int, made: int) -> int:
        most = self.most[place]
        return most if self.lengths is None else self.lengths.expected(made, most)

    def _pays(self, place: int, made: Mapping[int, int], used: int, begun: int, kept: int) -> bool:
        return joining_pays(
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
        """Cells of prompts with their answers."""
        grain, places = self.capacity.grain, sorted(made)
        blocks = sum(-(-self.longest(one, made[one]) // grain) for one in places)
        blocks -= sum(self.shared(*pair) // grain for pair in pairwise(places))
        return blocks * grain


def joining_pays(
    *, new: int, budget: int, strangers: int, growing: Sequence[int], max_step: int, pass_price: int
) -> bool:
    """Whether a prompt should join answers that grow now, rather than wait until some of them have ended.

    Together they take fewer passes, each of which has a price whatever is in it. In return every token of a pass
    attends to every cell in use, and looks in vain at those that are not its own sequence's: n answers cost a pass as
    many looks as n x n times their own cells. Prompts that wait share a pass's price later, too; so a further one is
    worth joining as long as that makes all of them cheaper, which saves 2 / (n + 1) of the passes it takes along.

    Args:
        new: tokens of the prompt that must be computed.
        budget: how many its answer may take.
        strangers: cells in use, now or as soon as prompts that wait are read, which the prompt does not share.
        growing: how many tokens each answer may still take, at least one of them.
        max_step: tokens of a pass.
        pass_price: of ``lbx.inference.model.MemoryTraits``.
    """
    reading, longest = -(-new // max_step), max(growing)
    riding = min(reading, longest)  # passes that read the prompt and take the others' next tokens along
    together = min(longest - riding, budget)  # passes that all answers grow in
    others = len(growing)
    in_vain = min(new, riding * max_step) * strangers + riding * others * new // 2
    in_vain += together * (strangers + others * (new + together))
    return in_vain * (others + 1) <= 2 * (riding + together) * pass_price
