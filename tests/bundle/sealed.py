"""Archives as they travel: cut into volumes, with sums, signed by a key made for the test."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from lbx.base.bundle_folder import TAG_MANIFEST
from lbx.base.errors import BundleError
from lbx.bundle import Trust, unpack, verify
from lbx.bundle.compression import Compressor
from lbx.bundle.manifest import TAG_SIGNATURE
from lbx.bundle.signing.signature import sign
from lbx.bundle.volumes import MAX_VOLUME, VolumeWriter, publish, render_sums
from tests.bundle.forge import Member, members


def make_key(folder: Path, name: str = "key") -> Path:
    """A new Ed25519 key; its public half is beside it as NAME.pub."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("needs ssh-keygen (Debian: openssh-client)")
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name}@here", "-f", f"{folder / name}"]
    subprocess.run(command, check=True)
    return folder / name


def tar_bytes(entries: Iterable[Member]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            tar.addfile(entry.info, io.BytesIO(entry.content))
    return out.getvalue()


def seal(
    folder: Path,
    entries: Iterable[Member] | None = None,
    *,
    key: Path | None = None,
    volume_size: int = MAX_VOLUME,
    zstd: bool = False,
    name: str = "x",
) -> Path:
    """NAME.SHA256SUMS of a bundle in ``folder``, which holds nothing else of that name."""
    entries = list(members() if entries is None else entries)
    if key is not None:
        manifest = next(entry for entry in entries if entry.info.name.endswith(f"/{TAG_MANIFEST}"))
        signed = Member(tarfile.TarInfo(f"x/{TAG_SIGNATURE}"), sign(manifest.content, key))
        signed.info.size = len(signed.content)
        entries.insert(entries.index(manifest) + 1, signed)
    drafts = folder / ".drafts"
    drafts.mkdir(parents=True)
    volumes = VolumeWriter(drafts, f"{name}.tar.zst" if zstd else f"{name}.tar", volume_size)
    out = Compressor(volumes) if zstd else volumes
    out.write(tar_bytes(entries))
    if isinstance(out, Compressor):
        out.close()
    done = volumes.close()
    sums = publish(drafts, folder, name, done, sign(render_sums(done), key) if key is not None else None)[1]
    drafts.rmdir()
    return sums


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def refuse(sums: Path, trust: Trust, *parts: str, base: Path | None = None) -> None:
    """Verify and unpack refuse it, say why, and write nothing."""
    before = contents(sums.parent.parent)
    for attempt in (
        lambda: verify(sums, trust=trust),
        lambda: unpack(sums, sums.parent / "root", trust=trust, base=base),
    ):
        with pytest.raises(BundleError) as caught:
            attempt()
        for part in parts:
            assert part in str(caught.value), caught.value
    assert contents(sums.parent.parent) == before
    assert not [path for path in sums.parent.iterdir() if "root" in path.name]
