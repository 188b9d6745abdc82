"""Attention of new tokens over the cells of a KV cache, by torch's kernels or a compiled kernel. Imports transformers.

The cells that new tokens attend to are divided into segments (``TensorSegment``). Cells that sequences share are
visible to all new tokens of these sequences, so a segment of shared cells needs no mask, and query heads that share
keys are computed as one matrix. Other segments need a mask or are causal. The outputs of the segments are combined by
their log-sum-exps, which gives the softmax over all cells. A sink is one more term of the softmax's denominator.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lbx.backends.hf.kernel import Kernel, find_kernel, make_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.engine.cell_table import AttentionSegment, AttentionWindow, CellTable
    from lbx.engine.model import SequenceExtension


# Attention weights in memory at once, per head.
_WEIGHTS_AT_ONCE = 1 << 24


class ScoreOptions(NamedTuple):
    """Scale, soft cap and sinks of attention scores.

    Attributes:
        sinks: shape (heads,), scores without a value that are added to the softmax's denominator.
    """

    scale: float
    softcap: float | None = None
    sinks: torch.Tensor | None = None


class KernelInputs(NamedTuple):
    """Arguments of a kernel: query (1, heads, tokens, size), key and value (1, key heads, cells, size)."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    causal: bool
    options: ScoreOptions


