"""Many sequences in one llama.cpp context: the tokens that sequences share lie in its KV cache once.

llama.cpp knows which cell holds what; how many are free it does not tell. They are counted here, so that a batch that
would not fit is refused before anything is computed.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from lbx.backends.llama.library import log
from lbx.backends.sequences import Extend
from lbx.errors import BackendError

if TYPE_CHECKING:
    from lbx.backends.sampling import Logits


# Reading all weights takes as long as computing so many tokens with them: on a CPU (measured: 2 to 7), on a GPU.
_PASS_TOKENS = {False: 4, True: 256}


class StepBatch:
    """A ``llama_batch`` over arrays of numpy: filled in a few copies, where one by one 512 tokens take milliseconds.

    Args:
        capacity: tokens.
        twin: 0, or what to add to a sequence's number for a second sequence that gets the same tokens.
    """

    def __init__(self, llama_cpp: Any, capacity: int, *, twin: int = 0) -> None:
        self._token = np.zeros(capacity, np.int32)
        self._position = np.zeros(capacity, np.int32)
        self._count = np.full(capacity, 2 if twin else 1, np.int32)
        self._sequence = np.zeros((capacity, 2), np.int32)
        self._wanted = np.zeros(capacity, np.int8)
        self._twin = twin
        row = self._sequence.strides[0]
        self._rows = self._sequence.ctypes.data + row * np.arange(capacity, dtype=np.uintp)
        number, pointer = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))
        self.native = llama_cpp.llama_batch(
            n_tokens=0,
            token=self._token.ctypes.data_as(number),
            embd=None,
            pos=self._position.ctypes.data_as(number),
            n_seq_id=self._count.ctypes.data_as(number),
            seq_id=self._rows.ctypes.data_as(pointer),
            logits=self._wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def fill(
        self, tokens: Sequence[int], positions: Sequence[int], sequences: int | Sequence[int], wanted: Sequence[int]
    ) -> None:
        """Hold these tokens.

        Args:
            tokens: at most the capacity.
            positions: of each token in its sequence.
            sequences: of each token, or one for all.
            wanted: indices of the tokens whose logits are wanted.
        """
        count = len(tokens)
        self._token[:count] = tokens
        self._position[:count] = positions
        self._sequence[:count, 0] = sequences
        if self._twin:
            self._sequence[:count, 1] = self._sequence[:count, 0] + self._twin
        self._wanted[:count] = 0
        self._wanted[wanted] = 1
        self.native.n_tokens = count


class SharedCells:
    """How many cells a memory has free, when sequences share some of theirs.

    The numbers that cells have here are not llama.cpp's: only which sequences share a cell matters.

    Args:
        count: cells.
        sequences: how many there may be.
    """

    def __init__(self, count: int, sequences: int) -> None:
        self.count = count
        self._users = np.zeros(count, np.int32)  # sequences that hold a cell
        self._free = np.arange(count, dtype=np.int32)  # a stack: the first ``free`` are free
        self._held = [array("i") for _ in range(sequences)]
        self.free = count

    def length(self, sequence: int) -> int:
        return len(self._held[sequence])

    def grow(self, sequence: int, tokens: int) -> None:
        """Give a sequence cells of its own; there must be enough free."""
        if tokens > self.free:
            raise ValueError(f"{tokens} cells of {self.free} free ones")
        taken = self._free[self.free - tokens : self.free]
        self._users[taken] = 1
        self._held[sequence].frombytes(taken.tobytes())
        self.free -= tokens

    def share(self, source: int, length: int, target: int) -> None:
        """Let an empty sequence hold another's first cells, too."""
        self._held[target] = self._held[source][:length]
        if length:
            self._users[np.frombuffer(self._held[target], np.int32)] += 1

    def drop(self, sequence: int) -> None:
        held, self._held[sequence] = self._held[sequence], array("i")
        if not held:
            return
        cells = np.frombuffer(held, np.int32)
        self._users[cells] -= 1
        freed = cells[self._users[cells] == 0]
        self._free[self.free : self.free + len(freed)] = freed
        self.free += len(freed)

    def clear(self) -> None:
        self._users[:] = 0
        self._free[:] = np.arange(self.count, dtype=np.int32)
        self._held = [array("i") for _ in self._held]
        self.free = self.count


