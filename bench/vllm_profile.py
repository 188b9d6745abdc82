"""Where the seconds of lbx on transformers and of vLLM's CPU build go, on the random documents of bench.vllm.

    python -m bench.vllm_profile [--dtypes float32,bfloat16] [--documents 10240] [--questions 12] [--threads 2]

The first table has the seconds by the clock of both on attention, on matrix products and on all else. vLLM's are
recorded by torch's profiler, which makes it a little slower; lbx's kernel measures its own.

The second one has lbx's passes by phase. A pass in which every sequence gets one token is decode,
any other one prefill, and "between" is what happens between passes: choosing tokens, arranging prompts. Columns:

    cores     CPU seconds over seconds by the clock
    idle s    threads times seconds by the clock, without the CPU seconds: with two threads, the time in which only one
              of them computes. Threads that wait in a loop count as computing, and time that other processes took
              of the cores counts as idle.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from bench import vllm
from bench.contenders import CONTENDERS
from bench.contest import Answer, Job, pin, table
from bench.vllm_server import VllmServer
from lbx.backends.hf.library import prepare_environment
from lbx.base.units import format_count
from lbx.engine.model import SequenceExtension

ATTENTION, PRODUCTS, OTHER = "attention", "matrix products", "other"
PREFILL, DECODE, BETWEEN = "prefill", "decode", "between"
_KINDS = {
    "aten::scaled_dot_product_attention": ATTENTION,
    "vllm::unified_attention_with_output": ATTENTION,
    "_C::cpu_attention_with_kv_cache": ATTENTION,
    "aten::linear": PRODUCTS,
    "_C::onednn_mm": PRODUCTS,
    "aten::mm": PRODUCTS,
}


def main() -> int:
    args = parse_arguments()
    prepare_environment()  # of libgomp, which the tokenizer's library loads
    from lbx.backends.hf.kernel import KernelSeconds, find_kernel

    found = find_kernel()
    if not found:
        sys.exit("lbx's kernel was not compiled: install a C++ compiler, and lbx again (just setup).")
    kernel = found[1]
    kinds: list[list[str]] = []
    phases: list[list[str]] = []
    for dtype, threads in product(args.dtypes.split(","), vllm.numbers(args.threads)):
        with tempfile.TemporaryDirectory(prefix="lbx-bench-") as folder:
            _, job, _ = vllm.make_job(dtype, threads, args, Path(folder))
            job = replace(job, prompts=job.prompts[job.groups[0] :], groups=job.groups[1:])
            pin(job.cores)
            theirs = _profile_vllm(job, Path(folder) / "vllm")
            answer, _, _ = CONTENDERS["hf-lbx"](job)
            kernel.seconds = KernelSeconds()
            costs = _measure_phases(answer, len(job.prompts))
            ours = {ATTENTION: kernel.seconds.attention, PRODUCTS: kernel.seconds.products}
            ours[OTHER] = costs["total"].wall_s - sum(ours.values())
        label = f"{dtype}, {format_count(threads, 'thread')}"
        kinds += [[f"{label}, {kind}", f"{theirs[kind]:.1f}", f"{ours[kind]:.1f}"] for kind in theirs]
        phases += [_phase_row(f"{label}, {phase}", cost, threads) for phase, cost in costs.items()]
    print(table(("work", "vLLM s", "lbx s"), kinds))
    print("\n" + table(("phase of lbx", "passes", "tokens", "s", "CPU s", "cores", "idle s"), phases))
    return 0


def parse_arguments() -> argparse.Namespace:
    return vllm.parse_arguments(__doc__, documents="10240", questions="12", threads="2")


class PhaseCost(NamedTuple):
    """Number of passes of a phase, their tokens, and their seconds by the clock and of the CPU."""

    passes: int = 0
    tokens: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def add(self, other: PhaseCost, sign: int = 1) -> PhaseCost:
        return PhaseCost(
            self.passes + sign * other.passes,
            self.tokens + sign * other.tokens,
            self.wall_s + sign * other.wall_s,
            self.cpu_s + sign * other.cpu_s,
        )

    def since(self, before: PhaseCost) -> PhaseCost:
        return self.add(before, -1)


class PassMeter:
    """Cost of a memory's passes by phase.

    Args:
        extend: of the memory.
    """

    def __init__(self, extend: Callable[[Sequence[SequenceExtension]], Any]) -> None:
        self.costs = {PREFILL: PhaseCost(), DECODE: PhaseCost()}
        self._extend = extend

    def extend(self, items: Sequence[SequenceExtension]) -> Any:
        before = _now()
        result = self._extend(items)
        phase = DECODE if all(len(item.tokens) == 1 for item in items) else PREFILL
        work = PhaseCost(1, sum(len(item.tokens) for item in items))
        self.costs[phase] = self.costs[phase].add(_now().since(before)).add(work)
        return result


def _now() -> PhaseCost:
    """Seconds by the clock, and CPU seconds of this process."""
    return PhaseCost(0, 0, time.perf_counter(), time.process_time())


def _measure_phases(answer: Answer, questions: int) -> dict[str, PhaseCost]:
    """Answer all questions; returns the cost of each phase, of the time between passes, and of all."""
    from lbx.backends.hf.backend import HfBackend

    meters: dict[int, tuple[Any, PassMeter]] = {}
    sequences = HfBackend.sequences

    def measured(backend: HfBackend) -> Any:
        memory: Any = sequences(backend)
        if id(memory) not in meters:
            meters[id(memory)] = memory, PassMeter(memory.extend)
            memory.extend = meters[id(memory)][1].extend
        return memory

    before = _now()
    with patch.object(HfBackend, "sequences", measured):
        answer(range(questions))
    total = _now().since(before)
    ((memory, meter),) = meters.values()
    del memory.extend  # the class's again
    within = meter.costs[PREFILL].add(meter.costs[DECODE])
    total = total.add(within._replace(wall_s=0.0, cpu_s=0.0))
    return {**meter.costs, BETWEEN: total.since(within), "total": total}


def _phase_row(label: str, cost: PhaseCost, threads: int) -> list[str]:
    idle_s = threads * cost.wall_s - cost.cpu_s
    counts = [f"{count:,}" if count else "" for count in (cost.passes, cost.tokens)]
    return [
        label,
        *counts,
        f"{cost.wall_s:.1f}",
        f"{cost.cpu_s:.1f}",
        f"{cost.cpu_s / cost.wall_s:.2f}",
        f"{idle_s:.1f}",
    ]


def _profile_vllm(job: Job, folder: Path) -> dict[str, float]:
    options = {"profiler": "torch", "torch_profiler_dir": str(folder), "torch_profiler_with_stack": False}
    server = VllmServer(job, "--profiler-config", json.dumps(options))
    try:
        server.post("/start_profile")
        started = time.perf_counter()
        server.answer(range(len(job.prompts)))
        seconds = time.perf_counter() - started
        server.post("/stop_profile")
    finally:
        server.stop()
    events = (
        event for file in folder.glob("*.gz") for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    )
    return _seconds_by_kind(events, seconds)


def _seconds_by_kind(events: Iterable[Mapping[str, Any]], total_s: float) -> dict[str, float]:
    """Seconds of each kind of operation; an operation inside another one counts as a part of it."""
    seconds = dict.fromkeys((ATTENTION, PRODUCTS), 0.0)
    ends: dict[Any, float] = {}
    known = [event for event in events if event.get("ph") == "X" and event.get("name") in _KINDS]
    for event in sorted(known, key=lambda event: float(event["ts"])):
        thread = (event["pid"], event["tid"])
        if event["ts"] >= ends.get(thread, 0.0):
            ends[thread] = event["ts"] + event["dur"]
            seconds[_KINDS[event["name"]]] += event["dur"] / 1e6
    if not all(seconds.values()):
        raise ValueError(f"no operation of a known name is in the profile: {seconds}")
    return seconds | {OTHER: total_s - sum(seconds.values())}


if __name__ == "__main__":
    sys.exit(main())
