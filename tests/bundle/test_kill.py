"""SIGKILL at the worst moment: what is finished is kept, and nothing half-made has a name."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lbx.bundle import ArchiveFormat, CreateResult, unpack, verify
from tests.bundle.forge import members, write
from tests.bundle.hubserver import Faults, HubServer
from tests.bundle.small_hub import DATASET, MODEL

CREATE = """
import sys, time
from pathlib import Path
from lbx.bundle import create
def stop(stage, item, done, total):
    if stage == sys.argv[4] and done:
        print("here", flush=True)
        time.sleep(600)
create([Path(sys.argv[1])], Path(sys.argv[2]), hub=sys.argv[3], progress=stop)
"""
UNPACK = """
import sys, time
from pathlib import Path
from lbx.bundle import unpack
def stop(stage, item, done, total):
    print("here", flush=True)
    time.sleep(600)
unpack(Path(sys.argv[1]), Path(sys.argv[2]), stop)
"""
KILLED_AT = """
import os, signal, sys
from pathlib import Path
from lbx.bundle import ArchiveFormat, create
left = int(sys.argv[4])
def count(event, arguments):
    global left
    path = str(arguments[0]) if event in ("open", "os.rename", "os.remove") else ""
    if f"{sys.argv[2]}/" in path and "/files" not in path:  # what it has fetched is not counted: it is once only
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
create([Path(sys.argv[1])], Path(sys.argv[2]), hub=sys.argv[3], archive_format=ArchiveFormat(volume_size=1 << 20))
print(-left)
"""


@contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = dict(os.environ)
    environment.pop("HF_HUB_OFFLINE", None)  # loading a model in another test has set it for this process
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(what: Callable[[], bool]) -> None:
    for _ in range(3000):
        if what():
            return
        time.sleep(0.01)
    pytest.fail("what was waited for did not happen")


def half_of_big(hub: HubServer, work: Path) -> bool:
    """Whether the file that stalls halfway has come so far."""
    digest = hashlib.sha256((hub.hub / "datasets/org/data/big.jsonl").read_bytes()).hexdigest()
    part = work / f"sha256-{digest}.part"
    return part.exists() and part.stat().st_size > 1 << 20


def test_a_download_goes_on_where_it_was_killed(
    bundle: Callable[..., CreateResult], hub: HubServer, faults: Faults, recipe: Callable[..., Path], tmp_path: Path
) -> None:
    whole = bundle(DATASET + MODEL, out="whole")
    work = tmp_path / "out/.demo.partial/files"
    faults.stall = "big.jsonl"
    with child(CREATE, recipe(DATASET + MODEL), tmp_path / "out", hub.url, "never") as process:
        wait_for(lambda: half_of_big(hub, work))
        process.kill()
    faults.stall = ""
    faults.release.set()
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".demo.partial"]
    finished = [path for path in work.iterdir() if path.suffix != ".part"]
    assert finished
    hub.log.clear()
    again = bundle(DATASET + MODEL)
    assert again.archive.read_bytes() == whole.archive.read_bytes()
    assert again.sums.read_bytes() == whole.sums.read_bytes()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["demo.SHA256SUMS", "demo.tar"]
    (ranged,) = hub.fetched("big.jsonl")
    assert int(ranged.removeprefix("bytes=").removesuffix("-")) > 1 << 20
    assert hub.fetched("model.safetensors") == []  # it was whole: hashed again, not fetched again


def test_what_was_left_behind_is_not_believed(
    bundle: Callable[..., CreateResult], hub: HubServer, faults: Faults, recipe: Callable[..., Path], tmp_path: Path
) -> None:
    whole = bundle(DATASET, out="whole")
    work = tmp_path / "out/.demo.partial/files"
    faults.stall = "big.jsonl"
    with child(CREATE, recipe(DATASET), tmp_path / "out", hub.url, "never") as process:
        wait_for(lambda: half_of_big(hub, work))
        process.kill()
    faults.stall = ""
    faults.release.set()
    for path in work.iterdir():
        content = path.read_bytes()
        path.write_bytes(b"X" + content[1:])
    assert bundle(DATASET).archive.read_bytes() == whole.archive.read_bytes()


@pytest.mark.parametrize("stage", ["fetch", "pack"])
def test_a_kill_in_any_stage_leaves_no_archive(
    bundle: Callable[..., CreateResult], hub: HubServer, recipe: Callable[..., Path], tmp_path: Path, stage: str
) -> None:
    whole = bundle(DATASET, out="whole")
    with child(CREATE, recipe(DATASET), tmp_path / "out", hub.url, stage) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.kill()
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".demo.partial"]
    again = bundle(DATASET)
    assert verify(again.archive).digest == whole.digest
    assert again.archive.read_bytes() == whole.archive.read_bytes()


def test_ten_kills_in_a_row_change_no_byte(
    bundle: Callable[..., CreateResult], hub: HubServer, recipe: Callable[..., Path], tmp_path: Path
) -> None:
    """Before a file of the archive is opened, renamed or removed, while an older archive of its name is there."""
    whole = bundle(DATASET + MODEL, out="whole", archive_format=ArchiveFormat(volume_size=1 << 20))
    expected = {path.name: path.read_bytes() for path in whole.archive.parent.iterdir()}
    out = tmp_path / "out"
    bundle(MODEL, archive_format=ArchiveFormat(volume_size=1 << 20))

    def run(kill_at: int) -> int:
        """How many steps it took, or 0 where it was killed."""
        with child(KILLED_AT, recipe(DATASET + MODEL), out, hub.url, kill_at) as process:
            told = process.communicate(timeout=60)[0]
        assert process.returncode == (0 if told else -signal.SIGKILL)
        if (out / "demo.SHA256SUMS").exists():  # an old archive or the new one, and whole
            verify(out / "demo.SHA256SUMS")
        return int(told or 0)

    steps = run(0)
    bundle(MODEL, archive_format=ArchiveFormat(volume_size=1 << 20))
    points = random.Random(11).sample(range(1, steps + 1), 10)
    assert [run(point) for point in points] == [0] * 10
    run(0)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == expected


def test_a_killed_unpack_leaves_no_half_root(tmp_path: Path) -> None:
    archive = write(tmp_path / "x.tar", members())
    root = tmp_path / "place/root"
    with child(UNPACK, archive, root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        (half,) = root.parent.iterdir()
        assert half.name.startswith(f".root.partial-{process.pid}-")
        assert (half / "bagit.txt").is_file()
        process.kill()
    assert not root.exists()
    assert half.exists()
    assert not unpack(archive, root).already
    assert [path.name for path in root.parent.iterdir()] == ["root"]
