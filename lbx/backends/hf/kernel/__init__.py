"""Compiled kernel for attention, linear layers and whole decoder layers on x86-64 CPUs. Imports torch.

The kernel is optional: it is compiled when lbx is installed, if the machine has a C++ compiler (kernel.cpp). Without
it, torch computes everything. A library ends with the SHA-256 of its sources and of all its bytes before
(.ci/build_kernel.py): a library of another version would read other arguments, and a truncated library would kill the
process.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from lbx.base.inputs import SMALL, read_input

if TYPE_CHECKING:
    from lbx.engine.cell_table import AttentionSegment

_AVX2 = ("avx2", "fma3", "f16c", "bmi", "bmi2", "lzcnt")
_AVX512 = (*_AVX2, "avx512_f", "avx512_bw", "avx512_cd", "avx512_dq", "avx512_vl")
VARIANTS = {"avx512_bf16": (*_AVX512, "avx512_bf16"), "avx512": _AVX512, "avx2": _AVX2}
"""Processor features that each compiled variant needs, by torch's names; the fastest variant first."""

_FOLDER = Path(__file__).parent
_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_LARGEST_VALUE = 1024  # MOST_VALUES in attention.h
_unused_kernels: dict[str, str] = {}


def _structure(name: str, fields: Mapping[str, Any]) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


