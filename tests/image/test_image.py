"""The image, built and run here: .ci/image-test.sh, and what independent programs say about the saved file."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
VARIABLE = "LBX_TEST_IMAGE"
VARIANT = os.environ.get(VARIABLE, "")
BACKENDS = {"cpu": ["hf", "llamacpp"], "llama": ["llamacpp"]}

pytestmark = [
    pytest.mark.image,
    pytest.mark.skipif(
        VARIANT not in BACKENDS,
        reason=f"takes minutes, and root: `just image-test`, or {VARIABLE}=cpu after .ci/image-tools.sh",
    ),
]


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder that the test's run left, and what it said (and shows as it goes: `pytest -s`)."""
    work = tmp_path_factory.mktemp("image")
    script = ["bash", "-o", "pipefail", "-c", '"$0" "$@" 2>&1 | tee "$1/said"', ROOT / ".ci/image-test.sh"]
    done = subprocess.run([*script, work, VARIANT], check=False, cwd=ROOT)
    said = (work / "said").read_text("utf-8")
    assert done.returncode == 0, said
    yield work, said


@pytest.fixture(scope="module")
def saved(tested: tuple[Path, str]) -> Path:
    archive = tested[0] / "lbx.tar"
    subprocess.run([ROOT / ".ci/image-save.sh", archive, VARIANT], check=True, cwd=ROOT)
    return archive


def test_the_main_job_runs_in_it_and_nothing_reaches_out(tested: tuple[Path, str]) -> None:
    work, said = tested
    assert ("gave the same greedy output on 180 of 180 samples" in said) == (len(BACKENDS[VARIANT]) == 2)
    assert "network: 0 attempts" in said
    with duckdb.connect(str(work / "job" / "demo" / "results.duckdb"), read_only=True) as connection:
        runs = connection.execute("SELECT backend, hardware ->> 'network' FROM runs ORDER BY ALL").fetchall()
        scores = connection.execute("SELECT avg(score) FROM task_scores GROUP BY run_id").fetchall()
    assert [backend for backend, _ in runs] == BACKENDS[VARIANT]
    assert scores == [(pytest.approx(0.9167, abs=1e-4),)] * len(runs), "what it finds outside the image, too"
    assert all(network.startswith("no network interface (namespace)") for _, network in runs)


def test_the_saved_file_is_an_image_to_other_programs(saved: Path) -> None:
    config = _skopeo("--config", saved)
    assert config["config"]["User"] == "1000:1000"
    assert config["config"]["Entrypoint"] == ["/opt/lbx/bin/lbx"]
    assert config["config"]["WorkingDir"] == "/work"
    labels = config["config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "lbx"
    assert labels["org.opencontainers.image.licenses"] == "MIT"
    assert labels["lbx.variant"] == VARIANT
    assert labels["org.opencontainers.image.version"] not in ("", "unknown")
    assert _skopeo("--raw", saved)["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    names = _names_of_layers(saved)
    assert "opt/lbx/bin/lbx" in names
    assert not [name for name in names if name.endswith(".whl") or "/pip/" in name or name.startswith("wheelhouse")]


def test_the_saved_file_travels_in_a_signed_bundle_of_volumes(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "needle.toml").write_text("lengths = [64]\ndepths = [0.5]\nsamples_per_cell = 1\n")
    recipe = tmp_path / "small.toml"
    recipe.write_text('name = "small"\n\n[[source]]\nkind = "path"\npath = "needle.toml"\nto = "needle/needle.toml"\n')
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    out, there = tmp_path / "out", tmp_path / "there"
    _lbx("bundle", recipe, "--include-image", saved, "--sign", key, "--volume-size", "100M", "-o", out)
    volumes = sorted(out.glob("small*.tar*"))
    assert len(volumes) == 1 + saved.stat().st_size // 100_000_000
    trust = ["--trust", f"{key}.pub"]
    _lbx("verify", volumes[0], *trust)
    _lbx("unpack", volumes[0], *trust, "--to", there)
    (arrived,) = (there / "data" / "images").iterdir()
    with arrived.open("rb") as new, saved.open("rb") as old:
        assert hashlib.file_digest(new, "sha256").digest() == hashlib.file_digest(old, "sha256").digest()
    assert _skopeo("--raw", arrived) == _skopeo("--raw", saved)


def _lbx(*arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lbx.cli", *map(str, arguments)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


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
