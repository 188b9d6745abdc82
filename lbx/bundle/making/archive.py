"""The folder where a bundle is made, and the writing of its archive there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lbx.base.errors import FetchError, UsageError
from lbx.base.layout import TAG_MANIFEST
from lbx.base.outputs import open_folder
from lbx.base.processes import try_lock
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
class Workshop:
    """Where a bundle's parts lie until it is whole.

    Attributes:
        store: downloads, under the hash that was promised; a later run goes on with them.
        drafts: the archive in the making, on the disk where it will stay.
    """

    store: Path
    drafts: Path


@contextmanager
def workshop(out_dir: Path, name: str, work_dir: Path | None = None) -> Iterator[Workshop]:
    """``OUT/.NAME.partial``, and ``WORK/.NAME.partial`` where downloads are to go to another disk.

    Raises:
        UsageError: a folder cannot be written, or another ``lbx bundle`` is at work in it.
    """
    with ExitStack() as stack:
        drafts = stack.enter_context(_locked(out_dir, name))
        elsewhere = work_dir is not None and work_dir.resolve() != out_dir.resolve()
        store = stack.enter_context(_locked(work_dir, name)) if elsewhere and work_dir is not None else drafts
        try:
            for left in drafts.iterdir():
                if left.is_file():  # of a run that was killed while it packed; its room is needed
                    left.unlink()
            (store / "files").mkdir(exist_ok=True)
            yield Workshop(store / "files", drafts)
        except OSError as exc:
            raise UsageError(
                f"Writing the bundle failed: {exc}.", fix="Give the same command again to continue."
            ) from exc


def clear(shop: Workshop) -> None:
    """Remove it: the bundle is whole, under its own name."""
    for folder in {shop.drafts, shop.store.parent}:
        shutil.rmtree(folder)


def leave(shop: Workshop) -> None:
    """Remove what was made of it for nothing; downloads of a run that is to go on stay."""
    for folder in (shop.store, shop.store.parent, shop.drafts):
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _locked(parent: Path, name: str) -> Iterator[Path]:
    folder = parent / f".{name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_folder(folder)
    except OSError as exc:
        raise UsageError(
            f"Nothing can be written to {parent}: {exc.strerror}.", fix="Give another folder with -o or --work."
        ) from exc
    try:
        # On a network file system without locks two runs at once are the user's own care.
        if not try_lock(lock):
            raise UsageError(
                f"Another `lbx bundle` is writing this bundle right now ({folder}).",
                fix="Wait for it, or give another --name.",
            )
        yield folder
    finally:
        os.close(lock)


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
