"""Compiled attention kernel for CPUs (attention_kernel.cpp). Imported only with torch.

The kernel is optional: it is compiled when lbx is installed, if the machine has a C++ compiler. Without it, torch
computes attention. A library ends with the SHA-256 of its source and of all its bytes before (.ci/build_kernel.py): one
of another version would read other arguments, and a truncated one would kill the process that loads it.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import torch

from lbx.base.inputs import SMALL, read_input

_AVX2 = ("avx2", "fma3", "f16c", "bmi", "bmi2", "lzcnt")
_AVX512 = (*_AVX2, "avx512_f", "avx512_bw", "avx512_cd", "avx512_dq", "avx512_vl")
VARIANTS = {"avx512_bf16": (*_AVX512, "avx512_bf16"), "avx512": _AVX512, "avx2": _AVX2}
"""Processor features that each compiled variant needs, by torch's names; the fastest variant first."""

_NUMBERS = {torch.float32: "attend_float32", torch.bfloat16: "attend_bfloat16"}
_POINTERS = ("queries", "keys", "values", "outputs", "sums", "cells", "counts")
_COUNTS = (
    "query_head_stride", "query_token_stride", "key_head_stride", "key_cell_stride", "value_head_stride",
    "value_cell_stride", "first_cell", "columns", "heads", "key_heads", "tokens", "size", "value_size", "sequences",
    "causal", "threads",
)  # fmt: skip


_SOURCE = Path(__file__).with_suffix(".cpp")
_unused_kernels: dict[str, str] = {}


class _Arguments(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_int64) for name in _COUNTS),
        ("scale", ctypes.c_float),
    )


class AttentionKernel:
    """One compiled variant of the kernel.

    Args:
        dtypes: number formats that it computes; others are left to torch.

    Raises:
        OSError: the file is damaged, belongs to another version of lbx, or does not load.
    """

    def __init__(self, path: Path, dtypes: Sequence[torch.dtype] = tuple(_NUMBERS)) -> None:
        content, digest = read_input(path, SMALL), hashlib.sha256(read_input(_SOURCE, SMALL))
        digest.update(content[: -digest.digest_size])
        if content[-digest.digest_size :] != digest.digest():
            raise OSError("it is damaged, or was compiled from the source of another version of lbx")
        # The kernel calls the OpenMP library that torch has loaded, and so shares torch's threads.
        for openmp in (Path(torch.__file__).parent / "lib").glob("libgomp*"):
            ctypes.CDLL(str(openmp), ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(str(path))
        try:
            self._functions = {dtype: getattr(library, _NUMBERS[dtype]) for dtype in dtypes}
        except AttributeError as exc:
            raise OSError(str(exc)) from exc

    def can_attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
        """Whether the kernel supports these tensors."""
        # Subclasses of a tensor may have no numbers in memory.
        return (query.dtype in self._functions and query.shape[-1] % 2 == 0) and all(
            type(tensor) is torch.Tensor
            and tensor.device.type == "cpu"
            and tensor.dtype == query.dtype
            and tensor.stride(-1) == 1
            for tensor in (query, key, value)
        )

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cells: slice | torch.Tensor,
        *,
        scale: float,
        counts: torch.Tensor | None = None,
        causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention of tokens over cells, and the log-sum-exp of the scores.

        Args:
            query: shape (1, heads, tokens, size).
            key, value: shape (1, key heads, cells, size).
            cells: a slice or indices of cells that all tokens see, or indices of shape (tokens, columns).
            counts: number of visible cells of each token's row of ``cells``.
            causal: whether the cells are the tokens' own, in order, each visible to later tokens.

        Returns:
            Shape (1, heads, tokens, value size), and shape (1, heads, tokens) in float32.
        """
        _, heads, tokens, size = query.shape
        outputs = query.new_empty((1, heads, tokens, value.shape[-1]))
        sums = torch.empty((1, heads, tokens))
        first, columns, indices = 0, 0, None
        if isinstance(cells, torch.Tensor):
            indices, columns = cells.contiguous(), cells.shape[-1]
        else:
            first, end, _ = cells.indices(key.shape[2])
            columns = end - first
        pointers: Sequence[torch.Tensor | None] = (query, key, value, outputs, sums, indices, counts)
        strides = [stride for states in (query, key, value) for stride in states.stride()[1:3]]
        sequences = tokens if indices is not None and indices.ndim == 2 else 1
        arguments = _Arguments(
            *(None if tensor is None else tensor.data_ptr() for tensor in pointers),
            *strides,
            *(first, columns, heads, key.shape[1], tokens, size, value.shape[-1], sequences, causal),
            torch.get_num_threads(),
            scale,
        )
        if self._functions[query.dtype](ctypes.byref(arguments)):
            raise MemoryError("There is too little memory for attention.")
        return outputs, sums


def kernel_file(variant: str) -> Path:
    """Compiled variant; it may not exist."""
    return Path(__file__).with_name(f"attention_kernel.{variant}.so")


@cache
def find_kernel() -> tuple[str, AttentionKernel] | None:
    """Fastest compiled variant that this processor supports, and its name; None if there is none."""
    present = torch.cpu.get_capabilities()
    # torch's own kernel multiplies bfloat16 with AMX, which has several times the rate of AVX-512.
    dtypes = [dtype for dtype in _NUMBERS if dtype != torch.bfloat16 or not present.get("amx_bf16")]
    for variant, features in VARIANTS.items():
        if all(present.get(feature) for feature in features) and kernel_file(variant).is_file():
            try:
                return variant, AttentionKernel(kernel_file(variant), dtypes)
            except OSError as exc:
                _unused_kernels[kernel_file(variant).name] = str(exc)
    return None


def unused_kernels() -> Mapping[str, str]:
    """Compiled variants for this processor that cannot be used: {file name: reason}."""
    find_kernel()
    return _unused_kernels


def kernel_name() -> str:
    """Variant of the kernel that computes attention on this CPU, or "torch"."""
    found = find_kernel()
    return found[0] if found else "torch"
