"""Model server of a run: started, waited for, restarted after a crash, and stopped."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from lbx.backends import Backend
from lbx.backends.endpoint.backend import EndpointBackend
from lbx.backends.endpoint.http import Server
from lbx.backends.endpoint.options import EndpointOptions
from lbx.backends.serving.command import LOOPBACK, ServerCommand
from lbx.backends.serving.supervisor import HEADING, descendants
from lbx.base.errors import EndpointError, UsageError
from lbx.base.inputs import open_input
from lbx.base.processes import DEVNULL, PIPE, Popen, TimeoutExpired, find_tool, start_python
from lbx.base.visible import as_command, one_line

log = logging.getLogger("lbx")

MOST_RESTARTS = 5
"""Maximum number of restarts after crashes in one session."""
_POLL_S = 0.5
_DYING_S = 5.0
"""Time in which a server that breaks connections ends, if it has crashed."""
_GRACE_S = 15.0
"""Time between SIGTERM and SIGKILL when the server is stopped."""
_STOP_S = _GRACE_S + 15.0
_LAST_LINES, _LAST_BYTES, _LAST_CHARACTERS = 8, 1 << 14, 1200
_QUIET = {"DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
_FIRST_PORT, _TRIES = 20_000, 100
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class ModelServer:
    """Model server of a run, started by ``start``. Use as a context manager, which stops the server at the end.

    Args:
        command: command that starts the server.
        options: options of the model's card, except the url.
        log_file: receives the server's output.
        timeout_s: maximum time from each start until the server is ready.

    Raises:
        UsageError: the program does not exist, the port is in use, or the variable of the card's key is not set.
    """

    def __init__(self, command: ServerCommand, options: EndpointOptions, log_file: Path, timeout_s: float) -> None:
        program = find_tool(command.words[0])
        if program is None:
            raise UsageError(
                f"--serve: the program {command.words[0]} was not found.",
                fix="Install it, load its module or activate its environment, or give its full path.",
            )
        host = command.address_host
        self._reservation, port = _reserve_port(command.port, host)
        self._words = [program, *command.fill_in(port)[1:]]
        self.url = command.url(port)
        self.address = host, port
        try:
            self._client = Server(replace(options, url=self.url))
        except UsageError:  # the key is not set
            self._reservation.close()
            raise
        self.log_file = log_file
        self.restarts: list[dict[str, str]] = []
        self._timeout_s = timeout_s
        self._process: Popen[bytes] | None = None
        self._ready_at = 0.0
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._starting = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and wait until it is ready.

        Raises:
            EndpointError: the server ends before, or is not ready in time.
        """
        log.info(f"Starting the model server; its output is in {self.log_file}")
        began = time.monotonic()
        self._start()
        log.info(f"The model server is ready at {self.url} after {time.monotonic() - began:.0f} s")

    def watch(self, backend: Backend) -> None:
        """Make a backend restart the server when a request finds that it has crashed."""
        assert isinstance(backend, EndpointBackend)
        backend.use_recovery(self.recover)

    def recover(self, began: float) -> bool:
        """Restart the server if it has crashed since ``began`` (``time.monotonic``). Called from several threads.

        Returns:
            Whether it has crashed, and is ready again.

        Raises:
            EndpointError: the server does not become ready, or has crashed too many times.
        """
        with self._lock:
            if self._ready_at > began:
                return True
            process = self._process
            if process is None or self._closing.is_set():
                return False
            try:
                code = _wait(process, _DYING_S)
            except TimeoutExpired:
                return False
            if self._closing.is_set():
                return False
            if len(self.restarts) >= MOST_RESTARTS:
                self._closing.set()
                raise self._error(f"The model server {_exit_in_words(code)}, after {MOST_RESTARTS} restarts.")
            self.restarts.append({"at": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}", "exit": _exit_in_words(code)})
            log.warning(
                f"The model server {_exit_in_words(code)}. Restart {len(self.restarts)} of at most {MOST_RESTARTS}; "
                f"questions without an answer are asked again. Its output is in {self.log_file}"
            )
            try:
                self._start()
            except EndpointError:
                self._closing.set()  # so that no other thread tries again
                raise
            return True

    def facts(self) -> Mapping[str, Any]:
        """Facts about this session for the results file."""
        return {"server_restarts": list(self.restarts)} if self.restarts else {}

    def close(self) -> None:
        """Stop the server and all its processes."""
        with self._starting:
            self._closing.set()
            process = self._process
        self._client.close()
        if process is not None:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()  # the supervisor then ends everything, even if this process is killed now
            try:
                _wait(process, _STOP_S)
            except TimeoutExpired:
                _kill_all(process)
        self._reservation.close()

    def _start(self) -> None:
        """Start the server and wait until it is ready."""
        with self._starting:
            if self._closing.is_set():
                raise EndpointError("The run has ended.", fix="Run the same command again to continue.")
            if self._process and self._process.stdin:
                self._process.stdin.close()
            self._process = start_supervised(self._words, self.log_file, _QUIET)
        end = time.monotonic() + self._timeout_s
        while not self._client.is_ready():
            self._check_running()
            if time.monotonic() > end:
                raise self._error(
                    f"The model server was not ready after {self._timeout_s:,.0f} s.",
                    "If it needs more time to load the model, raise --serve-timeout.",
                )
            if self._closing.wait(_POLL_S):
                raise EndpointError("The run has ended.", fix="Run the same command again to continue.")
        self._check_running()
        self._ready_at = time.monotonic()

    def _check_running(self) -> None:
        """Raise EndpointError if the server ended before it was ready."""
        assert self._process is not None
        try:
            code = _wait(self._process, 0)
        except TimeoutExpired:
            return
        host, port = self.address
        fix = "Correct the command of --serve."
        if not _is_free(host, port):
            fix = f"The port {port} is now in use by another process. Run the same command again."
        raise self._error(f"The model server {_exit_in_words(code)} before it was ready.", fix)

    def _error(self, cause: str, fix: str = "Run the same command again to continue.") -> EndpointError:
        lines = _last_lines(self.log_file)
        output = f" Its last output: {' | '.join(lines)}" if lines else " It wrote no output."
        return EndpointError(cause + output, fix=fix, command=as_command("tail", "-n", "50", self.log_file))


def start_supervised(words: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> Popen[bytes]:
    """Start a server that ends with all its processes when this process ends, or closes the pipe to its supervisor.

    Args:
        environment: variables in addition to those of this process.

    Returns:
        The supervisor, in a process group with the server; its standard input is the pipe.
    """
    return start_python(
        "from lbx.backends.serving.supervisor import main; main()",
        str(log_file), str(_GRACE_S), *words,
        env={**os.environ, **environment}, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True,
    )  # fmt: skip


def _wait(supervisor: Popen[bytes], seconds: float) -> int:
    """Wait for the supervisor to end, kill the processes left in the group, and return the exit code.

    Its server may have stopped it. Until it is reaped, no other process and no other group can have its number.

    Raises:
        TimeoutExpired: the supervisor still runs.
    """
    end = time.monotonic() + seconds
    while supervisor.returncode is None:
        if os.waitid(os.P_PID, supervisor.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            _send(supervisor.pid, signal.SIGKILL, to_group=True)
            return supervisor.wait()
        if time.monotonic() > end:
            raise TimeoutExpired("", seconds)
        _send(supervisor.pid, signal.SIGCONT)
        time.sleep(min(_POLL_S / 10, seconds))
    return supervisor.returncode


def _kill_all(supervisor: Popen[bytes]) -> None:
    """Kill a supervisor that the server keeps from working, and all processes below the supervisor."""
    end = time.monotonic() + _GRACE_S
    while (running := descendants(supervisor.pid)) and time.monotonic() < end:
        for process in running:
            _send(process, signal.SIGKILL)
        time.sleep(_POLL_S / 10)
    _send(supervisor.pid, signal.SIGKILL)
    try:
        _wait(supervisor, _DYING_S)
    except TimeoutExpired:
        running = [supervisor.pid, *running]
    if running:
        log.warning(f"Processes of the model server did not end: {', '.join(map(str, running))}.")


def _send(process: int, number: signal.Signals, *, to_group: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if to_group else os.kill)(process, number)


def _reserve_port(port: int | None, host: str) -> tuple[socket.socket, int]:
    """Choose a free port, or check the given one, and reserve it against other runs of lbx on this machine.

    Chosen ports are below those that the system gives to outgoing connections, because a server may load its model for
    minutes before it listens.

    Raises:
        UsageError: the port is in use.
    """
    if port is not None:
        if reservation := _reserve(host, port):
            return reservation, port
        raise UsageError(
            f"--serve: the port {port} is in use by another process.",
            fix="Write --port {port} in the command, and lbx chooses a free one.",
        )
    choose = random.SystemRandom().randrange
    for _ in range(_TRIES):
        candidate = choose(_FIRST_PORT, _first_ephemeral())
        if reservation := _reserve(host, candidate):
            return reservation, candidate
    raise UsageError(
        "--serve: no free port was found on this machine.", fix="Give a port in the command in place of {port}."
    )


def _first_ephemeral() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open_input(_EPHEMERAL) as file:
        return max(_FIRST_PORT + 1000, int(file.read(64).split()[0]))
    return 32_768


def _reserve(host: str, port: int) -> socket.socket | None:
    """Reserve a port by a name that one process of this network namespace can bind, or None if it is in use."""
    reservation = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):
        reservation.bind(f"\0lbx-serve-{port}")
        if _is_free(host, port):
            return reservation
    reservation.close()
    return None


def _is_free(host: str, port: int) -> bool:
    """Whether a server could listen on a port. True if the host is another machine."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host if host in (LOOPBACK, "::1") else "", port))
        except OSError:
            return False
    return True


def _exit_in_words(code: int) -> str:
    number = -code if code < 0 else code - 128
    if code < 0 or code > 128:
        with contextlib.suppress(ValueError):
            name = signal.Signals(number).name
            return f"was ended by {name}" + (" (perhaps for lack of memory)" if number == signal.SIGKILL else "")
    return f"ended with exit code {code}"


def _last_lines(log_file: Path) -> list[str]:
    """Last lines of the server's output since the last start."""
    try:
        with open_input(log_file) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            text = file.read(_LAST_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    text = f"\n{text}".rpartition(f"\n{HEADING}")[2].partition("\n")[2] if f"\n{HEADING}" in f"\n{text}" else text
    lines = [one_line(line.strip()) for line in text.splitlines() if line.strip()]
    shown = lines[-_LAST_LINES:]
    while sum(map(len, shown)) > _LAST_CHARACTERS and len(shown) > 1:
        shown = shown[1:]
    return [line[-_LAST_CHARACTERS:] for line in shown]
