"""The order in which prompts share most: their prefix tree, walked so that every distinct prefix is computed once.

In sorted order a prompt shares more with the one before it than with any earlier one. So one sequence, the trunk, is
enough to walk the tree: for each prompt it is cut back to what that shares with the one before, grows by what the
next one will share too, and the rest of the prompt is a branch of its own. Where a sequence cannot be cut back, copies
of the trunk are left behind while it grows, at the lengths that it is to be cut back to (``returns``). Pure arithmetic;
no model is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lbx.backends.sequence_memory import NO_LIMIT


@dataclass(frozen=True, slots=True)
class Branch:
    """One prompt's place in the walk.

    Attributes:
        index: of the prompt, as it was given.
        length: of the prompt, in tokens.
        kept: how many of its first tokens the trunk holds from the prompt before.
        trunk: how many the trunk holds when the prompt branches off, kept <= trunk < length: the last token is never
            on the trunk, because the logits after it are each prompt's own.
    """

    index: int
    length: int
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
        found: list[tuple[int, ...]] = [()]
        for branch in reversed(self.branches[1:]):
            found.append(tuple(filter(None, (branch.kept, *(n for n in found[-1] if n < branch.kept)))))
        return found[::-1]

    def shared(self, first: int, second: int) -> int:
        """How many tokens two branches (by their places, first < second) hold in common in the memory."""
        return min(branch.kept for branch in self.branches[first + 1 : second + 1])


def plan_prefixes(prompts: Sequence[Sequence[int]], follow_limit: int = NO_LIMIT) -> PrefixPlan:
    """Order prompts, each of at least one token. Equal ones keep the order in which they were given.

    Args:
        follow_limit: two prompts share nothing where one of them has more tokens than this behind what both have: of
            ``lbx.backends.sequence_memory.MemoryTraits``.

    Raises:
        ValueError: a prompt is empty.
    """
    if not all(prompts):
        raise ValueError("a prompt has no token")
    order = sorted(range(len(prompts)), key=lambda index: tuple(prompts[index]))
    lengths = [len(prompts[index]) for index in order]
    common = [common_prefix(prompts[a], prompts[b]) for a, b in pairwise(order)]
    tree = sum(lengths) - sum(common)
    longest = map(max, pairwise(lengths))
    common = [0, *(n if most - n <= follow_limit else 0 for n, most in zip(common, longest, strict=True)), 0]
    branches: list[Branch] = []
    trunk = 0
    for place, (index, length) in enumerate(zip(order, lengths, strict=True)):
        kept = min(common[place], trunk, length - 1)
        trunk = max(kept, min(common[place + 1], length - 1))
        branches.append(Branch(index, length, kept, trunk))
    return PrefixPlan(tuple(branches), tree)


def joining_pays(
    *, new: int, budget: int, strangers: int, growing: Sequence[int], max_step: int, pass_price: int
) -> bool:
    """Whether a prompt should join answers that grow now, rather than wait until some of them have ended.

    Together they take fewer passes, each of which has a price whatever is in it. In return every token of a pass
    attends to every cell in use, and looks in vain at those that are not its own sequence's.

    Args:
        new: tokens of the prompt that must be computed.
        budget: how many its answer may take.
        strangers: cells in use, now or as soon as prompts that wait are read, which the prompt does not share.
        growing: how many tokens each answer may still take.
        max_step: tokens of a pass.
        pass_price: of ``lbx.backends.sequence_memory.MemoryTraits``.
    """
    if not growing:
        return True
    reading, longest = -(-new // max_step), max(growing)
    riding = min(reading, longest)  # passes that read the prompt and take the others' next tokens along
    together = min(longest - riding, budget)  # passes that all answers grow in
    others = len(growing)
    in_vain = min(new, riding * max_step) * strangers + riding * others * new // 2
    in_vain += together * (strangers + others * new)
    return in_vain <= (riding + together) * pass_price


def fit_together(needs: Iterable[int], shared: Iterable[int], *, grain: int, cells: int) -> bool:
    """Whether a memory holds sequences of these lengths at once, neighbours having so many tokens in common."""
    blocks = sum(-(-need // grain) for need in needs) - sum(tokens // grain for tokens in shared)
    return blocks * grain <= cells


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading tokens two prompts share."""
    n = min(len(first), len(second))
    if first[:n] == second[:n]:
        return n
    unequal = np.asarray(first[:n], dtype=np.int64) != np.asarray(second[:n], dtype=np.int64)
    return int(unequal.argmax())
