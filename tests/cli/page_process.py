"""A command that opens a page, in a process of its own, and somebody who has opened its link."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2


@contextmanager
def page_process(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], httpx2.Client]]:
    command = [Path(sys.executable).with_name("lbx"), *map(str, arguments), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"(http://127\.0\.0\.1:\d+)(/\S*?)(\?token=\S+)", line)
            assert found, line
            here = {"base_url": found[1] + found[2], "headers": {"origin": found[1]}, "follow_redirects": True}
            with httpx2.Client(**here, trust_env=False, timeout=60) as client:
                assert client.get(found[3]).status_code == 200
                yield process, client
        finally:
            process.kill()
