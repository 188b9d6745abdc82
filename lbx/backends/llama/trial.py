"""Does a CPU variant of llama.cpp multiply correctly on this processor? Run as a script, in a process that may die.

    python trial.py scores LIBGGML FILE...      {file: llama.cpp's own score; 0: not for this processor}, as JSON
    python trial.py check LIBGGML [FILE]        multiplies with that variant (without FILE: with what is linked in):
                                                what it is at, a line each; the last line is the outcome, as JSON

It imports nothing of lbx: the script that builds the wheel runs it, too, before anything is installed.

What is multiplied: matrices in every format of ``blocks``, made of random blocks and decoded here by numpy, so that
nothing of ggml checks itself; plainly and by experts; one token and several; on one thread and on several; in every
kind of buffer that llama.cpp would put such weights into (rearranged for AMX or for wide vectors, and plain).
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

LARGEST_ERROR = 5e-4
"""Mean squared error over the mean square. Activations are rounded to 8 bits, so that right kernels give up to 1e-4."""

ROWS, COLUMNS = 64, 512  # a multiple of every kernel's tile; two blocks of a K-quant
EXPERTS, USED = 4, 2
TOKENS = (1, 3, 34)
THREADS = (1, 2)
_TIMED_S = 0.1
_F32, _I32 = 0, 26  # enum ggml_type
_CPU = 0  # enum ggml_backend_dev_type


class Size(NamedTuple):
    """Of weights and of what they are multiplied with; 0 experts: one matrix, else a token takes ``USED`` of them."""

    rows: int
    columns: int
    tokens: int
    experts: int = 0


class WeightFormat(NamedTuple):
    """A format of weights: ggml's number and name of it, and ``make(rng, rows, columns) -> (bytes, values)``."""

    number: int
    name: str
    make: Callable[[np.random.Generator, int, int], tuple[bytes, np.ndarray]]


def _halves(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(0.5, 1.5, shape).astype(np.float16)


def _packed(*parts: np.ndarray) -> bytes:
    """Blocks, of which each part holds some bytes: (blocks, anything) each, in the order of the block's fields."""
    return np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts], axis=1).tobytes()


def _nibbles(quants: np.ndarray) -> np.ndarray:
    """(blocks, bytes) -> (blocks, 2 * bytes): all low halves, then all high ones."""
    return np.concatenate([quants & 15, quants >> 4], axis=1).astype(np.float64)


def _f16(rng: np.random.Generator, rows: int, columns: int) -> tuple[bytes, np.ndarray]:
    values = rng.standard_normal((rows, columns)).astype(np.float16)
    return values.tobytes(), values.astype(np.float64)


def _q8_0(rng: np.random.Generator, rows: int, columns: int) -> tuple[bytes, np.ndarray]:
    blocks = rows * columns // 32
    scale, quants = _halves(rng, blocks, 1), rng.integers(-127, 128, (blocks, 32), dtype=np.int8)
    return _packed(scale, quants), (scale.astype(np.float64) * quants).reshape(rows, columns)


def _q4_0(rng: np.random.Generator, rows: int, columns: int) -> tuple[bytes, np.ndarray]:
    blocks = rows * columns // 32
    scale, quants = _halves(rng, blocks, 1), rng.integers(0, 256, (blocks, 16), dtype=np.uint8)
    return _packed(scale, quants), (scale.astype(np.float64) * (_nibbles(quants) - 8)).reshape(rows, columns)


def _q4_1(rng: np.random.Generator, rows: int, columns: int) -> tuple[bytes, np.ndarray]:
    blocks = rows * columns // 32
    scale, quants = _halves(rng, blocks, 1), rng.integers(0, 256, (blocks, 16), dtype=np.uint8)
    least = (scale * -7.5).astype(np.float16)
    values = scale.astype(np.float64) * _nibbles(quants) + least
    return _packed(scale, least, quants), values.reshape(rows, columns)


def _q4_k(rng: np.random.Generator, rows: int, columns: int) -> tuple[bytes, np.ndarray]:
    blocks = rows * columns // 256
    scale, least = _halves(rng, blocks, 1), (_halves(rng, blocks, 1) * 4).astype(np.float16)
    packed = rng.integers(0, 256, (blocks, 12), dtype=np.uint8)
    quants = rng.integers(0, 256, (blocks, 4, 32), dtype=np.uint8)
    # Six bits each for eight scales and eight minima: the first four lie plain, the others in what those leave.
    low, middle, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=1).astype(np.float64)
    minima = np.concatenate([middle & 63, (high >> 4) | (middle >> 6 << 4)], axis=1).astype(np.float64)
    numbers = np.stack([quants & 15, quants >> 4], axis=2).reshape(blocks, 8, 32).astype(np.float64)
    values = scale[:, :, None].astype(np.float64) * scales[:, :, None] * numbers
    values -= least[:, :, None].astype(np.float64) * minima[:, :, None]
    return _packed(scale, least, packed, quants.reshape(blocks, 128)), values.reshape(rows, columns)


