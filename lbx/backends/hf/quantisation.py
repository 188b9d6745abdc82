"""Formats of quantised weights, their settings in config.json, and their dequantisation.

The number formats of a weight's tensors select its format, and config.json must agree; a weight without a format is
refused (``lbx.backends.hf.checkpoint``).

Each format needs two functions: one computes the dense shape and refuses tensors that do not fit together, the other
dequantises. Products are computed in float32 and rounded once, to the model's number format.

transformers' own dequantisation is not used, as measured with 5.23: FP8 needs accelerate, fails or is wrong by 40% of
the logits' range if blocks do not divide a weight, ModelOpt's formats are read wrongly or not at all, GPTQ and AWQ need
gptqmodel, and the kernels of bitsandbytes are 3 to 7% of the range off.

Sources: the formats' own libraries (compressed-tensors 0.20, bitsandbytes 0.50, torchao 0.18, nvidia-modelopt 0.47,
gptqmodel 7.7, AutoAWQ 0.2.9), the OCP microscaling formats 1.0, and transformers 5.23 for gpt-oss and DeepSeek.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lbx.base.inputs import SMALL, read_input

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E8M0_BIAS = 127
Shape = tuple[int, ...]
WORD = 32
"""Bits of a word that numbers are packed into."""


def spread_scale(scale: Any, shape: Shape, block: tuple[int, int]) -> Any:
    """Expand scales per block to scales per number, in float32. The last blocks may be incomplete."""
    scale = scale.float().expand(*shape[:-2], *scale.shape[-2:]) if scale.dim() > 1 else scale.float()
    for dim, size in zip((-2, -1), block, strict=True):
        scale = scale.repeat_interleave(size, dim).narrow(dim, 0, shape[dim])
    return scale


def decode_e8m0(scale: Any) -> Any:
    """Decode E8M0 scales to float32: 2 ** (x - 127), or NaN for 255."""
    import torch

    codes = scale.view(torch.uint8).int()
    power = torch.ldexp(torch.ones_like(codes, dtype=torch.float32), codes - _E8M0_BIAS)
    return power.masked_fill(codes == 0xFF, torch.nan)


def decode_e2m1(octets: Any) -> Any:
    """Decode bytes that each contain two E2M1 numbers, the low half first, to float32."""
    import torch

    table = torch.tensor([*_E2M1, *(-number for number in _E2M1)])
    codes = torch.stack((octets & 0xF, octets >> 4), -1).flatten(-2)
    return table[codes.int()]


def unpack_words(words: Any, bits: int, count: int) -> Any:
    """Unpack unsigned numbers from 32-bit words along the last dimension, from the lowest bit on."""
    import torch

    if bits in (2, 4, 8):
        octets = words.contiguous().view(torch.uint8)
        shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
        return ((octets.unsqueeze(-1) >> shifts) & (2**bits - 1)).flatten(-2)[..., :count]
    at = torch.arange(count) * bits
    low = words[..., at // WORD].long() & 0xFFFFFFFF
    after = words[..., (at // WORD + 1).clamp(max=words.shape[-1] - 1)].long() & 0xFFFFFFFF
    return (((low | after << WORD) >> (at % WORD)) & (2**bits - 1)).to(torch.uint8)


def word_count(count: int, bits: int) -> int:
    """Number of 32-bit words that store ``count`` numbers of ``bits`` bits."""
    return -(-count * bits // WORD)


Parts = Mapping[str, Any]
"""Tensors of a weight by role: "weight", "scale", "zero" ..."""

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


class CheckpointFormatError(Exception):
    """Tensors of a weight, or its settings, do not fit together. The message is a clause."""


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """Weight as stored in a folder.

    Attributes:
        name: name of the dense tensor.
        tensors: {role: name of the tensor in the files}.
        shapes, dtypes: {role: shape} and {role: number format by safetensors' name}.
        settings: quantisation settings in config.json, including ``quant_method``.
    """

    name: str
    tensors: Mapping[str, str]
    shapes: Mapping[str, Shape]
    dtypes: Mapping[str, str]
    settings: Mapping[str, Any]

    def positive_int(self, key: str) -> int:
        """Return a setting that must be an integer above 0. Raises CheckpointFormatError if it is not."""
        value = self.settings.get(key)
        if type(value) is not int or value < 1:
            raise CheckpointFormatError(f"its {key} in config.json is {value!r}, not a positive integer")
        return value

    def require_shape(self, part: str, *shapes: Shape) -> None:
        """Raise CheckpointFormatError unless the tensor of a role has one of the shapes."""
        if self.shapes[part] not in shapes:
            expected = " or ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
            raise CheckpointFormatError(f"its {part} has the shape {list(self.shapes[part])}, not {expected}")


def _group_index(order: Any, groups: int) -> Any:
    """Return the group of each column. Raises CheckpointFormatError for groups that do not exist: torch accepts -1."""
    order = order.long()
    if order.numel() and (int(order.min()) < 0 or int(order.max()) >= groups):
        raise CheckpointFormatError(
            f"its columns belong to groups {int(order.min())} to {int(order.max())}, but it has {groups} groups"
        )
    return order


def _group_size(weight: StoredWeight, columns: int) -> int:
    """Length of a group along the rows of a weight, the whole row if config.json declares no group size."""
    size = weight.settings.get("group_size")
    return columns if size in (None, -1, 0) else weight.positive_int("group_size")


def _block_grid(shape: Shape, block: tuple[int, int]) -> Shape:
    return (*shape[:-2], -(-shape[-2] // block[0]), -(-shape[-1] // block[1]))


def _block_size(weight: StoredWeight, key: str) -> tuple[int, int]:
    value = weight.settings.get(key)
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) is int and n > 0 for n in value):
        raise CheckpointFormatError(f"its {key} in config.json is {value!r}, not two positive integers")
    return value[0], value[1]


# Eight bits of floating point, and whole numbers with a scale


def _scale_block(weight: StoredWeight) -> tuple[int, int]:
    """Numbers of rows and columns per scale, from config.json, checked against the shape of the scales."""
    shape, settings = weight.shapes["weight"], weight.settings
    rows, columns = shape[-2:]
    strategy = settings.get("strategy")
    if "weight_block_size" in settings and settings["weight_block_size"] is not None:
        block = _block_size(weight, "weight_block_size")
    elif strategy == "block":
        block = _block_size(weight, "block_structure")
    elif strategy == "group" or settings.get("group_size"):
        block = 1, _group_size(weight, columns)
    elif weight.shapes["scale"] in ((), (1,), (1, 1), (*shape[:-2], 1, 1)) and strategy in (None, "tensor"):
        return rows, columns
    else:
        block = 1, columns
    scale_shape = _block_grid(shape, block)
    weight.require_shape("scale", scale_shape, *([scale_shape[:-1]] if scale_shape[-1] == 1 else []))
    return block


def scaled_shape(weight: StoredWeight) -> Shape:
    if len(weight.shapes["weight"]) < 2:
        raise CheckpointFormatError("it is not a matrix")
    _scale_block(weight)
    if "zero" in weight.shapes:
        weight.require_shape("zero", weight.shapes["scale"])
    return weight.shapes["weight"]


def apply_scale(parts: Parts, weight: StoredWeight, scale: Any = None) -> Any:
    """Dequantise a weight by (weight - zero) x scale."""
    shape, block = weight.shapes["weight"], _scale_block(weight)

    def spread(part: Any) -> Any:
        blocks = _block_grid(shape, block)
        grid = part.float().reshape(-1, *([1] * (len(blocks) - 1))) if part.numel() == 1 else part.reshape(blocks)
        return spread_scale(grid, shape, block)

    numbers = parts["weight"].float()
    if "zero" in parts:
        numbers = numbers - spread(parts["zero"])
    return numbers * spread(parts["scale"] if scale is None else scale)


def apply_power_scale(parts: Parts, weight: StoredWeight) -> Any:
    return apply_scale(parts, weight, decode_e8m0(parts["scale"]))


# Four bits of floating point


def e2m1_shape(group: int) -> Callable[[StoredWeight], Shape]:
    def shape(weight: StoredWeight) -> Shape:
        *rest, columns = weight.shapes["weight"]
        shape = (*rest, 2 * columns)
        weight.require_shape("scale", _block_grid(shape, (1, group)))
        for part in weight.shapes.keys() & {"scale_2", "global"}:
            weight.require_shape(part, (), (1,), (1, 1), (*shape[:-2], 1), (*shape[:-2], 1, 1), shape[:-2])
        return shape

    return shape


def _scale_per_expert(scale: Any, numbers: Any) -> Any:
    """Reshape the scale of a whole weight, or the scales of several experts, for multiplication with ``numbers``."""
    return scale.float().reshape(-1, *([1] * (numbers.dim() - 1))) if scale.numel() > 1 else scale.float().reshape(())


def nvfp4(parts: Parts, weight: StoredWeight) -> Any:
    numbers = decode_e2m1(parts["weight"])
    scale = parts["scale"].float()
    if "scale_2" in parts:
        scale = scale * _scale_per_expert(parts["scale_2"], scale)
    if "global" in parts:
        scale = scale / _scale_per_expert(parts["global"], scale)
    numbers = numbers * spread_scale(scale, tuple(numbers.shape), (1, 16))
    return numbers * parts["pre_quant"].float() if "pre_quant" in parts else numbers


def mxfp4(parts: Parts, weight: StoredWeight) -> Any:
    numbers = decode_e2m1(parts["weight"])
    return numbers * spread_scale(decode_e8m0(parts["scale"]), tuple(numbers.shape), (1, 32))


def gpt_oss_shape(weight: StoredWeight) -> Shape:
    experts, rows, groups, octets = weight.shapes["blocks"]
    weight.require_shape("scales", (experts, rows, groups))
    return experts, groups * octets * 2, rows


def gpt_oss(parts: Parts, weight: StoredWeight) -> Any:
    numbers = decode_e2m1(parts["blocks"]) * decode_e8m0(parts["scales"]).unsqueeze(-1)
    return numbers.flatten(-2).transpose(1, 2).contiguous()


# Whole numbers packed into words


def packed_shape(weight: StoredWeight) -> Shape:
    *rest, words = weight.shapes["weight"]
    bits = weight.positive_int("num_bits")
    if bits > 8:
        raise CheckpointFormatError(f"its num_bits in config.json is {bits}; at most 8 are supported")
    weight.require_shape("shape", (len(rest) + 1,))
    columns = _column_count(weight, words, bits)
    shape = (*rest, columns)
    weight.require_shape("scale", _block_grid(shape, (1, _group_size(weight, columns))))
    if "zero" in weight.shapes:
        *outer, rows, groups = weight.shapes["scale"]
        weight.require_shape("zero", (*outer, word_count(rows, bits), groups))
    if "order" in weight.shapes:
        weight.require_shape("order", (columns,))
    return shape


def _column_count(weight: StoredWeight, words: int, bits: int) -> int:
    """Number of columns of the dense weight.

    With one scale per row, only ``weight_shape`` gives the number; ``unpack_integers`` checks it.
    """
    size = weight.settings.get("group_size")
    groups = weight.shapes["scale"][-1]
    return groups * size if type(size) is int and size > 0 else words * WORD // bits


def unpack_integers(parts: Parts, weight: StoredWeight) -> Any:
    bits, shape = weight.positive_int("num_bits"), tuple(map(int, parts["shape"].tolist()))
    columns, middle = shape[-1], 2 ** (bits - 1)
    if word_count(columns, bits) != parts["weight"].shape[-1] or shape[:-1] != tuple(parts["weight"].shape[:-1]):
        raise CheckpointFormatError(
            f"its shape {list(shape)} does not match {list(parts['weight'].shape)} words of {bits}-bit numbers"
        )
    group = _group_size(weight, columns)
    numbers = unpack_words(parts["weight"], bits, columns).float()
    zero: Any = middle
    if "zero" in parts:
        rows = parts["scale"].shape[-2]
        zero = unpack_words(parts["zero"].transpose(-1, -2), bits, rows).transpose(-1, -2)

    def spread(part: Any) -> Any:
        if "order" in parts:
            return part.float()[..., _group_index(parts["order"], part.shape[-1])]
        return spread_scale(part, shape, (1, group))

    numbers = numbers - (zero if isinstance(zero, int) else spread(zero))
    return numbers * spread(parts["scale"])


def awq_shape(weight: StoredWeight) -> Shape:
    columns, words = weight.shapes["weight"]
    if weight.positive_int("bits") != 4:
        raise CheckpointFormatError("the order of AWQ's numbers is known only for 4 bits")
    group = _group_size(weight, columns)
    weight.require_shape("zero", (-(-columns // group), words))
    weight.require_shape("scale", (-(-columns // group), 8 * words))
    return 8 * words, columns


def awq(parts: Parts, weight: StoredWeight) -> Any:
    rows, columns = awq_shape(weight)
    shape, group = (columns, rows), _group_size(weight, columns)

    def codes(words: Any) -> Any:
        return unpack_words(words, 4, rows).unflatten(-1, (-1, 8))[..., _AWQ_ORDER].flatten(-2).float()

    numbers = codes(parts["weight"]) - spread_scale(codes(parts["zero"]), shape, (group, 1))
    return (numbers * spread_scale(parts["scale"], shape, (group, 1))).T.contiguous()


def gptq_shape(weight: StoredWeight) -> Shape:
    words, rows = weight.shapes["weight"]
    bits = weight.positive_int("bits")
    columns = words * WORD // bits
    groups = -(-columns // _group_size(weight, columns))
    if bits not in (2, 3, 4, 8) or word_count(columns, bits) != words:
        raise CheckpointFormatError(f"its {words} words do not divide into numbers of {bits} bits")
    weight.require_shape("scale", (groups, rows))
    weight.require_shape("zero", (groups, word_count(rows, bits)))
    if "order" in weight.shapes:
        weight.require_shape("order", (columns,))
    return rows, columns


def _gptq_zeros(words: Any, bits: int, rows: int, *, is_reduced: bool) -> Any:
    """Unpack zero points, which are stored less 1 if ``is_reduced``.

    The 1 was subtracted from a word as a whole, so that a 0 borrows from the next number; with three bits, gptqmodel
    subtracts it from each number separately.
    """
    if is_reduced and WORD % bits == 0:
        words = words + (2**WORD - 1) // (2**bits - 1)
    zero = unpack_words(words, bits, rows).int()
    return (zero + 1) & (2**bits - 1) if is_reduced and WORD % bits else zero


def gptq(parts: Parts, weight: StoredWeight) -> Any:
    rows, columns = gptq_shape(weight)
    bits = weight.positive_int("bits")
    zero = _gptq_zeros(parts["zero"], bits, rows, is_reduced=weight.settings.get("checkpoint_format") != "gptq_v2")
    group = _group_size(weight, columns)

    def spread(part: Any) -> Any:
        if "order" in parts:
            return part.float()[_group_index(parts["order"], len(part))]
        return spread_scale(part, (columns, rows), (group, 1))

    numbers = unpack_words(parts["weight"].T, bits, columns).T.float() - spread(zero)
    return (numbers * spread(parts["scale"])).T.contiguous()


# bitsandbytes


def _quant_state(weight: StoredWeight) -> Mapping[str, Any]:
    """Return bitsandbytes' table for a weight, with dense shape and numbers per scale."""
    state = weight.settings.get("state")
    if not isinstance(state, Mapping) or state.get("quant_type") not in ("nf4", "fp4"):
        raise CheckpointFormatError("its quant_state cannot be read")
    return state


def nf4_shape(weight: StoredWeight) -> Shape:
    """Dense shape of a weight, as declared in the file. ``nf4`` compares it with the count of stored numbers."""
    state = _quant_state(weight)
    shape = tuple(state["shape"])
    count, block = math.prod(shape), state["blocksize"]
    weight.require_shape("weight", (-(-count // 2), 1), (1, -(-count // 2)))
    weight.require_shape("absmax", (-(-count // block),))
    weight.require_shape("map", (16,))
    return shape


def nf4(parts: Parts, weight: StoredWeight) -> Any:
    import torch

    state, shape = _quant_state(weight), nf4_shape(weight)
    scale = parts["absmax"]
    if "nested" in parts:
        block = torch.arange(scale.numel()) // int(state["nested_blocksize"])
        scale = parts["nested_map"].float()[scale.int()] * parts["nested"].float()[block] + state["nested_offset"]
    octets = parts["weight"].flatten()
    codes = torch.stack((octets >> 4, octets & 0xF), -1).flatten()[: math.prod(shape)]
    block = torch.arange(codes.numel()) // int(state["blocksize"])
    return (parts["map"].float()[codes.int()] * scale.float()[block]).reshape(shape)


def int8_shape(weight: StoredWeight) -> Shape:
    rows, _ = weight.shapes["weight"]
    weight.require_shape("scale", (rows,))
    return weight.shapes["weight"]


def int8(parts: Parts, weight: StoredWeight) -> Any:
    if "layout" in parts and int(parts["layout"]):
        raise CheckpointFormatError("its numbers are stored in a GPU's layout")
    return parts["weight"].float() * (parts["scale"].float() / 127).unsqueeze(1)


_CLASSES = ("Linear", "FusedMoE")
_LONGEST_PATTERN, _MOST_REPEATS = 500, 4
_REPEATS, _NESTED = re.compile(r"[*+{]"), re.compile(r"\)[*+{]")


def read_settings(folder: Path) -> dict[str, Any] | None:
    """Read the quantisation settings of a folder, or None without settings."""
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
    """Name of the quantisation method in settings, as in ``WeightFormat.methods``."""
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
    """Quantisation settings of a module: of the group that names it, or else of the group for Linear, or {}."""
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
    """Format of quantised weights, with functions that check and dequantise them.

    Attributes:
        title: displayed name, a format string for ``weight.settings``.
        methods: matching values of ``quant_method``, with ":" and the format if the method covers several formats.
        parts: {role: possible number formats} of required tensors.
        shape: function that returns the dense shape. Raises CheckpointFormatError if tensors do not fit together.
        dense: function that dequantises the weight to float32.
        optional_parts: like ``parts``, for optional tensors.
    """

    title: str
    methods: frozenset[str]
    parts: Mapping[str, frozenset[str]]
    shape: Callable[[StoredWeight], Shape]
    dense: Callable[[Parts, StoredWeight], Any]
    optional_parts: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def matches(self, weight: StoredWeight) -> bool:
        """Whether a weight is stored in this format, by method, tensors and number formats."""
        allowed = {**self.parts, **self.optional_parts}
        return (
            self.parts.keys() <= weight.dtypes.keys() <= allowed.keys()
            and all(weight.dtypes[part] in allowed[part] for part in weight.dtypes)
            and weight.settings["quant_method"] in self.methods
        )


def require_parts(weight: StoredWeight) -> None:
    """Raise CheckpointFormatError if a tensor that config.json or another tensor implies is missing.

    Without the check, a format that treats the tensor as optional would decode the numbers wrongly.
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
        scaled_shape,
        apply_scale,
    ),
    WeightFormat(
        "FP8 with scales of 2^n",
        _methods("fp8"),
        {"weight": _F8, "scale": _E8M0},
        scaled_shape,
        apply_power_scale,
    ),
    WeightFormat(
        "MXFP8",
        _methods(_CT + "mxfp8-quantized"),
        {"weight": _F8, "scale": _E8M0},
        scaled_shape,
        apply_power_scale,
    ),
    WeightFormat(
        "int8",
        _methods(_CT + "int-quantized", _CT + "naive-quantized"),
        {"weight": _I8, "scale": _FLOATS},
        scaled_shape,
        apply_scale,
        {"zero": _I8},
    ),
    WeightFormat(
        "NVFP4",
        _methods("modelopt:NVFP4", "modelopt:NVFP4_AWQ", "modelopt:W4A16_NVFP4"),
        {"weight": _U8, "scale": _F8_E4M3, "scale_2": _FLOATS},
        e2m1_shape(16),
        nvfp4,
        {"pre_quant": _FLOATS},
    ),
    WeightFormat(
        "NVFP4",
        _methods(_CT + "nvfp4-pack-quantized"),
        {"weight": _U8, "scale": _F8_E4M3, "global": _FLOATS},
        e2m1_shape(16),
        nvfp4,
    ),
    WeightFormat(
        "MXFP4",
        _methods("fp8", _CT + "mxfp4-pack-quantized"),
        {"weight": _I8 | _U8, "scale": _E8M0},
        e2m1_shape(32),
        mxfp4,
    ),
    WeightFormat("MXFP4", _methods("mxfp4"), {"blocks": _U8, "scales": _U8}, gpt_oss_shape, gpt_oss),
    WeightFormat(
        "int{num_bits}, packed",
        _methods(_CT + "pack-quantized"),
        {"weight": _I32, "scale": _FLOATS, "shape": frozenset({"I64", "I32"})},
        packed_shape,
        unpack_integers,
        {"zero": _I32, "order": _I32},
    ),
    WeightFormat(
        "AWQ int4",
        _methods("awq:gemm"),
        {"weight": _I32, "zero": _I32, "scale": _FLOATS},
        awq_shape,
        awq,
    ),
    WeightFormat(
        "GPTQ int{bits}",
        _methods("gptq"),
        {"weight": _I32, "zero": _I32, "scale": _FLOATS},
        gptq_shape,
        gptq,
        {"order": _I32},
    ),
    WeightFormat(
        "bitsandbytes {quant_type}",
        _methods("bitsandbytes"),
        {"weight": _U8, "absmax": _U8 | _FLOATS, "map": _FLOATS, "state": _U8},
        nf4_shape,
        nf4,
        {"nested": _FLOATS, "nested_map": _FLOATS},
    ),
    WeightFormat(
        "bitsandbytes int8",
        _methods("bitsandbytes"),
        {"weight": _I8, "scale": _FLOATS},
        int8_shape,
        int8,
        {"layout": _U8},
    ),
    WeightFormat(
        "torchao FP8",
        _methods("torchao:Float8Tensor"),
        {"weight": _F8, "scale": _FLOATS},
        scaled_shape,
        apply_scale,
    ),
    WeightFormat(
        "torchao int8",
        _methods("torchao:Int8Tensor"),
        {"weight": _I8, "scale": _FLOATS},
        scaled_shape,
        apply_scale,
        {"zero": _I8},
    ),
)
