"""The main job on the embedded demo, as `just demo` runs it, both backends included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_demo_runs_and_both_backends_agree(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    pytest.importorskip("torch")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = ROOT / "models" / "demo" / "demo.sh"
    done = subprocess.run(
        ["bash", script, tmp_path / "demo"], capture_output=True, text=True, check=False, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert "gave the same greedy output on 180 of 180 samples" in done.stdout
    with duckdb.connect(str(tmp_path / "demo" / "results.duckdb"), read_only=True) as connection:
        offline = connection.execute("SELECT hardware ->> 'network' FROM runs").fetchall()
        curve = dict(
            connection.execute(
                "SELECT length_up_to, avg(score) FROM length_curve WHERE task = 'single_en' GROUP BY ALL"
            ).fetchall()
        )
        kinds = dict(
            connection.execute(
                "SELECT task, avg(score) FROM task_scores WHERE task LIKE '%_en' GROUP BY ALL"
            ).fetchall()
        )
    assert all("blocked in-process" in said for (said,) in offline)
    assert curve[64] == curve[128] == curve[256] == 1.0
    assert curve[1024] < 0.8, "recall falls beyond the trained length"
    assert kinds["multiquery_en"] < kinds["single_en"], "several needles are harder"
