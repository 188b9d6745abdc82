"""Process between lbx and a model server, so that no server outlives its run.

The supervisor starts the server, writes the server's output to a log, and ends all processes below itself when its
standard input closes: lbx closes it at the end of a run, the kernel closes it when lbx is killed. The supervisor exits
with the server's code, or 128 plus the number of the signal that ended the server.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import shlex
import signal
import sys
import time
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from lbx.base.inputs import SMALL, read_input
from lbx.base.outputs import open_append
from lbx.base.processes import DEVNULL, Popen
from lbx.base.visible import one_line, visible

HEADING = "== "
"""First characters of the line in the log that marks a start."""
MOST_LOG_BYTES = 1 << 26
"""Size at which the log is renamed and begun again, replacing the log that was renamed before."""
_CRASH_GRACE_S = 3.0
_KILL_S = 10.0
_TICK_S = 0.2
_LINE_BYTES = 8192
_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36


class _Log:
    """Log of a server's output, with control characters escaped. Failures to write it do not end the server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = b""

    def add(self, output: bytes) -> None:
        *lines, self._rest = re.split(rb"[\r\n]+", self._rest + output)
        while len(self._rest) > _LINE_BYTES:
            lines.append(self._rest[:_LINE_BYTES])
            self._rest = self._rest[_LINE_BYTES:]
        self._write(b"\n".join(lines) + b"\n" if lines else b"")

    def close(self) -> None:
        self.add(b"\n")

    def _write(self, lines: bytes) -> None:
        with suppress(OSError):
            if lines.strip():
                with open_append(self._path) as file:
                    file.write(visible(lines.decode("utf-8", "replace")).encode("utf-8", "replace"))
                if self._path.stat().st_size > MOST_LOG_BYTES:
                    self._path.replace(f"{self._path}.1")


def descendants(root: int) -> list[int]:
    """Running processes below a supervisor, orphans included, because it adopts them (on Linux)."""
    children = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            state, parent = read_input(folder / "stat", SMALL).rpartition(b")")[2].split()[:2]
            if state != b"Z":
                children[int(parent)].append(int(folder.name))
    below, waiting = [], [root]
    while waiting:
        waiting += (some := children.pop(waiting.pop(), []))
        below += some
    return below


def _reap() -> None:
    """Remove ended orphans from the table of processes."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end_all(server: Popen[bytes], grace_s: float, drain: _Drain) -> None:
    """End the server and all processes below this one, including new ones."""
    for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_S)):
        end = time.monotonic() + seconds
        signalled: set[int] = set()  # a second SIGTERM would make many servers abandon their shutdown
        while time.monotonic() < end:
            running = {server.pid} if server.poll() is None else set()
            if not (running := running.union(descendants(os.getpid()))):
                return
            for process in running - signalled:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            signalled |= running
            drain(_TICK_S / 4)
            _reap()


class _Drain:
    """Reader of the server's output and of the pipe from lbx."""

    def __init__(self, output: int, log: _Log) -> None:
        self._inputs = {0, output}
        self._log = log
        self.is_stopping = False

    def __call__(self, seconds: float) -> None:
        """Wait for output, for the end of lbx, or for the time to pass."""
        if not self._inputs:
            time.sleep(seconds)
            return
        for number in select.select(list(self._inputs), [], [], seconds)[0]:
            content = os.read(number, 1 << 16)
            if not content:
                self._inputs.discard(number)
                self.is_stopping |= number == 0
            elif number:
                self._log.add(content)

    def read_end(self) -> None:
        """Read output that the server wrote before its end."""
        while select.select(list(self._inputs - {0}), [], [], 0)[0]:
            self(0)


def _set_process_option(option: int, value: int) -> None:
    with suppress(AttributeError):  # Linux only
        ctypes.CDLL(None).prctl(option, value)


def main() -> None:
    """Run the supervisor, as ``python -c CODE LOG GRACE_S COMMAND...``, GRACE_S seconds from SIGTERM to SIGKILL."""
    log, grace_s, command = _Log(Path(sys.argv[1])), float(sys.argv[2]), sys.argv[3:]
    log.add(f"{HEADING}{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {one_line(shlex.join(command))}\n".encode())
    _set_process_option(_SET_SUBREAPER, 1)
    _set_process_option(_SET_DEATH_SIGNAL, signal.SIGCONT)  # if the server has stopped this process, and lbx is killed
    reading, writing = os.pipe()
    try:
        server = Popen(
            command,
            stdin=DEVNULL,
            stdout=writing,
            stderr=writing,
            preexec_fn=lambda: _set_process_option(_SET_DEATH_SIGNAL, signal.SIGKILL),
        )
    except OSError as exc:
        log.add(f"{exc.strerror or exc}: {command[0]}\n".encode())
        sys.exit(127)
    os.close(writing)
    drain = _Drain(reading, log)
    signal.signal(signal.SIGTERM, lambda *_: setattr(drain, "is_stopping", True))
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while server.poll() is None and not drain.is_stopping:
        drain(_TICK_S)
    _end_all(server, grace_s if drain.is_stopping else _CRASH_GRACE_S, drain)
    drain.read_end()
    log.close()
    code = server.poll()
    sys.exit(1 if code is None else code if code >= 0 else 128 - code)
