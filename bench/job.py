"""One contender's task and what came of it, as JSON between processes. Needs nothing that is not in Python itself:
the harness that lbx is compared with runs in an environment without lbx.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Job:
    """What every contender is asked.

    Attributes:
        prompts: token ids with their BOS.
        texts: the same prompts as text, without it.
        weights: {"hf": folder, "llamacpp": file}.
        cards: model cards of the same for lbx.
        cores: which CPU cores to stay on, one thread for each.
        groups: how many prompts are asked together, one group after the other, each timed; () means all at once.
        device: "cpu" or "cuda".
        dtype: of the weights, as torch calls it.
        never: tokens that no answer says, so that all are as long as asked: those that would end it.
    """

    prompts: Sequence[Sequence[int]]
    texts: Sequence[str]
    new_tokens: int
    window: int
    weights: Mapping[str, str]
    cards: Mapping[str, str]
    cores: Sequence[int]
    groups: Sequence[int] = ()
    device: str = "cpu"
    dtype: str = "float32"
    never: Sequence[int] = ()

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))

    def part(self, every: int) -> Job:
        """Every so many-th prompt, as one group."""
        return replace(self, prompts=self.prompts[::every], texts=self.texts[::every], groups=())


@dataclass(frozen=True)
class Lap:
    """What one group took: wall seconds, CPU seconds of all threads, and tokens that went through the model."""

    wall_s: float
    cpu_s: float
    tokens: int


@dataclass
class Result:
    """What one contender did.

    Attributes:
        outputs: token ids of each answer, or its text where the contender hands out no ids.
        laps: one for each group; loading is left out.
        loaded_mb, peak_mb: resident memory with the model loaded, and at its highest; of this process alone.
        gpu_mb: the most that torch took of the GPU's; 0 without one.
        notes: what the reader should know.
    """

    outputs: list[list[int]] | list[str]
    laps: list[Lap]
    loaded_mb: float
    peak_mb: float
    gpu_mb: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """That went through the model, of prompts and answers, padding included."""
        return sum(lap.tokens for lap in self.laps)

    @property
    def wall_s(self) -> float:
        return sum(lap.wall_s for lap in self.laps)

    @property
    def cpu_s(self) -> float:
        return sum(lap.cpu_s for lap in self.laps)


def read_job(path: Path) -> Job:
    return Job(**json.loads(path.read_text("utf-8")))


def read_result(path: Path) -> Result:
    found = json.loads(path.read_text("utf-8"))
    return Result(**found | {"laps": [Lap(**lap) for lap in found["laps"]]})


def write_json(value: Job | Result, path: Path) -> None:
    path.write_text(json.dumps(asdict(value)), "utf-8")


class ContenderFailedError(Exception):
    """A contender's process ended without a result."""


def run_contender(name: str, job: Job, folder: Path, *, python: Path | None = None, timeout_s: float = 3600) -> Result:
    """Let one contender answer, in a fresh process, on the job's cores only.

    Args:
        name: a key of ``bench.contenders.CONTENDERS``.
        folder: for its files.
        python: the interpreter; None means this one.

    Raises:
        ContenderFailedError: it failed; holds the last of what it said.
    """
    asked, answered = folder / f"{name}.job.json", folder / f"{name}.result.json"
    write_json(job, asked)
    command = [str(python or sys.executable), "-m", "bench.contenders", name, str(asked), str(answered)]
    try:
        done = subprocess.run(
            command, env=_environment(job), capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise ContenderFailedError(f"no end after {timeout_s:.0f} s") from exc
    if done.returncode != 0 or not answered.is_file():
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["nothing"]
        raise ContenderFailedError(f"exit {done.returncode}: {said[0][:300]}")
    return read_result(answered)


def _environment(job: Job) -> dict[str, str]:
    threads = str(len(job.cores))
    return os.environ | {
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": "PASSIVE",  # else a thread that waits counts as one that computes
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
    }


def own_cores(count: int | None = None) -> list[int]:
    """So many of the CPU cores that this process may use, the last ones; None: all."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
    return cores if count is None else cores[-count:]


def pin(cores: Sequence[int]) -> None:
    """Keep this process on these cores, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def memory_mb() -> tuple[float, float]:
    """Resident memory of this process now and at its highest, in MB.

    Linux counts the highest anew for a new program in /proc; getrusage would begin with its parent's.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        lines: dict[str, Any] = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return tuple(int(lines[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    return peak, peak


class Stopwatch:
    """Wall and CPU seconds since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), self._cpu_now()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, self._cpu_now() - self._cpu

    @staticmethod
    def _cpu_now() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime
