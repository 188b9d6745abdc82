"""Assignment of cores and GPUs to worker processes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lbx.base.inputs import SMALL, read_input
from lbx.base.resources import CPU_COUNT, bound_cpus, usable_cpu_count, visible_gpus

T = TypeVar("T")

_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_CUDA, _HIP, _ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Share:
    """A worker's part of the machine.

    Attributes:
        cores: numbers of the CPUs that it may run on.
        cpu_count: number of CPUs that it may use, fewer than ``cores`` under a quota.
        gpus: {environment variable: its GPUs}; other variables stay unchanged.
    """

    cores: tuple[int, ...]
    cpu_count: int
    gpus: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that limit a process to its share."""
        return {CPU_COUNT: str(self.cpu_count), **self.gpus}


def share_out(workers: int) -> list[Share]:
    """Divide this process's cores and GPUs among workers, with neighbours together so that each stays on a NUMA node.

    With fewer cores or GPUs than workers, workers share them.
    """
    near, usable, lists = _cores_by_nearness(), range(usable_cpu_count()), _gpu_lists()
    return [
        Share(
            tuple(_part(near, number, workers)),
            len(_part(usable, number, workers)),
            {variable: ",".join(_part(gpus, number, workers)) for variable, gpus in lists.items() if len(gpus) > 1},
        )
        for number in range(workers)
    ]


def _part(things: Sequence[T], number: int, parts: int) -> Sequence[T]:
    """Return part ``number`` of nearly equal parts; a single item if there are fewer items than parts."""
    if len(things) < parts:
        return things[number % len(things) :][:1]
    return things[len(things) * number // parts : len(things) * (number + 1) // parts]


def _cores_by_nearness() -> list[int]:
    """CPUs that this process may run on, by NUMA node, then by physical core."""
    node = {cpu: number for number, listed in _nodes() for cpu in listed}
    return sorted(bound_cpus(), key=lambda cpu: (node.get(cpu, 0), _physical_core(cpu), cpu))


def _nodes() -> list[tuple[int, list[int]]]:
    try:
        folders = [path for path in _NODES.iterdir() if re.fullmatch(r"node\d+", path.name)]
        return [(int(path.name[4:]), _cpu_list(read_input(path / "cpulist", SMALL).decode())) for path in folders]
    except (OSError, ValueError):
        return []


def _cpu_list(text: str) -> list[int]:
    """Parse a CPU list in the kernel's format: "0-3,8"."""
    ranges = (part.partition("-") for part in text.strip().split(",") if part.strip())
    return [cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)]


def _physical_core(cpu: int) -> int:
    """First hardware thread of a core."""
    try:
        return _cpu_list(read_input(_CPUS / f"cpu{cpu}/topology/thread_siblings_list", SMALL).decode())[0]
    except (OSError, ValueError, IndexError):
        return cpu


def _gpu_lists() -> dict[str, list[str]]:
    """Return {environment variable: GPUs} of the lists to divide, without loading a GPU library.

    Without CUDA_VISIBLE_DEVICES, the device files name NVIDIA's GPUs. ROCm reads HIP_VISIBLE_DEVICES, else CUDA's; both
    are indices into the GPUs of ROCR_VISIBLE_DEVICES, which therefore stays unchanged with either of them.
    """
    cuda, hip, rocr = map(visible_gpus, (_CUDA, _HIP, _ROCR))
    lists = {_CUDA: _nvidia_gpus() if cuda is None else cuda}
    if hip is not None:
        lists[_HIP] = [
            *itertools.takewhile(lambda gpu: rocr is None or not gpu.isdecimal() or int(gpu) < len(rocr), hip)
        ]
    elif rocr is not None and cuda is None:
        lists[_ROCR] = rocr
    return lists


def _nvidia_gpus() -> list[str]:
    numbers = [path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")]
    return sorted((number for number in numbers if number.isdecimal()), key=int)
