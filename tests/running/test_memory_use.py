"""Memory, of processes as the kernel has it, and of a model against what there is."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lbx.engine.model import BackendInfo
from lbx.running.forecast import run_forecast
from lbx.running.forecast.run_forecast import (
    FreeMemory,
    GpuMemory,
    gpu_memory,
    memory_fit,
    memory_in_use,
    memory_line,
    peak_memory,
)

MIB = 1 << 20
HOLDS = f"data = bytearray({64 * MIB}); print('ready', flush=True); input()"


def test_workers_count_too() -> None:
    worker = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with worker:
        assert worker.stdout and worker.stdout.readline() == "ready\n"
        alone, both = memory_in_use(), memory_in_use([worker.pid])
        worker.communicate("\n")
    assert 64 * MIB <= both - alone < 200 * MIB
    assert memory_in_use([worker.pid]) == pytest.approx(memory_in_use(), rel=0.1), "one that died counts nothing"
    assert memory_in_use() <= peak_memory() * 1.05


INFO = BackendInfo("toy", "1", "toy", 8192, weights_bytes=100 * MIB, kv_bytes_per_token=1024, kv_cells=8192)


def test_what_fits() -> None:
    fit = memory_fit(INFO, FreeMemory(ram=108 * MIB, gpu=None))
    assert (fit.device, fit.kv_bytes, fit.fits) == ("RAM", 8 * MIB, True)
    less = memory_fit(INFO, FreeMemory(ram=106 * MIB, gpu=None))
    assert (less.fits, less.window_that_fits) == (False, 6 * 1024)
    assert replace(less, kv_cells=less.window_that_fits or 0).fits, "what is proposed does fit"
    assert memory_fit(INFO, FreeMemory(ram=100 * MIB + 4096, gpu=None)).window_that_fits == 4
    assert memory_fit(INFO, FreeMemory(ram=50 * MIB, gpu=None)).window_that_fits == 0
    four = memory_fit(replace(INFO, shares_weights=True), FreeMemory(ram=131 * MIB, gpu=None), workers=4)
    assert (four.kv_bytes, four.fits, four.window_that_fits) == (32 * MIB, False, 7 * 1024)
    own_weights = memory_fit(INFO, FreeMemory(ram=431 * MIB, gpu=None), workers=4)
    assert (own_weights.fits, own_weights.window_that_fits) == (False, 7 * 1024)
    assert not memory_fit(replace(INFO, on_gpu=True), FreeMemory(None, gpu=131 * MIB), workers=4).fits


def test_copies_of_sequences_take_their_part() -> None:
    copies = memory_fit(INFO, FreeMemory(ram=108 * MIB, gpu=None), cells=4 * 8192)
    assert (copies.kv_bytes, copies.windows, copies.fits, copies.window_that_fits) == (32 * MIB, 4, False, 2048)
    assert "32,768 tokens for copies of sequences, 4 context windows" in memory_line(copies)
    assert "copies" not in memory_line(memory_fit(INFO, FreeMemory(ram=108 * MIB, gpu=None)))
    sliding = memory_fit(replace(INFO, kv_bytes_per_token=None), FreeMemory(ram=108 * MIB, gpu=None), cells=4 * 8192)
    assert "between the layers of this model; 32,768 tokens for copies of sequences, 4 context windows)" in memory_line(
        sliding
    )


def test_what_is_unknown_is_said_to_be() -> None:
    hybrid = memory_fit(replace(INFO, kv_bytes_per_token=None), FreeMemory(108 * MIB, None))
    assert (hybrid.kv_bytes, hybrid.fits, hybrid.window_that_fits) == (None, None, None)
    reported = replace(INFO, on_gpu=True, free_gpu_bytes=107 * MIB)
    assert memory_fit(reported, FreeMemory(10**12, None)).fits is False, "by the model's library, without nvidia-smi"
    assert memory_fit(reported, FreeMemory(0, gpu=108 * MIB)).fits
    split = memory_fit(replace(reported, is_split=True), FreeMemory(10**12, 10**12))
    assert (split.device, split.fits) == ("RAM and GPU memory", None)
    on_gpu = memory_fit(replace(INFO, on_gpu=True), FreeMemory(10**12, None))
    assert (on_gpu.device, on_gpu.fits) == ("GPU memory", None)
    assert hybrid.to_json()["fits"] is None


@pytest.mark.parametrize(
    ("says", "visible", "found"),
    [
        ("echo '100, 1000'; echo '300, 1000'", None, GpuMemory(400 * MIB, 2000 * MIB)),
        ("echo '100, 1000'", "", None),
        ("echo 'No devices were found'", None, None),
        ("exit 9", None, None),
        ('test "$*" = "${*%--id=1}" || echo \'5, 7\'', "1", GpuMemory(5 * MIB, 7 * MIB)),
        ('test "$*" = "${*%--id=1}" || echo \'5, 7\'', "1,-1,0", GpuMemory(5 * MIB, 7 * MIB)),
        ("echo '100, 1000'", "-1", None),
    ],
)
def test_a_gpu_as_its_tool_says(
    says: str, visible: str | None, found: GpuMemory | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    monkeypatch.setattr(run_forecast, "_nvidia_smi", lambda: str(program))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_memory() == found
