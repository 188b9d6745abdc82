"""A dataset that is edited: what was saved is there after any end, the file itself never changes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lbx.base.errors import LbxError, StoreError, UsageError
from lbx.exchange.annotation.dataset import ANSWERS, QUESTIONS, Dataset
from lbx.exchange.annotation.tool_pages import official_files

LINES = (
    b'\xef\xbb\xbf{"instructions": ["q0", "q1"], "outputs": ["a0", "a1"], "input": "one document", "weight": 1.0}\r\n'
    b"\n"
    b'{"input":"\xc3\xa9\xc3\xa9","evaluation":"f1","instructions":["r"],"outputs":[]}\n'
    b"  \n"
    b'{"source": "last", "input": "no pair", "big": 123456789012345678901234567890e-7}'
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_bytes(LINES)
    return path


def _bytes(dataset: Dataset) -> bytes:
    return b"".join(dataset.pieces())


def test_what_is_not_edited_keeps_its_bytes(file: Path, tmp_path: Path) -> None:
    with Dataset(file, tmp_path / "out.jsonl") as dataset:
        assert [(entry.number, entry.pairs) for entry in dataset.entries] == [(1, 2), (3, 1), (5, 0)]
        assert _bytes(dataset) == LINES
        assert dataset.set(0, 1, ANSWERS, "new", 0)
        assert dataset.add(2, "q", "ü")
        assert not dataset.set(0, 1, ANSWERS, "new", 0)
        dataset.write()
    expected = LINES.replace(b'"a1"', b'"new"').replace(
        b"e-7}", 'e-7, "instructions": ["q"], "outputs": ["ü"]}'.encode()
    )
    assert (tmp_path / "out.jsonl").read_bytes() == expected
    assert file.read_bytes() == LINES


@pytest.mark.parametrize("change", ["in place", "cut", "appended", "in place, while it is written"])
def test_a_file_that_changed_underneath_is_not_written(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    out = tmp_path / "out.jsonl"

    def changed() -> None:
        content = {"cut": LINES[:140], "appended": LINES + b"\n{}"}.get(change, LINES.replace(b'"r"', b'"R"'))
        times = file.stat()
        with file.open("r+b") as held:
            held.write(content)
            held.truncate()
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # as whoever hides it would

    with Dataset(file, out) as dataset:
        dataset.set(0, 1, ANSWERS, "new", 0)
        if "while" in change:
            pieces = dataset.pieces()

            def meddled() -> Iterator[bytes]:
                yield next(pieces)
                changed()
                yield from pieces

            monkeypatch.setattr(dataset, "pieces", meddled)
        else:
            changed()
        with pytest.raises(UsageError, match="has changed since it was opened"):
            dataset.write()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "out.jsonl.edits.jsonl"]
    file.write_bytes(LINES)
    with Dataset(file, out) as dataset:
        dataset.write()
    assert out.read_bytes() == LINES.replace(b'"a1"', b'"new"')


@pytest.mark.parametrize("size", [0, 100, 200, len(LINES) - 1])
def test_a_file_that_was_shortened_is_not_read(file: Path, size: int) -> None:
    with Dataset(file) as dataset:
        os.truncate(file, size)
        for read in (dataset.line, dataset.original):
            for place in range(3):
                with pytest.raises(UsageError, match="has changed since it was opened"):
                    read(place)
        with pytest.raises(UsageError, match="has changed since it was opened"):
            list(dataset.search("teapot"))


def test_an_edit_of_a_file_that_changed_underneath_is_refused(file: Path, tmp_path: Path) -> None:
    with Dataset(file, tmp_path / "out.jsonl") as dataset:
        with file.open("ab") as held:
            held.write(b"\n")
        with pytest.raises(UsageError, match="has changed since it was opened"):
            dataset.set(0, 1, ANSWERS, "new", 0)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_copy_is_read_by_nobody_who_may_not_read_the_file(file: Path, tmp_path: Path, mode: int) -> None:
    file.chmod(mode)
    with Dataset(file, tmp_path / "out.jsonl") as dataset:
        dataset.set(0, 1, ANSWERS, "new", 0)
        dataset.write()
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("out.jsonl", "out.jsonl.edits.jsonl")} == {mode}


def test_a_second_call_goes_on(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with Dataset(file, out) as dataset:
        dataset.set(1, 0, ANSWERS, "first", 0)
        dataset.remove(0, 0, 0)
        dataset.write()
    with Dataset(file, out) as dataset:
        assert dataset.changed_count == 2
        assert _bytes(dataset) == out.read_bytes()
        assert dataset.undoable == "the removal of pair 1"
        assert dataset.undo() == 0
        assert dataset.undo() == 1
        assert dataset.undo() is None
        assert _bytes(dataset) == LINES
        dataset.write()
    assert out.read_bytes() == LINES


def test_typing_on_is_one_edit_to_undo(file: Path, tmp_path: Path) -> None:
    with Dataset(file, tmp_path / "out.jsonl") as dataset:
        for text in ("n", "ne", "new"):
            dataset.set(0, 0, QUESTIONS, text, 0)
        dataset.set(0, 0, ANSWERS, "other", 0)
        dataset.undo()
        assert dataset.line(0).pairs()[0][0].text == "new"
        dataset.undo()
        assert _bytes(dataset) == LINES
    with Dataset(file, tmp_path / "out.jsonl") as dataset:
        assert _bytes(dataset) == LINES


def test_a_form_of_before_is_refused(file: Path, tmp_path: Path) -> None:
    with Dataset(file, tmp_path / "out.jsonl") as dataset:
        dataset.remove(0, 0, dataset.shape(0))
        with pytest.raises(UsageError, match="were added or removed"):
            dataset.set(0, 0, ANSWERS, "meant for the other one", 0)
        dataset.set(0, 0, ANSWERS, "now", dataset.shape(0))


def test_search_reads_every_value(file: Path) -> None:
    with Dataset(file) as dataset:
        assert list(dataset.search("ÉÉ")) == [1]
        assert list(dataset.search("LAST")) == [2]
        assert list(dataset.search("q1")) == [0]
        with pytest.raises(UsageError, match="read-only"):
            dataset.add(0, "q", "a")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "contains no document"),
        (b'{"input": "d"}\n{"input": "\xff"}\n', r"line 2: it is not UTF-8 \(invalid start byte at byte 12\)"),
        (b'\n{"input": "d", "input": "e"}', "line 2: it has the key 'input' twice"),
        (b'[{"input": "d"}]', "line 1: it begins a JSON array"),
        (b'{\n"input": "d"}', "line 1: it is not JSON"),
        (b'{"input": "d"}\n{"input": "d", "outputs": {}}', 'line 2: "outputs" should be a list'),
    ],
)
def test_damaged_lines_are_named(file: Path, data: bytes, said: str) -> None:
    file.write_bytes(data)
    with pytest.raises(UsageError, match=said):
        Dataset(file)


def test_nothing_is_written_over(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is the file itself"):
        Dataset(file, file)
    link = tmp_path / "link.jsonl"
    link.symlink_to(file)
    with pytest.raises(UsageError, match="is the file itself"):
        Dataset(file, link)
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"mine")
    with pytest.raises(UsageError, match="already exists"):
        Dataset(file, other)
    out = tmp_path / "out.jsonl"
    with Dataset(file, out) as dataset:
        dataset.add(0, "q", "a")
        dataset.write()
        out.write_bytes(b"somebody's")
        with pytest.raises(UsageError, match="not overwritten"):
            dataset.write()
    assert out.read_bytes() == b"somebody's"


def test_two_at_once_and_another_file_are_refused(file: Path, tmp_path: Path) -> None:
    with Dataset(file, tmp_path / "out.jsonl") as dataset:
        dataset.add(0, "q", "a")
        with pytest.raises(UsageError, match="Another lbx is editing"):
            Dataset(file, tmp_path / "out.jsonl")
    file.write_bytes(LINES + b"\n")
    with pytest.raises(UsageError, match="has other bytes"):
        Dataset(file, tmp_path / "out.jsonl")


def test_a_damaged_log_is_refused_and_a_torn_end_is_not(file: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "out.jsonl", tmp_path / "out.jsonl.edits.jsonl"
    with Dataset(file, out) as dataset:
        dataset.set(0, 0, ANSWERS, "kept", 0)
        whole = log.stat().st_size
        dataset.set(0, 1, ANSWERS, "torn", 0)
    data = log.read_bytes()
    for size in range(whole, len(data)):
        log.write_bytes(data[:size])
        with Dataset(file, out) as dataset:
            assert _bytes(dataset) == LINES.replace(b'"a0"', b'"kept"')
        assert log.stat().st_size == whole
    for size in range(data.index(b"\n")):
        log.write_bytes(data[:size])
        with Dataset(file, out) as dataset:
            assert _bytes(dataset) == LINES
    log.write_bytes(data.replace(b"kept", b"left").replace(b"a0", b"a9"))
    with pytest.raises(StoreError, match=r"line 2: lbx did not write this line"):
        Dataset(file, out)


@pytest.mark.parametrize(
    "line",
    [
        '{"undo": 0}', '{"undo": -5}', '{"undo": 9}', "[" * 100_000,
        '{"line": 1, "what": "x", "splices": [[0, "{", "BROKEN"]], "more": false}',
    ],
)  # fmt: skip
def test_a_log_that_lbx_did_not_write_is_refused(file: Path, tmp_path: Path, line: str) -> None:
    out, log = tmp_path / "out.jsonl", tmp_path / "out.jsonl.edits.jsonl"
    with Dataset(file, out) as dataset:
        dataset.set(0, 0, ANSWERS, "kept", 0)
    log.write_bytes(log.read_bytes() + line.encode() + b"\n")
    with pytest.raises(StoreError, match=r"line 3: lbx did not write this line"):
        Dataset(file, out)


def test_a_pipe_is_no_log(file: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.jsonl.edits.jsonl")
    with pytest.raises(UsageError, match="not a file"):
        Dataset(file, tmp_path / "out.jsonl")


def test_the_command_for_an_array_does_not_empty_the_file(tmp_path: Path) -> None:
    """A shell empties the file behind > before jq reads it."""
    file = tmp_path / "notes.jsonl"
    file.write_text('[{"input": "d"}]')
    with pytest.raises(UsageError, match="line 1: it begins a JSON array") as told:
        Dataset(file)
    assert told.value.command.endswith("> notes.lines.jsonl")


def test_a_number_beyond_pythons_stands_as_it_is_in_the_tools_form(file: Path) -> None:
    file.write_text(f'{{"input": "d", "n": {"9" * 5000}, "instructions": ["q"], "outputs": ["a"]}}\n')
    with Dataset(file) as dataset:
        assert "9" * 5000 in official_files(dataset)["jsons/0_cleaned.json"]


def test_a_full_disk_loses_nothing(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.jsonl"

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    with Dataset(file, out) as dataset:
        dataset.set(0, 0, ANSWERS, "kept", 0)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(LbxError, match="not saved; those before are"):
                dataset.set(0, 1, ANSWERS, "lost", 0)
        assert _bytes(dataset) == LINES.replace(b'"a0"', b'"kept"')
        dataset.set(1, 0, ANSWERS, "after", 0)
    with Dataset(file, out) as dataset:
        assert _bytes(dataset) == LINES.replace(b'"a0"', b'"kept"').replace(b'"outputs":[]', b'"outputs":["after"]')


_EDITOR = """
import sys
from pathlib import Path
from lbx.exchange.annotation.dataset import Dataset
from lbx.exchange.annotation.tool_pages import official_files
from lbx.exchange.annotation.dataset import ANSWERS
file, out = map(Path, sys.argv[1:])
with Dataset(file, out) as dataset:
    number = int((dataset.line(0).pairs()[0][1].text or "0").lstrip("a"))
    while True:
        number += 1
        dataset.set(0, 0, ANSWERS, str(number), 0)
        print(number, flush=True)
        if number % 7 == 0:
            dataset.write()
