"""The append-only file of both journals: ratings of people, and edits of a dataset."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lbx.base.journal_file import JournalFile, split_lines

LIMIT = 1 << 20


def opened(path: Path) -> JournalFile:
    return JournalFile(path, mode=0o600, limit=LIMIT)


def test_a_line_that_was_not_written_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the part cannot be removed at once, as on a disk that has gone."""
    path, write, cut = tmp_path / "journal", os.write, os.ftruncate
    journal = opened(path)
    journal.append(b"first")

    def gone(*_: object) -> int:
        raise OSError(5, "Input/output error")

    def half(file: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", gone)
        monkeypatch.setattr(os, "ftruncate", gone)
        return write(file, data[:3])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="Input/output"):
        journal.append(b"second")
    assert path.read_bytes() == b"first\nsec"
    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "ftruncate", cut)
    journal.append(b"third")
    journal.close()
    assert path.read_bytes() == b"first\nthird\n"


def test_a_partial_line_stays_until_it_is_cut(tmp_path: Path) -> None:
    path, torn = tmp_path / "journal", tmp_path / "torn"
    for number in range(2):
        with path.open("ab") as file:
            file.write(b"one\ntw")
        journal = opened(path)
        assert journal.read_lines() == [b"one"] * (number + 1)
        assert path.read_bytes().endswith(b"\ntw")
        assert journal.cut_partial_line(torn)
        assert not journal.cut_partial_line(torn)
        assert path.read_bytes() == b"one\n" * (number + 1)
        journal.close()
    assert torn.read_bytes() == b"tw\ntw\n"


def test_a_file_that_was_removed_while_another_process_had_it_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = opened(path)
    with pytest.raises(BlockingIOError):
        opened(path)
    path.unlink()
    second = opened(path)
    second.append(b"kept")
    first.close()
    second.close()
    assert path.read_bytes() == b"kept\n"


WRITER = """
import sys
from pathlib import Path
from lbx.base.journal_file import JournalFile
journal = JournalFile(Path(sys.argv[1]), mode=0o600, limit=1 << 30)
journal.read_lines()
journal.cut_partial_line()
number = int(sys.argv[2])
while True:
    journal.append(b"%d " % number + b"x" * (number * 7919 % 100_000))
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_loses_no_line_that_was_said_to_be_saved(tmp_path: Path, seed: int) -> None:
    path, number = tmp_path / "journal", 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", WRITER, path, str(number)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = [process.stdout.readline()]
        time.sleep(random.Random(seed).uniform(0.01, 0.2))
        process.send_signal(signal.SIGKILL)
        said += process.stdout
        process.wait()
        process.stdout.close()
        saved = sum(line.endswith("\n") for line in said)
        lines = split_lines(path.read_bytes())[0]
        assert number + saved <= len(lines) <= number + saved + 1
        for place, line in enumerate(lines):
            assert line == b"%d " % place + b"x" * (place * 7919 % 100_000)
        number = len(lines)
