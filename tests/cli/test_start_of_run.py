"""What a run costs before its first prefill: the table of --debug, and libraries that are not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lbx.base.phases import PhaseTimes
from tests.command_line import Lbx

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo" / "hf"
PHASES = ["imports", "check bundle", "network check", "find samples", "results file", "load model", "templates"]

_LOAD_AND_COMPILE = f"""
import sys, torch
from lbx.backends import load, resolve_model
load(resolve_model({str(DEMO)!r})).close()
print([name for name in ("torch._dynamo", "torch.distributed.tensor", "scipy") if name in sys.modules])
print(torch.compile(lambda x: 2 * x, backend="eager")(torch.ones(1)).item())
"""


def test_debug_shows_the_phases(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    run = ("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "-o", tmp_path / "results.duckdb")
    assert "Start of the run" not in lbx.process(*run).stderr
    lines = lbx.process(*run, "--debug").stderr.partition("Start of the run")[2].splitlines()[1:]
    table = {line[:-18].strip(): tuple(map(float, line[-18:].split())) for line in lines if line[-3:-2] == "."}
    assert [name for name in table if name in PHASES] == PHASES
    *phases, total = table.values()
    for column in (0, 1):
        assert abs(sum(phase[column] for phase in phases) - total[column]) < 0.01 * len(phases)


def test_inner_phases_do_not_count_twice() -> None:
    phases = PhaseTimes()
    with phases.measure("outer"):
        with phases.measure("inner"):
            sum(range(1_000_000))
        with phases.measure("inner"):
            pass
    title, outer, inner, other, total = phases.take_table()
    assert [line.split()[0] for line in (title, outer, inner, other, total)] == [
        "Start", "outer", "inner", "other", "total",
    ]  # fmt: skip
    assert float(outer.split()[2]) <= float(inner.split()[2]) <= float(total.split()[2])


def test_models_load_without_parts_for_training_and_compiling() -> None:
    """The compiler still works afterwards."""
    done = subprocess.run([sys.executable, "-c", _LOAD_AND_COMPILE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["[]", "2.0"], done.stderr
