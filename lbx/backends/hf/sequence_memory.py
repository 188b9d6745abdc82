"""Many sequences in one pass of a Hugging Face model: a packed tree in one row. Imported only with transformers.

All new tokens of a pass stand in one row, each with its own position, and see the cells of their own sequence up to
themselves, as far back as a layer looks. What sequences share is stored and computed once.

Recurrent layers want one sequence a row. There prompts are read one after the other, and answers grow as a batch of
rows of one token each, whose attention is computed as if they stood in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lbx.backends.hf.attention import InParts, Layout, Part, QueryRows, make_mask
from lbx.backends.hf.cells import CellStore, Pass, States
from lbx.backends.hf.library import first_line, input_device, out_of_memory
from lbx.backends.hf.single import Forward
from lbx.backends.memory import available_bytes
from lbx.base.errors import BackendError
from lbx.inference.cell_table import CellTable, Reach
from lbx.inference.model import (
    NO_FOREIGN_CELLS,
    NO_LIMIT,
    SINGLY,
    Extend,
    MemoryFullError,
    MemoryTraits,
    check_items,
    check_number,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.inference.model import Logits

_BLOCK = 256
_PASS_TOKENS = {False: 8, True: 256}  # as many take as long as starting a pass does: on a CPU, on a GPU
FORKS = 8
"""So many sequences with states wait until a later prompt begins as they do."""
_FIX_MEMORY = "Lower kv_cells, max_sequences or context_window in the model card."


class HfSequences:
    """Sequences of one model (``lbx.inference.model.SequenceMemory``).

    The store grows by a quarter when it is used up, layer by layer. A pass for which there is no memory is computed
    in halves, and later ones are smaller.

    Args:
        model: a causal language model of transformers, whose layers keep tokens or a recurrent state.
        parts: compute attention part by part (``lbx.backends.hf.attention``); False: by the model's own attention,
            with a mask of (new tokens, cells seen) where several sequences grow at once.
        pieces: whether several tokens may follow others in one pass; otherwise they follow one by one.
        name: the model's, for messages.
    """

    def __init__(
        self,
        model: Any,
        *,
        max_sequences: int,
        max_cells: int,
        max_step: int,
        parts: bool = True,
        pieces: bool = True,
        name: str = "the model",
    ) -> None:
        self._model, self._config, self._name = model, model.config, name
        self._parts, self._pieces = parts, pieces
        self._forward = Forward(model)
        # Llama 4 scales queries by places that it counts from the cache's length, whatever positions it is given.
        self._counts_places = bool(getattr(model.config.get_text_config(), "attn_temperature_tuning", False))
        self._device = input_device(model)
        self._forget()
        self.max_step = max(max_step, max_sequences)
        cheap_cells = 6 * int(getattr(model.config.get_text_config(), "hidden_size", 0))
        # In parts, a sequence looks at its own cells only, whoever else grows in the same pass.
        price = NO_FOREIGN_CELLS if parts else _PASS_TOKENS[self._device.type == "cuda"] * cheap_cells
        forks_anywhere = not self._store.states
        self.traits = MemoryTraits(
            cheap_cells,
            price,
            forks_anywhere=forks_anywhere,
            trunks=2 if forks_anywhere else min(FORKS, max(1, max_sequences // 2)),
            follow_limit=NO_LIMIT if pieces else SINGLY,
        )
        self._table = CellTable(max_sequences, max_cells)
        self.max_sequences, self.max_cells = max_sequences, max_cells
        self._cell_bytes = 0

    @property
    def used_cells(self) -> int:
        """How many tokens the memory holds now, shared ones counted once."""
        return self._table.used

    @property
    def cell_bytes(self) -> int:
        """Size of one cell in all layers together; 0 before the first pass."""
        return self._cell_bytes

    @property
    def state_bytes(self) -> int:
        """Size of what a sequence keeps besides its cells; 0 before the first pass."""
        return self._states.bytes

    def fit(self, cells: int) -> None:
        """Nothing is to be done: the store grows as it is used."""

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
        if length != self._table.length(source) and not self.traits.forks_anywhere:
            raise ValueError(f"sequence {source} has {self.length(source)} tokens and is forked there, not at {length}")
        self._drop(targets)
        self._table.fork(source, length, targets)
        self._states.fork(source, targets)

    def drop(self, sequence: int) -> None:
        check_number(sequence, self.max_sequences)
        self._drop([sequence])
        if self._ran_short and not self._table.used:
            self.release()

    def _drop(self, sequences: Sequence[int]) -> None:
        self._table.drop(sequences)
        for sequence in sequences:
            self._states.drop(sequence)

    def release(self) -> None:
        """Forget all sequences and give the store's memory back; the next pass takes some anew."""
        self._table.drop(range(self.max_sequences))
        self._forget()

    def _forget(self) -> None:
        self._store = CellStore(self._config)
        self._states = States(self._store.states)
        self._ran_short = False  # a pass failed for want of memory: the store goes with the last sequence

    def close(self) -> None:
        """Forget the model and all sequences."""
        self.release()
        self._model = self._forward = None  # type: ignore[assignment]

    def extend(self, items: Sequence[Extend]) -> list[Logits | None]:
        tokens = check_items(items, self.max_sequences, self.max_step)
        if not items:
            return []
        if self._model is None:
            raise BackendError(f"The model {self._name} is closed.")
        free = self.max_cells - self._table.used
        if free < tokens:
            raise MemoryFullError(
                f"The memory of {self._name} is full: {tokens} more tokens are needed, and "
                f"{free} of its {self.max_cells} cells are free.",
                fix="Raise kv_cells in the model card's [options], or lower max_sequences.",
            )
        self._room_for(int(self._table.lowest_free(tokens)[-1]) + 1)
        max_step = self.max_step
        try:
            return self._extend(items) if self.traits.forks_anywhere else self._in_turns(items)
        except BaseException:  # an interruption, too: some layers have the new tokens, others not
            self._drop([item.sequence for item in items])
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
            # Of a model with states some are already those behind the new tokens.
            if not short or tokens == 1 or not self.traits.forks_anywhere:
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

    def _in_turns(self, items: Sequence[Extend]) -> list[Logits | None]:
        """Sequences with states: those that grow by one token together, the others one after the other."""
        rows: list[Logits | None] = [None] * len(items)
        for turn in self._turns(items):
            for place, logits in zip(turn, self._extend(list(turn.values())), strict=True):
                rows[place] = logits if items[place].wants_logits else None
        return rows

    def _turns(self, items: Sequence[Extend]) -> Iterator[dict[int, Extend]]:
        """What each pass is to compute, by the items' places."""
        together = {}
        for place, item in enumerate(items):
            if not self._table.length(item.sequence) or (self._pieces and len(item.tokens) > 1):
                yield {place: item}
            else:
                together[place] = item
        for at in range(max((len(item.tokens) for item in together.values()), default=0)):
            left = {place: item for place, item in together.items() if len(item.tokens) > at}
            yield {
                place: Extend(item.sequence, item.tokens[at : at + 1], item.wants_logits and at + 1 == len(item.tokens))
                for place, item in left.items()
            }

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
        if not self.traits.forks_anywhere:
            self._states.begin([item.sequence for item in row])
        wanted = [at for at, item in enumerate(row) if item.wants_logits]
        with torch.inference_mode():
            if self._parts:
                self._begin(cells, positions, room, slice(0, self._table.top), self._table.top)
                mask = None
                self._store.now.layouts = {
                    reach: self._layout(
                        [[items[place] for place in group] for group in groups], cells, positions, reach
                    )
                    for reach in {layer.reach for layer in self._store.cells}
                }
            else:
                mask = self._masked(row, cells, room, positions)
            logits = self._computed(row, positions, mask, [int(ends[at]) - 1 for at in wanted])
        self._cell_bytes = self._cell_bytes or self._store.cell_bytes
        rows: list[Logits | None] = [None] * len(items)
        for at, row_logits in zip(wanted, logits, strict=True):
            rows[order[at]] = row_logits
        return rows

    def _computed(
        self,
        row: Sequence[Extend],
        positions: NDArray[np.int32],
        mask: torch.Tensor | None,
        wanted: list[int],
    ) -> Sequence[Logits]:
        """The logits at these places of the row, each an array of its own."""
        tokens = np.concatenate([np.asarray(item.tokens, dtype=np.int64) for item in row])
        shape = (len(row), 1) if len(row) > 1 and not self.traits.forks_anywhere else (1, len(tokens))
        with InParts(self._model, self._store.layouts) if self._parts else nullcontext():
            logits = self._forward.pass_over(
                torch.from_numpy(tokens).view(shape),
                torch.from_numpy(positions.astype(np.int64)).view(shape),
                self._store,
                keep=wanted if wanted and shape[0] == 1 else [0],  # with none, some models fail
                attention_mask=mask,
            )
        if shape[0] > 1:
            logits = logits[wanted, -1]
        elif logits.shape[1] != len(wanted):
            logits = logits[0, wanted]
        return (
            [row_logits.copy() for row_logits in logits.float().cpu().numpy().reshape(len(wanted), -1)]
            if wanted
            else []
        )

    def _begin(
        self,
        cells: NDArray[np.int64],
        positions: NDArray[np.int32],
        room: int,
        seen: slice | torch.Tensor,
        columns: int,
    ) -> None:
        written = slice(int(cells[0]), int(cells[-1]) + 1)
        side_by_side = written.stop - written.start == len(cells)
        where = written if side_by_side else torch.from_numpy(cells).to(self._device)
        before: int | torch.Tensor = columns - len(cells)
        if self._parts and self._counts_places:
            before = torch.from_numpy(positions - np.arange(len(positions))).to(self._device)
        self._store.begin(Pass(room, self._table.top, where, seen, before, columns))

    def _layout(
        self,
        groups: Sequence[Sequence[Extend]],
        cells: NDArray[np.int64],
        positions: NDArray[np.int32],
        reach: Reach | None,
    ) -> Layout:
        """What the row's tokens see, where each group's stand side by side in it."""
        rows: list[QueryRows] = []
        start = 0
        for group in groups:
            lengths = [len(item.tokens) for item in group]
            stop = start + sum(lengths)
            edges = None
            if reach:
                last = start + np.cumsum(lengths) - 1
                edges = reach.first(np.stack([positions[last - lengths + 1], positions[last]]))
            look = self._table.look(
                [item.sequence for item in group], cells[start:stop], edges, apart=self._device.type == "cpu"
            )
            parts = [Part(self._chosen(piece)) for piece in look.everyone]
            if look.rest is not None:
                mask = None if look.causal else self._mask(group, positions[start:stop], look.rest, reach)
                parts.append(Part(self._chosen(look.rest), mask, look.causal))
            if look.own is not None:
                own = torch.from_numpy(look.own).to(self._device)
                parts.append(Part(own.clamp(0), make_mask(own < 0, self._model.dtype).transpose(0, 2)))
            rows.append(QueryRows(slice(start, stop), parts))
            start = stop
        return Layout(rows)

    def _masked(
        self, items: Sequence[Extend], cells: NDArray[np.int64], room: int, positions: NDArray[np.int32]
    ) -> torch.Tensor | None:
        """The mask for a pass by the model's own attention; None where that needs none."""
        columns = self._table.columns([item.sequence for item in items])
        self._begin(cells, positions, room, self._chosen(columns.span or columns.cells), len(columns.cells))
        return None if columns.ordered else self._mask(items, positions, columns.span or columns.cells)

    def _chosen(self, cells: tuple[int, int] | NDArray[np.int64]) -> slice | torch.Tensor:
        return slice(*cells) if isinstance(cells, tuple) else torch.from_numpy(cells).to(self._device)

    def _mask(
        self,
        items: Sequence[Extend],
        positions: NDArray[np.int32],
        cells: tuple[int, int] | NDArray[np.int64],
        reach: Reach | None = None,
    ) -> torch.Tensor:
        """Shape (1, 1, new tokens, columns): 0 where a token may look, minus infinity elsewhere.

        It is made on the model's device, from one row a sequence. A mask of booleans would be turned into this one
        in every layer, and "eager" would add it to the scores.
        """
        device = self._device
        owned, places = (torch.from_numpy(a).to(device) for a in self._table.seen([i.sequence for i in items], cells))
        owner = np.repeat(np.arange(len(items)), [len(item.tokens) for item in items])
        seen = owned[torch.from_numpy(owner).to(device)]
        seen &= places <= torch.from_numpy(positions).to(device)[:, None]
        if reach:
            seen &= places >= torch.from_numpy(reach.first(positions)).to(device)[:, None]
        return make_mask(seen.logical_not_(), self._model.dtype)

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
            needed = (cells - room) * self._cell_bytes + room * self._cell_bytes // max(1, len(self._store.cells))
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
