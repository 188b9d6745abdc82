"""The formats in which folders store weights in fewer bits: a row a format.

Which row reads a weight follows from the number formats of its tensors, and config.json must agree; what no row claims
is refused (``lbx.backends.hf.checkpoint``). How each is read stands in ``lbx.backends.hf.dequantise``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lbx.backends.hf import dequantise
from lbx.backends.hf.dequantise import Parts, StoredWeight, CheckpointFormatError
from lbx.backends.hf.few_bits import Shape

_F8, _F8_E4M3 = frozenset({"F8_E4M3", "F8_E5M2"}), frozenset({"F8_E4M3"})
_FLOATS, _E8M0 = frozenset({"F32", "F16", "BF16"}), frozenset({"F8_E8M0", "U8"})
_U8, _I8, _I32 = frozenset({"U8"}), frozenset({"I8"}), frozenset({"I32"})


@dataclass(frozen=True, slots=True)
class Format:
    """How a weight is stored.

    Attributes:
        title: for people; ``weight.settings`` fill it in.
        methods: values of ``quant_method`` that it goes with, with ":" and the format where the method has several.
        parts: {part: number formats that it may have}; all must be there.
        shape: of the dense weight. Raises CheckpointFormatError where parts do not fit together.
        dense: the weight in float32.
        more: the same of parts that may be there.
    """

    title: str
    methods: frozenset[str]
    parts: Mapping[str, frozenset[str]]
    shape: Callable[[StoredWeight], Shape]
    dense: Callable[[Parts, StoredWeight], Any]
    more: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def claims(self, weight: StoredWeight) -> bool:
        """Whether the weight's tensors are those of this format, in its number formats."""
        known = {**self.parts, **self.more}
        return (
            self.parts.keys() <= weight.dtypes.keys() <= known.keys()
            and all(weight.dtypes[part] in known[part] for part in weight.dtypes)
            and weight.settings["quant_method"] in self.methods
        )


def require_parts(weight: StoredWeight) -> None:
    """Raises CheckpointFormatError: config.json, or another part, says that there is a part which is not there.

    Some parts a row can do without: the numbers would be read all the same, and wrongly.
    """
    settings, parts = weight.settings, weight.shapes.keys()
    needed = set()
    if settings.get("symmetric") is False:
        needed.add("zero")
    if settings.get("desc_act") is True or settings.get("actorder") in (True, "group"):
        needed.add("order")
    if weight.dtypes.get("absmax") == "U8" or parts & {"nested", "nested_map"}:
        needed |= {"nested", "nested_map"}
    if lacking := sorted(needed - parts):
        raise CheckpointFormatError(f"its {' and '.join(lacking)} is missing")


def _methods(*names: str) -> frozenset[str]:
    return frozenset(names)


_CT = "compressed-tensors:"
FORMATS = (
    Format(
        "FP8",
        _methods(
            "fp8",
            "fbgemm_fp8",
            "modelopt:FP8",
            _CT + "float-quantized",
            _CT + "naive-quantized",
        ),
        {"weight": _F8, "scale": _FLOATS},
        dequantise.scaled_shape,
        dequantise.scaled,
    ),
    Format(
        "FP8 with scales of 2^n",
        _methods("fp8"),
        {"weight": _F8, "scale": _E8M0},
        dequantise.scaled_shape,
        dequantise.scaled_by_power,
    ),
    Format(
        "MXFP8",
        _methods(_CT + "mxfp8-quantized"),
        {"weight": _F8, "scale": _E8M0},
        dequantise.scaled_shape,
        dequantise.scaled_by_power,
    ),
    Format(
        "int8",
        _methods(_CT + "int-quantized", _CT + "naive-quantized"),
        {"weight": _I8, "scale": _FLOATS},
        dequantise.scaled_shape,
        dequantise.scaled,
        {"zero": _I8},
    ),
    Format(
        "NVFP4",
        _methods("modelopt:NVFP4", "modelopt:NVFP4_AWQ", "modelopt:W4A16_NVFP4"),
        {"weight": _U8, "scale": _F8_E4M3, "scale_2": _FLOATS},
        dequantise.fours_shape(16),
        dequantise.nvfp4,
        {"pre_quant": _FLOATS},
    ),
    Format(
        "NVFP4",
        _methods(_CT + "nvfp4-pack-quantized"),
        {"weight": _U8, "scale": _F8_E4M3, "global": _FLOATS},
        dequantise.fours_shape(16),
        dequantise.nvfp4,
    ),
    Format(
        "MXFP4",
        _methods("fp8", _CT + "mxfp4-pack-quantized"),
        {"weight": _I8 | _U8, "scale": _E8M0},
        dequantise.fours_shape(32),
        dequantise.mxfp4,
    ),
    Format("MXFP4", _methods("mxfp4"), {"blocks": _U8, "scales": _U8}, dequantise.gpt_oss_shape, dequantise.gpt_oss),
    Format(
        "int{num_bits}, packed",
        _methods(_CT + "pack-quantized"),
        {"weight": _I32, "scale": _FLOATS, "shape": frozenset({"I64", "I32"})},
        dequantise.packed_shape,
        dequantise.packed,
        {"zero": _I32, "order": _I32},
    ),
    Format(
        "AWQ int4",
        _methods("awq:gemm"),
        {"weight": _I32, "zero": _I32, "scale": _FLOATS},
        dequantise.awq_shape,
        dequantise.awq,
    ),
    Format(
        "GPTQ int{bits}",
        _methods("gptq"),
        {"weight": _I32, "zero": _I32, "scale": _FLOATS},
        dequantise.gptq_shape,
        dequantise.gptq,
        {"order": _I32},
    ),
    Format(
        "bitsandbytes {quant_type}",
        _methods("bitsandbytes"),
        {"weight": _U8, "absmax": _U8 | _FLOATS, "map": _FLOATS, "state": _U8},
        dequantise.nf4_shape,
        dequantise.nf4,
        {"nested": _FLOATS, "nested_map": _FLOATS},
    ),
    Format(
        "bitsandbytes int8",
        _methods("bitsandbytes"),
        {"weight": _I8, "scale": _FLOATS},
        dequantise.int8_shape,
        dequantise.int8,
        {"layout": _U8},
    ),
    Format(
        "torchao FP8",
        _methods("torchao:Float8Tensor"),
        {"weight": _F8, "scale": _FLOATS},
        dequantise.scaled_shape,
        dequantise.scaled,
    ),
    Format(
        "torchao int8",
        _methods("torchao:Int8Tensor"),
        {"weight": _I8, "scale": _FLOATS},
        dequantise.scaled_shape,
        dequantise.scaled,
        {"zero": _I8},
    ),
)
