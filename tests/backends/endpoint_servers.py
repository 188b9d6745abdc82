"""Servers to ask: llama-cpp-python's own, with the demo model, and one that does whatever a test wants."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lbx.backends.serving.process import start_supervised

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"

_PAGE = (ROOT / "docs" / "serving.md").read_text("utf-8")
(SERVE_LLAMA,) = (
    " ".join(code.replace("\\\n", "").split())
    for code in re.findall(r'^    python -c "([^"]*)" --model ', _PAGE, re.MULTILINE)
)
"""Code of the documented command that starts llama-cpp-python's server."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def export_demo(folder: Path) -> Path:
    """The demo model as a GGUF file with float32 weights."""
    path = folder / "demo.gguf"
    command = [sys.executable, DEMO / "export_gguf.py", DEMO / "hf", path, "--dtype", "f32"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return path


class LlamaServer:
    """``python -m llama_cpp.server`` as a process on loopback; float32 cache, one thread, a window of 4096 tokens."""

    def __init__(self, model: Path, log: Path, port: int | None = None, **options: object) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        settings = {
            "model": model, "model_alias": "demo", "host": "127.0.0.1", "port": self.port, "n_ctx": 4096,
            "n_batch": 512, "n_ubatch": 512, "type_k": 0, "type_v": 0, "n_threads": 1, **options,
        }  # fmt: skip
        arguments = [str(part) for name, value in settings.items() for part in (f"--{name}", value)]
        self.log = log
        command = [sys.executable, "-c", SERVE_LLAMA, *arguments]
        self.process = start_supervised(command, log, {"OMP_WAIT_POLICY": "PASSIVE"})
        self._wait()

    def _wait(self) -> None:
        for _ in range(600):
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                try:
                    urllib.request.urlopen(self.url + "/models").close()
                except urllib.error.HTTPError as exc:
                    assert exc.code == 401
                    exc.close()
                return
            time.sleep(0.1)
        raise AssertionError(self.log.read_text()[-2000:])

    def kill(self) -> None:
        """kill -9."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()

    def close(self) -> None:
        self.process.stdin.close()
        if self.process.poll() is None:
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


Answer = tuple[int, dict[str, str], object]
"""Status, headers, and a body: a value for JSON, or text as it is. A status of 0 breaks the connection off."""


class ScriptedServer:
    """A server whose every answer a test decides.

    Args:
        answer: (path, payload or None, how many requests of this path came before) -> what to send.
    """

    def __init__(self, answer: Callable[[str, Any, int], Answer]) -> None:
        outer = self
        self.asked: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                self._send(None)

            def do_POST(self) -> None:
                self._send(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _send(self, payload: Any) -> None:
                with lock:
                    before = sum(path == self.path for path, _ in outer.asked)
                    outer.asked.append((self.path, payload))
                    outer.headers.append(dict(self.headers))
                status, headers, body = answer(self.path, payload, before)
                if not status:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def posts(self, path: str = "/v1/completions") -> list[Any]:
        return [payload for asked, payload in self.asked if asked == path and payload is not None]

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self._thread.join()


@contextlib.contextmanager
def closing_all() -> Iterator[list[Any]]:
    """A list whose members are closed at the end, the last one first."""
    things: list[Any] = []
    try:
        yield things
    finally:
        for thing in reversed(things):
            thing.close()
