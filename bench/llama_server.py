"""llama.cpp's server, built against the same libraries as lbx's llama.cpp, and a client that asks its slots at once."""

from __future__ import annotations

import atexit
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from bench.contest import REPOSITORY
from lbx.backends.endpoint.options import EndpointOptions
from lbx.backends.serving.command import LOOPBACK, PORT, ServerCommand
from lbx.backends.serving.process import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.contest import Job, Loaded

PROGRAM = REPOSITORY / ".venv-servers" / "llama-server" / "llama-server"
"""Built by ``.ci/server-tools.sh llama-server``."""
_START_S = 120


def llama_server(slots: int) -> Callable[[Job], Loaded]:
    """llama-server with its own choice of flash attention, prompt cache and continuous batching."""

    def load_it(job: Job) -> Loaded:
        model, threads = Path(job.weights["llamacpp"]), len(job.cores)
        command = [
            PROGRAM, "-m", model, "--host", LOOPBACK, "--port", PORT, "-c", job.window * slots, "-np", slots,
            "-t", threads, "-tb", threads, "--offline", "--no-webui",
        ]  # fmt: skip
        words = ServerCommand(tuple(map(str, command)), port=None, host=LOOPBACK)
        server = ModelServer(words, EndpointOptions(), model.with_name("llama-server.log"), _START_S)
        atexit.register(server.close)
        server.start()  # it ends with this process in any case
        url = server.url.removesuffix("/v1") + "/completion"

        def ask(number: int) -> list[int]:
            body = {
                "prompt": list(job.prompts[number]),
                "n_predict": job.new_tokens,
                "temperature": 0,
                "ignore_eos": bool(job.never),
                "cache_prompt": True,
                "return_tokens": True,
            }
            request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as response:
                tokens: list[int] = json.load(response)["tokens"]
                return tokens

        def answer(numbers: range) -> list[list[int]]:
            with ThreadPoolExecutor(slots) as pool:
                return list(pool.map(ask, numbers))

        return answer, lambda: 0, [f"{slots} slots"]

    return load_it
