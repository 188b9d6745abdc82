"""Sequence memory of a llama.cpp context, which stores shared tokens once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from lbx.backends.llama.cache_cells import (
    PADDING,
    TRUNKS,
    BatchInvariantCells,
    PassSize,
    PlainCells,
    SlidingCells,
    StackedCells,
)
from lbx.backends.llama.flash import BULK, FlashPrefill
from lbx.backends.llama.library import FIX_MEMORY, StepBatch, compute, log
from lbx.base.errors import BackendError
from lbx.engine.model import (
    BulkExtension,
    MemoryFullError,
    MemoryTraits,
    SequenceExtension,
    check_extensions,
    check_sequence,
)

if TYPE_CHECKING:
    from lbx.backends.llama.context import ContextSize
    from lbx.engine.model import Logits


# Cost of a pass, in tokens: on a CPU (measured: 2 to 7), on a GPU.
_PASS_TOKENS = {False: 4, True: 256}


class LlamaSequences:
    """``SequenceMemory`` in a llama.cpp context with one cache for all sequences (``kv_unified``).

    An interrupted ``extend``, ``fork`` or ``drop`` (Ctrl-C) drops every sequence, because the state of llama.cpp
    is then unknown. So does a NaN, which attention spreads through the cache to all sequences.

    Args:
        make: function (number of cells, whether with flash attention) that makes a context.
        max_step: batch size of the context.
        vocabulary: number of logits of a token.
        filler: a token of the vocabulary, for padding.
    """

    def __init__(
        self,
        llama_cpp: Any,
        make: Callable[[int, bool], Any],
        size: ContextSize,
        *,
        max_step: int,
        vocabulary: int,
        on_gpu: bool,
        filler: int,
    ) -> None:
        self._lib = llama_cpp
        self._make, self._context_size, self._size = make, size, size.context_cells
        self._context = context = make(self._size, False)
        self._memory = llama_cpp.llama_get_memory(context)
        self.max_sequences = max_sequences = size.sequences
        self.max_step = max_step
        self._row_type = ctypes.c_float * vocabulary
        self._pass_size, self._filler = size.pass_size or PassSize(), filler
        self._batch = StepBatch(llama_cpp, self._pass_size.padded_size(max_step))
        self._cells: BatchInvariantCells | PlainCells
        self._has_stacked_cells = size.has_stacked_cells
        if size.has_stacked_cells:
            self._cells = StackedCells(size.context_cells, max_sequences, llama_cpp=llama_cpp, memory=self._memory)
        elif size.slides:
            self._cells = SlidingCells(size.context_cells, max_sequences, llama_cpp=llama_cpp, context=context)
        elif size.pass_size is None:
            self._cells = PlainCells(size.context_cells, max_sequences, llama_cpp=llama_cpp, context=context)
        else:
            self._cells = BatchInvariantCells(
                llama_cpp,
                context,
                cells=size.context_cells,
                sequences=max_sequences,
                batch=self._batch,
                filler=filler,
            )
        self.max_cells = self._cells.count
        cheap_cells = 6 * llama_cpp.llama_model_n_embd(llama_cpp.llama_get_model(context))
        price = _PASS_TOKENS[on_gpu] * cheap_cells
        trunks = 2 if size.keeps_prefix else TRUNKS
        self._requested_size = self._size
        self._flash: FlashPrefill | None = None
        if size.flash_cells:
            self._flash = FlashPrefill(llama_cpp, lambda: make(self._size, True), max_step=max_step, filler=filler)
        self.traits = MemoryTraits(
            cheap_cells,
            price,
            self._cells.grain,
            forks_anywhere=size.keeps_prefix,
            trunks=trunks,
            bulk=BULK if self._flash else 0,
            is_exact=size.pass_size is not None,
        )
        self._is_closed = False
        self._has_layout = False
        self._change_incomplete = False

    @property
    def used_cells(self) -> int:
        return self._cells.used

    def length(self, sequence: int) -> int:
        check_sequence(sequence, self.max_sequences)
        self._settle()
        return self._cells.length(sequence)

    def extend(self, items: Sequence[SequenceExtension]) -> list[Logits | None]:
        count = check_extensions(items, self.max_sequences, self.max_step)
        self._begin()
        self._check_free_cells([(item.sequence, len(item.tokens)) for item in items])
        if not items:
            return []
        logits: list[Logits | None] = [None] * len(items)
        with self._guard_change():
            log.clear()
            if code := self._compute(items, logits):
                failure = f"code {code}: {log.error_text()}"
            else:
                failure = self._logits_problem(logits)
            if failure:
                self._reset()
        if failure:
            raise BackendError(
                f"llama.cpp failed on {count} tokens of {len(items)} sequences: {failure}.",
                fix=FIX_MEMORY,
            )
        return logits

    def _compute(self, items: Sequence[SequenceExtension], logits: list[Logits | None]) -> int:
        """Compute a pass, fill in the logits, and return llama.cpp's status code."""
        indices = [*range(len(items))]
        if self._flash is not None:
            for item in items:
                if isinstance(item, BulkExtension):
                    length = self._cells.length(item.sequence)
                    if code := self._flash.extend(item.sequence, item.tokens, self._cells, length):
                        return code
            indices = [index for index in indices if not isinstance(items[index], BulkExtension)]
        if indices:
            rows = self._fill([items[index] for index in indices])
            if code := compute(self._lib.llama_decode, self._context, self._batch.native):
                return code
            self._cells.finish_pass()
            for index, row in zip(indices, rows, strict=True):
                logits[index] = None if row is None else self._logits(row)
        return 0

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        for sequence in (source, *targets):
            check_sequence(sequence, self.max_sequences)
        self._begin()
        has = self._cells.length(source)
        if not 0 <= length <= has or source in targets:
            raise ValueError(f"cannot fork {length} tokens of sequence {source}, which has {has}, into {list(targets)}")
        if length != has and not self.traits.forks_anywhere:
            raise ValueError(f"sequence {source} has {has} tokens and can only be forked at its end, not at {length}")
        with self._guard_change():
            for target in targets:
                self._drop(target)
        self._check_free_cells([(target, length % self.traits.grain) for target in targets])
        with self._guard_change():
            for target in targets:
                self._cells.share(source, length, target)
                if self._flash is not None:
                    self._flash.fork(source, length, target)

    def drop(self, sequence: int) -> None:
        check_sequence(sequence, self.max_sequences)
        self._settle()
        if self._cells.length(sequence):
            with self._guard_change():
                self._drop(sequence)

    def _drop(self, sequence: int) -> None:
        self._cells.drop(sequence)
        if self._flash is not None:
            self._flash.drop(sequence)

    def fit(self, cells: int) -> None:
        self._settle()
        if not self.used_cells:
            self._requested_size = self._context_size.cells_for(min(cells, self.max_cells))

    def close(self) -> None:
        self._is_closed = True
        self.release()

    def release(self) -> None:
        """Drop all sequences and free the context. The next use makes another one."""
        context, self._context, self._memory = self._context, None, None
        self._reset()
        if context is not None:
            self._lib.llama_free(context)

    def _recreate_context(self) -> None:
        """Replace the context of an empty memory by one of the requested size."""
        self.release()
        self._context = self._make(self._requested_size, False)
        self._memory, self._size = self._lib.llama_get_memory(self._context), self._requested_size
        self._cells.move_to(self._context, self._size)

    @contextmanager
    def _guard_change(self) -> Iterator[None]:
        """Drop all sequences if the change in this context does not complete."""
        self._change_incomplete = True
        yield
        self._change_incomplete = False

    def _settle(self) -> None:
        """Drop all sequences after an interruption."""
        if self._change_incomplete:
            self._reset()

    def _reset(self) -> None:
        self._change_incomplete = True
        if self._context is not None:
            self._lib.llama_memory_clear(self._memory, True)  # also the data: NaN times a weight of 0 is NaN
        self._cells.clear()
        if self._flash is not None:
            self._flash.close()
        self._has_layout = self._change_incomplete = False

    def _begin(self) -> None:
        if self._is_closed:
            raise BackendError("The model is closed.", fix="Load it again.")
        self._settle()
        if self._context is None or self._size != self._requested_size:
            self._recreate_context()
        if not self._has_layout:
            with self._guard_change():
                self._cells.start()
            self._has_layout = True

    def _check_free_cells(self, growth: Sequence[tuple[int, int]]) -> None:
        needed = self._cells.required_cells(growth)
        if needed > self._cells.free:
            raise MemoryFullError(
                f"The memory for {self.max_cells} tokens is full: {self._cells.free} are free, "
                f"{needed} more are needed.",
                fix="Raise kv_cells under [options] in the model card, or lower max_sequences.",
            )

    def _fill(self, items: Sequence[SequenceExtension]) -> list[int | None]:
        """Fill the batch, and return the row of each item's last token, or None for items without logits."""
        counts = [len(item.tokens) for item in items]
        tokens = list(chain.from_iterable(item.tokens for item in items))
        starts = [self._cells.length(item.sequence) for item in items]
        cells = self._cells.allocate([(item.sequence, count) for item, count in zip(items, counts, strict=True)])
        padding = self._pass_size.padding(len(tokens))
        numbers = [0 if self._has_stacked_cells else item.sequence for item in items]
        sequences = np.repeat([*numbers, self.max_sequences + PADDING], [*counts, padding])
        positions = np.concatenate(
            [np.arange(start, start + count) for start, count in zip((*starts, 0), (*counts, padding), strict=True)]
        )
        order = np.arange(len(positions))
        if cells is not None:  # llama.cpp takes empty cells in rising order
            order[: len(tokens)] = np.argsort(cells)
        row_of = np.empty(len(order), np.int64)
        row_of[order] = np.arange(len(order))
        last = row_of[np.cumsum(counts) - 1]
        rows = [int(row) if item.wants_logits else None for row, item in zip(last, items, strict=True)]
        logit_rows = [row for row in rows if row is not None]
        if more := self._pass_size.padding(len(logit_rows)):  # the last layers compute only these rows
            logit_rows += [row for row in range(len(order)) if row not in logit_rows][:more]
        padded = np.array([*tokens, *[self._filler] * padding])
        self._batch.fill(padded[order], positions[order], sequences[order], logit_rows)
        return rows

    def _logits(self, row: int) -> Logits:
        """Copy of the logits of a batch row, shape (vocabulary,), or empty if llama.cpp returns none."""
        pointer = self._lib.llama_get_logits_ith(self._context, row)
        if not pointer:
            return np.empty(0, np.float32)
        row_data = self._row_type.from_address(ctypes.addressof(pointer.contents))
        return np.frombuffer(memoryview(row_data).cast("B"), np.float32).copy()

    def _logits_problem(self, rows: Sequence[Logits | None]) -> str:
        """Message about invalid logits, or "" if all are valid. A NaN in the hidden state makes all logits NaN."""
        if any(logits is not None and not len(logits) for logits in rows):
            return f"no logits: {log.error_text()}"
        if any(logits is not None and np.isnan(logits[0]) for logits in rows):
            return "the model produced NaN logits; every sequence is dropped"
        return ""
