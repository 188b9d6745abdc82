"""The main job as `just demo` and `just real` run it, both backends included."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

ROOT = Path(__file__).resolve().parent.parent

pytest.importorskip("llama_cpp")
pytest.importorskip("torch")


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("HF_HUB_OFFLINE", None)  # loading a model in another test has set it for this process
    command = ["bash", ROOT / script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done


def test_the_demo_runs_and_both_backends_agree(tmp_path: Path) -> None:
    done = run("models/demo/demo.sh", tmp_path / "demo")
    assert "gave the same greedy output on 180 of 180 samples" in done.stdout
    table = re.findall(r"^\| (?:task|\w+_en) \|.*$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    printed = [line.split() for line in done.stdout.splitlines()]
    assert len(table) == 4 and all(line.replace("|", "").split() in printed for line in table), "README's first table"
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
    assert all("refuses network connections" in text for (text,) in offline)
    assert curve[64] == curve[128] == curve[256] == 1.0
    assert curve[1024] < 0.8, "recall falls beyond the trained length"
    assert kinds["multiquery_en"] < kinds["single_en"], "several needles are harder"


@pytest.mark.long("`just real` in short; CI runs the demo, and SmolLM2 in tests/models")
def test_a_real_model_on_real_data(
    shared: Callable[[str], Path], smollm2: Callable[[str], Path], tmp_path: Path
) -> None:
    shared("data/hub")
    smollm2("hf")
    done = run("tools/real.sh", tmp_path / "real", "short")
    assert "doubled BOS" not in done.stdout
    assert "The same within" in done.stderr  # every token id, and every logit nearly
    with duckdb.connect(str(tmp_path / "real" / "results.duckdb"), read_only=True) as connection:
        rows = connection.execute(
            "SELECT backend, benchmark, task, count(*), bool_and(error IS NULL), bool_and(prompt_source <> 'lbx'), "
            "bool_and(truncated AND tokens_cut > 1000), max(bos_tokens), bool_and(output_tokens > 0) "
            "FROM generations g JOIN runs USING (run_id) GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        scored = connection.execute("SELECT count(DISTINCT (run_id, benchmark, task)) FROM task_results").fetchall()
    tasks = [("leval", "tpo"), ("longbench", "multi_news"), ("longbench_v2", "mcq")]
    assert rows == [(backend, *task, 1, True, True, True, 1, True) for backend in ("hf", "llamacpp") for task in tasks]
    assert scored == [(6,)]
    with duckdb.connect(str(tmp_path / "real" / "judged.duckdb"), read_only=True) as connection:
        rounds = connection.execute(
            "SELECT backend, count(*), count(DISTINCT prompt_sha256), bool_and(error IS NULL) FROM generations g "
            "JOIN runs USING (run_id) WHERE g.benchmark = 'judge' GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    assert rounds == [("hf", 2, 2, True), ("llamacpp", 2, 2, True)]


def test_without_real_data_the_job_says_so(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    script = Path(shutil.copy(ROOT / "tools" / "real.sh", tmp_path / "tools"))
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "just real needs the real data in ../shared, which is not here.\n"
