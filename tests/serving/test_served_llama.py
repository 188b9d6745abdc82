"""llama-cpp-python's server in a run, killed in its middle, gives the answers of the backend in the process."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.backends.endpoint_servers import SERVE_LLAMA, export_demo
from tests.command_line import Lbx
from tests.serving.served_parts import processes_of, server_log, sessions

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("llama_cpp.server.app", reason="needs lbx[llama] and lbx[dev]")

OPTIONS = "--n_ctx 4096 --n_batch 512 --n_ubatch 512 --type_k 0 --type_v 0 --n_threads 1"


def kill_when_asked(results: Path) -> None:
    """Kill the server after its first answers."""
    for _ in range(6000):
        with contextlib.suppress(OSError):
            if server_log(results).count("POST /v1/completions") > 5:
                for process in processes_of(results):
                    command = Path(f"/proc/{process}/cmdline").read_bytes()
                    if b"llama_cpp.server" in command and b"lbx.backends.serving" not in command:
                        os.kill(process, signal.SIGKILL)
                        return
        time.sleep(0.01)


def test_llama_cpp_pythons_server_in_a_run(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    gguf, card, results = export_demo(tmp_path), tmp_path / "served.toml", tmp_path / "r.duckdb"
    card.write_text(
        f'backend = "endpoint"\ncontext_window = 4096\n[tokenizer]\npath = "{gguf}"\n[options]\n'
        'server = "llama-cpp-python"\nconcurrency = 1\n'
    )
    local = tmp_path / "local.toml"
    local.write_text(
        f'backend = "llamacpp"\ncontext_window = 4096\n[weights]\npath = "{gguf}"\n[options]\n'
        'cache_type_k = "f32"\ncache_type_v = "f32"\nthreads = 1\n'
    )
    server = [sys.executable, "-c", SERVE_LLAMA, "--model", str(gguf), "--model_alias", "demo", *OPTIONS.split()]
    command = shlex.join([*server, "--host", "127.0.0.1", "--port", "{port}"])
    words = ["run", "--bundle", bundle, "--tasks", "needle", "-o", results]
    killer = threading.Thread(target=kill_when_asked, args=[results])
    killer.start()
    lbx.ok(*words, "--model", card, "--name", "served", "--serve", command)
    killer.join()
    assert not processes_of(results)
    assert len(sessions(lbx, results)[0]["hardware"]["server_restarts"]) == 1  # type: ignore[index]
    lbx.ok(*words, "--model", local, "--name", "local")
    rows = lbx.rows(
        results,
        "SELECT a.output = b.output AS same FROM generations a JOIN generations b USING (benchmark, task, sample_id) "
        "WHERE a.run_id = 'served' AND b.run_id = 'local'",
    )
    assert [row["same"] for row in rows] == [True] * 12
    (served, other) = (
        json.loads(row["settings"]) for row in lbx.rows(results, "SELECT settings FROM runs ORDER BY run_id DESC")
    )
    assert served["backend.weights"] == other["backend.weights"], "the same fingerprint as the model in this process"
