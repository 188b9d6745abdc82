"""Linear layers with weights in the layout of lbx's kernel or of oneDNN's, for CPUs. Imports torch.

torch computes float32 products with MKL, which is slower than either on many processors, and in bfloat16 it converts
the weights for each product. With a dozen tokens a pass, converted weights make products 1.4 to 3 times as fast.
lbx's kernel is as fast as oneDNN's for a prompt and faster for a few tokens, and its decoder layers need its layout.
"""

from __future__ import annotations

import platform
from collections import Counter

import torch

from lbx.backends.hf.kernel import Kernel, PanelWeight, find_kernel


class PackedLinear(torch.nn.Module):
    """``torch.nn.Linear`` with a converted weight, which replaces the original weight in memory.

    Some models use the weight itself; it is then converted back and stays so.
    """

    packed: torch.Tensor | None

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        weight = linear.weight.detach()
        self._kernel = _kernel_for(weight)
        self._dense: torch.Tensor | None = None
        self.panels: PanelWeight | None = None
        if self._kernel:
            self.panels = self._kernel.pack(weight)
        packed = self.panels.numbers if self.panels else torch.ops.mkldnn._reorder_linear_weight(weight)
        self.register_buffer("packed", packed, persistent=False)

    @property
    def weight(self) -> torch.Tensor:
        if self.packed is not None:
            self._dense = self.panels.to_dense() if self.panels else self.packed.to_dense()
            self.packed = self.panels = None
        assert self._dense is not None
        return self._dense

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        packed = self.packed
        if packed is None or inputs.dtype != packed.dtype:
            return torch.nn.functional.linear(inputs, self.weight, self.bias)
        if self._kernel and self.panels:
            return self._kernel.multiply(inputs, self.panels, self.bias)
        outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, packed, self.bias, "none", [], "")
        return outputs


class PackedEmbedding(torch.nn.Module):
    """``torch.nn.Embedding`` that shares the weight of the model's last linear layer."""

    device = torch.device("cpu")  # to read it from the weight would convert that back

    def __init__(self, embedding: torch.nn.Embedding, linear: PackedLinear) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = embedding.num_embeddings, embedding.embedding_dim
        self.padding_idx = embedding.padding_idx
        self._linear = (linear,)  # in a tuple, so that it counts as a module of its parent only

    @property
    def weight(self) -> torch.Tensor:
        return self._linear[0].weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        panels = self._linear[0].panels
        return panels.rows(tokens) if panels else torch.nn.functional.embedding(tokens, self.weight)


class OneDnnLinear(torch.nn.Linear):
    """``torch.nn.Linear`` computed by oneDNN from a weight that other layers use as well."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if inputs.dtype != self.weight.dtype:
            return super().forward(inputs)
        outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self.weight, self.bias, "none", [], "")
        return outputs


def pack_linear_layers(model: torch.nn.Module) -> None:
    """Convert the weights of all linear layers on the CPU, layer by layer, if a kernel supports their format.

    A weight that is the embedding's, too, is converted for lbx's kernel only: oneDNN's layout has no rows to look up.
    """
    dtypes = _packable_dtypes()
    uses = Counter(id(weight) for module in model.modules() for weight in module.parameters(recurse=False))
    children = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) in (torch.nn.Linear, torch.nn.Embedding)
    ]
    embeddings = {
        id(child.weight): (parent, name)
        for parent, name, child in children
        if type(child) is torch.nn.Embedding and child.max_norm is None and not _has_hooks(child)
    }
    while children:
        parent, name, layer = children.pop()
        if type(layer) is not torch.nn.Linear or not _can_pack(layer, dtypes):
            continue
        embedding = embeddings.get(id(layer.weight))
        if uses[id(layer.weight)] == 1:
            setattr(parent, name, PackedLinear(layer))
        elif uses[id(layer.weight)] == 2 and embedding and _kernel_for(layer.weight):
            packed = PackedLinear(layer)
            setattr(parent, name, packed)
            owner, attribute = embedding
            setattr(owner, attribute, PackedEmbedding(getattr(owner, attribute), packed))
        else:
            layer.__class__ = OneDnnLinear
        del layer  # its weight is freed before the next one is converted


def _can_pack(layer: torch.nn.Linear, dtypes: set[torch.dtype]) -> bool:
    return layer.weight.device.type == "cpu" and layer.weight.dtype in dtypes and not _has_hooks(layer)


def _has_hooks(module: torch.nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _kernel_for(weight: torch.Tensor) -> Kernel | None:
    found = find_kernel()
    return found[1] if found and found[1].can_multiply(weight) else None


def _packable_dtypes() -> set[torch.dtype]:
    if platform.machine() != "x86_64" or not torch._C._has_mkldnn:
        return set()
    rounded = {torch.bfloat16} if torch.ops.mkldnn._is_mkldnn_bf16_supported() else set()
    return {torch.float32} | rounded
