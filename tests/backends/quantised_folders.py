"""Folders of a model in the formats that people release: packed by each format's own library where it installs here.

Each maker takes a matrix and gives the tensors that a folder stores of it, and the matrix that they mean: by that
library (``compressed_tensors``, ``bitsandbytes``), or by the definition, in plain loops.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

Tensors = dict[str, torch.Tensor]
Maker = Callable[[torch.Tensor], tuple[Tensors, torch.Tensor]]
SKIPPED = ("embed_tokens", "lm_head", "norm", "visual")


def quantise_folder(
    source: Path, folder: Path, make: Maker, settings: Mapping[str, Any] | None, *, metadata: bool = False
) -> Path:
    """``folder`` and ``folder``-dense: the model of ``source`` in a format, and the numbers that it means."""
    from safetensors.torch import load_file, save_file

    dense_folder = folder.with_name(f"{folder.name}-dense")
    for place in (folder, dense_folder):
        shutil.copytree(source, place)
    stored, dense, said = {}, {}, {}
    for name, tensor in load_file(source / "model.safetensors").items():
        whole = tensor.dim() < 2 or (tensor.dim() > 2 and "experts" not in name)
        if whole or any(part in name for part in SKIPPED):
            stored[name] = dense[name] = tensor
            continue
        tensors, dense[name] = make(tensor)
        for suffix, one in tensors.items():
            if suffix == "__metadata__":
                said[name] = json.dumps(one)
            else:
                stored[name.removesuffix(".weight") + suffix if suffix else name] = one.contiguous()
    save_file(stored, folder / "model.safetensors", {"format": "pt", **said})
    save_file({name: tensor.float().contiguous() for name, tensor in dense.items()}, dense_folder / "model.safetensors")
    if settings is not None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
    return folder


# By definition


def float8_blocks(
    rows: int, columns: int, scales: torch.dtype = torch.float32, suffix: str = "weight_scale_inv"
) -> Maker:
    """Blocks that need not divide the matrix."""

    def make(matrix: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        stored, dense = torch.empty_like(matrix, dtype=torch.float8_e4m3fn), torch.empty_like(matrix)
        places = [range(0, size, step) for size, step in zip(matrix.shape, (rows, columns), strict=True)]
        scale = torch.empty(len(places[0]), len(places[1]))
        for i, row in enumerate(places[0]):
            for j, column in enumerate(places[1]):
                block = matrix[row : row + rows, column : column + columns]
                scale[i, j] = float(2.0 ** torch.log2(block.abs().max() / 448).ceil())
                codes = (block / scale[i, j]).to(torch.float8_e4m3fn)
                stored[row : row + rows, column : column + columns] = codes
                dense[row : row + rows, column : column + columns] = codes.float() * scale[i, j]
        return {".weight": stored, f".{suffix}": scale.to(scales)}, dense

    return make


def float8_scalar(suffix: str = "weight_scale", *, rows: bool = False, **more: torch.Tensor) -> Maker:
    def make(matrix: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        scale = (matrix.abs().amax(1, keepdim=True) if rows else matrix.abs().max()) / 448
        codes = (matrix / scale).to(torch.float8_e4m3fn)
        more_of_it = {name: tensor.clone() for name, tensor in more.items()}
        return {".weight": codes, f".{suffix}": scale, **more_of_it}, codes.float() * scale

    return make


def words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Numbers as 32-bit words along the last dimension, one bit after the other, from the definition."""
    flat = codes.reshape(-1, codes.shape[-1]).tolist()
    packed = []
    for line in flat:
        whole = sum(int(number) << (place * bits) for place, number in enumerate(line))
        count = -(-len(line) * bits // 32)
        packed.append([(whole >> (32 * n)) & 0xFFFFFFFF for n in range(count)])
    found = torch.tensor(packed, dtype=torch.int64).reshape(*codes.shape[:-1], -1)
    return torch.where(found >= 1 << 31, found - (1 << 32), found).to(torch.int32)


def integers(matrix: torch.Tensor, bits: int, group: int, order: torch.Tensor | None = None) -> Any:
    """(codes [o, i], zeros [o, g], scales [o, g] in float16, the group of each column, dense)."""
    columns = matrix.shape[1]
    of = (torch.arange(columns) if order is None else order) // group
    groups = int(of.max()) + 1
    low = torch.stack([matrix[:, of == g].amin(1) for g in range(groups)], 1)
    high = torch.stack([matrix[:, of == g].amax(1) for g in range(groups)], 1)
    scale = ((high - low) / (2**bits - 1)).half().float()
    zero = (-low / scale).round().clamp(0, 2**bits - 1)
    codes = (matrix / scale[:, of] + zero[:, of]).round().clamp(0, 2**bits - 1)
    return codes.int(), zero.int(), scale, of, (codes - zero[:, of]) * scale[:, of]


def gptq(bits: int, group: int, *, act_order: bool = False, version: int = 1, positive: bool = False) -> Maker:
    """positive: every third row has no number below 0, so that its zero points are 0."""

    def make(matrix: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        if positive:
            matrix = torch.where(torch.arange(len(matrix)).unsqueeze(1) % 3 == 0, matrix.abs(), matrix)
        order = torch.randperm(matrix.shape[1], generator=torch.Generator().manual_seed(1)) if act_order else None
        codes, zero, scale, of, dense = integers(matrix, bits, group, order)
        zeros = zero.T.contiguous()
        if version == 2:
            stored = words(zeros, bits)
        elif bits == 3:
            stored = words((zeros - 1) & 7, bits)
        else:  # gptqmodel 7.7 takes 1 off each number of a word in one subtraction: a 0 borrows from the next number
            stored = words(zeros, bits) - words(torch.ones_like(zeros), bits)
        return {
            ".qweight": words(codes, bits).T,
            ".qzeros": stored,
            ".scales": scale.T.half(),
            ".g_idx": of.int(),
        }, dense

    return make


def awq(group: int) -> Maker:
    def make(matrix: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        codes, zero, scale, _, dense = integers(matrix, 4, group)
        order = [0, 2, 4, 6, 1, 3, 5, 7]  # AutoAWQ: slot n of a word holds column order[n]

        def packed(table: torch.Tensor) -> torch.Tensor:
            return words(table.reshape(*table.shape[:-1], -1, 8)[..., order].flatten(-2), 4)

        return {
            ".qweight": packed(codes.T.contiguous()),
            ".qzeros": packed(zero.T.contiguous()),
            ".scales": scale.T.half(),
        }, dense

    return make


# By the formats' own libraries


def compressed(kind: str, **weights: Any) -> Maker:
    """By compressed_tensors' compressor of that name."""
    library = pytest.importorskip("compressed_tensors", reason="needs lbx[dev]")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    assert library
    arguments = QuantizationArgs(**weights)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments, format=kind)
    compressor = BaseCompressor.get_value_from_registry(kind)

    def make(matrix: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        rows, columns = matrix.shape
        strategy = str(getattr(arguments.strategy, "value", arguments.strategy))
        more = {}
        if strategy in ("group", "tensor_group"):
            parts = matrix.reshape(rows, -1, arguments.group_size)
            low, high = parts.amin(-1), parts.amax(-1)
        elif strategy == "block":
            high_, wide = arguments.block_structure
            padded = torch.nn.functional.pad(matrix, (0, -columns % wide, 0, -rows % high_))
            parts = padded.reshape(padded.shape[0] // high_, high_, padded.shape[1] // wide, wide)
            low, high = parts.amin((1, 3)), parts.amax((1, 3))
        elif strategy == "channel":
            low, high = matrix.amin(1, keepdim=True), matrix.amax(1, keepdim=True)
        else:
            low, high = matrix.min().reshape(1), matrix.max().reshape(1)
        if strategy == "tensor_group":
            more["weight_global_scale"] = (448 * 6 / matrix.abs().max()).reshape(1).float()
        scale, zero = calculate_qparams(low, high, arguments, global_scale=more.get("weight_global_scale"))
        state = {"weight": matrix, "weight_scale": scale, "weight_zero_point": zero, **more}
        if arguments.symmetric:
            del state["weight_zero_point"]
        stored = compressor.compress(state, scheme)
        dense = compressor.decompress(dict(stored), scheme)["weight"]
        return {f".{name}": tensor for name, tensor in stored.items()}, dense.float()

    return make


def compressed_settings(kind: str, **weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": kind,
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": {"symmetric": True, **weights}, "format": kind}
        },
        "ignore": ["lm_head"],
    }


def bits_and_bytes(kind: str, *, nested: bool = False) -> Maker:
    functional = pytest.importorskip("bitsandbytes", reason="needs lbx[dev]").functional

    def make(matrix: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        if kind == "int8":
            codes, scale, _ = functional.int8_vectorwise_quant(matrix.half())
            dense = functional.int8_vectorwise_dequant(codes, scale)
            return {".weight": codes, ".SCB": scale, ".weight_format": torch.tensor(0, dtype=torch.uint8)}, dense
        codes, state = functional.quantize_4bit(matrix, quant_type=kind, compress_statistics=nested)
        dense = functional.dequantize_4bit(codes, state)
        packed = state.as_dict(packed=True)
        return {".weight": codes, **{f".weight.{name}": tensor for name, tensor in packed.items()}}, dense

    return make


def torch_ao(kind: str) -> Maker:
    """As torchao 0.18 flattens a tensor of its own (held against it once): lbx's own tests run without that library,
    which transformers would import, and hear of, at every start.
    """

    def make(matrix: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        scale = matrix.abs().amax(1, keepdim=True) / (127 if kind == "int8" else 448)
        more = {"._weight_zero_point": torch.zeros_like(scale, dtype=torch.int8)} if kind == "int8" else {}
        codes = (matrix / scale).round().to(torch.int8) if kind == "int8" else (matrix / scale).to(torch.float8_e4m3fn)
        said = {
            "_type": "Int8Tensor" if kind == "int8" else "Float8Tensor",
            "_data": {"block_size": [1, matrix.shape[1]]},
        }
        tensors = {"._weight_qdata": codes, "._weight_scale": scale, **more, "__metadata__": said}
        return tensors, codes.float() * scale

    return make


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def four_bits(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Groups of numbers that are scaled already, as the nearest of E2M1: two in a byte, and what they mean."""
    table = torch.tensor([*E2M1, *(-value for value in E2M1)])
    codes = (groups.unsqueeze(-1) - table).abs().argmin(-1)
    pairs = codes.flatten(1).unflatten(-1, (-1, 2)).to(torch.uint8)
    return pairs[..., 0] | pairs[..., 1] << 4, table[codes]


def nvfp4(*, awq: bool = False) -> Maker:
    """As ModelOpt stores it, from the definition; of its AWQ kinds the inputs have a scale, too."""

    def make(matrix: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        groups = matrix.unflatten(-1, (-1, 16))
        scale_2 = matrix.abs().max() / (6 * 448)
        scale = (groups.abs().amax(-1) / 6 / scale_2).to(torch.float8_e4m3fn)
        packed, meant = four_bits(groups / (scale.float() * scale_2).unsqueeze(-1))
        dense = (meant * (scale.float() * scale_2).unsqueeze(-1)).flatten(1)
        tensors = {".weight": packed, ".weight_scale": scale, ".weight_scale_2": scale_2}
        if awq:
            tensors[".pre_quant_scale"] = torch.linspace(0.5, 2, matrix.shape[1])
            dense = dense * tensors[".pre_quant_scale"]
        return tensors, dense

    return make


def mxfp4(suffix: str) -> Maker:
    """As DeepSeek-V4 stores its experts: two numbers in an I8, a power of two for each 32."""

    def make(matrix: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        groups = matrix.unflatten(-1, (-1, 32))
        scale = (2.0 ** torch.log2(groups.abs().amax(-1) / 6).ceil()).to(torch.float8_e8m0fnu)
        packed, meant = four_bits(groups / scale.float().unsqueeze(-1))
        return {".weight": packed.view(torch.int8), f".{suffix}": scale}, (meant * scale.float().unsqueeze(-1)).flatten(
            1
        )

    return make


def gpt_oss() -> Maker:
    """Experts in MXFP4, as gpt-oss stores them: transposed, so that a block of 32 lies along what is summed over."""
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    table = torch.cat([values, -values])

    def make(experts: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        if experts.dim() != 3:
            return {"": experts}, experts
        blocks = experts.transpose(1, 2).unflatten(-1, (-1, 32))
        exponent = torch.log2(blocks.abs().amax(-1) / 6).ceil()
        codes = ((blocks / 2 ** exponent.unsqueeze(-1)).unsqueeze(-1) - table).abs().argmin(-1)
        dense = (table[codes] * 2 ** exponent.unsqueeze(-1)).flatten(-2).transpose(1, 2)
        pairs = codes.unflatten(-1, (-1, 2)).to(torch.uint8)
        return {
            "_blocks": pairs[..., 0] | pairs[..., 1] << 4,
            "_scales": (exponent + 127).to(torch.uint8),
        }, dense

    return make
