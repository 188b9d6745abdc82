"""A job that several programs do, each in a process of its own, and their figures."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
Outputs = list[list[int]] | list[str]
Answer = Callable[[range], Outputs]
Loaded = tuple[Answer, Callable[[], int], list[str]]
"""Function that answers the prompts of these numbers, counter of tokens that the model computed, notes."""


@dataclass(frozen=True)
class Job:
    """Prompts for every contender.

    Attributes:
        prompts: token ids with their BOS.
        weights: {"hf": folder, "llamacpp": file}.
        cards: model cards of the same for lbx.
        cores: CPU cores to stay on, one thread for each.
        groups: numbers of prompts that are asked together, one group after the other, each timed; () means all at once.
        device: "cpu" or "cuda".
        dtype: of the weights, as torch calls it.
        never: tokens that no answer has, so that all are as long as asked: those that would end it.
    """

    prompts: Sequence[Sequence[int]]
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


@dataclass(frozen=True)
class Lap:
    """Cost of one group: wall seconds, CPU seconds of all threads, and tokens that went through the model."""

    wall_s: float
    cpu_s: float
    tokens: int

    @property
    def busy_cores(self) -> float:
        """Mean number of cores that computed, or waited in a loop."""
        return self.cpu_s / self.wall_s


@dataclass(frozen=True)
class Scaling:
    """Seconds of work by its number of threads, by Amdahl's law: ``serial_s + parallel_s / threads``."""

    serial_s: float
    parallel_s: float

    @classmethod
    def from_seconds(cls, seconds: Mapping[int, float]) -> Scaling:
        """Fit {threads: seconds} of the fewest and the most threads."""
        few, many = min(seconds), max(seconds)
        parallel_s = (seconds[few] - seconds[many]) / (1 / few - 1 / many)
        parallel_s = min(max(0.0, parallel_s), few * seconds[few])  # a second thread may do more than half, or harm
        return cls(seconds[few] - parallel_s / few, parallel_s)

    @property
    def serial_share(self) -> float:
        """Part of one thread's seconds that further threads do not shorten."""
        return self.serial_s / (self.serial_s + self.parallel_s)

    def seconds(self, threads: int) -> float:
        return self.serial_s + self.parallel_s / threads


@dataclass
class Result:
    """Work of one contender.

    Attributes:
        outputs: token ids of each answer, or its text if the contender gives no ids.
        laps: one for each group; loading is left out.
        loaded_mb, peak_mb: resident memory with the model loaded, and at its highest; of this process alone.
        gpu_mb: the most that torch took of the GPU's; 0 without a GPU.
        notes: remarks for the reader.
    """

    outputs: list[list[int]] | list[str]
    laps: list[Lap]
    loaded_mb: float
    peak_mb: float
    gpu_mb: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens of prompts and answers that went through the model, padding included."""
        return sum(lap.tokens for lap in self.laps)

    @property
    def wall_s(self) -> float:
        return sum(lap.wall_s for lap in self.laps)

    @property
    def cpu_s(self) -> float:
        return sum(lap.cpu_s for lap in self.laps)


def count_equal(first: Sequence[str], second: Sequence[str]) -> str:
    """ "n of n" texts are equal."""
    return f"{sum(a == b for a, b in zip(first, second, strict=True))} of {len(first)}"


def decode_outputs(outputs: Sequence[list[int]] | Sequence[str], decode: Callable[[Sequence[int]], str]) -> list[str]:
    """Answers as texts."""
    return [output if isinstance(output, str) else decode(output) for output in outputs]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, the first flush left, the others flush right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in cells).rstrip()
        for cells in (enumerate(zip(row, widths, strict=True)) for row in [header, *rows])
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def ratio(slow: float | None, fast: float | None) -> str:
    """Quotient of two figures, or "" if either is unknown."""
    return f"{slow / fast:.2f}" if slow and fast else ""


def read_job(path: Path) -> Job:
    return Job(**json.loads(path.read_text("utf-8")))


def read_result(path: Path) -> Result:
    values = json.loads(path.read_text("utf-8"))
    return Result(**values | {"laps": [Lap(**lap) for lap in values["laps"]]})


def write_json(value: Job | Result, path: Path) -> None:
    path.write_text(json.dumps(asdict(value)), "utf-8")


class ContenderFailedError(Exception):
    """A contender's process ended without a result."""


def run_contender(name: str, job: Job, folder: Path, *, timeout_s: float = 3600) -> Result:
    """Let one contender answer, in a fresh process, on the job's cores only.

    Args:
        name: a key of ``bench.contenders.CONTENDERS``.
        folder: for its files.

    Raises:
        ContenderFailedError: it failed; holds the last line of its output.
    """
    job_file, result_file = folder / f"{name}.job.json", folder / f"{name}.result.json"
    write_json(job, job_file)
    command = [sys.executable, "-m", "bench.contenders", name, str(job_file), str(result_file), str(os.getpid())]
    try:
        process = subprocess.run(
            command, env=_environment(job), capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise ContenderFailedError(f"no end after {timeout_s:.0f} s") from exc
    if process.returncode != 0 or not result_file.is_file():
        last = (process.stderr.strip() or process.stdout.strip() or "no output").splitlines()[-1]
        raise ContenderFailedError(f"exit {process.returncode}: {last[:300]}")
    return read_result(result_file)


def _environment(job: Job) -> dict[str, str]:
    threads = str(len(job.cores))
    return os.environ | {
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }


def usable_cores(count: int | None = None) -> list[int]:
    """The last ``count`` CPU cores that this process may use; None: all."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
    return cores if count is None else cores[-count:]


def pin(cores: Sequence[int]) -> None:
    """Keep this process on these cores, if the system can."""
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
    """Wall and CPU seconds since it was made, of this process and the running processes that it started."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), self._cpu_now()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, self._cpu_now() - self._cpu

    @staticmethod
    def _cpu_now() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime + _descendants_cpu_s()


def _descendants_cpu_s() -> float:
    """CPU seconds of the running processes that this one started, by Linux's /proc."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(stat.parent.name)], ticks[int(stat.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    found, added = set[int](), {os.getpid()}
    while added:
        added = {process for process, parent in parents.items() if parent in added}
        found |= added
    return sum(ticks[process] for process in found) / os.sysconf("SC_CLK_TCK")


_LAUNCHER = """
import os, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(child, 0)
with open(int(sys.argv[1]), "w") as figures:
    figures.write(f"{used.ru_utime + used.ru_stime} {used.ru_maxrss}")
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A child begins with the peak of memory of the process that starts it: this one is small."""


def measure(command: Sequence[str]) -> tuple[float, float]:
    """CPU seconds and MB of a process, with bytecode as in an installed lbx.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / "lbx-bench-bytecode")
    with tempfile.TemporaryFile("w+") as figures:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(figures.fileno()), *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=REPOSITORY, check=True,
            pass_fds=[figures.fileno()], env=environment,
        )  # fmt: skip
        figures.seek(0)
        seconds, kilobytes = figures.read().split()
    return float(seconds), float(kilobytes) / 1024
