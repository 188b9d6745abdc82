"""How an archive is written: volumes, signature, compression, images; and that the same inputs give the same bytes."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.bundle import ArchiveFormat, CreateResult, Trust, unpack, verify
from lbx.bundle.signing.signature import NAMESPACE
from tests.bundle.hubserver import HubServer
from tests.bundle.small_hub import DATASET, MODEL

Make = Callable[..., CreateResult]
VOLUME = 1 << 20


def test_volumes_are_slices_of_the_same_bytes_each_time(bundle: Make) -> None:
    whole = bundle(DATASET + MODEL, out="whole").archive.read_bytes()
    made = bundle(DATASET + MODEL, archive_format=ArchiveFormat(volume_size=VOLUME))
    assert [path.name for path in made.volumes] == [f"demo.tar.{n:03}" for n in range(1, len(made.volumes) + 1)]
    assert b"".join(path.read_bytes() for path in made.volumes) == whole
    assert {path.stat().st_size for path in made.volumes[:-1]} == {VOLUME}
    again = bundle(DATASET + MODEL, out="again", archive_format=ArchiveFormat(volume_size=VOLUME))
    assert again.sums.read_bytes() == made.sums.read_bytes()
    subprocess.run(["sha256sum", "--check", "--quiet", made.sums.name], cwd=made.sums.parent, check=True)
    assert verify(made.archive).digest == made.digest == bundle(DATASET + MODEL, out="third").digest


def test_fewer_volumes_leave_none_of_the_old_ones(bundle: Make) -> None:
    bundle(DATASET + MODEL, archive_format=ArchiveFormat(volume_size=VOLUME))
    made = bundle(DATASET)
    assert sorted(path.name for path in made.archive.parent.iterdir()) == ["demo.SHA256SUMS", "demo.tar"]


def test_a_signed_archive_is_signed_inside_and_out(bundle: Make, key: Path, tmp_path: Path) -> None:
    made = bundle(DATASET, archive_format=ArchiveFormat(volume_size=VOLUME, key=key))
    assert made.signature == made.sums.with_name("demo.SHA256SUMS.sig")
    unpack(made.archive, tmp_path / "root", trust=Trust.from_key_file(key.with_suffix(".pub")))
    allowed = tmp_path / "allowed"
    allowed.write_text(f"me {key.with_suffix('.pub').read_text()}")
    for signed in (made.sums, tmp_path / "root/tagmanifest-sha256.txt"):
        command = ["ssh-keygen", "-Y", "verify", "-f", allowed, "-I", "me", "-n", NAMESPACE, "-s", f"{signed}.sig"]
        with signed.open("rb") as content:
            subprocess.run(command, stdin=content, capture_output=True, check=True)
    assert made.digest == bundle(DATASET, out="unsigned").digest  # a signature is no part of what is signed


def test_a_key_that_does_not_sign_is_found_out_before_any_download(
    bundle: Make, hub: HubServer, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"Key .* does not exist"):
        bundle(DATASET, archive_format=ArchiveFormat(key=tmp_path / "nothing"))
    assert hub.log == []


def test_compressed_it_holds_the_same_tar(bundle: Make, tmp_path: Path) -> None:
    whole = bundle(DATASET, out="whole")
    made = bundle(DATASET, archive_format=ArchiveFormat(zstd=True, volume_size=VOLUME))
    assert made.archive.name == "demo.tar.zst.001"
    joined = b"".join(path.read_bytes() for path in made.volumes)
    plain = subprocess.run(["zstd", "-dc"], input=joined, capture_output=True, check=True).stdout
    assert plain == whole.archive.read_bytes()
    assert unpack(made.archive, tmp_path / "root").digest == whole.digest
    again = bundle(DATASET, out="again", archive_format=ArchiveFormat(zstd=True, volume_size=VOLUME))
    assert again.sums.read_bytes() == made.sums.read_bytes()


def oci(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


DIGEST = f"sha256:{'ab' * 32}"
INDEX = {"manifests": [{"digest": DIGEST, "annotations": {"org.opencontainers.image.ref.name": "localhost/lbx:1"}}]}
IMAGE = {
    "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
    "blobs/sha256/" + "ab" * 32: b"layer" * 1000,
    "./index.json": json.dumps(INDEX).encode(),
}


def test_an_image_travels_in_the_same_volumes(bundle: Make, tmp_path: Path) -> None:
    image = oci(tmp_path / "lbx-image.tar", IMAGE)
    made = bundle(DATASET, images=[image], archive_format=ArchiveFormat(volume_size=VOLUME))
    root = unpack(made.archive, tmp_path / "root").root
    assert (root / "data/images/lbx-image.tar").read_bytes() == image.read_bytes()
    source = made.sources[-1]
    assert (source["kind"], source["to"]) == ("image", "lbx-image.tar")
    assert source["images"] == [{"name": "localhost/lbx:1", "digest": DIGEST}]
    assert source["files"][0]["sha256"] == hashlib.sha256(image.read_bytes()).hexdigest()
    sbom = json.loads((root / "lbx/sbom.cdx.json").read_text())
    assert sbom["components"][-1]["type"] == "container"


@pytest.mark.parametrize(
    ("files", "cause"),
    [
        ({"manifest.json": b"[]"}, "is not an OCI archive"),
        ({**IMAGE, "./index.json": b"{"}, "is not an OCI archive"),
        ({**IMAGE, "./index.json": b'{"manifests": []}'}, "does not contain an image"),
        ({"./index.json": IMAGE["./index.json"]}, "is not an OCI archive"),
    ],
)
def test_what_is_no_image_is_refused(
    bundle: Make, hub: HubServer, tmp_path: Path, files: dict[str, bytes], cause: str
) -> None:
    with pytest.raises(UsageError, match=cause):
        bundle(DATASET, images=[oci(tmp_path / "i.tar", files)])
    (tmp_path / "text.tar").write_text("no tar at all")
    with pytest.raises(UsageError, match="is not an OCI archive"):
        bundle(DATASET, images=[tmp_path / "text.tar"])
    with pytest.raises(UsageError, match="Cannot read the image"):
        bundle(DATASET, images=[tmp_path / "nothing.tar"])
    assert not [path for _, path, _ in hub.log if "/resolve/" in path]
