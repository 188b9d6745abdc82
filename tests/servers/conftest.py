"""Real servers with a tiny model, the five benchmarks' prompts, and cards."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.backends.endpoint_servers import free_port
from tests.bundle.hubserver import serve
from tests.command_line import Lbx
from tests.journeys.made_families import FAMILIES, write_hub
from tests.servers.served_model import make_served
from tests.servers.server_processes import ServerProcess, is_answering, start_llama_server

Once = Callable[[str, Callable[[Path], object]], Path]
RECIPES = ("longbench", "longbench_v2", "longbench_pro", "lveval", "leval")


@pytest.fixture(scope="session")
def lbx() -> Lbx:
    return Lbx()


@pytest.fixture(scope="session")
def served(once: Once) -> tuple[Path, Path]:
    """The tiny chat model: its folder, and its GGUF file."""
    for library in ("llama_cpp", "torch", "gguf"):
        pytest.importorskip(library, reason="needs lbx[llama,hf,dev]")
    folder = once("served", make_served)
    return folder / "hf", folder / "served.gguf"


@pytest.fixture(scope="session")
def families(shared: Callable[[str], Path], once: Once, upstreams: list[Path]) -> Path:
    """A bundle of the five benchmarks."""
    shared("data")

    def make(folder: Path) -> None:
        lbx = Lbx()
        write_hub(folder / "hub", (made(shared) for made in FAMILIES.values()))
        with serve(folder / "hub", upstreams) as hub:
            recipes = [Path("bundle") / f"{name}.toml" for name in RECIPES]
            lbx.ok("bundle", *recipes, "--bundle-name", "all", "--hub", hub.url, "--mirror", hub.mirror, "-o", folder)
        lbx.ok("unpack", "--allow-unsigned", folder / "all.tar", "--to", folder / "bundle")

    return once("served-families", make) / "bundle"


@pytest.fixture(scope="session")
def vllm_url(served: tuple[Path, Path], once: Once) -> Iterator[str]:
    """The address of one vLLM for all test processes; it ends with the last of them."""
    folder = once("vllm", lambda folder: None)
    with (folder / "start").open("w") as start, (folder / "users").open("a") as users:
        fcntl.flock(start, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        url, keeper = folder / "url", None
        if not url.exists() or not is_answering(url.read_text()):
            url.unlink(missing_ok=True)
            script = Path(__file__).with_name("server_processes.py")
            options = ("--reasoning-parser", "qwen3")
            command = [sys.executable, script, served[0], folder, free_port(), *options]
            environment = {"PYTHONPATH": str(Path(__file__).parents[1] / "backends")}
            keeper = _start(command, folder / "keeper.log", environment)
            while not url.exists():
                assert keeper.poll() is None, (folder / "keeper.log").read_text()[-3000:]
                time.sleep(0.2)
        fcntl.flock(start, fcntl.LOCK_UN)
        yield url.read_text()
    if keeper is not None:
        keeper.wait()


def _start(command: list[object], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    import os

    with log.open("wb") as stream:
        return subprocess.Popen(
            list(map(str, command)), stdout=stream, stderr=stream, env=os.environ | environment, start_new_session=True
        )


@pytest.fixture(scope="module")
def llama_server(served: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = start_llama_server(served[1], tmp_path_factory.mktemp("llama") / "server.log")
    yield server
    server.close()


@pytest.fixture
def card(tmp_path: Path) -> Callable[..., Path]:
    """card(url, tokenizer, chat="", **options) -> its card; "" and None leave url and tokenizer out."""

    def write(url: str, tokenizer: Path | None, *, chat: str = "", **options: object) -> Path:
        lines = ['name = "tiny"', 'backend = "endpoint"', "[sampling]", "temperature = 0.0"]
        lines += [] if tokenizer is None else ["[tokenizer]", f'path = "{tokenizer}"']
        lines += ["[chat]", chat, "[options]", f'url = "{url}"' if url else ""]
        lines += [f"{name} = {value!r}".replace("'", '"') for name, value in options.items()]
        path = tmp_path / f"card-{len(list(tmp_path.glob('card-*')))}.toml"
        path.write_text("\n".join(lines))
        return path

    return write
