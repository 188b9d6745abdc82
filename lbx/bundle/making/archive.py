"""The last step of ``lbx bundle``: tag files and payload into the tar, and the tar into its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lbx.base.errors import FetchError
from lbx.base.layout import TAG_MANIFEST
from lbx.bundle import compression
from lbx.bundle.bag import TAG_SIGNATURE
from lbx.bundle.disk import read_blocks
from lbx.bundle.hashing import BackgroundSha256
from lbx.bundle.making.fetch import Fetched
from lbx.bundle.progress import ByteMeter
from lbx.bundle.signing import signature
from lbx.bundle.tar import TarWriter
from lbx.bundle.volumes import MAX_VOLUME, Volume, VolumeWriter


@dataclass(frozen=True, slots=True)
class Writing:
    """How an archive is written.

    Attributes:
        volume_size: bytes of each volume but the last.
        zstd: compress it.
        key: the SSH key that signs it, private or, where an agent holds it, public; None leaves it unsigned.
    """

    volume_size: int = MAX_VOLUME
    zstd: bool = False
    key: Path | None = None

    def require(self) -> None:
        """Raise UsageError for a key that does not sign, or zstd that is not there, before hours of download."""
        if self.zstd:
            compression.require()
        if self.key is not None:
            signature.sign(b"", self.key)


def write_archive(
    drafts: Path,
    name: str,
    tags: Mapping[str, bytes],
    contents: Mapping[str, Fetched],
    writing: Writing,
    *,
    epoch: int,
    meter: ByteMeter,
) -> list[Volume]:
    """The archive's volumes in ``drafts``, tag files first, on disk for good.

    Raises:
        FetchError: a file is no longer what was hashed.
    """
    if writing.key is not None:
        tags = {**tags, TAG_SIGNATURE: signature.sign(tags[TAG_MANIFEST], writing.key)}
    suffix = compression.SUFFIX if writing.zstd else ""
    volumes = VolumeWriter(drafts, f"{name}.tar{suffix}", writing.volume_size)
    try:
        out = compression.Compressor(volumes) if writing.zstd else volumes
        tar = TarWriter(out, epoch)
        for path, content in sorted(tags.items()):
            tar.add(f"{name}/{path}", len(content), [content])
        for path, file in sorted(contents.items()):
            _add(tar, f"{name}/{path}", file, partial(meter.at, path))
            meter.finish(path, file.size)
        tar.close()
        if isinstance(out, compression.Compressor):
            out.close()
        return volumes.close()
    except BaseException:
        volumes.abort()
        raise


def _add(tar: TarWriter, name: str, file: Fetched, report: Callable[[int], None]) -> None:
    try:
        tar.add(name, file.size, _unchanged(file, report))
    except ValueError as exc:
        raise _changed(file) from exc


def _unchanged(file: Fetched, report: Callable[[int], None]) -> Iterator[bytes]:
    """A file's blocks; raises where they are not those that the manifest was made of."""
    digest = BackgroundSha256()
    count = 0
    try:
        for block in read_blocks(file.path):
            digest.update(block)
            yield block
            count += len(block)
            report(count)
    finally:
        digest.close()
    if digest.hexdigest() != file.sha256:
        raise _changed(file)


def _changed(file: Fetched) -> FetchError:
    return FetchError(
        f"{file.path} changed while it was being packed.", fix="Leave it alone and give the command again."
    )