def _q6_k(rng: np.random.Generator, rows: int, columns: int) -> tuple[bytes, np.ndarray]:
    blocks = rows * columns // 256
    low = rng.integers(0, 256, (blocks, 2, 2, 32), dtype=np.uint8)
    high = rng.integers(0, 256, (blocks, 2, 1, 32), dtype=np.uint8)
    scales, scale = rng.integers(-63, 64, (blocks, 16), dtype=np.int8), _halves(rng, blocks, 1)
    four = np.concatenate([low & 15, low >> 4], axis=2)  # four times 32 numbers of each half of the block
    two = (high >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]) & 3
    numbers = (four | (two << 4)).astype(np.float64).reshape(blocks, 16, 16) - 32
    values = scale[:, :, None].astype(np.float64) * scales[:, :, None] * numbers
    return _packed(low.reshape(blocks, 128), high.reshape(blocks, 64), scales, scale), values.reshape(rows, columns)


FORMATS = (
    WeightFormat(1, "F16", _f16),
    WeightFormat(8, "Q8_0", _q8_0),
    WeightFormat(2, "Q4_0", _q4_0),
    WeightFormat(3, "Q4_1", _q4_1),
    WeightFormat(12, "Q4_K", _q4_k),
    WeightFormat(14, "Q6_K", _q6_k),
)


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
    """The library's functions by name, and its CPU device once ``use`` has been called."""

    def __init__(self, path: str) -> None:
        self.native = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self.native, name)
            function.restype, function.argtypes = result, arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, f"ggml_{name}")

    def use(self, variant: str | None) -> None:
        """Register a variant, and start its backend."""
        if variant and not self.backend_load(os.fsencode(variant)):
            raise RuntimeError("it cannot be loaded")
        self.device = self.backend_dev_by_type(_CPU)
        if not self.device:
            raise RuntimeError("it has no CPU device")
        self.backend = self.backend_dev_init(self.device, None)

    def set_threads(self, threads: int) -> None:
        address = self._address("ggml_backend_set_n_threads")
        ctypes.CFUNCTYPE(None, _POINTER, _NUMBER)(address)(self.backend, threads)

    def buffer_types(self) -> list[Any]:
        """Where weights can lie: the kinds that rearrange them, then the plain one."""
        found: list[Any] = []
        if address := self._address("ggml_backend_dev_get_extra_bufts"):
            extra = ctypes.CFUNCTYPE(ctypes.POINTER(_POINTER), _POINTER)(address)(self.device)
            while extra and extra[len(found)]:
                found.append(extra[len(found)])
        return [*found, self.backend_dev_buffer_type(self.device)]

    def _address(self, name: str) -> Any:
        return self.backend_reg_get_proc_address(self.backend_dev_backend_reg(self.device), name.encode())

    def context(self) -> Any:
        return self.init(_InitParams(1 << 20, None, True))


