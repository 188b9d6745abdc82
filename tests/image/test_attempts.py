"""The watch on the network sees what it must, with a real strace on real processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image.attempts import attempts, main


def record_of(code: str, folder: Path) -> Path:
    """What strace records of a Python program, as .ci/image-jail.sh calls it."""
    if not shutil.which("strace"):
        pytest.skip("needs strace: .ci/image-tools.sh installs it")
    record = folder / "record"
    watch = ["strace", "-f", "-qq", "-e", "signal=none", "-e", "trace=network,io_uring_setup,execve", "-o", record]
    done = subprocess.run([*watch, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "PTRACE" in done.stderr or "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
    assert record.stat().st_size, done.stderr
    return record


@pytest.mark.parametrize(
    "code",
    [
        "s = socket.socket(); s.settimeout(0.1); s.connect_ex(('127.0.0.1', 9))",
        "s = socket.socket(type=socket.SOCK_DGRAM); s.sendto(b'?', ('127.0.0.1', 53))",
        "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.connect_ex(('::1', 9))",
        "socket.socket().bind(('127.0.0.1', 0))",
        # From a process of its own, and from a thread.
        "import os\nif os.fork():\n os.wait()\nelse:\n socket.socket().connect_ex(('127.0.0.1', 9))",
        "import threading\nthreading.Thread(target=socket.socket().connect_ex, args=(('127.0.0.1', 9),)).start()",
    ],
    ids=["tcp", "udp", "ipv6", "server", "child", "thread"],
)
def test_an_attempt_is_seen(code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(record_of(f"import socket\n{code}", tmp_path))]) == 1
    assert "network: tried" in capsys.readouterr().out


def test_what_stays_inside_the_machine_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import socket\na, b = socket.socketpair()\na.send(b'x')\nsocket.socket(socket.AF_UNIX).connect_ex('/no')"
    assert main([str(record_of(code, tmp_path))]) == 0
    assert "0 attempts" in capsys.readouterr().out


def test_an_empty_record_shows_nothing(tmp_path: Path) -> None:
    empty = tmp_path / "record"
    empty.touch()
    assert main([str(empty)]) == 2


def test_a_call_cut_in_two_and_one_that_hides_its_target_count() -> None:
    cut = '7 connect(3, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("127.0.0.1")}, 16 <unfinished ...>'
    hidden = "7 io_uring_setup(64, {flags=0, sq_thread_cpu=0}) = 3"
    inside = '7 connect(3, {sa_family=AF_UNIX, sun_path="/run/AF_INET"}, 110) = -1 ENOENT (No such file or directory)'
    assert attempts([cut, hidden, inside]) == [cut, hidden]
