"""Free memory, memory that a model needs, and memory used by the processes of a run."""

from __future__ import annotations

import contextlib
import functools
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lbx.base.inputs import SMALL, read_input
from lbx.base.processes import SubprocessError, find_tool, run_tool
from lbx.base.resources import available_memory, visible_gpus
from lbx.inference.model import BackendInfo

_PROC = Path("/proc")
_QUERY_S = 10.0


class GpuMemory(NamedTuple):
    """Bytes of all GPUs of this process together."""

    used: int
    total: int


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Memory needs of a model, compared with the available memory.

    Attributes:
        device: "RAM", "GPU memory" or "RAM and GPU memory".
        weights_bytes, kv_bytes_per_token: see ``BackendInfo``.
        kv_cells: see ``BackendInfo``, or the cells of ``windows`` if these are more.
        windows: number of context windows that copies of sequences may fill, if questions cannot share cells.
        copies: number of worker processes, each with its own cache.
        weights_copies: number of copies of the weights; 1 if the processes map the same file.
        available_bytes: free memory before the model was loaded; None if unknown.
    """

    device: str
    weights_bytes: int | None
    kv_bytes_per_token: int | None
    kv_cells: int
    copies: int
    weights_copies: int
    available_bytes: int | None
    context_window: int
    windows: int = 1

    @property
    def kv_bytes(self) -> int | None:
        """Total cache size of all copies."""
        return None if self.kv_bytes_per_token is None else self.kv_bytes_per_token * self.kv_cells * self.copies

    @property
    def fits(self) -> bool | None:
        """Whether the model fits into the free memory; None if unknown."""
        if self.kv_bytes is None or self.weights_bytes is None or self.available_bytes is None:
            return None
        return self.weights_bytes * self.weights_copies + self.kv_bytes <= self.available_bytes

    @property
    def window_that_fits(self) -> int | None:
        """Largest context window that fits, in whole thousands of tokens; None if unknown.

        0 if the weights by themselves are too large.
        """
        if self.fits is None or not self.kv_bytes_per_token:
            return None
        room = (self.available_bytes or 0) - (self.weights_bytes or 0) * self.weights_copies
        tokens = max(0, room // (self.kv_bytes_per_token * self.copies * self.windows))
        return tokens // 1024 * 1024 if tokens >= 1024 else tokens

    def to_json(self) -> dict[str, Any]:
        derived = {"kv_bytes": self.kv_bytes, "fits": self.fits, "window_that_fits": self.window_that_fits}
        return asdict(self) | derived


def memory_fit(info: BackendInfo, free: FreeMemory, *, workers: int = 0, cells: int = 0) -> MemoryFit:
    """Compare a loaded model with the memory that was free before.

    Args:
        cells: tokens of all copies of sequences together; 0 without copies.
    """
    copies = max(1, workers)
    device, available = "RAM", free.ram
    if info.is_split:
        device, available = "RAM and GPU memory", None
    elif info.on_gpu:
        device, available = "GPU memory", info.free_gpu_bytes if free.gpu is None else free.gpu
    return MemoryFit(
        device,
        info.weights_bytes,
        info.kv_bytes_per_token,
        max(info.kv_cells, cells),
        copies,
        1 if info.shares_weights else copies,
        available,
        info.context_window,
        max(1, cells // info.context_window),
    )


class FreeMemory(NamedTuple):
    ram: int | None
    gpu: int | None

    @classmethod
    def measure(cls) -> FreeMemory:
        gpu = gpu_memory()
        return cls(available_memory(), None if gpu is None else gpu.total - gpu.used)


@functools.cache
def _nvidia_smi() -> str | None:
    return find_tool("nvidia-smi")


def gpu_memory() -> GpuMemory | None:
    """Memory by the driver's own tool, without a CUDA library; None without the tool or a GPU."""
    program = _nvidia_smi()
    if program is None:
        return None
    command = [program, "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits"]
    visible = visible_gpus("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        if not visible:
            return None
        command.append(f"--id={','.join(visible)}")
    try:
        done = run_tool(command, capture_output=True, text=True, check=True, timeout=_QUERY_S)
        rows = [[int(number) for number in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    except (OSError, ValueError, SubprocessError):
        return None
    return GpuMemory(sum(row[0] for row in rows) << 20, sum(row[1] for row in rows) << 20) if rows else None


def memory_in_use(workers: Sequence[int] = ()) -> int:
    """Bytes of this process and its workers. Pages of files, such as mapped weights, count once."""
    private = shared = 0
    for process in ("self", *map(str, workers)):
        with contextlib.suppress(OSError, ValueError):  # a worker may have died
            anonymous, of_files = _resident_bytes(process)
            private += anonymous
            shared = max(shared, of_files)
    return private + shared


def _resident_bytes(process: str) -> tuple[int, int]:
    """Bytes of a process's private memory and of its file pages."""
    private = of_files = 0
    for line in read_input(_PROC / process / "status", SMALL).decode("ascii", "replace").splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssShmem"):
            private += int(value.split()[0]) * 1024
        elif name == "RssFile":
            of_files += int(value.split()[0]) * 1024
    return private, of_files


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
