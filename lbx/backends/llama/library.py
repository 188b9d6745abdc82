"""llama.cpp's shared libraries: CPU variant, log, compute thread, and devices.

The portable wheel (``.ci/llama-wheel.sh``) has one ``libggml-cpu-NAME.so`` for each generation of processors, and
registers none by itself. The best one that computes correctly on this machine is registered here (``variants.py``). A
wheel that was built for one machine has its CPU code linked in, which is tried all the same.

With AMX, ggml sets the shapes of a thread's tile registers at its first product only, and torch clears them: the next
product in the same thread would end the process (SIGILL). So llama.cpp has a thread of its own, with its own
OpenMP threads.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lbx.backends.llama.formats import tensor_types
from lbx.backends.llama.variants import FOLDER_VARIABLE, VARIANT, VariantCheck, choose_variant
from lbx.base.crash_report import announce_exit
from lbx.base.errors import BackendError
from lbx.base.inputs import SMALL, read_input
from lbx.base.processes import defer_signals
from lbx.base.resources import shorten_spins
from lbx.base.visible import visible

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = Sequence[int] | NDArray[np.int64]


_UNKNOWN_ARCHITECTURE = re.compile(r"unknown model architecture: '([^']*)'")
_WARN, _ERROR, _CONTINUED = 3, 4, 5  # ggml.h; the comments in llama_cpp.py list older values


class NativeLog:
    """Receiver of llama.cpp's log, which keeps the last warnings and errors for messages, or prints all for --debug."""

    def __init__(self) -> None:
        self.debug = False
        self._lines: deque[tuple[int, str]] = deque(maxlen=8)
        self._level = 0

    def write(self, level: int, text: bytes | None, _user_data: object) -> None:
        """Receive a log message, as llama.cpp's callback, from any thread."""
        line = (text or b"").decode("utf-8", "replace")
        if self.debug:
            print(visible(line), end="", file=sys.stderr)
        self._level = self._level if level == _CONTINUED else level
        if self._level in (_WARN, _ERROR) and line.strip():
            self._lines.append((self._level, line.strip()))

    def clear(self) -> None:
        self._lines.clear()

    def error_text(self) -> str:
        """Errors logged since ``clear``, or else the last warning."""
        errors = [line for level, line in self._lines if level == _ERROR]
        return "; ".join(errors[:2] or [line for _, line in self._lines][-1:]).rstrip(".") or "no reason given"


log = NativeLog()


def _on_abort(message: bytes | None) -> None:
    """Print why llama.cpp aborts, in a sentence instead of a backtrace. The process ends after this callback."""
    if log.debug:
        return
    text = (message or b"").decode("utf-8", "replace").strip()
    text = re.sub(r"^\S*/", "", text)  # the path of the source file on the machine that built the wheel
    if "pre-allocated tensor (cache_" in text:
        advice = (
            "The KV cache of a layer is larger than the GPU takes in one piece: lower kv_cells or context_window in "
            "the model card, or set offload_kqv = false."
        )
    else:
        advice = "The model file is probably damaged: compare its hash with the source (for a bundle: lbx verify)."
    sys.stderr.write(
        f"llama.cpp aborted: {text}. {advice} Results committed so far are kept. --debug shows a backtrace.\n"
    )
    sys.stderr.flush()
    announce_exit()
    os._exit(1)


_unused_libraries: dict[str, str] = {}
_callbacks: list[Any] = []  # the native side keeps bare pointers: these objects must live as long as the process


@functools.cache
def load_llama_cpp() -> Any:
    """Import the module ``llama_cpp``, and prepare it to load a model.

    Raises:
        ImportError: llama-cpp-python is not installed.
        BackendError: its shared libraries do not load, or none of its CPU variants suits this machine.
    """
    shorten_spins()
    try:
        import llama_cpp
    except (OSError, RuntimeError) as exc:  # raised by its import when a shared library does not load
        raise BackendError(
            f"llama-cpp-python is installed, but its shared libraries do not load: {exc}.",
            fix="If libgomp.so.1 is missing, install libgomp1 (or libgomp); otherwise build the wheel on this machine.",
            command=".ci/llama-wheel.sh python3",
        ) from exc
    on_log = llama_cpp.llama_log_callback(log.write)
    on_abort = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(_on_abort)
    _callbacks.extend((on_log, on_abort))
    llama_cpp.llama_log_set(on_log, ctypes.c_void_p(0))
    llama_cpp.llama_cpp._lib.ggml_set_abort_callback(on_abort)
    _register_variants(llama_cpp)
    llama_cpp.llama_backend_init()
    return llama_cpp


