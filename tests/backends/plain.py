"""One sequence at a time, token by token: what lbx's memories are held against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lbx.backends.llama.cache_cells import PADDING
from lbx.backends.llama.library import StepBatch
from lbx.engine.model import SequenceExtension


class Steps:
    """The first sequence of a backend's memory, and no other in it."""

    def __init__(self, backend) -> None:
        self._memory = backend.sequences()

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        """The logits after a prompt, computed in pieces of a pass."""
        for sequence in range(self._memory.max_sequences):
            self._memory.drop(sequence)
        step = self._memory.max_step
        return [self._after(ids[at : at + step]) for at in range(0, len(ids), step)][-1]

    def step(self, token: int) -> np.ndarray:
        return self._after([token])

    def _after(self, ids: Sequence[int]) -> np.ndarray:
        return self._memory.extend([SequenceExtension(0, ids, True)])[0]


class PlainLlama:
    """The same in llama.cpp's own order: token p in cell p, nothing beside it but what fills a pass up.

    The context is the backend's, whose memory forgets all it holds.
    """

    def __init__(self, backend) -> None:
        self._memory = memory = backend.sequences()
        memory._begin()  # a batch leaves a context behind that is as large as it needed
        self._lib, self._context, self._vocabulary = backend._lib, memory._context, backend.tokenizer.size
        self._pass_size, self._filler = memory._pass_size, memory._filler
        self._padding = 0 if memory._has_stacked_cells else memory.max_sequences + PADDING
        self._batch = StepBatch(self._lib, self._pass_size.padded_size(memory.max_step))
        self._position = 0

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        self._memory._reset()
        self._position = 0
        for at in range(0, len(ids), self._memory.max_step):
            row = self._decode(ids[at : at + self._memory.max_step])
        return self._logits(row)

    def step(self, token: int) -> np.ndarray:
        return self._logits(self._decode([token]))

    def _decode(self, tokens: Sequence[int]) -> int:
        """The row of the last of the tokens."""
        count, padding = len(tokens), self._pass_size.padding(len(tokens))
        rows = [count - 1, *range(count - 1), *range(count, count + padding)][: self._pass_size.padded_size(1)]
        self._batch.fill(
            [*tokens, *[self._filler] * padding],
            [*range(self._position, self._position + count), *range(padding)],
            [0] * count + [self._padding] * padding,
            rows,
        )
        assert self._lib.llama_decode(self._context, self._batch.native) == 0
        if padding:
            self._lib.llama_memory_seq_rm(self._lib.llama_get_memory(self._context), self._padding, -1, -1)
        self._position += count
        self._memory._change_incomplete = True  # it begins anew when it is used next
        return count - 1

    def _logits(self, row: int) -> np.ndarray:
        pointer = self._lib.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(pointer, shape=(self._vocabulary,)).copy()
