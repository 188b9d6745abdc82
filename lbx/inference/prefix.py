"""The order in which prompts share most: their prefix tree, walked so that every distinct prefix is computed once.

In sorted order a prompt shares more with the one before it than with any earlier one. So one sequence, the trunk, is
enough to walk the tree: for each prompt it is cut back to what that shares with the one before, grows by what the
next one will share too, and the rest of the prompt is a branch of its own. Where a sequence cannot be cut back, copies
of the trunk are left behind while it grows, at the lengths that it is to be cut back to (``returns``). Pure arithmetic;
no model is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lbx.inference.sequence_memory import NO_LIMIT

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
        found: list[tuple[int, ...]] = [()]
        for branch in reversed(self.branches[1:]):
            found.append(tuple(filter(None, (branch.kept, *(n for n in found[-1] if n < branch.kept)))))
        return found[::-1]


def plan_prefixes(
    prompts: Sequence[Sequence[int] | bytes], follow_limit: int = NO_LIMIT, long_from: int = NO_LIMIT
) -> PrefixPlan:
    """Order prompts, each of at least one token, as ids or packed. Equal ones keep the order in which they were given.

    Args:
        follow_limit: two prompts share nothing where one of them has more tokens than this behind what both have.
        long_from: a prompt of more tokens than this is computed otherwise from its first one on. It shares what has
            more tokens itself, and the others share with each other. Both are of
            ``lbx.inference.sequence_memory.MemoryTraits``.

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
    found = int(unequal.argmax()) if n else 0
    return found if n and unequal[found] else n
