"""Many sequences in one pass of a Hugging Face model: a packed tree in one row. Imported only with transformers.

All new tokens of a pass stand in one row, each with its own position, and a mask says which cells it may see: those
of its own sequence up to itself. What sequences share is stored and computed once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lbx.backends.cells import CellTable, Columns
from lbx.backends.hf.cells import PACKED_ATTENTION, CellStore, Pass
from lbx.backends.hf.library import first_line
from lbx.backends.memory import available_bytes
from lbx.backends.sequences import Extend
from lbx.errors import BackendError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.backends.sampling import Logits

_BLOCK = 256
_FIX_MEMORY = "Lower kv_cells, max_sequences or context_window in the model card."


class HfSequences:
    """Sequences of one model (``lbx.backends.sequences.SequenceMemory``).

    The store grows by a quarter when it is used up, layer by layer. A mask of (new tokens, cells seen) numbers is
    made where several sequences grow at once; one sequence alone is computed as ``HfBackend`` does.

    Args:
        model: a causal language model of transformers whose layers all keep all tokens.
        layers: how many of them there are.
        name: the model's, for messages.
        claim: called before each pass; frees what else keeps keys and values of this model, and raises BackendError
            where the model is closed.
    """

    def __init__(
        self,
        model: Any,
        layers: int,
        *,
        max_sequences: int,
        max_cells: int,
        max_step: int,
        name: str = "the model",
        claim: Callable[[], None] = lambda: None,
    ) -> None:
        self._model = model
        self._layers = layers
        self._name = name
        self._claim = claim
        self._max_step = max(max_step, max_sequences)
        self._cheap_cells = 6 * int(getattr(model.config.get_text_config(), "hidden_size", 0))
        self._table = CellTable(max_sequences, max_cells)
        self._store = CellStore(layers)
        self._cell_bytes = 0
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    @property
    def max_sequences(self) -> int:
        return self._table.max_sequences

    @property
    def max_cells(self) -> int:
        return self._table.max_cells

    @property
    def cheap_cells(self) -> int:
        return self._cheap_cells

    @property
    def max_step(self) -> int:
        return self._max_step

    @property
    def used_cells(self) -> int:
        """How many tokens the memory holds now, shared ones counted once."""
        return self._table.used

    @property
    def cell_bytes(self) -> int:
        """Size of one cell in all layers together; 0 before the first pass."""
        return self._cell_bytes

    @property
    def store_bytes(self) -> int:
        """Memory that the store takes now."""
        return self._store.bytes

    def length(self, sequence: int) -> int:
        self._check_number(sequence)
        return self._table.length(sequence)

    def fork(self, source: int, length: int, targets: Sequence[int]) -> None:
        for number in (source, *targets):
            self._check_number(number)
        if source in targets:
            raise ValueError(f"sequence {source} is forked onto itself")
        if not 0 <= length <= self._table.length(source):
            raise ValueError(f"sequence {source} has {self._table.length(source)} tokens, not {length}")
        self._table.drop(targets)
        self._table.fork(source, length, targets)

    def drop(self, sequence: int) -> None:
        self._check_number(sequence)
        self._table.drop([sequence])

    def release(self) -> None:
        """Forget all sequences and give the store's memory back; the next pass takes some anew."""
        self._table.drop(range(self.max_sequences))
        self._store = CellStore(self._layers)

    def close(self) -> None:
        """Forget the model and all sequences."""
        self.release()
        self._model = None

    def extend(self, items: Sequence[Extend]) -> list[Logits | None]:
        self._check(items)
        if not items:
            return []
        self._claim()
        tokens = sum(len(item.tokens) for item in items)
        cells = self._table.lowest_free(tokens)
        if len(cells) < tokens:
            free = self.max_cells - self._table.used
            raise BackendError(
                f"The memory of {self._name} is full: {tokens} tokens are to be added, and of its {self.max_cells} "
                f"cells {free} are free.",
                fix="Raise kv_cells in the model card's [options], or lower max_sequences.",
            )
        room = self._room_for(int(cells[-1]) + 1)
        try:
            return self._pass(items, cells, room)
        except (RuntimeError, TypeError, ValueError, IndexError, MemoryError) as exc:
            self._table.drop([item.sequence for item in items])
            raise BackendError(
                f"The model {self._name} failed on {len(items)} sequences ({tokens} new tokens): {first_line(exc)}",
                fix=_FIX_MEMORY,
            ) from exc
        except BaseException:  # an interruption: some layers have the new tokens, others not
            self._table.drop([item.sequence for item in items])
            raise

    def _pass(self, items: Sequence[Extend], cells: NDArray[np.int64], room: int) -> list[Logits | None]:
        ends = np.cumsum([len(item.tokens) for item in items])
        grown = np.split(cells, ends[:-1])
        positions = np.concatenate(
            [self._table.give(item.sequence, own) for item, own in zip(items, grown, strict=True)]
        )
        columns = self._table.columns([item.sequence for item in items])
        device = self._model.device
        with torch.inference_mode():
            written = _side_by_side(cells)
            seen = slice(*columns.span) if columns.span else torch.from_numpy(columns.cells).to(device)
            self._store.begin(
                Pass(room, written or torch.from_numpy(cells).to(device), seen, len(columns.cells)), len(cells)
            )
            wanted = [i for i, item in enumerate(items) if item.wants_logits]
            logits = self._forward(
                [token for item in items for token in item.tokens],
                torch.from_numpy(positions.astype(np.int64)).to(device),
                None if columns.ordered else self._mask(items, positions, columns),
                ends[wanted] - 1,
            )
        self._cell_bytes = self._cell_bytes or self._store.cell_bytes
        found: list[Logits | None] = [None] * len(items)
        for row, item in zip(logits, wanted, strict=True):
            found[item] = row
        return found

    def _forward(
        self, tokens: list[int], positions: torch.Tensor, mask: torch.Tensor | None, rows: NDArray[np.int64]
    ) -> Sequence[Logits]:
        """The logits at these places of the row, each an array of its own."""
        device = self._model.device
        keep = torch.from_numpy(rows).to(device)
        arguments: dict[str, Any] = {"logits_to_keep": keep} if self._keeps_logits else {}
        with _attention(self._model, mask):
            logits = self._model(
                input_ids=torch.tensor([tokens], dtype=torch.long, device=device),
                position_ids=positions[None],
                attention_mask=mask,
                past_key_values=self._store,
                use_cache=True,
                **arguments,
            ).logits[0]
        if not self._keeps_logits:
            logits = logits[keep]
        return [row.copy() for row in logits.float().cpu().numpy()] if len(rows) else []

    def _mask(self, items: Sequence[Extend], positions: NDArray[np.int32], columns: Columns) -> torch.Tensor:
        """Shape (1, 1, new tokens, columns): 0 where a token may look, minus infinity elsewhere.

        It is made on the model's device, from one row a sequence. A mask of booleans would be turned into this one
        in every layer, and "eager" would add it to the scores.
        """
        device, dtype = self._model.device, self._model.dtype
        owned, places = (torch.from_numpy(a).to(device) for a in self._table.seen([i.sequence for i in items], columns))
        owner = np.repeat(np.arange(len(items)), [len(item.tokens) for item in items])
        hidden = owned[torch.from_numpy(owner).to(device)]
        hidden &= places <= torch.from_numpy(positions).to(device)[:, None]
        hidden.logical_not_()
        mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))
        return mask[None, None]

    def _room_for(self, top: int) -> int:
        """How many cells the store shall have so that the first ``top`` are among them.

        Raises:
            BackendError: there is not so much memory.
        """
        room = self._store.now.room
        if top <= room:
            return room
        sizes = [min(self.max_cells, -(-cells // _BLOCK) * _BLOCK) for cells in (max(top, room * 5 // 4), top)]
        free = _free_bytes(self._model.device) if self._cell_bytes else None
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

    def _check(self, items: Sequence[Extend]) -> None:
        for item in items:
            self._check_number(item.sequence)
            if not len(item.tokens):
                raise ValueError(f"sequence {item.sequence} is to grow by no token")
        if len({item.sequence for item in items}) < len(items):
            raise ValueError("a sequence is named twice")
        tokens = sum(len(item.tokens) for item in items)
        if tokens > self._max_step:
            raise ValueError(f"{tokens} tokens are more than a step takes: {self._max_step}")

    def _check_number(self, sequence: int) -> None:
        if not 0 <= sequence < self.max_sequences:
            raise ValueError(f"there is no sequence {sequence} among {self.max_sequences}")


def _side_by_side(cells: NDArray[np.int64]) -> slice | None:
    first, last = int(cells[0]), int(cells[-1])
    return slice(first, last + 1) if last - first + 1 == len(cells) else None


@contextmanager
def _attention(model: Any, mask: torch.Tensor | None) -> Iterator[None]:
    """Our own attention for a pass with a mask, where the model was loaded with "sdpa"."""
    before = model.config._attn_implementation
    if mask is None or before != "sdpa":
        yield
        return
    try:
        model.config._attn_implementation = PACKED_ATTENTION
        yield
    finally:
        model.config._attn_implementation = before


def _free_bytes(device: torch.device) -> int | None:
    if device.type != "cuda":
        return available_bytes()
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + unused
