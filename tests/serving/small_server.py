"""A small OpenAI-compatible server for tests: python small_server.py --port N [options]. It answers every prompt."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SLEEPING = "import signal, time; {}; time.sleep(3600)"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="small")
    parser.add_argument("--answer", default="seven")
    parser.add_argument("--ready-after", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds for an answer")
    parser.add_argument("--fail", default="", help="print this and exit with 3 before listening")
    parser.add_argument("--crash-after", type=int, default=0, metavar="N", help="kill -9 itself at the Nth question")
    parser.add_argument("--crash-once", type=Path, help="crash only if this file is missing, and create it")
    parser.add_argument("--crash-on", type=Path, help="crash at the question in this file; the first one creates it")
    parser.add_argument("--orphan", action="store_true", help="start a process in a session of its own")
    parser.add_argument("--stubborn", action="store_true", help="the orphan ignores SIGTERM")
    parser.add_argument("--stop-supervisor", choices=["once", "always"], default="", help="SIGSTOP at a question")
    parser.add_argument("--worker", default="", metavar="HOST:PORT", help="be ready only while a worker is connected")
    return parser.parse_args()


class State:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.ready_at = time.monotonic() + options.ready_after
        self.lock = threading.Lock()
        self.questions = 0
        self.has_worker = not options.worker
        self.supervisor = os.getppid()

    @property
    def ready(self) -> bool:
        return self.has_worker and time.monotonic() >= self.ready_at

    def count(self, text: str) -> None:
        with self.lock:
            self.questions += 1
            if self.questions == 1 and self.options.stop_supervisor:
                os.kill(self.supervisor, signal.SIGSTOP)
                if self.options.stop_supervisor == "always":
                    code = f"import os, time\nwhile True: os.kill({self.supervisor}, 19)"
                    stopping = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
                    print("orphan", stopping.pid, flush=True)
            due = self.options.crash_after and self.questions >= self.options.crash_after
            once = self.options.crash_once
            if due and once is not None:
                due = not once.exists()
                once.touch()
            if (poison := self.options.crash_on) is not None:
                if not poison.exists():
                    poison.write_text(text)
                due = poison.read_text() == text
            if due:
                print("the engine has died \x1b[31mhere\x1b[0m", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

    def wait_for_worker(self) -> None:
        host, _, port = self.options.worker.partition(":")
        with socket.create_server((host, int(port))) as listening:
            connection, _ = listening.accept()
            print("a worker has joined", flush=True)
            self.has_worker = True
            connection.recv(1)  # until it ends
            os._exit(9)


def handler(state: State) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Requests are not logged."""

        def do_GET(self) -> None:
            status = 200 if state.ready else 503
            if self.path == "/health":
                self._send(status, {"status": "ok"})
            elif self.path == "/v1/models":
                self._send(200, {"data": [{"id": "small", "owned_by": "vllm", "max_model_len": 8192}]})
            elif self.path == "/version":
                self._send(200, {"version": "1.2.3"})
            else:
                self._send(404, {})

        def do_POST(self) -> None:
            payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/v1/chat/completions":
                self._send(404, {})
                return
            text = payload["messages"][-1]["content"]
            time.sleep(state.options.delay)
            state.count(text)
            message = {"role": "assistant", "content": state.options.answer}
            usage = {"prompt_tokens": len(text), "completion_tokens": 1}
            self._send(200, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def main() -> None:
    options = parse()
    print("offline", os.environ.get("HF_HUB_OFFLINE"), flush=True)
    if options.fail:
        sys.exit(f"{options.fail}")
    if options.orphan:
        code = SLEEPING.format(STUBBORN if options.stubborn else "pass")
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        print("orphan", child.pid, flush=True)
    state = State(options)
    if options.worker:
        threading.Thread(target=state.wait_for_worker, daemon=True).start()
    ThreadingHTTPServer((options.host, options.port), handler(state)).serve_forever()


if __name__ == "__main__":
    main()
