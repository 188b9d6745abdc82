"""vLLM's CPU build: its server, and a client that asks many questions at once."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.contest import REPOSITORY
from lbx.backends.endpoint.options import EndpointOptions
from lbx.backends.serving.command import LOOPBACK, PORT, ServerCommand
from lbx.backends.serving.process import ModelServer
from lbx.base.errors import EndpointError

if TYPE_CHECKING:
    from bench.contest import Job

PYTHON = REPOSITORY / ".venv-servers" / "vllm" / "bin" / "python"
"""Installed by ``.ci/server-tools.sh vllm``."""
CONCURRENCY = 16
"""Questions that the client asks at once, and sequences that the server computes at once."""
_CACHE_GB, _START_S = 4, 600


class VllmServer:
    """Running server, and a client that asks many questions at once. The server ends with this process in any case.

    Args:
        options: further words of the command line.
    """

    def __init__(self, job: Job, *options: str) -> None:
        self._job = job
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": _CACHE_GB,
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "PYTHONPATH": "",
        }
        command = [
            "env", *(f"{name}={value}" for name, value in environment.items()),
            PYTHON, "-m", "vllm.entrypoints.cli.main", "serve", job.weights["hf"], "--served-model-name", "model",
            "--host", LOOPBACK, "--port", PORT, "--dtype", job.dtype, "--max-model-len", job.window,
            "--max-num-seqs", CONCURRENCY, "--enforce-eager", *options,
        ]  # fmt: skip
        log = Path(job.weights["hf"]).parent / "vllm.log"
        words = ServerCommand(tuple(map(str, command)), port=None, host=LOOPBACK)
        self._server = ModelServer(words, EndpointOptions(), log, _START_S)
        try:
            self._server.start()
        except EndpointError:
            self.stop()
            raise

    def answer(self, numbers: range) -> list[list[int]]:
        """Token ids of the answers to these prompts of the job."""
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            return list(pool.map(self._ask, numbers))

    def stop(self) -> None:
        self._server.close()

    def post(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        """Content of the answer to a POST request."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(
            self._server.url.removesuffix("/v1") + path, json.dumps(body or {}).encode(), headers
        )
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
