"""Sequence memory that computes many sequences in one pass, packed into one row. Imports transformers.

All new tokens of a pass are in one row, each with its own position, and attend to the cells of their own sequence.
Shared tokens are stored and computed once.

Recurrent layers need one sequence per row. For them prompts are prefilled one after the other, and answers are decoded
as a batch of rows of one token each, with attention computed as in one row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lbx.backends.hf.attention import Layout, SegmentedAttention, cell_index, sequence_mask
from lbx.backends.hf.cell_store import CellStore, Pass, States
from lbx.backends.hf.decoder import CompiledDecoder
from lbx.backends.hf.library import first_line, input_device, is_out_of_memory
from lbx.backends.hf.single import Forward
from lbx.base.errors import BackendError
from lbx.base.resources import available_memory
from lbx.engine.cell_table import CellTable
from lbx.engine.model import (
    NO_CROSS_ATTENTION,
    NO_LIMIT,
    ONE_BY_ONE_LIMIT,
    MemoryFullError,
    MemoryTraits,
    ScoredExtension,
    SequenceExtension,
    check_extensions,
    check_sequence,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.engine.model import Logits

_CAPACITY_STEP, _GROWTH_BLOCK = 256, 64
_PASS_TOKENS = {False: 8, True: 256}  # cost of a pass, in tokens: on a CPU, on a GPU
FORKS = 8
"""Number of sequences with states that are kept as prefixes of later prompts."""
_FIX_MEMORY = "Lower kv_cells, max_sequences or context_window in the model card."


class HfSequences:
    """Sequence memory (``lbx.engine.model.SequenceMemory``) of a model on transformers.

    The store grows by a quarter when it is full, layer by layer. A pass that runs out of memory is repeated in halves,
    and later passes are smaller.

    Args:
        model: a causal language model of transformers; its layers keep tokens or a recurrent state.
        by_segments: whether to compute attention segment by segment (``lbx.backends.hf.attention``) instead of by the
            model's own attention with a mask.
        takes_chunks: whether one pass can extend a sequence by several tokens.
        uses_kernel: whether to compute the layers by the compiled kernel, if possible (``lbx.backends.hf.decoder``).
        name: name of the model in messages.
    """

    def __init__(
        self,
        model: Any,
        *,
        max_sequences: int,
        max_cells: int,
        max_step: int,
        by_segments: bool = True,
        takes_chunks: bool = True,
        uses_kernel: bool = True,
        name: str = "the model",
    ) -> None:
        self._model, self._config, self._name = model, model.config, name
        self._by_segments, self._takes_chunks = by_segments, takes_chunks
        self._forward = Forward(model)
        self._decoder = CompiledDecoder.for_model(model) if by_segments and uses_kernel else None
        # Llama 4 scales queries by positions that it derives from the cache's length, ignoring ``position_ids``.
        self._derives_positions = bool(getattr(model.config.get_text_config(), "attn_temperature_tuning", False))
        self._device = input_device(model)
        self._reset()
        self.max_step = max(max_step, max_sequences)
        cheap_cells = 6 * int(getattr(model.config.get_text_config(), "hidden_size", 0))
        # In parts, a sequence attends to its own cells only.
        price = NO_CROSS_ATTENTION if by_segments else _PASS_TOKENS[self._device.type == "cuda"] * cheap_cells
        forks_anywhere = not self._store.states
        self.traits = MemoryTraits(
            cheap_cells,
            price,
            forks_anywhere=forks_anywhere,
            trunks=2 if forks_anywhere else min(FORKS, max(1, max_sequences // 2)),
            follow_limit=NO_LIMIT if takes_chunks else ONE_BY_ONE_LIMIT,
        )
        # Other devices mask a span of cells, which should have few gaps.
        block = _GROWTH_BLOCK if by_segments and self._device.type == "cpu" else 1
        self._table = CellTable(max_sequences, max_cells, block=block)
        self.max_sequences, self.max_cells = max_sequences, max_cells
        self._cell_bytes = 0

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled kernel computes the layers."""
        return self._decoder is not None

    @property
    def used_cells(self) -> int:
        return self._table.used

    @property
    def cell_bytes(self) -> int:
        """Size of a cell in bytes, over all layers, or 0 before the first pass."""
        return self._cell_bytes

    @property
    def state_bytes(self) -> int:
        """Size of a sequence's recurrent state in bytes, or 0 before the first pass."""
        return self._states.bytes

    def fit(self, cells: int) -> None:
        """Ignore the call: the store grows on demand."""

    def length(self, sequence: int) -> int:
        check_sequence(sequence, self.max_sequences)
        return self._table.length(sequence)

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        for number in (source, *targets):
            check_sequence(number, self.max_sequences)
        if source in targets:
            raise ValueError(f"sequence {source} is forked onto itself")
        if not 0 <= length <= self._table.length(source):
            raise ValueError(f"sequence {source} has {self._table.length(source)} tokens, not {length}")
        if length != self._table.length(source) and not self.traits.forks_anywhere:
            raise ValueError(
                f"sequence {source} has {self.length(source)} tokens and can only be forked at its end, not at {length}"
            )
        self._drop(targets)
        self._table.fork(source, length, targets)
        self._states.fork(source, targets)

    def drop(self, sequence: int) -> None:
        check_sequence(sequence, self.max_sequences)
        self._drop([sequence])
        if self._ran_short and not self._table.used:
            self.release()

    def _drop(self, sequences: Sequence[int]) -> None:
        self._table.drop(sequences)
        for sequence in sequences:
            self._states.drop(sequence)

    def release(self) -> None:
        """Drop all sequences and free the store."""
        self._table.drop(range(self.max_sequences))
        self._store.layers.clear()  # they refer to the store: their cells would wait for the garbage collector
        self._reset()

    def _reset(self) -> None:
        self._store = CellStore(self._config)
        self._states = States(self._store.states)
        self._ran_short = False  # a pass ran out of memory: the store is freed with the last sequence

    def close(self) -> None:
        """Free the model and all sequences."""
        self.release()
        self._model = self._forward = self._decoder = None  # type: ignore[assignment]

    def extend(self, items: Sequence[SequenceExtension]) -> list[Logits | None]:
        tokens = check_extensions(items, self.max_sequences, self.max_step)
        if not items:
            return []
        if self._model is None:
            raise BackendError(f"The model {self._name} is closed.", fix="Load it again.")
        free = self.max_cells - self._table.used
        if free < tokens:
            raise MemoryFullError(
                f"The memory of {self._name} is full: {tokens} more tokens are needed, but only "
                f"{free} of its {self.max_cells} cells are free.",
                fix="Raise kv_cells in the model card's [options], or lower max_sequences.",
            )
        self._grow_to(_end(self._choose_cells(items)))
        max_step = self.max_step
        try:
            return self._extend(items) if self.traits.forks_anywhere else self._extend_in_turns(items)
        except BaseException:  # also an interruption, after which only some layers have the new tokens
            self._drop([item.sequence for item in items])
            self.max_step = max_step
            raise

    def _extend(self, items: Sequence[SequenceExtension]) -> list[Logits | None]:
        tokens = sum(len(item.tokens) for item in items)
        groups = self._attention_groups(items)
        cells = self._choose_cells([items[index] for group in groups for index in group])
        capacity = self._grow_to(_end(cells))
        try:
            return self._run_pass(items, groups, cells, capacity)
        except (RuntimeError, TypeError, ValueError, IndexError, MemoryError) as exc:
            short = is_out_of_memory(exc)
            # Some layers' states may already include the new tokens, so a pass with states cannot be repeated.
            is_divisible = tokens > 1 and self.traits.forks_anywhere and not isinstance(items[0], ScoredExtension)
            if not short or not is_divisible:
                self._ran_short = short
                raise BackendError(
                    f"The model {self._name} failed on {len(items)} sequences ({tokens} new tokens): {first_line(exc)}",
                    fix=_FIX_MEMORY,
                ) from exc
        # Outside the handler: the exception would keep the tensors of its frames alive.
        self._table.free(np.concatenate(cells))
        self.max_step = max(self.max_sequences, min(self.max_step, tokens // 2))
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return self._extend_in_halves(items)

    def _extend_in_halves(self, items: Sequence[SequenceExtension]) -> list[Logits | None]:
        half = len(items) // 2
        if half:
            return self._extend(items[:half]) + self._extend(items[half:])
        ((sequence, tokens, wants_logits),) = items
        half = len(tokens) // 2
        self._extend([SequenceExtension(sequence, tokens[:half], False)])
        return self._extend([SequenceExtension(sequence, tokens[half:], wants_logits)])

    def _extend_in_turns(self, items: Sequence[SequenceExtension]) -> list[Logits | None]:
        """Extend sequences with states: single tokens as a batch, longer extensions one after the other."""
        rows: list[Logits | None] = [None] * len(items)
        for turn in self._turns(items):
            for index, logits in zip(turn, self._extend(list(turn.values())), strict=True):
                rows[index] = logits if items[index].wants_logits else None
        return rows

    def _turns(self, items: Sequence[SequenceExtension]) -> Iterator[dict[int, SequenceExtension]]:
        """Split extensions into passes, and yield {index in ``items``: extension} of each pass."""
        together = {}
        for index, item in enumerate(items):
            if not self._table.length(item.sequence) or (self._takes_chunks and len(item.tokens) > 1):
                yield {index: item}
            else:
                together[index] = item
        for at in range(max((len(item.tokens) for item in together.values()), default=0)):
            remaining = {index: item for index, item in together.items() if len(item.tokens) > at}
            yield {
                index: SequenceExtension(
                    item.sequence, item.tokens[at : at + 1], item.wants_logits and at + 1 == len(item.tokens)
                )
                for index, item in remaining.items()
            }

    def _attention_groups(self, items: Sequence[SequenceExtension]) -> list[list[int]]:
        if self._by_segments and len(items) > 1:
            return self._table.groups([item.sequence for item in items], [len(item.tokens) for item in items])
        return [list(range(len(items)))]

    def _choose_cells(self, items: Sequence[SequenceExtension]) -> list[NDArray[np.int64]]:
        return self._table.choose_cells([item.sequence for item in items], [len(item.tokens) for item in items])

    def _run_pass(
        self,
        items: Sequence[SequenceExtension],
        groups: Sequence[Sequence[int]],
        cells_by_item: Sequence[NDArray[np.int64]],
        capacity: int,
    ) -> list[Logits | None]:
        """Run one pass of the model. Sequences of one attention group are adjacent in the row.

        Args:
            groups: indices of the items of each attention group.
            cells_by_item: new cells of the items, in the order of the row.
        """
        order = [item_index for group in groups for item_index in group]
        row = [items[item_index] for item_index in order]
        ends = np.cumsum([len(item.tokens) for item in row])
        cells = np.concatenate(cells_by_item)
        additions = zip(row, cells_by_item, strict=True)
        positions = np.concatenate([self._table.allocate(item.sequence, item_cells) for item, item_cells in additions])
        if not self.traits.forks_anywhere:
            self._states.begin([item.sequence for item in row])
        with_logits = [at for at, item in enumerate(row) if item.wants_logits]
        with torch.inference_mode():
            if self._by_segments:
                self._begin(cells, positions, capacity, slice(0, self._table.top), self._table.top)
                mask = None
                self._store.current_pass.layouts = {
                    window: Layout(
                        self._table,
                        [[items[index] for index in group] for group in groups],
                        cells,
                        positions,
                        window,
                        device=self._device,
                        dtype=self._model.dtype,
                    )
                    for window in dict.fromkeys(layer.window for layer in self._store.cell_layers)
                }
            else:
                mask = self._begin_with_mask(row, cells, capacity, positions)
            if isinstance(row[0], ScoredExtension):
                return [self._compute(row, positions, mask, [*range(len(cells))])]
            logits = self._compute(row, positions, mask, [int(ends[at]) - 1 for at in with_logits])
        self._cell_bytes = self._cell_bytes or self._store.cell_bytes
        rows: list[Logits | None] = [None] * len(items)
        for at, row_logits in zip(with_logits, logits, strict=True):
            rows[order[at]] = row_logits
        return rows

    def _compute(
        self,
        row: Sequence[SequenceExtension],
        positions: NDArray[np.int32],
        mask: torch.Tensor | None,
        logit_indices: list[int],
    ) -> Logits:
        """Compute a pass, and return a copy of the logits at ``logit_indices`` of the row, (indices, vocabulary)."""
        tokens = np.concatenate([np.asarray(item.tokens, dtype=np.int64) for item in row])
        if self._decoder:
            ids, places = torch.from_numpy(tokens), torch.from_numpy(positions.astype(np.int64))
            return self._decoder.logits(ids, places, self._store, logit_indices).float().numpy()
        shape = (len(row), 1) if len(row) > 1 and not self.traits.forks_anywhere else (1, len(tokens))
        with SegmentedAttention(self._model, self._store.layouts) if self._by_segments else nullcontext():
            logits = self._forward.run(
                torch.from_numpy(tokens).view(shape),
                torch.from_numpy(positions.astype(np.int64)).view(shape),
                self._store,
                keep=logit_indices if logit_indices and shape[0] == 1 else [0],  # with none, some models fail
                attention_mask=mask,
            )
        if shape[0] > 1:
            logits = logits[logit_indices, -1]
        elif logits.shape[1] != len(logit_indices):
            logits = logits[0, logit_indices]
        if not logit_indices:
            return np.empty((0, 0), np.float32)
        rows: Logits = logits.float().cpu().numpy().reshape(len(logit_indices), -1).copy()
        return rows

    def _begin(
        self,
        cells: NDArray[np.int64],
        positions: NDArray[np.int32],
        capacity: int,
        visible_cells: slice | torch.Tensor,
        n_columns: int,
    ) -> None:
        adjacent = bool((np.diff(cells) == 1).all())
        write_slots = slice(int(cells[0]), int(cells[-1]) + 1) if adjacent else torch.from_numpy(cells).to(self._device)
        offset: int | torch.Tensor = n_columns - len(cells)
        if self._by_segments and self._derives_positions:
            offset = torch.from_numpy(positions - np.arange(len(positions))).to(self._device)
        self._store.begin(Pass(capacity, self._table.top, write_slots, visible_cells, offset, n_columns))

    def _begin_with_mask(
        self, items: Sequence[SequenceExtension], cells: NDArray[np.int64], capacity: int, positions: NDArray[np.int32]
    ) -> torch.Tensor | None:
        """Begin a pass with the model's own attention, and return the mask, or None if not needed."""
        columns = self._table.mask_columns([item.sequence for item in items])
        self._begin(
            cells, positions, capacity, cell_index(columns.span or columns.cells, self._device), len(columns.cells)
        )
        if columns.in_order:
            return None
        return sequence_mask(
            self._table,
            items,
            positions,
            columns.span or columns.cells,
            device=self._device,
            dtype=self._model.dtype,
        )

    def _grow_to(self, cells: int) -> int:
        """Capacity of a store for ``cells`` cells, with spare cells if memory allows.

        Raises:
            BackendError: there is too little memory.
        """
        capacity = self._store.current_pass.capacity
        if cells <= capacity:
            return capacity
        wanted = (max(cells, capacity * 5 // 4), cells)
        sizes = [min(self.max_cells, -(-size // _CAPACITY_STEP) * _CAPACITY_STEP) for size in wanted]
        free = _free_bytes(self._model) if self._cell_bytes else None
        for size in sizes:
            # The old and the new tensors of one layer exist at the same time while it is copied.
            copied = capacity * self._cell_bytes // max(1, len(self._store.cell_layers))
            needed = (size - capacity) * self._cell_bytes + copied
            if free is None or needed <= free:
                return size
        raise BackendError(
            f"The KV cache of {self._name} needs {needed / 1e9:.2f} GB more to grow to {size} tokens; "
            f"{(free or 0) / 1e9:.2f} GB are free.",
            fix=_FIX_MEMORY,
        )


def _end(cells: Sequence[NDArray[np.int64]]) -> int:
    """Index after the last cell of several arrays in rising order."""
    return max(int(array[-1]) for array in cells) + 1


def _free_bytes(model: Any) -> int | None:
    """Free bytes of memory on the devices of the model's layers, or None if unknown."""
    devices = {parameter.device for parameter in model.parameters()}
    if any(device.type != "cuda" for device in devices):
        return available_memory()
    unused = (torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device) for device in devices)
    return sum(int(torch.cuda.mem_get_info(device)[0]) for device in devices) + sum(unused)
