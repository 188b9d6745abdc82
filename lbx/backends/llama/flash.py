"""Prefill with flash attention, in a separate context.

llama.cpp has two kernels for flash attention on a CPU. The one for 64 tokens or more is faster than attention without
it, and sums in float32. The one for fewer is slower than attention without it, most of all for many sequences, and sums
in float16. A context uses flash attention always or never, so lbx has two: prompts are computed here, and their keys
and values are copied to the context where their ends and the answers are computed.

The kernel visits blocks of 64 cells in their order and skips those that a token does not attend to. Here token p is in
cell p, so a token's numbers depend on the tokens before it only: not on the size of a pass, on other sequences, on the
size of the cache or on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lbx.backends.llama.cache_cells import BatchInvariantCells, PassSize, PlainCells
from lbx.backends.llama.library import StepBatch, compute
from lbx.backends.llama.states import StatePort, transpose_values

BULK = 256
"""A prompt's tokens up to the last multiple of BULK are computed here; few enough that ends are cheap."""
FLASH_PASS = PassSize(64, 4)
"""Padding of passes: the large-batch kernel takes at least 64 tokens; see also ``pass_size``."""
_BEGINNING, _CARRIER, _PADDING, FLASH_SEQUENCES = 0, 1, 2, 3


class FlashPrefill(StatePort):
    """Context with flash attention that computes the beginning of one sequence at a time, made at the first use.

    Args:
        make: function that makes a context.
        max_step: largest number of tokens of a pass.
        filler: a token of the vocabulary, for padding.
    """

    def __init__(self, llama_cpp: Any, make: Callable[[], Any], *, max_step: int, filler: int) -> None:
        super().__init__(llama_cpp, None, _CARRIER)
        self._make, self._filler = make, filler
        self._batch = StepBatch(llama_cpp, FLASH_PASS.padded_size(max_step))
        self._lengths: dict[int, int] = {}  # of each sequence of the memory, the first tokens that are in this context

    def extend(self, sequence: int, tokens: Sequence[int], cells: PlainCells | BatchInvariantCells, length: int) -> int:
        """Append tokens to a sequence of the memory in one pass, and return llama.cpp's status code.

        Args:
            cells: cells of the memory.
            length: length of the sequence before.
        """
        if self._context is None:
            self.connect(self._make())
        for start in range(self._lengths.get(sequence, 0), length, BULK):
            self._cut(start)
            state = cells.export_state(sequence, start, min(start + BULK, length))
            self.import_state(transpose_values(state), [_BEGINNING])
        self._cut(length)
        count, padding = len(tokens), FLASH_PASS.padding(len(tokens))
        self._batch.fill(
            [*tokens, *[self._filler] * padding],
            [*range(length, length + count), *range(padding)],
            [_BEGINNING] * count + [_PADDING] * padding,
            [],
        )
        if code := compute(self._lib.llama_decode, self._context, self._batch.native):
            return code
        self._remove(_PADDING, -1, -1)
        cells.allocate([(sequence, count)])
        cells.import_state(transpose_values(self.export_state(_BEGINNING, length, length + count)), [sequence])
        self._lengths[sequence] = length + count
        return 0

    def fork(self, source: int, length: int, target: int) -> None:
        """Record that a sequence of the memory was replaced by the first tokens of another sequence."""
        self._lengths[target] = min(length, self._lengths.get(source, 0))

    def drop(self, sequence: int) -> None:
        self._lengths.pop(sequence, None)

    def close(self) -> None:
        """Free the context, which is made again at the next use."""
        self._lengths, context = {}, self._context
        self.connect(None)
        if context is not None:
            self._lib.llama_free(context)

    def _cut(self, length: int) -> None:
        self._remove(_BEGINNING, length, -1)
        self._lengths = {sequence: min(own, length) for sequence, own in self._lengths.items()}
