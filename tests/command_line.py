"""lbx's command line for tests: in this process, where a refusal or a report costs no second of imports, or in one of
its own, where an exit code, a signal or what the process loads is what a test is about."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from lbx.base.processes import PIPE, start_python

Done = subprocess.CompletedProcess[str]


class Lbx:
    """lbx("report", path) -> how the command ended and what it said, as ``subprocess.run`` gives it."""

    def __call__(
        self, *arguments: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> Done:
        """In this process, whose environment, folder, signals and network it leaves as they are."""
        from lbx.cli.main import main

        words = ["lbx", *map(str, arguments)]
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
        code: object = 0
        with _as_it_was(cwd, environment), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            sys.argv = words
            try:
                main()
            except SystemExit as end:
                code = end.code
        said = []
        for stream in (out, err):
            stream.flush()
            said.append(stream.buffer.getvalue().decode("utf-8"))  # type: ignore[attr-defined]
        return Done(words, code if isinstance(code, int) else int(code is not None), *said)

    def ok(self, *arguments: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> Done:
        """A command that ends with 0."""
        done = self(*arguments, cwd=cwd, environment=environment)
        assert done.returncode == 0, done.stderr
        return done

    def rows(self, results: Path, query: str) -> list[dict[str, Any]]:
        """Rows of ``lbx sql``."""
        rows: list[dict[str, Any]] = json.loads(self.ok("sql", results, query, "--format", "json").stdout)
        return rows

    def unpacked(self, recipe: Path, folder: Path, *options: object) -> Path:
        """The bundle of a recipe, unpacked into folder/bundle; its archive is in folder/out."""
        out = folder / "out"
        self.ok("bundle", recipe, "-o", out, *options)
        (archive,) = out.glob("*.tar")
        self.ok("unpack", archive, "--allow-unsigned", "--to", folder / "bundle")
        return folder / "bundle"

    def process(
        self, *arguments: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> Done:
        """In a process of its own."""
        command = [Path(sys.executable).with_name("lbx"), *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cwd, env=environment, timeout=300
        )


@contextlib.contextmanager
def _as_it_was(cwd: Path | None, environment: Mapping[str, str] | None) -> Iterator[None]:
    """What a command changes for its whole process is put back, the guard of sockets, too."""
    from lbx.running import offline

    before = sys.argv, sys.excepthook
    log = logging.getLogger("lbx")
    logged = log.handlers, log.propagate, log.level
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with (
        mock.patch.object(offline._guard, "allowed_addresses", None),
        mock.patch.dict(os.environ, environment or {}, clear=environment is not None),
        contextlib.chdir(cwd or Path.cwd()),
    ):
        os.environ.pop("LBX_DEBUG", None)
        try:
            yield
        finally:
            sys.argv, sys.excepthook = before
            log.handlers, log.propagate, log.level = logged
            for number, handler in handlers.items():
                signal.signal(number, handler)


def fails(done: Done, code: int, *words: str) -> None:
    """The command ended with this code, said these words, and showed no traceback."""
    said = " ".join(done.stderr.split())
    assert done.returncode == code, said
    assert "Traceback" not in said
    for word in words:
        assert word in said, said


_WRITER = """
import sys
from pathlib import Path
from lbx.results import Store
with Store(Path(sys.argv[1])):
    print(1, flush=True)
    input()
"""


@contextlib.contextmanager
def holding(path: Path) -> Iterator[None]:
    """Another process than a run writes the file."""
    with start_python(_WRITER, str(path), stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout and process.stdout.readline()
        yield
        process.kill()