def load_model(llama_cpp: Any, path: Path, *, n_gpu_layers: int, repack: bool) -> Any:
    """Load the model in a GGUF file, and return a pointer, which the caller frees.

    Raises:
        BackendError: a tensor is stored as a type that llama.cpp does not compute with, or llama.cpp refuses the file;
            the message includes llama.cpp's own.
    """
    types = tensor_types(path)
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = n_gpu_layers
    params.use_extra_bufts = repack
    model = _load(llama_cpp, path, params)
    if not model:
        cause = log.error_text()
        if unknown := _UNKNOWN_ARCHITECTURE.search(cause):
            raise BackendError(
                f"llama.cpp cannot load {path}: this version does not know the architecture {unknown[1]}.",
                fix="lbx pins the newest llama.cpp that it was tested with; transformers may support the model: use "
                "the folder with its config.json and safetensors.",
            )
        raise BackendError(
            f"llama.cpp cannot load {path}: {cause}.",
            fix="The file may be truncated or converted for another version of llama.cpp: compare its size and hash "
            "with the source (for a bundle: lbx verify).",
        )
    if types is None:
        llama_cpp.llama_model_free(model)
        raise BackendError(
            f"The header of {path} is too large for lbx, so the types of the weights cannot be checked.",
            fix="Use another GGUF file of the model, or convert the model again.",
        )
    return model


def _load(llama_cpp: Any, path: Path, params: Any) -> Any:
    log.clear()
    with defer_signals() as waiting:  # ctypes would drop the exception of a signal that is handled in a callback
        params.progress_callback = llama_cpp.llama_progress_callback(lambda _share, _data: not waiting)
        return llama_cpp.llama_model_load_from_file(os.fsencode(path), params)


def load_vocabulary(llama_cpp: Any, path: Path) -> Any:
    """Load the vocabulary in a GGUF file without the weights, and return a pointer, which the caller frees.

    Raises:
        BackendError: llama.cpp refuses the file.
    """
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = _load(llama_cpp, path, params)
    if not model:
        raise BackendError(
            f"llama.cpp cannot read the tokenizer of {path}: {log.error_text()}.",
            fix="The file may be truncated: compare its size and hash with the source.",
        )
    return model


@functools.cache
def select_variant() -> tuple[VariantCheck, tuple[VariantCheck, ...]]:
    """Select the CPU variant to use, and return it with the better variants that failed the check.

    Raises:
        ImportError, BackendError: as ``load_llama_cpp``.
    """
    best, refused = choose_variant(*find_libraries())
    return best, tuple(refused)


@functools.cache
def find_libraries() -> tuple[Path, list[Path] | None]:
    """Return the path of libggml, and the loadable CPU variants, or None if the CPU code is linked in."""
    import llama_cpp

    package = Path(llama_cpp.__file__).resolve().parent
    mapped = [path for path in map(Path, _mapped_files()) if path.name.startswith("libggml.")]
    native = llama_cpp.llama_cpp._lib
    native.ggml_backend_dev_count.restype = ctypes.c_size_t
    linked_in = native.ggml_backend_dev_count() and not os.environ.get(FOLDER_VARIABLE)
    ggml = next(iter(mapped), package / "lib" / "libggml.so")
    return ggml, None if linked_in else [file for file in _backend_files(package) if VARIANT.fullmatch(file.name)]


def _backend_files(package: Path) -> list[Path]:
    """Libraries that llama.cpp can load: CPU variants, and GPU backends if it was built with any."""
    folder = os.environ.get(FOLDER_VARIABLE, "")
    directories = [Path(folder)] if folder else [package / "lib", package.parent / "bin"]
    files = sorted(file for directory in directories for file in directory.glob("libggml-*.so"))
    return [file for file in files if not file.name.startswith("libggml-base")]


def _register_variants(llama_cpp: Any) -> None:
    """Load the best CPU variant that computes correctly (and any GPU backend), unless the CPU code is linked in.

    The function is looked up through libllama: a second copy of libggml, which opening it by another of its names
    would give, has a registry of its own that llama.cpp never reads.
    """
    best, _ = select_variant()
    if not best.file:
        return
    load = llama_cpp.llama_cpp._lib.ggml_backend_load
    load.argtypes, load.restype = [ctypes.c_char_p], ctypes.c_void_p
    for file in _backend_files(Path(llama_cpp.__file__).resolve().parent):
        if not VARIANT.fullmatch(file.name):
            log.clear()
            if not load(os.fsencode(file)):
                _unused_libraries[file.name] = log.error_text()
    load(os.fsencode(best.file))


