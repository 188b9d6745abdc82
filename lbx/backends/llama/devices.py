"""Devices that llama.cpp computes on."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

_GPU, _INTEGRATED_GPU = 1, 2  # enum ggml_backend_dev_type


class Device(NamedTuple):
    """A device of llama.cpp.

    Attributes:
        name: e.g. "CUDA0".
        description: usually the processor's product name.
        free_bytes: free memory by the device's driver; 0 if unknown.
    """

    name: str
    description: str
    is_gpu: bool
    free_bytes: int


def list_devices(llama_cpp: Any) -> list[Device]:
    """All devices in llama.cpp's order: GPUs, with the CPU first or last."""
    native = llama_cpp.llama_cpp._lib
    native.ggml_backend_dev_count.restype = ctypes.c_size_t
    native.ggml_backend_dev_get.argtypes, native.ggml_backend_dev_get.restype = [ctypes.c_size_t], ctypes.c_void_p
    native.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    native.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2]
    native.ggml_backend_dev_memory.restype = None
    for function in (native.ggml_backend_dev_name, native.ggml_backend_dev_description):
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_char_p
    devices = []
    for number in range(native.ggml_backend_dev_count()):
        pointer = native.ggml_backend_dev_get(number)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        native.ggml_backend_dev_memory(pointer, free, total)
        name, description = (
            function(pointer).decode("utf-8", "replace")
            for function in (native.ggml_backend_dev_name, native.ggml_backend_dev_description)
        )
        is_gpu = native.ggml_backend_dev_type(pointer) in (_GPU, _INTEGRATED_GPU)
        devices.append(Device(name, description, is_gpu, free.value))
    return devices


def free_gpu_bytes(llama_cpp: Any) -> int | None:
    """Free memory of all GPUs together, as their drivers report it; None if unknown."""
    amounts = [device.free_bytes for device in list_devices(llama_cpp) if device.is_gpu]
    return sum(amounts) if amounts and all(amounts) else None
