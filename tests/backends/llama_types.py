"""A Llama of one layer that hands rows of its embedding, or products with its output matrix, through to its logits;
and blocks of every type that llama.cpp reads, with the numbers that they are.

The layer adds zeros, and the norms multiply with 1, to the bit: against an epsilon of 2^100 the mean square of a row is
nothing, so that a norm divides by 2^50, and the last one's weights are 2^50.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import gguf
import numpy as np

from lbx.backends.llama.formats import PLAIN, QUANTISED
from lbx.backends.llama.library import load_llama_cpp
from lbx.backends.llama.trial import Traits

WIDTH, VOCABULARY = 256, 512
TYPES = PLAIN | QUANTISED
_EPSILON, _GAIN = 2.0**100, 2.0**50
_LEAST, _MOST = 2.0**-60, 2.0**36
"""What passes through the norms unchanged, if it is not 0."""
_ORDINARY_ROWS = 16
_SEARCHED = {16, 17, 19, 22, 29}
"""Types whose quantisation first makes tables to search in, for up to 20 seconds: IQ1 and IQ2."""


def traits(number: int) -> Traits:
    """What llama.cpp's ggml knows of a type; ``number`` must be one of its numbers."""
    function = load_llama_cpp().llama_cpp._lib.ggml_get_type_traits
    function.argtypes, function.restype = [ctypes.c_int], ctypes.POINTER(Traits)
    return function(number).contents


# What bytes are


def _q1_0(blocks: np.ndarray) -> np.ndarray:
    """A half, and 128 bits: minus or plus it."""
    return _half(blocks) * (2.0 * np.unpackbits(blocks[:, 2:], axis=1, bitorder="little") - 1)


def _q2_0(blocks: np.ndarray) -> np.ndarray:
    """A half, and 64 numbers of two bits: -1 to 2 times it."""
    codes = (blocks[:, 2:, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
    return _half(blocks) * (codes.reshape(len(blocks), -1).astype(np.float32) - 1)


def _half(blocks: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)


WITHOUT_REFERENCE: dict[int, Callable[[np.ndarray], np.ndarray]] = {41: _q1_0, 42: _q2_0}
"""Types that gguf-py does not dequantise: their definitions, written down from ggml's blocks."""


def numbers_of(number: int, blocks: np.ndarray) -> np.ndarray:
    """(blocks, bytes of one) -> the numbers (blocks, numbers of one) in float32, by gguf-py where it has the type."""
    with np.errstate(all="ignore"):
        if own := WITHOUT_REFERENCE.get(number):
            return own(blocks).astype(np.float32)
        found = gguf.quants.dequantize(np.ascontiguousarray(blocks), gguf.GGMLQuantizationType(number))
        return found.reshape(len(blocks), -1)


# Bytes


class Stored(NamedTuple):
    """A matrix: rows of bytes (VOCABULARY, any), and the numbers that they are (VOCABULARY, WIDTH) in float32."""

    data: np.ndarray
    numbers: np.ndarray


@functools.cache
def stored(number: int) -> Stored:
    """Sixteen rows of ordinary numbers, and random bytes below, as far as norms let their numbers pass."""
    rng = np.random.default_rng(number)
    ordinary = quantised(number, rng.standard_normal((_ORDINARY_ROWS, WIDTH)).astype(np.float32))
    blocks = np.concatenate([ordinary, _random(number, rng, VOCABULARY * WIDTH // traits(number).block)])
    rows = blocks.reshape(-1, WIDTH // traits(number).block * blocks.shape[1])[:VOCABULARY]
    return Stored(rows, numbers_of(number, rows.reshape(-1, blocks.shape[1])).reshape(VOCABULARY, WIDTH))


def quantised(number: int, values: np.ndarray) -> np.ndarray:
    """Blocks of bytes for rows of numbers, by llama.cpp's own quantisation: gguf-py has it for few types.

    For some types blocks of other numbers of ordinary sizes.
    """
    if number == 0:
        return values.view(np.uint8).reshape(-1, 4)
    if number in _SEARCHED:
        return _random(number, np.random.default_rng(number), values.size // traits(number).block, 2.0**-10, 2.0**4)
    function = load_llama_cpp().llama_cpp._lib.ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    blocks = np.empty((values.size // traits(number).block, traits(number).size), np.uint8)
    rows, columns = (ctypes.c_int64(size) for size in values.shape)
    importance = np.ones(values.shape[1], np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (values, blocks, importance)]
    assert function(number, *pointers[:2], ctypes.c_int64(0), rows, columns, pointers[2]) == blocks.nbytes
    return blocks


def _random(
    number: int, rng: np.random.Generator, count: int, least: float = _LEAST, most: float = _MOST
) -> np.ndarray:
    kept: list[np.ndarray] = []
    while sum(map(len, kept)) < count:
        blocks = rng.integers(0, 256, (count, traits(number).size), dtype=np.uint8)
        sizes = np.abs(numbers_of(number, blocks))
        passes = (sizes == 0) | ((sizes >= least) & (sizes < most))  # which a NaN does not
        kept.append(blocks[passes.all(axis=1)])
    return np.concatenate(kept)[:count]


# Models


def write_transparent(out: Path, tensors: dict[str, np.ndarray], types: dict[str, int], **texts: object) -> Path:
    """A model whose logits are ``output @ token_embd[token]``.

    Args:
        tensors: by their names without ".weight": (rows, columns) in float32, or (rows, bytes of a row) in uint8.
        types: ggml's numbers of the types of those that are bytes; any number at all.
        texts: more keys of the header, two underscores for each dot: a text, or a list of them.
    """
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_context_length(VOCABULARY)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(_EPSILON)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    writer.add_token_types([gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (VOCABULARY - 2))
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    for name, value in texts.items():
        (writer.add_array if isinstance(value, list) else writer.add_string)(name.replace("__", "."), value)
    for name, values in (_identity() | tensors).items():
        number = types.get(name)
        block, size = block_of(number or 0)
        with patch.dict(gguf.GGML_QUANT_SIZES, {number: (block, size)}):  # gguf-py's are wrong for Q8_1
            writer.add_tensor(f"{name}.weight", values, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def block_of(number: int) -> tuple[int, int]:
    """Numbers and bytes of a block; for what is no type a guess."""
    known = number <= max(TYPES) and traits(number).block
    return (traits(number).block, traits(number).size) if known else (1, 4)


def _identity() -> dict[str, np.ndarray]:
    zeros, ones = np.zeros((WIDTH, WIDTH), np.float32), np.ones(WIDTH, np.float32)
    layer = {f"attn_{name}": zeros for name in ("q", "k", "v", "output")}
    layer |= {f"ffn_{name}": zeros for name in ("gate", "up", "down")} | {"attn_norm": ones, "ffn_norm": ones}
    straight = np.eye(VOCABULARY, WIDTH, dtype=np.float32)
    return {f"blk.0.{name}": values for name, values in layer.items()} | {
        "token_embd": straight,
        "output": straight,
        "output_norm": ones * np.float32(_GAIN),
    }