"""


def test_killed_at_any_moment_what_was_said_is_there(file: Path, tmp_path: Path) -> None:
    """SIGKILL at random moments; each time the next process finds the last number that was said, or one behind it."""
    out, draw, said = tmp_path / "out.jsonl", random.Random(17), 0
    for _ in range(8):
        process = subprocess.Popen([sys.executable, "-c", _EDITOR, file, out], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process:
            said = int(process.stdout.readline())
            time.sleep(draw.random() / 20)
            process.send_signal(signal.SIGKILL)
            said = max([said, *(int(line) for line in process.stdout.read().splitlines() if line)])
        with Dataset(file, out) as dataset:
            found = int(dataset.line(0).pairs()[0][1].text or 0)
            assert found in (said, said + 1)
        if out.exists():
            first = json.loads(out.read_bytes().decode("utf-8-sig").split("\n")[0])
            assert int(first["outputs"][0]) % 7 == 0


def test_random_edits_undone_give_the_file_back(file: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    out = tmp_path / "out.jsonl"
    for _ in range(4):
        with Dataset(file, out) as dataset:
            steps: list[Callable[[int], object]] = [
                lambda place: dataset.add(place, "q", draw.choice("äb")),
                lambda place: dataset.set(
                    place, 0, draw.choice([QUESTIONS, ANSWERS]), draw.choice("xyz"), dataset.shape(place)
                ),
                lambda place: dataset.remove(place, 0, dataset.shape(place)),
                lambda _: dataset.undo(),
            ]
            for _ in range(30):
                place = draw.randrange(3)
                if dataset.line(place).pairs():
                    draw.choice(steps)(place)
                else:
                    steps[0](place)
            now = _bytes(dataset)
        with Dataset(file, out) as dataset:
            assert _bytes(dataset) == now
    with Dataset(file, out) as dataset:
        while dataset.undo() is not None:
            pass
        assert _bytes(dataset) == LINES
