"""Formats of quantised weights, and their settings in config.json.

The number formats of a weight's tensors select its format, and config.json must agree; a weight without a format is
refused (``lbx.backends.hf.checkpoint``). The formats are decoded in ``lbx.backends.hf.dequantise``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lbx.backends.hf import dequantise
from lbx.backends.hf.dequantise import CheckpointFormatError, Parts, Shape, StoredWeight
from lbx.base.inputs import SMALL, read_input

_CLASSES = ("Linear", "FusedMoE")
_LONGEST_PATTERN, _MOST_REPEATS = 500, 4
_REPEATS, _NESTED = re.compile(r"[*+{]"), re.compile(r"\)[*+{]")


def read_settings(folder: Path) -> dict[str, Any] | None:
    """Quantisation settings of a folder, if it has any."""
    config = _read_json(folder / "config.json")
    text = config.get("text_config")
    for table in (config, text if isinstance(text, dict) else {}):
        for key in ("quantization_config", "compression_config"):
            if isinstance(settings := table.get(key), dict):
                nested = settings.get("quantization")
                return {**settings, **nested} if isinstance(nested, dict) else settings
    settings = _read_json(folder / "hf_quant_config.json").get("quantization")
    return {"quant_method": "modelopt", **settings} if isinstance(settings, dict) else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_input(path, SMALL))
    except (OSError, ValueError, RecursionError):
        return {}  # loading reports the error
    return value if isinstance(value, dict) else {}


def method_name(settings: Mapping[str, Any] | None) -> str:
    """Name of the method of a folder or a weight, as in ``WeightFormat.methods``."""
    settings = settings or {}
    name = str(settings.get("quant_method", "none")).lower().replace("_", "-").replace("fbgemm-fp8", "fbgemm_fp8")
    if name in ("modelopt", "modelopt-fp4", "modelopt-fp8"):
        return f"modelopt:{settings.get('quant_algo')}"
    if name == "compressed-tensors":
        return f"{name}:{settings.get('format')}"
    if name == "awq":
        return f"awq:{str(settings.get('version', 'gemm')).lower()}"
    if name == "gptq" and settings.get("checkpoint_format", "gptq") not in ("gptq", "gptq_v2"):
        return f"gptq:{settings['checkpoint_format']}"
    return name


def weight_settings(name: str, settings: Mapping[str, Any] | None, metadata: Mapping[str, str]) -> dict[str, Any]:
    own_settings = dict(settings or {})
    module = name.removesuffix(".weight")
    groups = own_settings.get("config_groups")
    if method_name(own_settings).startswith("compressed-tensors") and isinstance(groups, dict):
        group = _group_of(module, [entry for entry in groups.values() if isinstance(entry, dict)])
        own_settings |= {"format": group.get("format") or own_settings.get("format"), **_as_dict(group.get("weights"))}
    layers = own_settings.get("quantized_layers")
    if isinstance(layers, dict):
        own_settings |= _as_dict(layers.get(module))
    own_settings["quant_method"] = method_name(own_settings)
    if own_settings["quant_method"] == "torchao":
        try:
            own_settings["quant_method"] += f":{json.loads(metadata[name])['_type']}"
        except (KeyError, ValueError, TypeError):
            own_settings["quant_method"] += ":unknown"
    return own_settings


def _as_dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _group_of(module: str, groups: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Quantisation settings of a module: the group with its name, else the group for its class (Linear), else {}."""
    targets = [(str(target), group) for group in groups for target in group.get("targets") or ()]
    by_name = (group for target, group in targets if _matches_module(target, module))
    by_class = (group for target, group in targets if target in _CLASSES)
    return next(by_name, None) or next(by_class, None) or {}


def _matches_module(target: str, module: str) -> bool:
    """Whether a target (a name, or "re:" and a pattern) matches a module."""
    if not target.startswith("re:"):
        return target == module
    pattern = target[3:]
    # A pattern comes with the model: one that could be matched in very many ways would never come to an end.
    if len(pattern) > _LONGEST_PATTERN or len(_REPEATS.findall(pattern)) > _MOST_REPEATS or _NESTED.search(pattern):
        raise CheckpointFormatError(
            f"its config.json groups modules by a pattern that is too complex: {pattern[:_LONGEST_PATTERN]!r}"
        )
    return re.match(pattern, module) is not None


def rounds_activations(settings: Mapping[str, Any]) -> bool:
    groups = _as_dict(settings.get("config_groups")).values()
    inputs = [
        group["input_activations"] for group in groups if isinstance(group, dict) and group.get("input_activations")
    ]
    by_method = method_name(settings) in ("fp8", "fbgemm_fp8") or str(settings.get("quant_algo", "")).startswith(
        ("FP8", "NVFP4")
    )
    return bool(inputs) or by_method


