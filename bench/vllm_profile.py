"""Seconds that lbx on transformers and vLLM's CPU build spend on attention, on matrix products and on all else.

    python -m bench.vllm_profile [--dtypes float32,bfloat16] [--documents 10240] [--questions 12] [--threads 2]

The random documents of bench.vllm, recorded by torch's profiler. Both engines compute one operation at a time, so that
the seconds are wall seconds. Recording makes both a little slower.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench import vllm
from bench.contenders import CONTENDERS
from bench.contest import Job, pin, table
from bench.vllm_server import VllmServer

ATTENTION, PRODUCTS, OTHER = "attention", "matrix products", "other"
_KINDS = {
    "lbx::attention": ATTENTION,
    "aten::scaled_dot_product_attention": ATTENTION,
    "vllm::unified_attention_with_output": ATTENTION,
    "_C::cpu_attention_with_kv_cache": ATTENTION,
    "aten::linear": PRODUCTS,
    "mkldnn::_linear_pointwise": PRODUCTS,
    "_C::onednn_mm": PRODUCTS,
    "aten::mm": PRODUCTS,
}


def main() -> int:
    args = parse_arguments()
    rows: list[list[str]] = []
    for dtype in args.dtypes.split(","):
        with tempfile.TemporaryDirectory(prefix="lbx-bench-") as folder:
            _, job, _ = vllm.make_job(dtype, args, Path(folder))
            job = replace(job, prompts=job.prompts[job.groups[0] :], groups=job.groups[1:])
            pin(job.cores)
            theirs, ours = _profile_vllm(job, Path(folder) / "vllm"), _profile_lbx(job, Path(folder) / "lbx.json")
        rows += [[f"{dtype}, {kind}", f"{theirs[kind]:.1f}", f"{ours[kind]:.1f}"] for kind in theirs]
    print(table(("work", "vLLM s", "lbx s"), rows))
    return 0


def parse_arguments() -> argparse.Namespace:
    return vllm.parse_arguments(__doc__, documents="10240", questions="12")


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


def _profile_lbx(job: Job, trace: Path) -> dict[str, float]:
    from torch.profiler import ProfilerActivity, profile, record_function

    from lbx.backends.hf.kernel import Kernel

    attend = Kernel.attend

    def recorded(*args: Any, **kwargs: Any) -> Any:
        with record_function("lbx::attention"):
            return attend(*args, **kwargs)

    answer, _, _ = CONTENDERS["hf-lbx"](job)
    with patch.object(Kernel, "attend", recorded), profile(activities=[ProfilerActivity.CPU]) as profiler:
        started = time.perf_counter()
        answer(range(len(job.prompts)))
        seconds = time.perf_counter() - started
    profiler.export_chrome_trace(str(trace))
    return _seconds_by_kind(json.loads(trace.read_text())["traceEvents"], seconds)


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
