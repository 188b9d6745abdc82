"""Real servers as processes on loopback: vLLM's CPU build and llama.cpp's server, from .ci/server-tools.sh."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from lbx.backends.serving.process import start_supervised
from tests.backends.endpoint_servers import free_port

TOOLS = Path(__file__).resolve().parents[2] / ".venv-servers"
NAME = "tiny"
_PROGRAMS = {"vllm": "bin/python", "llama-server": "llama-server", "llama-perplexity": "llama-perplexity"}
_READY_S = 400
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def find_program(name: str) -> Path:
    """A server's program or ``llama-perplexity``, whether it is installed or not."""
    return TOOLS / name / _PROGRAMS[name]


def needs(name: str) -> pytest.MarkDecorator:
    """Mark of tests that are skipped without a program."""
    reason = f"needs {name}, which is not installed: .ci/server-tools.sh {name}"
    return pytest.mark.skipif(not find_program(name).exists(), reason=reason)


needs_time = pytest.mark.skipif(os.environ.get("LBX_TEST_SERVERS") != "all", reason="takes minutes: just servers-test")
"""Mark of tests that start a vLLM of their own."""


class ServerProcess:
    """A server that ends with this process, ready when its list of models can be read.

    Args:
        log: file for its output.
    """

    def __init__(self, command: list[object], log: Path, port: int, environment: dict[str, str]) -> None:
        self.port, self.log = port, log
        self.url = f"http://127.0.0.1:{port}/v1"
        self.process = start_supervised(list(map(str, command)), log, QUIET | environment)
        self._wait()

    def _wait(self) -> None:
        for _ in range(_READY_S * 10):
            if is_answering(self.url):
                return
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.1)
        self.kill()
        raise AssertionError(self.log.read_text()[-3000:])

    def kill(self) -> None:
        """Kill all its processes, as the kernel does if memory runs out."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        self.kill()


def is_answering(url: str) -> bool:
    """Whether a server lists its models."""
    try:
        urllib.request.urlopen(url + "/models", timeout=30).close()
    except OSError:
        return False
    return True


VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "",  # else each start compiles vLLM's modules again
}


def vllm_command(model: Path, port: object, *options: object) -> list[object]:
    """vLLM on a CPU, in float32, with its count of cached tokens in each answer."""
    return [
        find_program("vllm"), "-m", "vllm.entrypoints.cli.main", "serve", model, "--served-model-name", NAME,
        "--host", "127.0.0.1", "--port", port, "--dtype", "float32", "--max-num-seqs", 8,
        "--enforce-eager", "--enable-prompt-tokens-details", "--no-enable-chunked-prefill", *options,
    ]  # fmt: skip


def llama_server_command(model: Path, port: object, *options: object) -> list[object]:
    """llama.cpp's server with a float32 cache and a window of 4,096 tokens for each of two slots."""
    return [
        find_program("llama-server"), "-m", model, "-a", NAME, "--host", "127.0.0.1", "--port", port,
        "-c", 8192, "-np", 2, "-t", 1, "-fa", "off", "-ctk", "f32", "-ctv", "f32", "--offline", *options,
    ]  # fmt: skip


def start_vllm(model: Path, log: Path, *options: object, port: int | None = None) -> ServerProcess:
    port = port or free_port()
    return ServerProcess(vllm_command(model, port, *options), log, port, VLLM_ENVIRONMENT)


def start_llama_server(model: Path, log: Path, *options: object, port: int | None = None) -> ServerProcess:
    port = port or free_port()
    return ServerProcess(llama_server_command(model, port, *options), log, port, {})


def main() -> None:
    """Run vLLM until no process has a lock on the file of its users: ``server_processes.py MODEL FOLDER PORT ...``."""
    import fcntl

    model, folder, port, *options = sys.argv[1:]
    server = start_vllm(Path(model), Path(folder) / "vllm.log", *options, port=int(port))
    (Path(folder) / "url.part").write_text(server.url)
    (Path(folder) / "url.part").rename(Path(folder) / "url")
    with (Path(folder) / "users").open("w") as users:
        while server.process.poll() is None:
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(1)
        server.close()


if __name__ == "__main__":
    main()
