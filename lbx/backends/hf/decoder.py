"""Decoder layers of the Llama family, computed by the compiled kernel. Imports transformers.

Between the operations of transformers' modules, threads fall asleep while one of them runs Python; with a small model
that is half of a decode step. The kernel computes the layers of a pass without Python. Embedding, rotary frequencies,
last norm and logits are still computed by the model's own modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import torch
from transformers.activations import ACT2FN

from lbx.backends.hf.kernel import DecoderArguments, LayerArgument, LayoutArgument, StridesArgument, find_kernel
from lbx.backends.hf.packed_linear import PackedLinear

if TYPE_CHECKING:
    from lbx.backends.hf.cell_store import CellStore
    from lbx.backends.hf.kernel import Kernel

_LAYERS = {"LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer", "SmolLM3DecoderLayer"}
"""Names of the layer classes of transformers that decoder.h computes."""

_SILU = (torch.nn.SiLU, type(ACT2FN["silu"]))
_PRODUCTS_PER_CALL = 1 << 34
"""Number of multiplications in one call, a fraction of a second: between calls, Python notices an interruption."""


class CompiledDecoder:
    """Decoder of a model with layers that the compiled kernel computes.

    Args:
        model: model that ``for_model`` accepts.
    """

    def __init__(self, model: Any, kernel: Kernel) -> None:
        self._model, self._base, self._kernel = model, model.model, kernel
        layers = list(self._base.layers)
        attention, mlp = layers[0].self_attn, layers[0].mlp
        self._size: int = attention.head_dim
        self._heads, self._key_heads = (
            module.out_features // self._size for module in (attention.q_proj, attention.k_proj)
        )
        keys, queries = attention.k_proj.out_features, attention.q_proj.out_features
        # Of decoder.h: normalized, queries, new_keys, new_values, attended, gated.
        self._widths = (attention.q_proj.in_features, queries, keys, keys, queries, mlp.gate_proj.out_features)
        self._layers = (LayerArgument * len(layers))(*map(_make_layer, layers))
        # What the layers point to stays in memory, also if the model replaces it.
        self._tensors = [one.detach() for layer in layers for one in (*layer.parameters(), *layer.buffers())]
        self._scale: float = attention.scaling
        self._products = sum(module.packed.numel() for module in _linear_layers(layers[0]))  # of a token in a layer
        self._memory = torch.empty(0)
        self._store: ReferenceType[CellStore] | None = None  # whose cells the layers point to
        self._capacity = self._high_water = 0  # of that store when they were set

    @classmethod
    def for_model(cls, model: Any) -> CompiledDecoder | None:
        """Make the compiled decoder of a model, or None if the kernel does not compute the layers."""
        found, layers = find_kernel(), getattr(getattr(model, "model", None), "layers", ())
        return cls(model, found[1]) if found and layers and all(map(_can_compile, layers)) else None

    def logits(
        self, tokens: torch.Tensor, positions: torch.Tensor, store: CellStore, logit_indices: Sequence[int]
    ) -> torch.Tensor:
        """Compute a pass, and return the logits after the tokens at ``logit_indices``, shape (indices, vocabulary).

        Args:
            tokens, positions: shape (tokens,).
            store: cell store whose current pass contains layouts.
        """
        states = self._base.embed_tokens(tokens).contiguous()
        cosines, sines = self._base.rotary_emb(states[None], positions[None])
        self._compute_layers(states, cosines[0].contiguous(), sines[0].contiguous(), store)
        rows = states[list(logit_indices)] if logit_indices else states[:0]
        logits: torch.Tensor = self._model.lm_head(self._base.norm(rows))
        return logits

    def _compute_layers(
        self, states: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, store: CellStore
    ) -> None:
        tokens, current = len(states), store.current_pass
        if not self._has_room(store):
            self._make_room(store, states)
        layouts = [layout.for_kernel for layout in current.layouts.values()]
        slots = current.write_slots
        write_cells = torch.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        if self._memory.dtype != states.dtype or self._memory.numel() < tokens * sum(self._widths):
            self._memory = states.new_empty(tokens * sum(self._widths))
        sizes = [tokens * width for width in self._widths]
        memory = torch.split(self._memory[: sum(sizes)], sizes)
        arguments = DecoderArguments(
            *(tensor.data_ptr() for tensor in (states, *memory, cosines, sines, write_cells)),
            self._layers,
            (LayoutArgument * len(layouts))(*layouts),
            tokens=tokens,
            heads=self._heads,
            key_heads=self._key_heads,
            size=self._size,
            layout_count=len(layouts),
            threads=torch.get_num_threads(),
            scale=self._scale,
        )
        step = max(1, _PRODUCTS_PER_CALL // (self._products * tokens))
        for first in range(0, len(self._layers), step):
            arguments.first_layer, arguments.layer_end = first, min(first + step, len(self._layers))
            self._kernel.decode(arguments, states.dtype)

    def _has_room(self, store: CellStore) -> bool:
        current = store.current_pass
        is_same = self._store is not None and self._store() is store and self._capacity == current.capacity
        return is_same and current.high_water <= self._high_water

    def _make_room(self, store: CellStore, states: torch.Tensor) -> None:
        """Grow all layers of the store, and update the pointers to the cells."""
        self._store, current = None, store.current_pass  # an interruption may come between two layers
        windows = list(current.layouts)
        for layer, cells in zip(self._layers, store.cell_layers, strict=True):
            if not cells.is_initialized:
                empty = states.new_empty((1, self._key_heads, 0, self._size))
                cells.lazy_initialization(empty, empty)
            cells.make_room()
            layer.keys, layer.values = cells.keys.data_ptr(), cells.values.data_ptr()
            layer.key_strides, layer.value_strides = (
                StridesArgument(*cached.stride()[1:3]) for cached in (cells.keys, cells.values)
            )
            layer.layout = windows.index(cells.window)
        self._capacity, self._high_water, self._store = current.capacity, current.high_water, ref(store)


def _can_compile(layer: Any) -> bool:
    """Whether decoder.h computes the same as a layer."""
    if type(layer).__name__ not in _LAYERS or not type(layer).__module__.startswith("transformers.models."):
        return False
    if any(module._forward_hooks or module._forward_pre_hooks for module in layer.modules()):
        return False
    linear = _linear_layers(layer)
    if not all(isinstance(module, PackedLinear) and module.panels for module in linear):
        return False
    dtypes = {tensor.dtype for tensor in (*layer.parameters(), *layer.buffers())}
    return len(dtypes) == 1 and layer.self_attn.head_dim % 2 == 0 and isinstance(layer.mlp.act_fn, _SILU)


def _linear_layers(layer: Any) -> Sequence[Any]:
    """Linear layers in the order of decoder.h."""
    attention, mlp = layer.self_attn, layer.mlp
    return (
        *(attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj),
        *(mlp.gate_proj, mlp.up_proj, mlp.down_proj),
    )


def _make_layer(layer: Any) -> Any:
    attention = layer.self_attn
    head_norms = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
    norms = (layer.input_layernorm, layer.post_attention_layernorm, *head_norms)
    return LayerArgument(
        *(None if norm is None else norm.weight.data_ptr() for norm in norms),
        *(module.panels.to_argument(module.bias) for module in _linear_layers(layer)),
        is_rotated=bool(getattr(attention, "use_rope", True)),
        epsilon=layer.input_layernorm.variance_epsilon,
    )
