"""Forecast of a run before the first sample: tokens, memory, time, and sentences that describe them.

The memory part measures free memory, the memory that a model needs, and the memory used by the processes of the run.
"""

from __future__ import annotations

import contextlib
import functools
import resource
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from lbx.base.inputs import SMALL, read_input
from lbx.base.processes import SubprocessError, find_tool, run_tool
from lbx.base.records import CountedIn, SampleKey
from lbx.base.resources import available_memory, visible_gpus
from lbx.base.units import format_count, format_duration, format_size
from lbx.engine.model import NO_LIMIT, BackendInfo
from lbx.running.forecast.estimate import USUAL_S, Costs, TimeEstimate, calibrate, decode_capacity_of, estimate
from lbx.running.forecast.run_plan import RunPlan, TaskPlan, ignore_progress, make_plan
from lbx.running.jobs import JobSize, TaskQuestions, Work, reason_not_shared

_PROC = Path("/proc")
_QUERY_S = 10.0


class GpuMemory(NamedTuple):
    """Memory of all GPUs of this process together, in bytes."""

    used: int
    total: int


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Memory needs of a model, compared with the available memory.

    Attributes:
        device: "RAM", "GPU memory" or "RAM and GPU memory".
        weights_bytes, kv_bytes_per_token: see ``BackendInfo``.
        kv_cells: see ``BackendInfo``, or the number of cells in ``windows`` if larger.
        windows: number of context windows that copies of sequences may fill, if questions cannot share cells.
        copies: number of worker processes, each with its own cache.
        weights_copies: number of copies of the weights, or 1 if the processes map the same file.
        available_bytes: free memory before the model was loaded, or None if unknown.
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
        """Total size of the KV caches of all processes, or None if unknown."""
        return None if self.kv_bytes_per_token is None else self.kv_bytes_per_token * self.kv_cells * self.copies

    @property
    def fits(self) -> bool | None:
        """Whether the model fits into the free memory, or None if unknown."""
        if self.kv_bytes is None or self.weights_bytes is None or self.available_bytes is None:
            return None
        return self.weights_bytes * self.weights_copies + self.kv_bytes <= self.available_bytes

    @property
    def window_that_fits(self) -> int | None:
        """Largest context window that fits, in multiples of 1024 tokens, or None if unknown.

        0 if the weights alone are too large.
        """
        if self.fits is None or not self.kv_bytes_per_token:
            return None
        free_bytes = (self.available_bytes or 0) - (self.weights_bytes or 0) * self.weights_copies
        tokens = max(0, free_bytes // (self.kv_bytes_per_token * self.copies * self.windows))
        return tokens // 1024 * 1024 if tokens >= 1024 else tokens

    def to_json(self) -> dict[str, Any]:
        derived = {"kv_bytes": self.kv_bytes, "fits": self.fits, "window_that_fits": self.window_that_fits}
        return asdict(self) | derived


def memory_fit(info: BackendInfo, free: FreeMemory, *, workers: int = 0, cells: int = 0) -> MemoryFit:
    """Compare the memory needs of a loaded model with the memory that was free before.

    Args:
        cells: tokens of all copies of sequences together, or 0 without copies.
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
    """GPU memory as reported by nvidia-smi, which needs no CUDA library, or None without nvidia-smi or a GPU."""
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
    """Bytes of memory that this process and its workers use. Pages of files, such as mapped weights, count once."""
    private = shared = 0
    for process in ("self", *map(str, workers)):
        with contextlib.suppress(OSError, ValueError):  # a worker may have died
            anonymous, of_files = _resident_bytes(process)
            private += anonymous
            shared = max(shared, of_files)
    return private + shared


def _resident_bytes(process: str) -> tuple[int, int]:
    """Return the bytes of a process's private memory and of its file pages."""
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


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of a run: token counts, memory and time.

    Attributes:
        time: estimated time, or None if the model's speed is unknown.
        counted_in: see ``BackendInfo``.
        sharing_problem: reason why prompts share no computation, as a clause, or None if prompts share prefixes.
        dtype: number format of the computation, if the backend offers a choice.
        questions: number of samples and documents of each task.
    """

    runs: Sequence[Sequence[TaskPlan]]
    memory: MemoryFit
    time: TimeEstimate | None
    counting_s: float
    counted_in: CountedIn = "tokens"
    sharing_problem: str | None = None
    model: str = ""
    backend: str = ""
    dtype: str | None = None
    questions: Sequence[TaskQuestions] = ()

    @property
    def tasks(self) -> list[TaskPlan]:
        return RunPlan(self.runs).tasks

    @property
    def total(self) -> TaskPlan:
        return RunPlan(self.runs).total

    def to_json(self) -> dict[str, Any]:
        return {
            "tasks": [task.to_json() for task in self.tasks],
            "total": self.total.to_json(),
            "memory": self.memory.to_json(),
            "time": None if self.time is None else self.time.to_json(),
            "counting_s": self.counting_s,
            "counted_in": self.counted_in,
            "not_shared": self.sharing_problem,
            "model": self.model,
            "backend": self.backend,
            "dtype": self.dtype,
        }


def make_forecast(
    works: Sequence[Work],
    *,
    free: FreeMemory,
    finished_keys: Sequence[AbstractSet[SampleKey]] | None = None,
    workers: int = 0,
    session_costs: Costs | None = None,
    measure: bool = True,
    least_s: float = USUAL_S,
    progress: Callable[[int, int], None] = ignore_progress,
    measuring: Callable[[int, int], None] = ignore_progress,
) -> Forecast:
    """Make the forecast of runs: count tokens and estimate the time. Can be called in a worker process, as a partial.

    Args:
        works: works of the runs that are executed together.
        free: free memory before the model was loaded.
        finished_keys: answered samples of each run.
        workers: processes that share the work; 0 means only this process.
        session_costs: costs from earlier sessions. Without them, or if they do not cover this plan, costs are measured.
        measure: whether to measure costs that ``session_costs`` do not cover.
        least_s: see ``calibrate``.
        progress: receives the number of counted samples and their total.
        measuring: receives the progress of the calibration.

    Raises:
        BundleError: a data file is damaged.
        BackendError: the model failed during the calibration.
    """
    work = works[0]
    total = sum(work_of_run.total for work_of_run in works)
    batching = work.settings.batching
    computing = measure or session_costs is not None  # otherwise avoid calls that make the model compute
    capacity = decode_capacity_of(work.backend, batching=batching) if computing else None
    follow_limit = capacity.follow_limit if capacity else NO_LIMIT
    plan = make_plan(works, finished_keys, JobSize.for_workers(workers, total), progress, follow_limit=follow_limit)
    if session_costs:  # answers of sessions in several steps, and the plan's in prompts
        prompts = {task.task: task.prompts_per_answer for task in plan.tasks}
        lengths = {task: tokens / prompts.get(task, 1) for task, tokens in session_costs.answers.items()}
        session_costs = replace(session_costs, answers=lengths)
    costs = session_costs
    if measure and not (session_costs and session_costs.covers(plan.total)):
        measured = calibrate(work.backend, plan, batching=batching, least_s=least_s, on_progress=measuring)
        if measured is not None:
            costs = (
                replace(measured, answers={**measured.answers, **session_costs.answers}) if session_costs else measured
            )
    info = work.backend.info
    time = None
    if costs is not None and capacity is not None and plan.total.samples:
        # Sessions include tokenizing and cover all workers; a calibration covers the model in one process.
        other_s, processes = (0.0, 1) if costs is session_costs else (plan.seconds, max(1, workers))
        time = estimate(plan, costs, capacity, other_s, processes=processes)
    return Forecast(
        plan.runs,
        memory_fit(info, free, workers=workers, cells=capacity.copied_cells if capacity else 0),
        time,
        plan.seconds,
        counted_in=info.counted_in,
        sharing_problem=reason_not_shared(work.backend, batching=batching) if computing else None,
        model=info.model,
        backend=info.name,
        dtype=info.settings.get("dtype"),
    )


def summary_lines(forecast: Forecast) -> list[str]:
    total, memory, time = forecast.total, forecast.memory, forecast.time
    if not total.samples:
        return ["All prompts already have answers."]
    spoilt = [f"{n:,} {what}" for n, what in ((total.truncated, "truncated"), (total.refused, "refused")) if n]
    lines = [
        f"{format_count(total.prompts, 'prompt')}, {total.prompt_tokens:,} {forecast.counted_in} in all, "
        f"{total.distinct_tokens:,} of them distinct ({total.shared_factor:.1f} times shared); "
        f"{', '.join(spoilt) or 'none truncated'}"
    ]
    lines += sharing_lines(forecast)
    if memory.weights_bytes is not None:
        lines.append(memory_line(memory))
    served = time is None and forecast.backend == "endpoint"
    lines.append(_SERVED_TIME if served else time_line(time))
    return lines


_SERVED_TIME = "Time: unknown, because a server's speed is not measured; a run estimates it from the first answers"


def sort_by_time(forecasts: Sequence[Forecast]) -> list[tuple[Forecast, TimeEstimate]]:
    """Sort forecasts with a known time, fastest first."""
    timed = [(forecast, forecast.time) for forecast in forecasts if forecast.time is not None]
    return sorted(timed, key=lambda forecast: forecast[1].total_s)


def display_name(forecast: Forecast) -> str:
    """Name of a forecast's model, backend and number format: "smollm2 on hf in bfloat16"."""
    return f"{forecast.model} on {forecast.backend}" + (f" in {forecast.dtype}" if forecast.dtype else "")


def comparison_line(forecasts: Sequence[Forecast]) -> str:
    ordered = sort_by_time(forecasts)
    if len(ordered) < 2:
        return "Fastest here: unknown (fewer than two models have a measured speed)."
    (best, best_time), *slower = ordered
    ratios = ((forecast, f"{time.total_s / best_time.total_s:.1f}") for forecast, time in slower)
    comparisons = (
        f"{'' if ratio == '1.0' else f'{ratio} times '}as fast as {display_name(forecast)}"
        for forecast, ratio in ratios
    )
    return f"Fastest here: {display_name(best)}, {', '.join(comparisons)}"


def sharing_lines(forecast: Forecast) -> list[str]:
    """Line on why prompts share no computation, as a list that is empty if they do."""
    return [f"Every prompt is computed from its start: {forecast.sharing_problem}"] if forecast.sharing_problem else []


def memory_line(memory: MemoryFit) -> str:
    parts = [f"weights {format_size(memory.weights_bytes)}{_copies_text(memory.weights_copies)}"]
    if memory.kv_bytes is None or memory.kv_bytes_per_token is None:
        tokens = f"; {memory.kv_cells:,} tokens{_windows_text(memory.windows)}" if memory.windows > 1 else ""
        parts.append(f"KV cache unknown (its size differs between the layers of this model{tokens})")
    else:
        parts.append(
            f"KV cache {format_size(memory.kv_bytes)} ({memory.kv_bytes_per_token:,} bytes a token, "
            f"{memory.kv_cells:,} tokens{_windows_text(memory.windows)}{_copies_text(memory.copies)})"
        )
    parts.append(f"free {memory.device} {format_size(memory.available_bytes)}")
    verdict = {True: "fits", False: "does not fit", None: "may or may not fit"}[memory.fits]
    if memory.fits is False:
        window = memory.window_that_fits
        verdict += f"; a context window of {window:,} tokens would" if window else ": the weights are too large"
    return f"Memory: {', '.join(parts)}: {verdict}"


def _windows_text(windows: int) -> str:
    return f" for copies of sequences, {windows} context windows" if windows > 1 else ""


def _copies_text(copies: int) -> str:
    return f" in each of {copies} processes" if copies > 1 else ""


def time_line(time: TimeEstimate | None) -> str:
    if time is None:
        return "Time: unknown"
    other = f", tokenizing {format_duration(time.other_s)}" if time.other_s >= 1 else ""
    tokens = sum(time.answer_tokens.values())
    return (
        f"Time: about {format_duration(time.total_s)} (reading {time.computed_tokens:,} tokens "
        f"{format_duration(time.prefill_s)}, {tokens:,} tokens of answers {format_duration(time.decode_s)}{other}), "
        f"by {time.basis}"
    )
