"""vLLM's CPU build as a contender: its server and a client that asks many questions at once."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.contest import REPOSITORY

if TYPE_CHECKING:
    from bench.contenders import Loaded
    from bench.contest import Job

PYTHON = REPOSITORY / ".venv-servers" / "vllm" / "bin" / "python"
"""Installed by ``.ci/server-tools.sh vllm``."""
CONCURRENCY = 16
"""Questions that the client asks at once, and sequences that the server computes at once."""
_CACHE_GB, _START_S = 4, 600


def vllm(job: Job) -> Loaded:
    """vLLM's server with prefix caching, its default."""
    log = (Path(job.weights["hf"]).parent / "vllm.log").open("w+")
    port = _free_port()
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": str(_CACHE_GB),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONPATH": "",
    }
    command = [
        PYTHON, "-m", "vllm.entrypoints.cli.main", "serve", job.weights["hf"], "--served-model-name", "model",
        "--host", "127.0.0.1", "--port", port, "--dtype", job.dtype, "--max-model-len", job.window,
        "--max-num-seqs", CONCURRENCY, "--enforce-eager",
    ]  # fmt: skip
    server = subprocess.Popen([str(word) for word in command], env=environment, stdout=log, stderr=log)
    atexit.register(_stop, server)
    url = f"http://127.0.0.1:{port}/v1"
    _wait_until_ready(url, server, Path(log.name))

    def ask(number: int) -> list[int]:
        body = {
            "model": "model",
            "prompt": job.prompts[number],
            "max_tokens": job.new_tokens,
            "min_tokens": job.new_tokens if job.never else 0,
            "temperature": 0,
            "ignore_eos": bool(job.never),
            "return_token_ids": True,
        }
        ids: list[int] = _post(f"{url}/completions", body)["choices"][0]["token_ids"]
        return ids

    def answer(numbers: range) -> list[list[int]]:
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            return list(pool.map(ask, numbers))

    return answer, lambda: 0, []


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as response:
            reply: dict[str, Any] = json.load(response)
            return reply
    except urllib.error.HTTPError as exc:
        raise RuntimeError(exc.read().decode()[:300]) from exc


def _wait_until_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not _is_ready(url):
        if server.poll() is not None or time.monotonic() > deadline:
            last = (log.read_text().strip() or "no output").splitlines()[-1]
            raise RuntimeError(f"vLLM did not start: {last}")
        time.sleep(0.5)


def _is_ready(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/models").close()
    except OSError:
        return False
    return True


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()
