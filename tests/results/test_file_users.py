"""A process that uses a results file is described to others who want to write to it."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from lbx.base.errors import InUseError
from lbx.results import Store
from lbx.results.file.file_users import find_user
from lbx.results.file.opening import lock_path
from lbx.results.whole.commit_copies import exclusive_lock

OWN = rf"PID {os.getpid()} on {socket.gethostname()} since 20"


def test_a_lock_names_its_owner(tmp_path: Path) -> None:
    """A run with --scratch and a merge lock the file that they replace."""
    path = tmp_path / "r.duckdb"
    Store(path).close()
    with exclusive_lock(path):
        with pytest.raises(InUseError, match=OWN) as error, exclusive_lock(path):
            pass
        assert error.value.path == path
    assert not lock_path(path).exists()


RECORD = {"user": "u", "host": "h", "process": 1, "command": "", "began": ""}
FORGED = (
    {"user": "\x1b[31mroot"}, {"user": "u\u202e"}, {"command": "rm -rf ~"}, {"command": "lbx " + "x" * 999},
    {"process": "1"}, {"host": None}, {"user": 2},
)  # fmt: skip
MALFORMED = (b"", b"{", b"[" * 100_000, b"\xff", b'"x"', b"{}", b"x" * 5000)


@pytest.mark.parametrize("record", [*MALFORMED, *(json.dumps(RECORD | other).encode() for other in FORGED)])
def test_a_lock_s_file_is_believed_only_if_lbx_writes_it_so(tmp_path: Path, record: bytes) -> None:
    path = tmp_path / "r.duckdb"
    with exclusive_lock(path):
        lock_path(path).write_bytes(record)
        with pytest.raises(InUseError, match="another process, which may run on another machine"), exclusive_lock(path):
            pass


def test_a_process_without_a_lock_on_the_file_is_not_described(tmp_path: Path) -> None:
    """The number of another machine's process may be that of any process here."""
    path = tmp_path / "r.duckdb"
    with Store(path):
        assert find_user(path, os.getpid()) is not None
        assert find_user(path, os.getppid()) is None
        assert find_user(path, 2**30) is None
