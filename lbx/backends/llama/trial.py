"""Trial of llama.cpp's CPU variants: do they multiply correctly on this processor? A script: its process may die.

    python trial.py scores LIBGGML FILE...      {file: llama.cpp's own score; 0: not for this processor}, as JSON
    python trial.py check LIBGGML [FILE]        multiplies with that variant (without FILE: with the linked-in code);
                                                prints a line for each product, at last the outcome as JSON

It does not import lbx: the script that builds the wheel runs it, too, before anything is installed.

Multiplied are matrices in every type of weights that llama.cpp computes with, filled with random blocks; plainly and
by experts; one token and several; on one thread and on several; in every kind of buffer that llama.cpp would put such
weights into (rearranged for AMX or for wide vectors, and plain).

The reference is numpy's product of blocks decoded by ggml's ``to_float``. It is in libggml-base; no variant replaces
a function there, and it is compiled for no processor in particular. Here it needs no second decoder to guard it: one
that is broken differs from right kernels, so that all variants are refused. tests/backends/test_gguf_types.py shows
its place, and that it agrees with gguf-py's to the bit.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

MAX_ERROR = 5e-4
"""Mean squared error over the mean square. With activations rounded to 8 bits, correct kernels reach 1.1e-4."""

ROWS, COLUMNS = 64, 512  # a multiple of every kernel's tile; two blocks of a K-quant
EXPERTS, USED_EXPERTS = 4, 2
TOKENS = (1, 3, 34)
THREADS = (1, 2)
_TIMED_S = 0.1
_DRAWN = 1 << 20  # numbers: enough that each type has hundreds of ordinary blocks among them
_LEAST, _MOST = 0.5, 8.0  # of an ordinary block's largest number
FIRST_UNKNOWN_TYPE = 43
"""The first number that is not a type of llama.cpp 0.3.36 (as llama-cpp-python counts)."""
_F32, _I32 = 0, 26  # enum ggml_type
_CPU = 0  # enum ggml_backend_dev_type


class Size(NamedTuple):
    """Sizes of weights and activations. With ``experts``, each token uses ``USED_EXPERTS`` of them."""

    rows: int
    columns: int
    tokens: int
    experts: int = 0


class RandomWeights(NamedTuple):
    """Random blocks of one ggml type.

    Attributes:
        data: shape (blocks, bytes of a block), uint8.
        values: decoded blocks, shape (blocks, numbers of a block), float32.
    """

    number: int
    name: str
    data: np.ndarray
    values: np.ndarray


class Traits(ctypes.Structure):
    """ggml's struct ggml_type_traits: numbers and bytes of a block, and the function that decodes blocks."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("block", ctypes.c_int64),
        ("interleaved", ctypes.c_int64),
        ("size", ctypes.c_size_t),
        ("quantised", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
        ("from_float", ctypes.c_void_p),
    )


