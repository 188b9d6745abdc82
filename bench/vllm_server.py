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
    from bench.contest import Job, Loaded

PYTHON = REPOSITORY / ".venv-servers" / "vllm" / "bin" / "python"
"""Installed by ``.ci/server-tools.sh vllm``."""
CONCURRENCY = 16
"""Questions that the client asks at once, and sequences that the server computes at once."""
_CACHE_GB, _START_S = 4, 600


def vllm(job: Job) -> Loaded:
    """vLLM's server with prefix caching, its default."""
    server = VllmServer(job)
    atexit.register(server.stop)
    return server.answer, lambda: 0, []


class VllmServer:
    """Running server, and a client that asks many questions at once.

    Args:
        options: further words of the command line.
    """

    def __init__(self, job: Job, *options: str) -> None:
        self._job = job
        log = Path(job.weights["hf"]).parent / "vllm.log"
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
            "--max-num-seqs", CONCURRENCY, "--enforce-eager", *options,
        ]  # fmt: skip
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [str(word) for word in command], env=environment, stdout=output, stderr=output
            )
        self.url = f"http://127.0.0.1:{port}"
        try:
            _wait_until_ready(self.url, self._process, log)
        except RuntimeError:
            self.stop()
            raise

    def answer(self, numbers: range) -> list[list[int]]:
        """Token ids of the answers to these prompts of the job."""
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            return list(pool.map(self._ask, numbers))

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def post(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        """Content of the answer to a POST request."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body or {}).encode(), headers)
        try:
            with urllib.request.urlopen(request) as response:
                content: bytes = response.read()
                return content
        except urllib.error.HTTPError as exc:
            raise RuntimeError(exc.read().decode()[:300]) from exc

    def _ask(self, number: int) -> list[int]:
        job = self._job
        body = {
            "model": "model",
            "prompt": job.prompts[number],
            "max_tokens": job.new_tokens,
            "min_tokens": job.new_tokens if job.never else 0,
            "temperature": 0,
            "ignore_eos": bool(job.never),
            "return_token_ids": True,
        }
        ids: list[int] = json.loads(self.post("/v1/completions", body))["choices"][0]["token_ids"]
        return ids


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_until_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not _is_ready(url):
        if server.poll() is not None or time.monotonic() > deadline:
            last = (log.read_text().strip() or "no output").splitlines()[-1]
            raise RuntimeError(f"vLLM did not start: {last}")
        time.sleep(0.5)


def _is_ready(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/v1/models").close()
    except OSError:
        return False
    return True