class LlamaSequences:
    """``SequenceMemory`` in a llama.cpp context with one cache for all sequences (``kv_unified``).

    The context is shared with the path for one sequence (``LlamaBackend.prefill``): whoever is asked forgets what
    the other held, so ``length`` is 0 for every sequence after a ``LlamaBackend.generate``.

    An ``extend``, ``fork`` or ``drop`` that is interrupted (Ctrl-C) drops every sequence: how far llama.cpp came is
    not known. So does a result that is no number, since attention spreads it through the cache to all sequences.

    Args:
        max_step: the context's batch size.
        vocabulary: logits of a token.
        take_over: called before the context's cache is taken: what else it holds is about to be cleared.
        sliding: the model has layers whose attention slides. llama.cpp writes over such a layer's cells when one
            sequence alone holds them and its window has passed them, and they would be missing if an earlier part
            of it is forked. Every sequence gets a twin then, so that no cell is held by one alone.
        on_gpu: whether the model's layers lie on a GPU.
    """

    def __init__(
        self,
        llama_cpp: Any,
        context: Any,
        *,
        max_sequences: int,
        max_step: int,
        vocabulary: int,
        take_over: Callable[[], None],
        sliding: bool = False,
        on_gpu: bool = False,
    ) -> None:
        self._lib = llama_cpp
        self._context = context
        self._memory = llama_cpp.llama_get_memory(context)
        self._max_sequences = max_sequences
        self._max_step = max_step
        self._cheap_cells: int = 6 * llama_cpp.llama_model_n_embd(llama_cpp.llama_get_model(context))
        self._pass_price: int = _PASS_TOKENS[on_gpu] * self._cheap_cells
        self._row_type = ctypes.c_float * vocabulary
        self._take_over = take_over
        self._twin = max_sequences if sliding else 0
        self._batch = StepBatch(llama_cpp, max_step, twin=self._twin)
        self._cells = SharedCells(llama_cpp.llama_n_ctx(context), max_sequences)
        self._holds = False  # whether the cache is ours now
        self._unsure = False  # whether a change was begun and never ended

    @property
    def max_sequences(self) -> int:
        return self._max_sequences

    @property
    def max_cells(self) -> int:
        return self._cells.count

    @property
    def used_cells(self) -> int:
        return self._cells.count - self._cells.free

    @property
    def cheap_cells(self) -> int:
        return self._cheap_cells

    @property
    def pass_price(self) -> int:
        return self._pass_price

    @property
    def max_step(self) -> int:
        return self._max_step

    @property
    def holds(self) -> bool:
        """Whether the context's cache holds sequences, and not the prompt of a ``LlamaBackend.prefill``."""
        return self._holds

    @property
    def free_cells(self) -> int:
        """How many tokens there is room for now."""
        self._settle()
        return self._cells.free

    def length(self, sequence: int) -> int:
        self._check_number(sequence)
        self._settle()
        return self._cells.length(sequence)

    def extend(self, items: Sequence[Extend]) -> list[Logits | None]:
        tokens = self._checked(items)
        self._begin()
        if len(tokens) > self._cells.free:
            raise BackendError(
                f"The memory for {self.max_cells} tokens is full: {self._cells.free} are free, "
                f"{len(tokens)} more were to be added.",
                fix="Raise kv_cells under [options] in the model card, or let fewer questions be answered at once.",
            )
        if not items:
            return []
        with self._changing():
            rows = self._fill(items, tokens)
            log.clear()
            code = self._lib.llama_decode(self._context, self._batch.native)
            if code:
                failure = f"code {code}: {log.said()}"
                for item in items:
                    self._remove(item.sequence)
            else:
                for item in items:
                    self._cells.grow(item.sequence, len(item.tokens))
                found = [None if row is None else self._logits(row) for row in rows]
                failure = self._fault(found)
                if failure:
                    self._forget()
        if failure:
            raise BackendError(
                f"llama.cpp failed on {len(tokens)} tokens of {len(items)} sequences: {failure}.",
                fix="If memory ran out (on a GPU, its own), lower kv_cells, context_window or n_gpu_layers in the "
                "model card.",
            )
        return found

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        for sequence in (source, *targets):
            self._check_number(sequence)
        self._begin()
        has = self._cells.length(source)
        if not 0 <= length <= has or source in targets:
            raise ValueError(f"{length} tokens of sequence {source}, which has {has}, for {list(targets)}")
        with self._changing():
            for target in targets:
                self._remove(target)
                for number in (target, target + self._twin) if self._twin else (target,):
                    if length:
                        self._lib.llama_memory_seq_cp(self._memory, source, number, 0, length)
                self._cells.share(source, length, target)

    def drop(self, sequence: int) -> None:
        self._check_number(sequence)
        self._settle()
        if self._cells.length(sequence):
            with self._changing():
                self._remove(sequence)

    def give_way(self) -> None:
        """Forget everything; the caller takes the cache and clears it."""
        if self._holds or self._unsure:
            self._unsure = True
            self._cells.clear()
            self._holds = self._unsure = False

    def close(self) -> None:
        """The context is about to be freed."""
        self.give_way()
        self._context = self._memory = None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A change that leaves all sequences dropped if it does not come to its end."""
        self._unsure = True
        yield
        self._unsure = False

    def _settle(self) -> None:
        """After an interruption: drop everything."""
        if self._unsure:
            self._forget()

    def _forget(self) -> None:
        self._unsure = True
        if self._context is not None:
            self._lib.llama_memory_clear(self._memory, True)  # the data, too: NaN times a weight of 0 is NaN
        self._cells.clear()
        self._unsure = False

    def _begin(self) -> None:
        """Make the cache ours."""
        if self._context is None:
            raise BackendError("The model is closed.")
        if not self._holds:
            self._take_over()
            self._forget()
            self._holds = True
        self._settle()

    def _check_number(self, sequence: int) -> None:
        if not 0 <= sequence < self._max_sequences:
            raise ValueError(f"sequence {sequence} is none of 0 to {self._max_sequences - 1}")

    def _checked(self, items: Sequence[Extend]) -> list[int]:
        """All tokens, one item's after the other's."""
        for item in items:
            self._check_number(item.sequence)
            if not len(item.tokens):
                raise ValueError(f"no tokens for sequence {item.sequence}")
        if len({item.sequence for item in items}) < len(items):
            raise ValueError(f"a sequence is named twice: {[item.sequence for item in items]}")
        tokens = list(chain.from_iterable(item.tokens for item in items))
        if len(tokens) > self._max_step:
            raise ValueError(f"{len(tokens)} tokens in a step of at most {self._max_step}")
        return tokens

    def _fill(self, items: Sequence[Extend], tokens: Sequence[int]) -> list[int | None]:
        """Fill the batch; for each item the index of its last token, None where its logits are not wanted."""
        positions: list[int] = []
        sequences: list[int] = []
        rows: list[int | None] = []
        for sequence, added, wants_logits in items:
            at, count = self._cells.length(sequence), len(added)
            positions.extend(range(at, at + count))
            sequences.extend([sequence] * count)
            rows.append(len(positions) - 1 if wants_logits else None)
        self._batch.fill(tokens, positions, sequences, [row for row in rows if row is not None])
        return rows

    def _logits(self, row: int) -> Logits:
        """A copy of a batch row's logits, shape (vocabulary,); empty where llama.cpp has none."""
        pointer = self._lib.llama_get_logits_ith(self._context, row)
        if not pointer:
            return np.empty(0, np.float32)
        row_data = self._row_type.from_address(ctypes.addressof(pointer.contents))
        return np.frombuffer(memoryview(row_data).cast("B"), np.float32).copy()

    def _fault(self, found: Sequence[Logits | None]) -> str:
        """What is wrong with logits; "" where nothing is. One NaN in the hidden state makes all of them NaN."""
        if any(logits is not None and not len(logits) for logits in found):
            return f"no logits: {log.said()}"
        if any(logits is not None and np.isnan(logits[0]) for logits in found):
            return "the model computed no numbers (NaN), so that every sequence is dropped"
        return ""

    def _remove(self, sequence: int) -> None:
        for number in (sequence, sequence + self._twin) if self._twin else (sequence,):
            self._lib.llama_memory_seq_rm(self._memory, number, -1, -1)
        self._cells.drop(sequence)