def _random_weights(number: int, traits: Traits) -> RandomWeights:
    """Random blocks for the trial's largest matrix: random bytes if they decode to numbers of ordinary size."""
    rng, name = np.random.default_rng(number), traits.name.decode().upper()
    data = rng.integers(0, 256, (_DRAWN // traits.block, traits.size), dtype=np.uint8)
    values = data.view(np.float32) if number == _F32 else np.zeros((len(data), traits.block), np.float32)
    if number != _F32:
        traits.to_float(data.ctypes.data, values.ctypes.data, values.size)
    largest = np.abs(values).max(axis=1)
    ordinary = np.flatnonzero((largest >= _LEAST) & (largest < _MOST))  # which a NaN is not
    if not len(ordinary):
        raise RuntimeError(f"libggml-base decodes {name} to NaN or infinity")
    indices = rng.choice(ordinary, EXPERTS * ROWS * COLUMNS // traits.block)
    return RandomWeights(number, name, data[indices], values[indices])


class _InitParams(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


_POINTER, _SIZE, _NUMBER, _LONG = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "ggml_init": (_POINTER, [_InitParams]),
    "ggml_free": (None, [_POINTER]),
    "ggml_new_tensor_2d": (_POINTER, [_POINTER, _NUMBER, _LONG, _LONG]),
    "ggml_new_tensor_3d": (_POINTER, [_POINTER, _NUMBER, _LONG, _LONG, _LONG]),
    "ggml_mul_mat": (_POINTER, [_POINTER, _POINTER, _POINTER]),
    "ggml_mul_mat_id": (_POINTER, [_POINTER, _POINTER, _POINTER, _POINTER]),
    "ggml_get_type_traits": (ctypes.POINTER(Traits), [_NUMBER]),
    "ggml_new_graph": (_POINTER, [_POINTER]),
    "ggml_build_forward_expand": (None, [_POINTER, _POINTER]),
    "ggml_backend_load": (_POINTER, [ctypes.c_char_p]),
    "ggml_backend_dev_count": (_SIZE, []),
    "ggml_backend_dev_by_type": (_POINTER, [_NUMBER]),
    "ggml_backend_dev_init": (_POINTER, [_POINTER, ctypes.c_char_p]),
    "ggml_backend_dev_backend_reg": (_POINTER, [_POINTER]),
    "ggml_backend_dev_buffer_type": (_POINTER, [_POINTER]),
    "ggml_backend_dev_supports_op": (ctypes.c_bool, [_POINTER, _POINTER]),
    "ggml_backend_reg_get_proc_address": (_POINTER, [_POINTER, ctypes.c_char_p]),
    "ggml_backend_buft_name": (ctypes.c_char_p, [_POINTER]),
    "ggml_backend_alloc_ctx_tensors_from_buft": (_POINTER, [_POINTER, _POINTER]),
    "ggml_backend_buffer_free": (None, [_POINTER]),
    "ggml_backend_tensor_set": (None, [_POINTER, ctypes.c_char_p, _SIZE, _SIZE]),
    "ggml_backend_tensor_get": (None, [_POINTER, _POINTER, _SIZE, _SIZE]),
    "ggml_backend_graph_compute": (_NUMBER, [_POINTER, _POINTER]),
}


class Ggml:
    """Functions of libggml by name, and the CPU device once ``load_variant`` has been called."""

    def __init__(self, path: str) -> None:
        self.native = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self.native, name)
            function.restype, function.argtypes = result, arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, f"ggml_{name}")

    def load_variant(self, variant: str | None) -> None:
        """Register a variant, and start its backend."""
        if variant and not self.backend_load(os.fsencode(variant)):
            raise RuntimeError("it cannot be loaded")
        self.device = self.backend_dev_by_type(_CPU)
        if not self.device:
            raise RuntimeError("it has no CPU device")
        self.backend = self.backend_dev_init(self.device, None)

    def weights(self) -> list[RandomWeights]:
        """Random weights of every type that ggml decodes, not of its types for activations and indices."""
        type_traits = [(number, self.get_type_traits(number).contents) for number in range(FIRST_UNKNOWN_TYPE)]
        return [_random_weights(number, traits) for number, traits in type_traits if traits.to_float or number == _F32]

    def set_threads(self, threads: int) -> None:
        address = self._address("ggml_backend_set_n_threads")
        ctypes.CFUNCTYPE(None, _POINTER, _NUMBER)(address)(self.backend, threads)

    def buffer_types(self) -> list[Any]:
        """Buffer types for weights: first those that rearrange weights, then the plain one."""
        types: list[Any] = []
        if address := self._address("ggml_backend_dev_get_extra_bufts"):
            extra = ctypes.CFUNCTYPE(ctypes.POINTER(_POINTER), _POINTER)(address)(self.device)
            while extra and extra[len(types)]:
                types.append(extra[len(types)])
        return [*types, self.backend_dev_buffer_type(self.device)]

    def _address(self, name: str) -> Any:
        return self.backend_reg_get_proc_address(self.backend_dev_backend_reg(self.device), name.encode())

    def context(self) -> Any:
        return self.init(_InitParams(1 << 20, None, True))


class Product:
    """Weights in a buffer, activations, and the graph that multiplies the two."""

    def __init__(self, ggml: Ggml, buffer_type: Any, weights: RandomWeights, size: Size) -> None:
        self._ggml, self._weights, self._size = ggml, weights, size
        rows, columns, tokens, experts = size
        self._shape = tokens, USED_EXPERTS if experts else 1, rows
        self._contexts = first, here = ggml.context(), ggml.context()
        self._matrix = ggml.new_tensor_3d(first, weights.number, columns, rows, experts or 1)
        self._expert_ids = None
        if experts:
            self._inputs = ggml.new_tensor_3d(here, _F32, columns, 1, tokens)
            self._expert_ids = ggml.new_tensor_2d(here, _I32, USED_EXPERTS, tokens)
            self._result = ggml.mul_mat_id(here, self._matrix, self._inputs, self._expert_ids)
        else:
            self._inputs = ggml.new_tensor_2d(here, _F32, columns, tokens)
            self._result = ggml.mul_mat(here, self._matrix, self._inputs)
        self._graph = ggml.new_graph(here)
        ggml.build_forward_expand(self._graph, self._result)
        self._buffers = [
            ggml.backend_alloc_ctx_tensors_from_buft(first, buffer_type),
            ggml.backend_alloc_ctx_tensors_from_buft(here, ggml.backend_dev_buffer_type(ggml.device)),
        ]
        self.is_supported = bool(ggml.backend_dev_supports_op(ggml.device, self._result))

    def fill(self) -> np.ndarray:
        """Fill the inputs with random numbers, and return the correct product, (tokens, experts used or 1, rows)."""
        rows, columns, tokens, experts = self._size
        rng, shape = np.random.default_rng([tokens, experts]), (experts or 1, rows, columns)
        _, _, data, values = self._weights
        activations = rng.standard_normal((tokens, columns)).astype(np.float32)
        self._set(self._matrix, np.resize(data, (math.prod(shape) // values.shape[1], data.shape[1])))
        self._set(self._inputs, activations)
        ids = np.zeros((tokens, 1), dtype=np.int32)
        if experts:
            ids = np.stack([rng.permutation(experts)[:USED_EXPERTS] for _ in range(tokens)]).astype(np.int32)
            self._set(self._expert_ids, ids)
        tables = np.resize(values, shape).astype(np.float64)
        products: np.ndarray = activations.astype(np.float64) @ tables.swapaxes(1, 2)
        return products[ids, np.arange(tokens)[:, None]]

    def clear(self) -> None:
        """Set the result to NaN, so that values left out by the next pass are detected."""
        self._set(self._result, np.full(self._shape, np.nan, dtype=np.float32))

    def compute(self) -> None:
        if code := self._ggml.backend_graph_compute(self._ggml.backend, self._graph):
            raise RuntimeError(f"its graph ends with status {code}")

    def result(self) -> np.ndarray:
        out = np.empty(self._shape, dtype=np.float32)
        self._ggml.backend_tensor_get(self._result, out.ctypes.data, 0, out.nbytes)
        return out.astype(np.float64)

    def close(self) -> None:
        for buffer in self._buffers:
            self._ggml.backend_buffer_free(buffer)
        for context in self._contexts:
            self._ggml.free(context)

    def _set(self, tensor: Any, data: np.ndarray) -> None:
        self._ggml.backend_tensor_set(tensor, data.tobytes(), 0, data.nbytes)


def product_errors(ggml: Ggml, all_weights: Iterable[RandomWeights]) -> Iterator[tuple[str, float]]:
    """Yield (description, error) of each product. Prints the description first, which may be the last line."""
    sizes = [Size(ROWS, COLUMNS, tokens, experts) for experts in (0, EXPERTS) for tokens in TOKENS]
    for weights, buffer_type, size in itertools.product(all_weights, ggml.buffer_types(), sizes):
        product = Product(ggml, buffer_type, weights, size)
        if product.is_supported:
            expected = product.fill()
            title = f"{weights.name} in {ggml.backend_buft_name(buffer_type).decode()}"
            for threads in THREADS:
                how = f"{' by experts' if size.experts else ''}, {size.tokens} tokens, {threads} threads"
                print(title + how, flush=True)
                ggml.set_threads(threads)
                product.clear()
                product.compute()
                yield title + how, float(np.mean((product.result() - expected) ** 2) / np.mean(expected**2))
        product.close()


def tokens_per_second(ggml: Ggml, weights: RandomWeights) -> float:
    """Tokens per second that one thread multiplies by 10^9 weights, in the first buffer that supports them."""
    size = Size(2048, 2048, 64)
    ggml.set_threads(1)
    for buffer_type in ggml.buffer_types():
        product, passes = Product(ggml, buffer_type, weights, size), 0
        if product.is_supported:
            product.fill()
            product.compute()
            begun = time.perf_counter()
            while (spent := time.perf_counter() - begun) < _TIMED_S:
                product.compute()
                passes += 1
        product.close()
        if passes:
            return passes * size.tokens * size.rows * size.columns / 1e9 / spent
    return 0.0


def variant_scores(files: list[str]) -> dict[str, int]:
    """Return {file: llama.cpp's score of the variant for this processor}, 0 if it does not load."""
    by_type = {}
    for file in files:
        try:
            by_type[file] = int(ctypes.CDLL(file).ggml_backend_score())
        except (OSError, AttributeError):
            by_type[file] = 0
    return by_type


def check(library: str, variant: str | None) -> dict[str, Any]:
    """Check a variant. Returns {"products", "worst": error, "wrong": the fault or "", "tokens_per_s"}."""
    ggml = Ggml(library)
    all_weights = ggml.weights()  # before there is a variant
    ggml.load_variant(variant)
    by_type = dict(product_errors(ggml, all_weights))
    # A NaN is no number below the bound.
    wrong = [f"{what}: error {error:.1e}" for what, error in by_type.items() if not error < MAX_ERROR]
    speed = (
        0.0 if wrong else tokens_per_second(ggml, next(weights for weights in all_weights if weights.name == "Q4_K"))
    )
    return {
        "products": len(by_type),
        "worst": max(by_type.values()),
        "wrong": "; ".join(wrong[:2]),
        "tokens_per_s": speed,
    }


def main(job: str, library: str, *files: str) -> None:
    if job == "scores":
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)  # the variants resolve its symbols
        print(json.dumps(variant_scores(list(files))))
    else:
        try:
            print(json.dumps(check(library, *files[:1] or [None])))
        except RuntimeError as error:
            print(json.dumps({"products": 0, "worst": 0.0, "wrong": str(error), "tokens_per_s": 0.0}))


if __name__ == "__main__":
    main(*sys.argv[1:])
