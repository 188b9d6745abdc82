"""The image, built and run here: .ci/image-test.sh, and what independent programs say about the saved file."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
VARIABLE = "LBX_TEST_IMAGE"

pytestmark = pytest.mark.skipif(
    not os.environ.get(VARIABLE),
    reason=f"takes minutes, and root: `just image-test`, or {VARIABLE}=1 after .ci/image-tools.sh",
)


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder that the test's run left, and what it said."""
    work = tmp_path_factory.mktemp("image")
    done = subprocess.run([ROOT / ".ci/image-test.sh", work], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    yield work, done.stdout


def test_the_main_job_runs_in_it_and_nothing_reaches_out(tested: tuple[Path, str]) -> None:
    work, said = tested
    assert "gave the same greedy output on 180 of 180 samples" in said
    assert "network: 0 attempts" in said
    with duckdb.connect(str(work / "job" / "demo" / "results.duckdb"), read_only=True) as connection:
        runs = connection.execute("SELECT backend, hardware ->> 'network' FROM runs ORDER BY ALL").fetchall()
    assert [backend for backend, _ in runs] == ["hf", "llamacpp"]
    assert all(network.startswith("no network interface (namespace)") for _, network in runs)


def test_the_saved_file_is_an_image_to_other_programs(tested: tuple[Path, str], tmp_path: Path) -> None:
    archive = tmp_path / "lbx.tar"
    subprocess.run([ROOT / ".ci/image-save.sh", archive], check=True, cwd=ROOT)
    config = _skopeo("--config", archive)
    assert config["config"]["User"] == "1000:1000"
    assert config["config"]["Entrypoint"] == ["/opt/lbx/bin/lbx"]
    assert config["config"]["WorkingDir"] == "/work"
    labels = config["config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "lbx"
    assert labels["org.opencontainers.image.licenses"] == "MIT"
    assert labels["org.opencontainers.image.version"] not in ("", "unknown")
    assert _skopeo("--raw", archive)["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    names = _names_of_layers(archive)
    assert "opt/lbx/bin/lbx" in names
    assert not [name for name in names if name.endswith(".whl") or "/pip/" in name or name.startswith("wheelhouse")]


def _skopeo(what: str, archive: Path) -> dict[str, Any]:
    done = subprocess.run(["skopeo", "inspect", what, f"oci-archive:{archive}"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def _names_of_layers(archive: Path) -> set[str]:
    """What lies in the image, each blob checked against the digest that is its name."""
    found: set[str] = set()
    with tarfile.open(archive) as tar:
        for member in tar:
            if not member.isfile() or not member.name.startswith("blobs/sha256/"):
                continue
            content = tar.extractfile(member)
            assert content is not None
            assert hashlib.file_digest(content, "sha256").hexdigest() == Path(member.name).name
            content.seek(0)
            if content.read(2) == b"\x1f\x8b":
                content.seek(0)
                with tarfile.open(fileobj=content, mode="r|gz") as layer:
                    found.update(inner.name.removeprefix("./") for inner in layer)
    return found