_F8, _F8_E4M3 = frozenset({"F8_E4M3", "F8_E5M2"}), frozenset({"F8_E4M3"})
_FLOATS, _E8M0 = frozenset({"F32", "F16", "BF16"}), frozenset({"F8_E8M0", "U8"})
_U8, _I8, _I32 = frozenset({"U8"}), frozenset({"I8"}), frozenset({"I32"})


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How a weight is stored.

    Attributes:
        title: displayed name, a format string for ``weight.settings``.
        methods: matching values of ``quant_method``, with ":" and the format if the method has several.
        parts: {part: its possible number formats} of required parts.
        shape: of the dense weight. Raises CheckpointFormatError where parts do not fit together.
        dense: the weight in float32.
        optional_parts: like ``parts``, of parts that may be missing.
    """

    title: str
    methods: frozenset[str]
    parts: Mapping[str, frozenset[str]]
    shape: Callable[[StoredWeight], Shape]
    dense: Callable[[Parts, StoredWeight], Any]
    optional_parts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def matches(self, weight: StoredWeight) -> bool:
        """Whether the weight's tensors match this format and its number formats."""
        allowed = {**self.parts, **self.optional_parts}
        return (
            self.parts.keys() <= weight.dtypes.keys() <= allowed.keys()
            and all(weight.dtypes[part] in allowed[part] for part in weight.dtypes)
            and weight.settings["quant_method"] in self.methods
        )


def require_parts(weight: StoredWeight) -> None:
    """Raise CheckpointFormatError if a part that config.json or another part declares is missing.

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
    WeightFormat(
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
        dequantise.apply_scale,
    ),
    WeightFormat(
        "FP8 with scales of 2^n",
        _methods("fp8"),
        {"weight": _F8, "scale": _E8M0},
        dequantise.scaled_shape,
        dequantise.apply_power_scale,
    ),
    WeightFormat(
        "MXFP8",
        _methods(_CT + "mxfp8-quantized"),
        {"weight": _F8, "scale": _E8M0},
        dequantise.scaled_shape,
        dequantise.apply_power_scale,
    ),
    WeightFormat(
        "int8",
        _methods(_CT + "int-quantized", _CT + "naive-quantized"),
        {"weight": _I8, "scale": _FLOATS},
        dequantise.scaled_shape,
        dequantise.apply_scale,
        {"zero": _I8},
    ),
    WeightFormat(
        "NVFP4",
        _methods("modelopt:NVFP4", "modelopt:NVFP4_AWQ", "modelopt:W4A16_NVFP4"),
        {"weight": _U8, "scale": _F8_E4M3, "scale_2": _FLOATS},
        dequantise.e2m1_shape(16),
        dequantise.nvfp4,
        {"pre_quant": _FLOATS},
    ),
    WeightFormat(
        "NVFP4",
        _methods(_CT + "nvfp4-pack-quantized"),
        {"weight": _U8, "scale": _F8_E4M3, "global": _FLOATS},
        dequantise.e2m1_shape(16),
        dequantise.nvfp4,
    ),
    WeightFormat(
        "MXFP4",
        _methods("fp8", _CT + "mxfp4-pack-quantized"),
        {"weight": _I8 | _U8, "scale": _E8M0},
        dequantise.e2m1_shape(32),
        dequantise.mxfp4,
    ),
    WeightFormat(
        "MXFP4", _methods("mxfp4"), {"blocks": _U8, "scales": _U8}, dequantise.gpt_oss_shape, dequantise.gpt_oss
    ),
    WeightFormat(
        "int{num_bits}, packed",
        _methods(_CT + "pack-quantized"),
        {"weight": _I32, "scale": _FLOATS, "shape": frozenset({"I64", "I32"})},
        dequantise.packed_shape,
        dequantise.unpack_integers,
        {"zero": _I32, "order": _I32},
    ),
    WeightFormat(
        "AWQ int4",
        _methods("awq:gemm"),
        {"weight": _I32, "zero": _I32, "scale": _FLOATS},
        dequantise.awq_shape,
        dequantise.awq,
    ),
    WeightFormat(
        "GPTQ int{bits}",
        _methods("gptq"),
        {"weight": _I32, "zero": _I32, "scale": _FLOATS},
        dequantise.gptq_shape,
        dequantise.gptq,
        {"order": _I32},
    ),
    WeightFormat(
        "bitsandbytes {quant_type}",
        _methods("bitsandbytes"),
        {"weight": _U8, "absmax": _U8 | _FLOATS, "map": _FLOATS, "state": _U8},
        dequantise.nf4_shape,
        dequantise.nf4,
        {"nested": _FLOATS, "nested_map": _FLOATS},
    ),
    WeightFormat(
        "bitsandbytes int8",
        _methods("bitsandbytes"),
        {"weight": _I8, "scale": _FLOATS},
        dequantise.int8_shape,
        dequantise.int8,
        {"layout": _U8},
    ),
    WeightFormat(
        "torchao FP8",
        _methods("torchao:Float8Tensor"),
        {"weight": _F8, "scale": _FLOATS},
        dequantise.scaled_shape,
        dequantise.apply_scale,
    ),
    WeightFormat(
        "torchao int8",
        _methods("torchao:Int8Tensor"),
        {"weight": _I8, "scale": _FLOATS},
        dequantise.scaled_shape,
        dequantise.apply_scale,
        {"zero": _I8},
    ),
)
