"""What a context is made for, so that its cells can be laid out (``lbx.backends.llama.aligned``). Loads nothing big."""

from __future__ import annotations

import platform
from typing import NamedTuple

GRAIN = 32
"""Cells of a block: a multiple of every vector's lanes that llama.cpp sums 16 or 32-bit values in."""

SPARE_BLOCKS = 4
"""One under the padding, two for the ends of trunks (a block that is not full is nobody else's), one to overshoot."""

FILLER, CARRIER, PADDING, EXTRA_SEQUENCES = 0, 1, 2, 3
"""Sequences besides those of the engine, counted from the engine's last: occupied cells, cells on their way, tokens
that only make a pass larger."""


TRUNKS = 4
"""Sequences that hold beginnings of prompts where these can be copied as they stand only."""


class PassSize(NamedTuple):
    """How many tokens, and rows of logits, a pass must have for its numbers not to depend on how many there are.

    llama.cpp has other kernels for few tokens than for many, whose sums are rounded otherwise.

    Attributes:
        least: that the kernels for many take.
        multiple: that is computed as one; those left over would go one by one.
    """

    least: int = 1
    multiple: int = 1

    def padding(self, tokens: int) -> int:
        """How many tokens more a pass of so many needs; none if it is empty."""
        return max(self.least, -(-tokens // self.multiple) * self.multiple) - tokens if tokens else 0

    def padded(self, tokens: int) -> int:
        return tokens + self.padding(tokens)


_SGEMM_FILES = frozenset({"0", "1", "7", "32"})  # general.file_type: float32, float16, Q8_0, bfloat16
PAIRS, _EIGHTS = PassSize(2), PassSize(8, 4)


def pass_size(file_type: str | None) -> PassSize:
    """What a model's passes are padded to on a CPU.

    From llama.cpp's source: ``llamafile_sgemm`` takes 2 tokens or more on x86 (8 on ARM, not seen running there),
    the kernels for K-quants 8, and those for rearranged weights (``repack``) four at a time.

    Args:
        file_type: general.file_type in the file's header.
    """
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return PAIRS if file_type in _SGEMM_FILES and not arm else _EIGHTS
