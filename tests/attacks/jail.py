"""Commands in processes of their own, each with limits, watched from outside: what attacks on whole journeys share.

``Jail`` starts one Python that has imported lbx, and forks it for each command: a process costs milliseconds, and what
it does to itself ends with it. As a program this module is that Python.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

SECONDS = 60
"""A guard: a command that waits for ever is ended."""
DATA_LIMIT = 4 << 30
FILE_LIMIT = 1 << 30
_LINK = re.compile(rb"http://127\.0\.0\.1:([0-9]+)(\S+)\s")
_MESSAGE = re.compile("^error: ", re.MULTILINE)
MIB = 700
"""The most that any of these small inputs may make a command take."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code or, negative, the signal; what it said; and what it left behind.

    Attributes:
        mib: its largest memory, with Python and the libraries.
        hung: it had to be ended.
        changed: names below the folder that are new, gone or another file than before.
    """

    code: int
    out: str
    err: str
    mib: int
    hung: bool
    changed: frozenset[str]

    @property
    def refused(self) -> bool:
        return self.code in (1, 2)

    def fault(self, *, may_change: Collection[str] = (), may_leave: Collection[str] = ()) -> str:
        """What is wrong with how it ended, or "".

        Args:
            may_change: beginnings of names that the command was asked to write, if it was not refused.
            may_leave: beginnings of names that stay of it in any case, for the next attempt.
        """
        from lbx.base.visible import visible

        text = self.out + self.err
        taken = (*may_leave, *(() if self.refused else may_change))
        strange = [name for name in self.changed if not name.startswith(taken)]
        faults = {
            "it hung": self.hung,
            f"exit code {self.code}": self.code not in (0, 1, 2, 3, 4) and not self.hung,
            "a traceback": "Traceback (most" in text or "did not expect" in text,
            "no reason": self.code in (1, 2) and not _MESSAGE.search(self.err) and "Usage:" not in self.err,
            "several messages": len(_MESSAGE.findall(self.err)) > 1,
            "text that steers": visible(text) != text,
            f"{self.mib} MiB": self.mib > MIB,
            f"it wrote {sorted(strange)}": bool(strange),
        }
        return "; ".join(name for name, holds in faults.items() if holds)


class Jail:
    """with Jail() as jail: jail(folder, "report", path) -> how it ended; the folder is its home and working folder."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def __call__(self, folder: Path, *arguments: object) -> Ended:
        """Run a command; one that serves pages gets Ctrl-C as soon as it has answered the first link that it prints.

        Args:
            folder: where it starts; HOME and TMPDIR, too. All below it is looked at before and after.
        """
        before = _names(folder)
        case: dict[str, Any] = {"arguments": list(map(str, arguments))}
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.ExitStack() as stack:
            said = [stack.enter_context((folder.parent / name).open("w+b")) for name in ("jail.out", "jail.err")]
            case |= {"folder": str(folder), "out": said[0].name, "err": said[1].name}
            self._process.stdin.write(json.dumps(case) + "\n")
            self._process.stdin.flush()
            done = json.loads(self._process.stdout.readline())
            texts = [file.read().decode("utf-8", "backslashreplace") for file in said]
        after = _names(folder)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        return Ended(done["code"], *texts, done["mib"], done["hung"], frozenset(changed))  # type: ignore[call-arg]


def _names(folder: Path) -> Mapping[str, tuple[int, ...]]:
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        kind = () if path.is_dir() and not path.is_symlink() else (status.st_ino, status.st_size, status.st_mtime_ns)
        found[os.fsdecode(os.fsencode(path.relative_to(folder)))] = (status.st_mode, *kind)
    return found


def _serve() -> None:
    import importlib
    import pkgutil

    import lbx

    for module in pkgutil.walk_packages(lbx.__path__, "lbx."):  # so that no fork has to
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("duckdb", "jinja2", "numpy", "rich.table", "uvicorn"):
        importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        case = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _be(case)
        print(json.dumps(_wait(pid, case)), flush=True)
    os._exit(0)  # what was frozen is not told as leaked


def _be(case: Mapping[str, Any]) -> None:
    code: object = 70
    try:
        os.setsid()
        nothing, *said = (
            os.open(os.devnull, os.O_RDONLY),
            *(os.open(case[name], os.O_WRONLY) for name in ("out", "err")),
        )
        for number, handle in enumerate((nothing, *said)):
            os.dup2(handle, number)
        os.chdir(case["folder"])
        os.environ |= dict.fromkeys(("HOME", "TMPDIR"), case["folder"])
        for limit, value in ((resource.RLIMIT_DATA, DATA_LIMIT), (resource.RLIMIT_FSIZE, FILE_LIMIT)):
            resource.setrlimit(limit, (value, value))
        sys.argv = ["lbx", *case["arguments"]]
        from lbx.cli.main import main

        main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # the traceback is what the test looks for
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def _wait(pid: int, case: Mapping[str, Any]) -> Mapping[str, Any]:
    end, served, hung = time.monotonic() + SECONDS, False, False
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            break
        if not served and (served := _answers(Path(case["out"]))):
            os.kill(pid, signal.SIGINT)
        hung = time.monotonic() > end
        if hung:
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return {"code": os.waitstatus_to_exitcode(status), "mib": usage.ru_maxrss >> 10, "hung": hung}


def _answers(out: Path) -> bool:
    """Whether a link stands there, whole, and the page behind it has answered."""
    link = _LINK.search(out.read_bytes())
    if not link:
        return False
    with (
        contextlib.suppress(OSError),
        contextlib.closing(socket.create_connection(("127.0.0.1", int(link[1])))) as page,
    ):
        page.settimeout(SECONDS)
        page.sendall(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n\r\n" % (link[2], link[1]))
        page.recv(1)
    return True


if __name__ == "__main__":
    _serve()