def unused_libraries() -> dict[str, str]:
    """Return {file name: reason} of the GPU backends that do not load on this machine.

    Raises:
        ImportError, BackendError: as ``load_llama_cpp``.
    """
    load_llama_cpp()
    return _unused_libraries


def cpu_variant() -> dict[str, str]:
    """Describe the CPU code that llama.cpp uses on this machine, for ``lbx doctor`` and the table ``runs``.

    Returns:
        "variant" (e.g. "zen4"; "native" when it was built for one machine), "file", and "features" as llama.cpp
        spells them; "variants_refused" where better ones computed wrongly: which, and why.

    Raises:
        ImportError, BackendError: as ``load_llama_cpp``.
    """
    llama_cpp = load_llama_cpp()
    best, refused = select_variant()
    features = " ".join(llama_cpp.llama_print_system_info().decode("utf-8", "replace").split())
    variant = {"variant": best.variant, "file": best.file, "features": features}
    if refused:
        variant["variants_refused"] = "; ".join(f"{check.variant} {check.problem}" for check in refused)
    return variant


def _mapped_files() -> list[str]:
    """Paths of the files that this process has mapped into memory, empty on systems without /proc."""
    try:
        lines = read_input(Path("/proc/self/maps"), SMALL).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return sorted({parts[5] for line in lines if len(parts := line.split(maxsplit=5)) == 6})


_thread = ThreadPoolExecutor(1, "llama.cpp")


FIX_MEMORY = (
    "If memory ran out (on a GPU: GPU memory), lower kv_cells, context_window or n_gpu_layers in the model card."
)


def make_native_context(llama_cpp: Any, model: Any, params: Any) -> Any:
    """Make a ``llama_context``, or return a null pointer, the reason for which is in ``log``."""
    log.clear()
    with defer_signals():  # as in ``_load``
        return llama_cpp.llama_init_from_model(model, params)


def compute(run: Callable[..., int], *arguments: Any) -> int:
    """Call ``llama_decode`` or ``llama_encode``, and return the status code. Ctrl-C takes effect after the call."""
    with defer_signals():
        return _thread.submit(run, *arguments).result()


class StepBatch:
    """A ``llama_batch`` over numpy arrays, filled in a few copies: 512 tokens one by one take milliseconds.

    Args:
        capacity: maximum number of tokens.
    """

    def __init__(self, llama_cpp: Any, capacity: int) -> None:
        self.capacity = capacity
        self._token = np.zeros(capacity, np.int32)
        self._position = np.zeros(capacity, np.int32)
        self._count = np.ones(capacity, np.int32)
        self._sequence = np.zeros(capacity, np.int32)
        self._logits = np.zeros(capacity, np.int8)
        row = self._sequence.strides[0]
        self._rows = self._sequence.ctypes.data + row * np.arange(capacity, dtype=np.uintp)
        number, pointer = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))
        self.native = llama_cpp.llama_batch(
            n_tokens=0,
            token=self._token.ctypes.data_as(number),
            embd=None,
            pos=self._position.ctypes.data_as(number),
            n_seq_id=self._count.ctypes.data_as(number),
            seq_id=self._rows.ctypes.data_as(pointer),
            logits=self._logits.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def fill(
        self, tokens: Integers, positions: Integers, sequences: int | Integers, logit_indices: Sequence[int]
    ) -> None:
        """Fill the batch with tokens.

        Args:
            tokens: token ids, at most ``capacity``.
            sequences: sequence of each token, or one sequence for all.
            logit_indices: indices of the tokens to compute logits for.
        """
        count = len(tokens)
        self._token[:count] = tokens
        self._position[:count] = positions
        self._sequence[:count] = sequences
        self._logits[:count] = 0
        self._logits[list(logit_indices)] = 1
        self.native.n_tokens = count


_GPU, _INTEGRATED_GPU = 1, 2  # enum ggml_backend_dev_type


class Device(NamedTuple):
    """Device that llama.cpp can compute on.

    Attributes:
        name: e.g. "CUDA0".
        description: usually the processor's product name.
        free_bytes: free memory reported by the device's driver, or 0 if unknown.
    """

    name: str
    description: str
    is_gpu: bool
    free_bytes: int


def list_devices(llama_cpp: Any) -> list[Device]:
    """List all devices in llama.cpp's order: GPUs, with the CPU first or last."""
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
    """Free memory of all GPUs together, as their drivers report it, or None if unknown."""
    amounts = [device.free_bytes for device in list_devices(llama_cpp) if device.is_gpu]
    return sum(amounts) if amounts and all(amounts) else None