class Product:
    """Weights in a buffer, activations beside them, and the graph that multiplies the two."""

    def __init__(self, ggml: Ggml, buffer_type: Any, kind: WeightFormat, size: Size) -> None:
        self._ggml, self._kind, self._size = ggml, kind, size
        rows, columns, tokens, experts = size
        self._contexts = there, here = ggml.context(), ggml.context()
        self._weights = ggml.new_tensor_3d(there, kind.number, columns, rows, experts or 1)
        self._chosen = None
        if experts:
            self._inputs = ggml.new_tensor_3d(here, _F32, columns, 1, tokens)
            self._chosen = ggml.new_tensor_2d(here, _I32, USED, tokens)
            self._result = ggml.mul_mat_id(here, self._weights, self._inputs, self._chosen)
        else:
            self._inputs = ggml.new_tensor_2d(here, _F32, columns, tokens)
            self._result = ggml.mul_mat(here, self._weights, self._inputs)
        self._graph = ggml.new_graph(here)
        ggml.build_forward_expand(self._graph, self._result)
        self._buffers = [
            ggml.backend_alloc_ctx_tensors_from_buft(there, buffer_type),
            ggml.backend_alloc_ctx_tensors_from_buft(here, ggml.backend_dev_buffer_type(ggml.device)),
        ]
        self.supported = bool(ggml.backend_dev_supports_op(ggml.device, self._result))

    def fill(self) -> np.ndarray:
        """Put random numbers in; returns the product as numpy has it: (tokens, experts used or 1, rows)."""
        rows, columns, tokens, experts = self._size
        rng = np.random.default_rng([tokens, experts])
        data, values = self._kind.make(rng, rows * (experts or 1), columns)
        activations = rng.standard_normal((tokens, columns)).astype(np.float32)
        self._set(self._weights, data)
        self._set(self._inputs, activations.tobytes())
        tables, exact = values.reshape(experts or 1, rows, columns), activations.astype(np.float64)
        ids = np.zeros((tokens, 1), dtype=np.int32)
        if experts:
            ids = np.stack([rng.permutation(experts)[:USED] for _ in range(tokens)]).astype(np.int32)
            self._set(self._chosen, ids.tobytes())
        product: np.ndarray = (tables[ids] @ exact[:, None, :, None])[..., 0]
        return product

    def compute(self) -> None:
        if code := self._ggml.backend_graph_compute(self._ggml.backend, self._graph):
            raise RuntimeError(f"its graph ends with status {code}")

    def result(self) -> np.ndarray:
        used = USED if self._size.experts else 1
        out = np.empty((self._size.tokens, used, self._size.rows), dtype=np.float32)
        self._ggml.backend_tensor_get(self._result, out.ctypes.data, 0, out.nbytes)
        return out.astype(np.float64)

    def close(self) -> None:
        for buffer in self._buffers:
            self._ggml.backend_buffer_free(buffer)
        for context in self._contexts:
            self._ggml.free(context)

    def _set(self, tensor: Any, data: bytes) -> None:
        self._ggml.backend_tensor_set(tensor, data, 0, len(data))


def errors(ggml: Ggml) -> Iterator[tuple[str, float]]:
    """Each product in words, and its error. Prints beforehand what it computes: that may be its last line."""
    sizes = [Size(ROWS, COLUMNS, tokens, experts) for experts in (0, EXPERTS) for tokens in TOKENS]
    for kind, buffer_type, size in itertools.product(FORMATS, ggml.buffer_types(), sizes):
        product = Product(ggml, buffer_type, kind, size)
        if product.supported:
            wanted = product.fill()
            place = f"{kind.name} in {ggml.backend_buft_name(buffer_type).decode()}"
            for threads in THREADS:
                how = f"{' by experts' if size.experts else ''}, {size.tokens} tokens, {threads} threads"
                print(place + how, flush=True)
                ggml.set_threads(threads)
                product.compute()
                yield place + how, float(np.mean((product.result() - wanted) ** 2) / np.mean(wanted**2))
        product.close()


def tokens_per_second(ggml: Ggml) -> float:
    """Tokens that one thread multiplies with 10^9 weights in Q4_K in a second, in the first buffer that takes them."""
    kind, size = next(one for one in FORMATS if one.name == "Q4_K"), Size(2048, 2048, 64)
    ggml.set_threads(1)
    for buffer_type in ggml.buffer_types():
        product, passes = Product(ggml, buffer_type, kind, size), 0
        if product.supported:
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


def scores(files: list[str]) -> dict[str, int]:
    """What each variant says of this processor; 0 where it does not load."""
    found = {}
    for file in files:
        try:
            found[file] = int(ctypes.CDLL(file).ggml_backend_score())
        except (OSError, AttributeError):
            found[file] = 0
    return found


def check(library: str, variant: str | None) -> dict[str, Any]:
    """{"products", "worst" error, "wrong": what was wrong or "", "tokens_per_s"}"""
    ggml = Ggml(library)
    ggml.use(variant)
    found = dict(errors(ggml))
    # A NaN is no number below the bound.
    wrong = [f"{what}: error {error:.1e}" for what, error in found.items() if not error < LARGEST_ERROR]
    speed = 0.0 if wrong else tokens_per_second(ggml)
    return {"products": len(found), "worst": max(found.values()), "wrong": "; ".join(wrong[:2]), "tokens_per_s": speed}


def main(job: str, library: str, *files: str) -> None:
    if job == "scores":
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)  # the variants find what they need of it
        print(json.dumps(scores(list(files))))
    else:
        try:
            print(json.dumps(check(library, *files[:1] or [None])))
        except RuntimeError as error:
            print(json.dumps({"products": 0, "worst": 0.0, "wrong": str(error), "tokens_per_s": 0.0}))


if __name__ == "__main__":
    main(*sys.argv[1:])
