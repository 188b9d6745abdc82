"""Going on with a file that was begun: the same one, and told from another before gigabytes have come."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lbx.base.errors import FetchError
from lbx.bundle import CreateResult
from lbx.bundle.making.fetch import Download, Fetcher
from tests.bundle.hubserver import Faults, HubServer
from tests.bundle.small_hub import DATASET, FAST, MODEL
from tests.bundle.test_kill import half_of_big, wait_for

Make = Callable[..., CreateResult]
HALF = (3 << 20) // 2


@pytest.fixture
def begun(hub: HubServer, faults: Faults, tmp_path: Path) -> Iterator[tuple[Fetcher, Download, Path]]:
    """A store that holds the first half of big.jsonl, as a broken download has left it."""
    content = (hub.hub / "datasets/org/data/big.jsonl").read_bytes()
    url = f"{hub.url}/datasets/org/data/resolve/main/big.jsonl"
    wanted = Download("big.jsonl", url, "sha256", hashlib.sha256(content).hexdigest(), len(content))
    faults.truncate, faults.failing = {"big.jsonl": 1}, {}
    with Fetcher(tmp_path / "store", FAST) as fetcher:
        faults.drop = {}
        hub.faults.ranges = True
        with pytest.raises(Stopped):
            fetcher.fetch(wanted, stop_at(HALF))
        hub.log.clear()
        faults.truncate = {}
        yield fetcher, wanted, tmp_path / f"store/sha256-{wanted.digest}.part"


class Stopped(Exception):
    """The download was stopped by the test."""


def stop_at(count: int) -> Callable[[int], None]:
    def report(here: int) -> None:
        if here >= count:
            raise Stopped

    return report


def nothing(here: int) -> None:
    pass


def test_what_is_here_is_not_asked_for_again(begun: tuple[Fetcher, Download, Path], hub: HubServer) -> None:
    fetcher, wanted, part = begun
    here = part.stat().st_size
    assert here >= HALF
    fetched = fetcher.fetch(wanted, nothing)
    assert (fetched.sha256, fetched.size) == (wanted.digest, wanted.size)
    assert hub.fetched("big.jsonl") == [f"bytes={here}-"]
    assert [path.name for path in part.parent.iterdir()] == [fetched.path.name]


def test_another_etag_begins_anew(begun: tuple[Fetcher, Download, Path], hub: HubServer, faults: Faults) -> None:
    fetcher, wanted, part = begun
    here = part.stat().st_size
    faults.etags = {"big.jsonl": "another"}
    assert fetcher.fetch(wanted, nothing).sha256 == wanted.digest
    assert hub.fetched("big.jsonl") == [f"bytes={here}-", ""]


def test_servers_with_an_etag_of_their_own_each_end_all_the_same(
    begun: tuple[Fetcher, Download, Path], hub: HubServer, faults: Faults
) -> None:
    fetcher, wanted, _ = begun
    asked = 0

    def other_server(here: int) -> None:
        nonlocal asked
        if len(hub.fetched("big.jsonl")) != asked:
            asked = len(hub.fetched("big.jsonl"))
            faults.etags = {"big.jsonl": f"server-{asked}"}

    faults.etags = {"big.jsonl": "server-0"}
    faults.truncate = {"big.jsonl": 3}
    assert fetcher.fetch(wanted, other_server).sha256 == wanted.digest
    assert [ranged == "" for ranged in hub.fetched("big.jsonl")][1:] == [True, False, False]


def test_a_file_that_has_grown_since_is_named_at_once(begun: tuple[Fetcher, Download, Path], hub: HubServer) -> None:
    fetcher, wanted, part = begun
    with (hub.hub / "datasets/org/data/big.jsonl").open("ab") as file:
        file.write(b"more")
    with pytest.raises(
        FetchError, match=r"big\.jsonl could not be downloaded .* 3,145,732 bytes instead of the expected 3,145"
    ):
        fetcher.fetch(wanted, nothing)
    assert not part.exists()  # nothing of the other file is kept


def test_a_file_that_changed_under_its_name_is_never_accepted(
    begun: tuple[Fetcher, Download, Path], hub: HubServer
) -> None:
    fetcher, wanted, part = begun
    file = hub.hub / "datasets/org/data/big.jsonl"
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(FetchError, match=r"big\.jsonl has the wrong hash: expected sha256"):
        fetcher.fetch(wanted, nothing)
    assert not part.exists()


def test_a_server_that_drops_connections_is_outlasted(bundle: Make, hub: HubServer, faults: Faults) -> None:
    whole = bundle(DATASET, out="whole").archive.read_bytes()
    hub.log.clear()
    faults.drop, faults.truncate = {"big.jsonl": 1, "a.jsonl": 2}, {"big.jsonl": 3}
    assert bundle(DATASET).archive.read_bytes() == whole
    assert len(hub.fetched("big.jsonl")) == 5


def test_a_server_that_always_drops_is_named(bundle: Make, faults: Faults) -> None:
    faults.drop = {"big.jsonl": 99}
    with pytest.raises(FetchError, match=r"big\.jsonl of the dataset org/data could not be downloaded in 3 attempts"):
        bundle(DATASET)


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_is_one_line_and_the_same_command_goes_on(
    bundle: Make, hub: HubServer, faults: Faults, recipe: Callable[..., Path], tmp_path: Path, sent: int, status: int
) -> None:
    out = tmp_path / "out"
    # A background job of a shell ignores Ctrl-C, and so would what it starts.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from lbx.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, "bundle", recipe(DATASET + MODEL), "-o", out, "--hub", hub.url]
    environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
    faults.stall = "big.jsonl"
    with subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            wait_for(lambda: half_of_big(hub, out / ".demo.partial/files"))
            process.send_signal(sent)
            told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == status, told
    assert "Run the same command again to continue." in told[1]
    assert "Traceback" not in told[1]
    assert [path.name for path in out.iterdir()] == [".demo.partial"]
    faults.stall = ""
    faults.release.set()
    hub.log.clear()
    assert bundle(DATASET + MODEL).archive == out / "demo.tar"
    (ranged,) = hub.fetched("big.jsonl")
    assert ranged.startswith("bytes=")