def _fields(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


# The structures of the C++ sources, field by field.
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
PartArgument = _structure(
    "PartArgument",
    _fields(_POINTER, "cells starts limits") | _fields(_NUMBER, "first_cell columns first_token tokens sequences"),
)
_Shape = _structure("_Shape", _fields(_NUMBER, "heads key_heads size value_size") | {"scale": ctypes.c_float})
StridesArgument = _structure("StridesArgument", _fields(_NUMBER, "head token"))
WeightsArgument = _structure("WeightsArgument", _fields(_POINTER, "panels bias") | _fields(_NUMBER, "inputs outputs"))
LayerArgument = _structure(
    "LayerArgument",
    _fields(_POINTER, "attention_norm mlp_norm query_norm key_norm")
    | _fields(WeightsArgument, "query key value output gate up down")
    | _fields(_POINTER, "keys values")
    | _fields(StridesArgument, "key_strides value_strides")
    | _fields(_NUMBER, "layout is_rotated")
    | {"epsilon": ctypes.c_float},
)
LayoutArgument = _structure("LayoutArgument", {"parts": ctypes.POINTER(PartArgument), "count": _NUMBER})
KernelSeconds = _structure("KernelSeconds", _fields(ctypes.c_double, "attention products other"))
"""Clock seconds of decoder layers, by type of work."""
DecoderArguments = _structure(
    "DecoderArguments",
    _fields(_POINTER, "hidden normalized queries new_keys new_values attended gated cosines sines cells")
    | {"layers": ctypes.POINTER(LayerArgument), "layouts": ctypes.POINTER(LayoutArgument)}
    | {"seconds": ctypes.POINTER(KernelSeconds)}
    | _fields(_NUMBER, "tokens heads key_heads size first_layer layer_end layout_count threads")
    | {"scale": ctypes.c_float},
)
_AttentionArguments = _structure(
    "_AttentionArguments",
    _fields(_POINTER, "queries keys values outputs sums")
    | _fields(StridesArgument, "query key value output")
    | {"layout": LayoutArgument, "shape": _Shape}
    | _fields(_NUMBER, "tokens threads"),
)
_LinearArguments = _structure(
    "_LinearArguments",
    {"weights": WeightsArgument} | _fields(_POINTER, "rows outputs") | _fields(_NUMBER, "count threads"),
)

_PackArguments = _structure(
    "_PackArguments", _fields(_POINTER, "weight panels") | _fields(_NUMBER, "outputs length threads")
)


class PanelWeight(NamedTuple):
    """Weight of a linear layer in panels: ``numbers`` of shape (panels, inputs / step, outputs of a panel, step)."""

    numbers: torch.Tensor
    outputs: int

    @property
    def inputs(self) -> int:
        return self.numbers.shape[1] * self.numbers.shape[3]

    def to_dense(self) -> torch.Tensor:
        """Copy the weight to a tensor of shape (outputs, inputs)."""
        return self.numbers.transpose(1, 2).reshape(-1, self.inputs)[: self.outputs].contiguous()

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        """Rows of the weight, shape (..., inputs), at indices of shape (...)."""
        panel = self.numbers.shape[2]
        return self.numbers[indices // panel, :, indices % panel].flatten(-2)

    def to_argument(self, bias: torch.Tensor | None) -> Any:
        return WeightsArgument(self.numbers.data_ptr(), _pointer(bias), self.inputs, self.outputs)


def _pointer(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


class Kernel:
    """Compiled variant of the kernel, loaded.

    Args:
        dtypes: number formats that the kernel computes; torch computes others.

    Attributes:
        seconds: ``KernelSeconds`` that ``decode`` adds its times to, or None to measure none.

    Raises:
        OSError: the file is damaged, belongs to another version of lbx, or does not load.
    """

    def __init__(self, path: Path, dtypes: Sequence[torch.dtype] = tuple(_DTYPES)) -> None:
        content, digest = read_input(path, SMALL), hashlib.sha256()
        for source in sorted((*_FOLDER.glob("*.cpp"), *_FOLDER.glob("*.h"))):
            digest.update(read_input(source, SMALL))
        digest.update(content[: -digest.digest_size])
        if content[-digest.digest_size :] != digest.digest():
            raise OSError("it is damaged, or was compiled from the source of another version of lbx")
        # The kernel calls the OpenMP library that torch has loaded, and so shares torch's threads.
        for openmp in (Path(torch.__file__).parent / "lib").glob("libgomp*"):
            ctypes.CDLL(str(openmp), ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(str(path))
        try:
            functions = {
                dtype: [getattr(library, f"{verb}_{_DTYPES[dtype]}") for verb in ("attend", "multiply", "decode")]
                for dtype in dtypes
            }
            self._pack = library.pack_weight
            self._panel = ctypes.c_int.in_dll(library, "panel_outputs").value
            self._steps = {torch.float32: 1, torch.bfloat16: ctypes.c_int.in_dll(library, "bfloat16_step").value}
        except (AttributeError, ValueError) as exc:
            raise OSError(str(exc)) from exc
        self.seconds: Any = None
        self._attend = {dtype: attend for dtype, (attend, _, _) in functions.items()}
        # Without instructions for pairs of bfloat16, torch converts the weights faster.
        quick = {dtype: found for dtype, found in functions.items() if dtype == torch.float32 or self._steps[dtype] > 1}
        self._multiply = {dtype: multiply for dtype, (_, multiply, _) in quick.items()}
        self._decode = {dtype: decode for dtype, (_, _, decode) in quick.items()}

    def can_attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
        """Whether the kernel computes attention over tensors of these types and shapes."""
        # Subclasses of a tensor may have no numbers in memory.
        return (
            query.dtype in self._attend
            and query.shape[-1] % 2 == 0
            and value.shape[-1] <= _LARGEST_VALUE
            and all(
                type(tensor) is torch.Tensor
                and tensor.device.type == "cpu"
                and tensor.dtype == query.dtype
                and tensor.stride(-1) == 1
                for tensor in (query, key, value)
            )
        )

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layout: Any,
        scale: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute attention of tokens over cells, and the log-sum-exps of the scores.

        Args:
            query: shape (1, heads, tokens, size).
            key, value: shape (1, key heads, cells, size).
            layout: ``make_layout`` of the cells of all tokens.

        Returns:
            Shape (1, heads, tokens, value size), with the heads of a token adjacent in memory, and shape
            (1, heads, tokens) in float32.
        """
        _, heads, tokens, size = query.shape
        outputs = query.new_empty((1, tokens, heads, value.shape[-1])).transpose(1, 2)
        sums = torch.empty((1, heads, tokens))
        arguments = _AttentionArguments(
            *(tensor.data_ptr() for tensor in (query, key, value, outputs, sums)),
            *(StridesArgument(*states.stride()[1:3]) for states in (query, key, value, outputs)),
            layout,
            _Shape(heads, key.shape[1], size, value.shape[-1], scale),
            tokens,
            torch.get_num_threads(),
        )
        if self._attend[query.dtype](ctypes.byref(arguments)):
            raise MemoryError("There is too little memory for attention.")
        return outputs, sums

    def can_multiply(self, weight: torch.Tensor) -> bool:
        """Whether the kernel computes a linear layer with a weight of shape (outputs, inputs)."""
        return weight.dtype in self._multiply and weight.shape[1] % self._steps[weight.dtype] == 0

    def pack(self, weight: torch.Tensor) -> PanelWeight:
        """Copy a weight of shape (outputs, inputs) to panels."""
        weight, step = weight.contiguous(), self._steps[weight.dtype]
        outputs, length = len(weight), weight.shape[1] // step
        panels = weight.new_empty((-(-outputs // self._panel), length, self._panel, step))
        threads = torch.get_num_threads()
        arguments = _PackArguments(weight.data_ptr(), panels.data_ptr(), outputs, length, threads)
        self._pack(ctypes.byref(arguments))
        return PanelWeight(panels, outputs)

    def multiply(self, rows: torch.Tensor, weight: PanelWeight, bias: torch.Tensor | None) -> torch.Tensor:
        """Compute a linear layer: outputs of shape (..., outputs) from rows of shape (..., inputs)."""
        rows = rows.contiguous()
        outputs = rows.new_empty((*rows.shape[:-1], weight.outputs))
        count, threads = rows.numel() // weight.inputs, torch.get_num_threads()
        arguments = _LinearArguments(weight.to_argument(bias), rows.data_ptr(), outputs.data_ptr(), count, threads)
        self._multiply[rows.dtype](ctypes.byref(arguments))
        return outputs

    def decode(self, arguments: Any, dtype: torch.dtype) -> None:
        """Compute decoder layers.

        Args:
            arguments: ``DecoderArguments``; its memory must stay alive.
        """
        if self.seconds:
            arguments.seconds = ctypes.pointer(self.seconds)
        if self._decode[dtype](ctypes.byref(arguments)):
            raise MemoryError("There is too little memory for the model's layers.")


def make_layout(parts: Sequence[AttentionSegment]) -> Any:
    """Make the ``LayoutArgument`` of a pass's segments, which keeps the arrays alive that it points to."""
    arguments = (PartArgument * len(parts))()
    arrays = []
    for argument, part in zip(arguments, parts, strict=True):
        argument.first_token, argument.tokens, argument.sequences = part.first_token, part.tokens, 1
        if isinstance(part.cells, tuple):
            argument.first_cell, end = part.cells
            argument.columns = end - argument.first_cell
        else:
            argument.columns = part.cells.shape[-1]
            argument.sequences = part.tokens if part.cells.ndim == 2 else 1
        for name in ("cells", "starts", "limits"):
            values = getattr(part, name)
            if isinstance(values, np.ndarray):
                arrays.append(np.ascontiguousarray(values, dtype=np.int64))
                setattr(argument, name, arrays[-1].ctypes.data)
    layout = LayoutArgument(arguments, len(parts))
    layout.arrays = arrays
    return layout


def kernel_file(variant: str) -> Path:
    """Path of a compiled variant, which may not exist."""
    return _FOLDER / f"kernel.{variant}.so"


@cache
def find_kernel() -> tuple[str, Kernel] | None:
    """Find the fastest compiled variant that this processor supports, with its name, or None without one."""
    present = torch.cpu.get_capabilities()
    # torch's own kernels multiply bfloat16 with AMX, which has several times the rate of AVX-512.
    dtypes = [dtype for dtype in _DTYPES if dtype != torch.bfloat16 or not present.get("amx_bf16")]
    for variant, features in VARIANTS.items():
        if all(present.get(feature) for feature in features) and kernel_file(variant).is_file():
            try:
                return variant, Kernel(kernel_file(variant), dtypes)
            except OSError as exc:
                _unused_kernels[kernel_file(variant).name] = str(exc)
    return None


def unused_kernels() -> Mapping[str, str]:
    """Return {file name: reason} of the compiled variants for this processor that cannot be used."""
    find_kernel()
    return _unused_kernels


def kernel_name() -> str:
    """Name of the kernel's variant that computes on this CPU, or "torch"."""
    found = find_kernel()
    return found[0] if found else "torch"