def run_kernel(inputs: KernelInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention and log-sum-exps by the fastest kernel of torch that returns both.

    Torch's public functions return the attention only.
    """
    size, value_size, device = inputs.query.shape[-1], inputs.value.shape[-1], inputs.query.device.type
    if value_size > size or inputs.options.softcap or device not in ("cpu", "cuda"):
        return matmul_attention(inputs)
    if value_size < size:  # the kernels want one size
        inputs = inputs._replace(value=torch.nn.functional.pad(inputs.value, (0, size - value_size)))
    if device == "cpu":
        outputs = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *inputs[:3], 0.0, inputs.causal, attn_mask=inputs.mask, scale=inputs.options.scale
        )
    else:
        outputs = _flash_attention(inputs) or _efficient_attention(inputs) or matmul_attention(inputs)
    return outputs[0].narrow(-1, 0, value_size), outputs[1]


def _flash_attention(inputs: KernelInputs) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Compute CUDA's flash attention, or return None with a mask, in float32 or on an old GPU."""
    can, params = torch.backends.cuda.can_use_flash_attention, torch.backends.cuda.SDPAParams
    query, key, value, mask, causal, (scale, *_) = inputs
    if mask is not None or not can(params(query, key, value, None, 0.0, causal, query.shape[1] != key.shape[1])):
        return None
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    out, lse, *_ = flash(query, key, value, 0.0, causal, False, scale=scale)
    return out, lse


def _efficient_attention(inputs: KernelInputs) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Compute CUDA's memory-efficient attention, or return None if it is not applicable.

    The kernel lacks grouped-query attention, but accepts strides of 0, so key heads are passed as the batch dimension.
    """
    can, params = torch.backends.cuda.can_use_efficient_attention, torch.backends.cuda.SDPAParams
    query, key, value, mask, causal, (scale, *_) = inputs
    _, number, tokens, size = query.shape
    kv_heads = key.shape[1]
    query = query.reshape(kv_heads, number // kv_heads, tokens, size)
    key, value = (states.transpose(0, 1).expand(-1, number // kv_heads, -1, -1) for states in (key, value))
    mask = None if mask is None else mask.expand(kv_heads, number // kv_heads, -1, -1)
    if not can(params(query, key, value, mask, 0.0, causal, False)):
        return None
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    out, lse, *_ = efficient(query, key, value, mask, True, 0.0, causal, scale=scale)
    # The kernel pads the tokens of the sums.
    return out.reshape(1, number, tokens, size), lse.narrow(-1, 0, tokens).reshape(1, number, tokens)


def matmul_attention(inputs: KernelInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention by plain matrix products, for a few tokens at a time to limit memory."""
    query, key, value, mask, causal, (scale, softcap, _) = inputs
    batch, number, tokens, size = query.shape
    kv_heads, cells = key.shape[1], key.shape[2]
    query = query.reshape(batch, kv_heads, number // kv_heads, tokens, size)
    keys, values = key[:, :, None].transpose(-1, -2), value[:, :, None]
    outs, sums = [], []
    step = max(1, _WEIGHTS_AT_ONCE // cells)
    for at in range(0, tokens, step):
        scores = torch.matmul(query[:, :, :, at : at + step], keys).float() * scale
        if softcap:
            scores = torch.tanh(scores / softcap) * softcap
        if causal:
            order = torch.arange(cells, device=query.device)
            scores.masked_fill_(order > order[at : at + step, None], float("-inf"))
        if mask is not None:
            scores += mask[:, :, None, at : at + step]
        lse = scores.logsumexp(-1)
        outs.append(torch.matmul((scores - lse[..., None]).exp_().to(value.dtype), values))
        sums.append(lse)
    return torch.cat(outs, 3).reshape(batch, number, tokens, -1), torch.cat(sums, 3).reshape(batch, number, tokens)


PLAIN_ATTENTION, PACKED_ATTENTION = "sdpa", "lbx_packed"
LAYOUT = "lbx_layout"

# On a CPU, a mask of at most this many rows is repeated for query heads that share keys, which are then read once.
_PACKED_ROWS = 512


class TensorSegment(NamedTuple):
    """Cells that new tokens attend to, with a common mask, as tensors.

    Attributes:
        cells: a slice, or indices of shape (columns,), or of shape (tokens, columns) for private cells.
        mask: added to the scores, of shape (1, 1, tokens, columns), or (tokens, 1, 1, columns) for private cells.
        causal: whether the cells are the new tokens' own, in order, each visible to later tokens.
    """

    cells: slice | torch.Tensor
    mask: torch.Tensor | None = None
    causal: bool = False

    def to(self, device: torch.device) -> TensorSegment:
        cells = self.cells.to(device) if isinstance(self.cells, torch.Tensor) else self.cells
        return TensorSegment(cells, None if self.mask is None else self.mask.to(device), self.causal)


class QueryRows(NamedTuple):
    """Rows of adjacent new tokens, and the segments of the memory that the tokens attend to."""

    rows: slice
    segments: Sequence[TensorSegment]


class Layout:
    """Attention layout of a pass, for the layers with one attention window: which cells each new token attends to.

    The layout reads the cell table at the first use, which must be during the pass.

    Args:
        groups: extensions of the pass, by attention group.
        cells, positions: cell and position of each new token.
        device, dtype: device and number format of the model.
    """

    def __init__(
        self,
        table: CellTable,
        groups: Sequence[Sequence[SequenceExtension]],
        cells: NDArray[np.int64],
        positions: NDArray[np.int32],
        window: AttentionWindow | None,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._table, self._groups, self._cells, self._positions = table, groups, cells, positions
        self._window, self._device, self._dtype = window, device, dtype
        self._by_device: dict[torch.device, Sequence[QueryRows]] = {}

    @cached_property
    def for_kernel(self) -> Any:
        """Layout as an argument of the compiled kernel."""
        segments: list[AttentionSegment] = []
        start = 0
        for group in self._groups:
            sequences, lengths = [item.sequence for item in group], [len(item.tokens) for item in group]
            positions = self._positions[start : start + sum(lengths)]
            segments += self._table.attention_segments(sequences, lengths, positions, self._window, start)
            start += len(positions)
        return make_layout(segments)

    def to(self, device: torch.device) -> Sequence[QueryRows]:
        """Segments for torch's kernels, with tensors on a device, copied there at most once per pass."""
        if not self._by_device:
            self._by_device[self._device] = self._query_rows()
        if device not in self._by_device:
            self._by_device[device] = [
                QueryRows(rows, [segment.to(device) for segment in segments])
                for rows, segments in self._by_device[self._device]
            ]
        return self._by_device[device]

    def _query_rows(self) -> list[QueryRows]:
        rows: list[QueryRows] = []
        start, window = 0, self._window
        for group in self._groups:
            lengths = [len(item.tokens) for item in group]
            stop = start + sum(lengths)
            positions, edges = self._positions[start:stop], None
            if window:
                last = np.cumsum(lengths) - 1
                edges = window.first(np.stack([positions[last - lengths + 1], positions[last]]))
            sequences = [item.sequence for item in group]
            on_cpu = self._device.type == "cpu"
            view = self._table.attention_view(sequences, self._cells[start:stop], edges, per_sequence=on_cpu)
            segments = [TensorSegment(cell_index(piece, self._device)) for piece in view.shared_cells]
            if view.masked_cells is not None:
                mask = None
                if not view.causal:
                    mask = sequence_mask(
                        self._table,
                        group,
                        positions,
                        view.masked_cells,
                        window,
                        device=self._device,
                        dtype=self._dtype,
                    )
                segments.append(TensorSegment(cell_index(view.masked_cells, self._device), mask, view.causal))
            if view.private_cells is not None:
                private = torch.from_numpy(view.private_cells).to(self._device)
                mask = make_mask(private < 0, self._dtype).transpose(0, 2)
                segments.append(TensorSegment(private.clamp(0), mask))
            rows.append(QueryRows(slice(start, stop), segments))
            start = stop
        return rows


class SegmentedAttention:
    """Context manager that makes a model compute attention segment by segment.

    A cache declares the layout in the attribute ``LAYOUT`` of the keys that it returns. For models that transform the
    keys, ``layouts`` contains the layout of each layer.
    """

    _layouts: Sequence[Layout | None] = ()

    def __init__(self, model: Any, layouts: Sequence[Layout | None] = ()) -> None:
        self._config = model.config.get_text_config(decoder=True)
        self._layer_layouts = layouts
        self._original_attention = self._config._attn_implementation
        if self._original_attention == PACKED_ATTENTION:  # an interruption has left it so
            self._original_attention = PLAIN_ATTENTION if getattr(model, "_supports_sdpa", False) else "eager"

    def __enter__(self) -> None:
        self._config._attn_implementation = PACKED_ATTENTION
        SegmentedAttention._layouts = self._layer_layouts

    def __exit__(self, *_: object) -> None:
        self._config._attn_implementation = self._original_attention
        SegmentedAttention._layouts = ()

    @classmethod
    def layout(cls, module: Any, key: torch.Tensor) -> Layout | None:
        """Attention layout of a layer, or None."""
        layout: Layout | None = getattr(key, LAYOUT, None)
        at = getattr(module, "layer_idx", None)
        return cls._layouts[at] if layout is None and at is not None and at < len(cls._layouts) else layout


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention function with the signature of transformers' functions.

    The rows of a batch are computed as adjacent tokens of one row.

    Args:
        query: shape (batch, heads, tokens, size).
        key, value: shape (1, key heads, cells, size).

    Returns:
        Shape (batch, tokens, heads, value size), and no weights.
    """
    layout = SegmentedAttention.layout(module, key)
    if layout is None or attention_mask is not None or kwargs.get("position_bias") is not None:
        raise ValueError(
            "attention in segments follows the cache's layout, and accepts no mask or position bias from the model"
        )
    batch, heads, tokens, size = query.shape
    query = query.transpose(0, 1).reshape(1, heads, batch * tokens, size)
    options = ScoreOptions(size**-0.5 if scaling is None else scaling, softcap, s_aux)
    if kernel := _compiled_kernel(query, key, value, options):
        out, total = kernel.attend(query, key, value, layout.for_kernel, options.scale)
        out = _add_sinks(out, total, s_aux).to(out.dtype).transpose(1, 2).contiguous()
        return out.view(batch, tokens, heads, -1), None
    groups = layout.to(query.device)
    if len(groups) == 1:
        out = _attend(query, key, value, groups[0].segments, options).transpose(1, 2).contiguous()
    else:
        out = query.new_empty((1, batch * tokens, heads, value.shape[-1]))
        for rows, segments in groups:
            out[:, rows] = _attend(query[:, :, rows], key, value, segments, options).transpose(1, 2)
    return out.view(batch, tokens, heads, -1), None


ALL_ATTENTION_FUNCTIONS.register(PACKED_ATTENTION, _attention)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    segments: Sequence[TensorSegment],
    options: ScoreOptions,
) -> torch.Tensor:
    """Compute attention of tokens over all segments, shape (1, heads, tokens, value size)."""
    out, total = _attend_segment(query, key, value, segments[0], options)
    if len(segments) == 1 and options.sinks is None:
        return out
    outputs = out.float()
    for segment in segments[1:]:
        out, lse = _attend_segment(query, key, value, segment, options)
        share = torch.sigmoid(lse - total).masked_fill(lse == -torch.inf, 0)  # also if both are -inf
        outputs = torch.lerp(outputs, out.float(), share[..., None])
        total = torch.logaddexp(total, lse)
    return _add_sinks(outputs, total, options.sinks).to(out.dtype)


def _add_sinks(outputs: torch.Tensor, total: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Add sinks to the denominator of the outputs' softmax. ``total`` are the log-sum-exps without sinks."""
    return outputs if sinks is None else outputs * torch.sigmoid(total - sinks.float()[:, None])[..., None]


def _attend_segment(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segment: TensorSegment, options: ScoreOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention over one segment, and the log-sum-exps of the scores, shape (1, heads, tokens), float32."""
    if isinstance(segment.cells, torch.Tensor) and segment.cells.ndim == 2:
        return _attend_private(query, key, value, segment, options)
    key, value = _select_cells(key, segment.cells), _select_cells(value, segment.cells)
    _, heads, tokens, size = query.shape
    kv_heads, mask = key.shape[1], segment.mask
    shared = heads // kv_heads
    separate_heads = mask is not None and (query.device.type != "cpu" or tokens * shared > _PACKED_ROWS)
    if segment.causal or shared == 1 or separate_heads:
        return run_kernel(KernelInputs(query, key, value, mask, segment.causal, options))
    # The query heads that share keys become rows of one head: each key is read once for all of them.
    if mask is not None:
        mask = mask.repeat(1, 1, shared, 1)
    rows = query.reshape(1, kv_heads, shared * tokens, size)
    out, lse = run_kernel(KernelInputs(rows, key, value, mask, False, options))
    return out.reshape(1, heads, tokens, -1), lse.reshape(1, heads, tokens)


def _compiled_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: ScoreOptions
) -> Kernel | None:
    """Compiled kernel for the CPU, or None if it does not support the tensors."""
    if query.device.type != "cpu" or options.softcap or options.scale <= 0:
        return None
    found = find_kernel()
    return found[1] if found and found[1].can_attend(query, key, value) else None


def _attend_private(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segment: TensorSegment, options: ScoreOptions
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute attention over private cells, with the tokens as a batch."""
    assert isinstance(segment.cells, torch.Tensor) and segment.mask is not None
    _, heads, tokens, size = query.shape
    kv_heads = key.shape[1]
    key, value = _gather_private(key, segment.cells), _gather_private(value, segment.cells)
    rows = query[0].transpose(0, 1).reshape(tokens, kv_heads, heads // kv_heads, size)
    mask = segment.mask.expand(-1, -1, heads // kv_heads, -1)
    out, lse = run_kernel(KernelInputs(rows, key, value, mask, False, options))
    return out.reshape(tokens, heads, -1).transpose(0, 1)[None], lse.reshape(tokens, heads).T[None]


def _gather_private(states: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """Copy the cells of each token, shape (tokens, heads, columns, size), from states (1, heads, cells, size).

    Cells of one head are adjacent, so that torch copies each in one piece: selecting by heads is three times as fast
    as selecting from all heads at once.
    """
    copies = states.new_empty((states.shape[1], *cells.shape, states.shape[-1]))
    for head, copy in zip(states[0], copies, strict=True):
        torch.index_select(head, 0, cells.flatten(), out=copy.view(-1, states.shape[-1]))
    return copies.transpose(0, 1)


def _select_cells(cells: torch.Tensor, selection: slice | torch.Tensor) -> torch.Tensor:
    return cells[:, :, selection] if isinstance(selection, slice) else cells.index_select(2, selection)


def make_mask(is_hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Additive mask, shape (1, 1, tokens, columns), from flags (tokens, columns): -inf where hidden, else 0."""
    tokens, columns = is_hidden.shape
    # Kernels of a GPU want rows that begin at multiples of 16 bytes.
    mask = torch.zeros((1, 1, tokens, columns + -columns % 16), dtype=dtype, device=is_hidden.device)[..., :columns]
    return mask.masked_fill_(is_hidden, float("-inf"))


def cell_index(cells: tuple[int, int] | NDArray[np.int64], device: torch.device) -> slice | torch.Tensor:
    """Index into a tensor for cells given as a span or an array."""
    return slice(*cells) if isinstance(cells, tuple) else torch.from_numpy(cells).to(device)


def sequence_mask(
    table: CellTable,
    items: Sequence[SequenceExtension],
    positions: NDArray[np.int32],
    cells: tuple[int, int] | NDArray[np.int64],
    window: AttentionWindow | None = None,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Additive mask of new tokens, shape (1, 1, new tokens, columns): 0 for visible cells, else minus infinity.

    The mask is built on the model's device, from one row per sequence. A boolean mask would be converted in every
    layer, and "eager" would add it to the scores.
    """
    columns = table.copy_owners([item.sequence for item in items], cells)
    owners, cell_positions = (torch.from_numpy(array).to(device) for array in columns)
    row_of = np.repeat(np.arange(len(items)), [len(item.tokens) for item in items])
    visible = owners[torch.from_numpy(row_of).to(device)]
    visible &= cell_positions <= torch.from_numpy(positions).to(device)[:, None]
    if window:
        visible &= cell_positions >= torch.from_numpy(window.first(positions)).to(device)[:, None]
    return make_mask(visible.logical_not_(), dtype)
