"""A small hub, recipes for it, and bundles made of them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lbx.bundle import CreateResult, Trust, create
from tests.bundle.forge import members, write
from tests.bundle.hubserver import Faults, HubServer, serve
from tests.bundle.sealed import make_key
from tests.bundle.small_hub import DATASET, FAST, write_hub


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def hub(tmp_path: Path, faults: Faults) -> Iterator[HubServer]:
    upstream = tmp_path / "upstream/owner/repo/abc"
    upstream.mkdir(parents=True)
    (upstream / "prompt.txt").write_text("Read this.")
    with serve(write_hub(tmp_path / "hub"), [tmp_path / "upstream"], faults) as server:
        yield server


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Path]:
    """recipe("[[source]]...", name="demo") -> path of a recipe file."""

    def write(text: str, name: str = "demo") -> Path:
        path = tmp_path / f"{name}.toml"
        path.write_text(f'name = "{name}"\n{text}', "utf-8")
        return path

    return write


@pytest.fixture
def bundle(tmp_path: Path, hub: HubServer, recipe: Callable[..., Path]) -> Callable[..., CreateResult]:
    """bundle(text, out="out") -> the result of bundling one recipe from the small hub."""

    def make(text: str = DATASET, out: str = "out", **options: object) -> CreateResult:
        options = {"hub": hub.url, "mirror": hub.mirror, "retry": FAST, **options}
        return create([recipe(text)], tmp_path / out, **options)

    return make


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def trust(key: Path) -> Trust:
    return Trust.from_key_file(key.with_suffix(".pub"))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "x.tar", members())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A zip of 20 KB that unpacks to 20 MB."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/qasper.jsonl", bytes(20 << 20))
    return out.getvalue()
