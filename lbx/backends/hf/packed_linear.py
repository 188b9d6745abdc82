"""Linear layers with weights in the layout of oneDNN's kernels, for CPUs. Imported only with torch.

torch computes float32 products with MKL, which is slower than oneDNN on many processors, and in bfloat16 it converts
the weights for each product. With a dozen tokens a pass, converted weights make products 1.4 to 3 times as fast.
"""

from __future__ import annotations

import platform
from collections import Counter

import torch


class PackedLinear(torch.nn.Module):
    """``torch.nn.Linear`` with a converted weight, which replaces the original one in memory.

    Some models use the weight itself; it is then converted back and stays so.
    """

    packed: torch.Tensor | None

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = linear.in_features, linear.out_features, linear.bias
        self.register_buffer(
            "packed", torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach()), persistent=False
        )
        self._dense: torch.Tensor | None = None

    @property
    def weight(self) -> torch.Tensor:
        if self.packed is not None:
            self._dense, self.packed = self.packed.to_dense(), None
        assert self._dense is not None
        return self._dense

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        packed = self.packed
        if packed is None or inputs.dtype != packed.dtype:
            return torch.nn.functional.linear(inputs, self.weight, self.bias)
        outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, packed, self.bias, "none", [], "")
        return outputs


class OneDnnLinear(torch.nn.Linear):
    """``torch.nn.Linear`` computed by oneDNN from a weight that other layers use as well."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if inputs.dtype != self.weight.dtype:
            return super().forward(inputs)
        outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self.weight, self.bias, "none", [], "")
        return outputs


def pack_linear_layers(model: torch.nn.Module) -> None:
    """Convert the weights of all linear layers on the CPU, layer by layer, if this processor has oneDNN's kernels.

    Tied weights are not converted, since the embedding needs the original.
    """
    dtypes = _packable_dtypes()
    uses = Counter(id(weight) for module in model.modules() for weight in module.parameters(recurse=False))
    parents = [module for module in model.modules() if not isinstance(module, torch.nn.Linear)]
    for module in parents:
        for name in [name for name, _ in module.named_children()]:
            layer = getattr(module, name)
            if type(layer) is not torch.nn.Linear or not _can_pack(layer, dtypes):
                continue
            if uses[id(layer.weight)] == 1:
                setattr(module, name, PackedLinear(layer))
                del layer  # its weight is freed before the next one is converted
            else:
                layer.__class__ = OneDnnLinear


def _can_pack(layer: torch.nn.Linear, dtypes: set[torch.dtype]) -> bool:
    has_hooks = bool(layer._forward_hooks or layer._forward_pre_hooks)
    return layer.weight.device.type == "cpu" and layer.weight.dtype in dtypes and not has_hooks


def _packable_dtypes() -> set[torch.dtype]:
    if platform.machine() != "x86_64" or not torch._C._has_mkldnn:
        return set()
    rounded = {torch.bfloat16} if torch.ops.mkldnn._is_mkldnn_bf16_supported() else set()
    return {torch.float32} | rounded
