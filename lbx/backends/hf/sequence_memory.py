"""Many sequences in one pass of a Hugging Face model: a packed tree in one row. Imported only with transformers.

All new tokens of a pass stand in one row, each with its own position, and see the cells of their own sequence up to
themselves. What sequences share is stored and computed once.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lbx.backends.cells import CellTable
from lbx.backends.hf.attention import InParts, Layout, Part, QueryRows, make_mask
from lbx.backends.hf.cells import CellStore, Pass
from lbx.backends.hf.library import first_line, input_device, out_of_memory
from lbx.backends.memory import available_bytes
from lbx.backends.sequence_memory import NO_FOREIGN_CELLS, Extend, MemoryTraits, check_items, check_number
from lbx.errors import BackendError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.backends.sampling import Logits

_BLOCK = 256
_PASS_TOKENS = {False: 8, True: 256}  # as many take as long as starting a pass does: on a CPU, on a GPU
_FIX_MEMORY = "Lower kv_cells, max_sequences or context_window in the model card."


class HfSequences:
    """Sequences of one model (``lbx.backends.sequence_memory.SequenceMemory``).

    The store grows by a quarter when it is used up, layer by layer. A pass for which there is no memory is computed
    in halves, and later ones are smaller.

    Args:
        model: a causal language model of transformers whose layers all keep all tokens.
        layers: how many of them there are.
        parts: compute attention part by part (``lbx.backends.hf.attention``); False: by the model's own attention,
            with a mask of (new tokens, cells seen) where several sequences grow at once.
        name: the model's, for messages.
    """

    def __init__(
        self,
        model: Any,
        layers: int,
        *,
        max_sequences: int,
        max_cells: int,
        max_step: int,
        parts: bool = True,
        name: str = "the model",
    ) -> None:
        self._model = model
        self._layers = layers
        self._name = name
        self._parts = parts
        self._device = input_device(model)
        self.max_step = max(max_step, max_sequences)
        cheap_cells = 6 * int(getattr(model.config.get_text_config(), "hidden_size", 0))
        # In parts, a sequence looks at its own cells only, whoever else grows in the same pass.
        price = NO_FOREIGN_CELLS if parts else _PASS_TOKENS[self._device.type == "cuda"] * cheap_cells
        self.traits = MemoryTraits(cheap_cells, price)
        self._table = CellTable(max_sequences, max_cells)
        self.max_sequences, self.max_cells = max_sequences, max_cells
        self._store = CellStore(layers)
        self._cell_bytes = 0
        self._ran_short = False  # a pass failed for want of memory: the store goes with the last sequence
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    @property
    def used_cells(self) -> int:
        """How many tokens the memory holds now, shared ones counted once."""
        return self._table.used

    @property
    def cell_bytes(self) -> int:
        """Size of one cell in all layers together; 0 before the first pass."""
        return self._cell_bytes

    def length(self, sequence: int) -> int:
        check_number(sequence, self.max_sequences)
        return self._table.length(sequence)

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        for number in (source, *targets):
            check_number(number, self.max_sequences)
        if source in targets:
            raise ValueError(f"sequence {source} is forked onto itself")
        if not 0 <= length <= self._table.length(source):
            raise ValueError(f"sequence {source} has {self._table.length(source)} tokens, not {length}")
        self._table.drop(targets)
        self._table.fork(source, length, targets)

    def drop(self, sequence: int) -> None:
        check_number(sequence, self.max_sequences)
        self._table.drop([sequence])
        if self._ran_short and not self._table.used:
            self.release()

    def release(self) -> None:
        """Forget all sequences and give the store's memory back; the next pass takes some anew."""
        self._table.drop(range(self.max_sequences))
        self._store = CellStore(self._layers)
        self._ran_short = False

    def close(self) -> None:
        """Forget the model and all sequences."""
        self.release()
        self._model = None

    def extend(self, items: Sequence[Extend]) -> list[Logits | None]:
        tokens = check_items(items, self.max_sequences, self.max_step)
        if not items:
            return []
        if self._model is None:
            raise BackendError(f"The model {self._name} is closed.")
        free = self.max_cells - self._table.used
        if free < tokens:
            raise BackendError(
                f"The memory of {self._name} is full: {tokens} tokens are to be added, and of its {self.max_cells} "
                f"cells {free} are free.",
                fix="Raise kv_cells in the model card's [options], or lower max_sequences.",
            )
        self._room_for(int(self._table.lowest_free(tokens)[-1]) + 1)
        max_step = self.max_step
        try:
            return self._extend(items)
        except BaseException:  # an interruption, too: some layers have the new tokens, others not
            self._table.drop([item.sequence for item in items])
            self.max_step = max_step
            raise

    def _extend(self, items: Sequence[Extend]) -> list[Logits | None]:
        tokens = sum(len(item.tokens) for item in items)
        cells = self._table.lowest_free(tokens)
        room = self._room_for(int(cells[-1]) + 1)
        try:
            return self._pass(items, cells, room)
        except (RuntimeError, TypeError, ValueError, IndexError, MemoryError) as exc:
            short = out_of_memory(exc)
            if not short or tokens == 1:
                self._ran_short = short
                raise BackendError(
                    f"The model {self._name} failed on {len(items)} sequences ({tokens} new tokens): {first_line(exc)}",
                    fix=_FIX_MEMORY,
                ) from exc
        # Here the exception is gone, and with it the tensors that its frames held.
        self._table.take_back(cells)
        self.max_step = max(self.max_sequences, min(self.max_step, tokens // 2))
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return self._in_halves(items)

    def _in_halves(self, items: Sequence[Extend]) -> list[Logits | None]:
        half = len(items) // 2
        if half:
            return self._extend(items[:half]) + self._extend(items[half:])
        ((sequence, tokens, wants_logits),) = items
        half = len(tokens) // 2
        self._extend([Extend(sequence, tokens[:half], False)])
        return self._extend([Extend(sequence, tokens[half:], wants_logits)])

    def _pass(self, items: Sequence[Extend], cells: NDArray[np.int64], room: int) -> list[Logits | None]:
        """One pass of the model, in whose row sequences that look at the same cells stand side by side."""
        groups = [list(range(len(items)))]
        if self._parts and len(items) > 1:
            groups = self._table.groups([item.sequence for item in items], [len(item.tokens) for item in items])
        order = [place for group in groups for place in group]
        row = [items[place] for place in order]
        ends = np.cumsum([len(item.tokens) for item in row])
        grown = zip(row, np.split(cells, ends[:-1]), strict=True)
        positions = np.concatenate([self._table.give(item.sequence, own) for item, own in grown])
        wanted = [at for at, item in enumerate(row) if item.wants_logits]
        with torch.inference_mode():
            if self._parts:
                layout = self._layout([[items[place] for place in group] for group in groups], cells, positions)
                mask = None
                self._begin(cells, room, slice(0, self._table.top), self._table.top, layout)
            else:
                mask = self._masked(row, cells, room, positions)
            logits = self._forward(row, positions, mask, [int(ends[at]) - 1 for at in wanted])
        self._cell_bytes = self._cell_bytes or self._store.cell_bytes
        found: list[Logits | None] = [None] * len(items)
        for at, said in zip(wanted, logits, strict=True):
            found[order[at]] = said
        return found

    def _forward(
        self,
        row: Sequence[Extend],
        positions: NDArray[np.int32],
        mask: torch.Tensor | None,
        wanted: list[int],
    ) -> Sequence[Logits]:
        """The logits at these places of the row, each an array of its own."""
        # A list, because accelerate would carry a tensor to the first device of many, and it is used on the last.
        arguments: dict[str, Any] = {"logits_to_keep": wanted} if self._keeps_logits else {}
        tokens = np.concatenate([np.asarray(item.tokens, dtype=np.int64) for item in row])
        with InParts(self._model) if self._parts else nullcontext():
            logits = self._model(
                input_ids=torch.from_numpy(tokens).to(self._device)[None],
                position_ids=torch.from_numpy(positions.astype(np.int64)).to(self._device)[None],
                attention_mask=mask,
                past_key_values=self._store,
                use_cache=True,
                **arguments,
            ).logits[0]
        if not self._keeps_logits:
            logits = logits[wanted]
        return [said.copy() for said in logits.float().cpu().numpy()] if wanted else []

    def _begin(
        self,
        cells: NDArray[np.int64],
        room: int,
        seen: slice | torch.Tensor,
        columns: int,
        layout: Layout | None = None,
    ) -> None:
        written = slice(int(cells[0]), int(cells[-1]) + 1)
        side_by_side = written.stop - written.start == len(cells)
        where = written if side_by_side else torch.from_numpy(cells).to(self._device)
        self._store.begin(Pass(room, self._table.top, where, seen, columns, layout), len(cells))

    def _layout(
        self, groups: Sequence[Sequence[Extend]], cells: NDArray[np.int64], positions: NDArray[np.int32]
    ) -> Layout:
        """What the row's tokens see, where each group's stand side by side in it."""
        rows: list[QueryRows] = []
        start = 0
        for group in groups:
            stop = start + sum(len(item.tokens) for item in group)
            look = self._table.look([item.sequence for item in group], cells[start:stop])
            parts = [Part(self._chosen(piece)) for piece in look.everyone]
            if look.rest is not None:
                mask = None if look.causal else self._mask(group, positions[start:stop], look.rest)
                parts.append(Part(self._chosen(look.rest), mask, look.causal))
            rows.append(QueryRows(slice(start, stop), parts))
            start = stop
        return Layout(rows)

    def _masked(
        self, items: Sequence[Extend], cells: NDArray[np.int64], room: int, positions: NDArray[np.int32]
    ) -> torch.Tensor | None:
        """The mask for a pass by the model's own attention; None where that needs none."""
        columns = self._table.columns([item.sequence for item in items])
        self._begin(cells, room, self._chosen(columns.span or columns.cells), len(columns.cells))
        return None if columns.ordered else self._mask(items, positions, columns.span or columns.cells)

    def _chosen(self, cells: tuple[int, int] | NDArray[np.int64]) -> slice | torch.Tensor:
        return slice(*cells) if isinstance(cells, tuple) else torch.from_numpy(cells).to(self._device)

    def _mask(
        self, items: Sequence[Extend], positions: NDArray[np.int32], cells: tuple[int, int] | NDArray[np.int64]
    ) -> torch.Tensor:
        """Shape (1, 1, new tokens, columns): 0 where a token may look, minus infinity elsewhere.

        It is made on the model's device, from one row a sequence. A mask of booleans would be turned into this one
        in every layer, and "eager" would add it to the scores.
        """
        device = self._device
        owned, places = (torch.from_numpy(a).to(device) for a in self._table.seen([i.sequence for i in items], cells))
        owner = np.repeat(np.arange(len(items)), [len(item.tokens) for item in items])
        hidden = owned[torch.from_numpy(owner).to(device)]
        hidden &= places <= torch.from_numpy(positions).to(device)[:, None]
        return make_mask(hidden.logical_not_(), self._model.dtype)

    def _room_for(self, top: int) -> int:
        """How many cells the store shall have so that the first ``top`` are among them.

        Raises:
            BackendError: there is not so much memory.
        """
        room = self._store.now.room
        if top <= room:
            return room
        sizes = [min(self.max_cells, -(-cells // _BLOCK) * _BLOCK) for cells in (max(top, room * 5 // 4), top)]
        free = _free_bytes(self._model) if self._cell_bytes else None
        for cells in sizes:
            # Each layer in turn is copied into its larger room while the old one is still there.
            needed = (cells - room) * self._cell_bytes + room * self._cell_bytes // max(1, self._layers)
            if free is None or needed <= free:
                return cells
        raise BackendError(
            f"The KV memory of {self._name} has to grow to {cells} tokens, which takes "
            f"{needed / 1e9:.2f} GB more; {(free or 0) / 1e9:.2f} GB are free.",
            fix=_FIX_MEMORY,
        )


def _free_bytes(model: Any) -> int | None:
    """On all devices that hold a layer."""
    devices = {parameter.device for parameter in model.parameters()}
    if any(device.type != "cuda" for device in devices):
        return available_bytes()
    unused = (torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device) for device in devices)
    return sum(int(torch.cuda.mem_get_info(device)[0]) for device in devices) + sum(unused)
