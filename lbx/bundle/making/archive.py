"""Prepare the working folders of a bundle and write its archive."""

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
from lbx.bundle.making.fetch import LocalFile
from lbx.bundle.progress import ByteMeter
from lbx.bundle.signing import signature
from lbx.bundle.tar import TarWriter
from lbx.bundle.volumes import MAX_VOLUME, Volume, VolumeWriter


@dataclass(frozen=True, slots=True)
class Workshop:
    """Working folders of an incomplete bundle.

    Attributes:
        store: downloads, named by their expected hash; a later run resumes them.
        drafts: unfinished archive, on its final disk.
    """

    store: Path
    drafts: Path


@contextmanager
def workshop(out_dir: Path, name: str, work_dir: Path | None = None) -> Iterator[Workshop]:
    """Create and lock ``OUT/.NAME.partial``, and ``WORK/.NAME.partial`` for downloads in another folder.

    Raises:
        UsageError: a folder cannot be written, or another ``lbx bundle`` is using it.
    """
    with ExitStack() as stack:
        drafts = stack.enter_context(_lock_folder(out_dir, name))
        elsewhere = work_dir is not None and work_dir.resolve() != out_dir.resolve()
        store = stack.enter_context(_lock_folder(work_dir, name)) if elsewhere and work_dir is not None else drafts
        try:
            for leftover in drafts.iterdir():
                if leftover.is_file():  # from a run that was killed while packing; frees its space
                    leftover.unlink()
            (store / "files").mkdir(exist_ok=True)
            yield Workshop(store / "files", drafts)
        except OSError as exc:
            raise UsageError(
                f"Could not write the bundle: {exc}.", fix="Run the same command again to continue."
            ) from exc


def clear(shop: Workshop) -> None:
    """Remove the working folders of a complete bundle, with their contents."""
    for folder in {shop.drafts, shop.store.parent}:
        shutil.rmtree(folder)


def leave(shop: Workshop) -> None:
    """Remove empty working folders; downloads of an interrupted run are kept."""
    for folder in (shop.store, shop.store.parent, shop.drafts):
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _lock_folder(parent: Path, name: str) -> Iterator[Path]:
    folder = parent / f".{name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_folder(folder)
    except OSError as exc:
        raise UsageError(
            f"Cannot write to {parent}: {exc.strerror}.", fix="Choose another folder with -o or --work."
        ) from exc
    try:
        # On a network file system without locks, the user must avoid simultaneous runs.
        if not try_lock(lock):
            raise UsageError(
                f"Another `lbx bundle` is writing this bundle ({folder}).",
                fix="Wait until it has finished, or pass another --name.",
            )
        yield folder
    finally:
        os.close(lock)


@dataclass(frozen=True, slots=True)
class Writing:
    """Format and signature of an archive.

    Attributes:
        volume_size: bytes per volume, except for the last.
        zstd: compress the archive.
        key: SSH key for signing: a private key, or a public key if an agent has its private half; None: unsigned.
    """

    volume_size: int = MAX_VOLUME
    zstd: bool = False
    key: Path | None = None

    def require(self) -> None:
        """Raise UsageError if signing fails or zstd is missing; to be called before hours of download."""
        if self.zstd:
            compression.require()
        if self.key is not None:
            signature.sign(b"", self.key)


def write_archive(
    drafts: Path,
    name: str,
    tags: Mapping[str, bytes],
    contents: Mapping[str, LocalFile],
    writing: Writing,
    *,
    epoch: int,
    meter: ByteMeter,
) -> list[Volume]:
    """Write the volumes of an archive to ``drafts``, tag files first, and sync them to disk.

    Raises:
        FetchError: a file has changed since it was hashed.
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


def _add(tar: TarWriter, name: str, file: LocalFile, report: Callable[[int], None]) -> None:
    try:
        tar.add(name, file.size, _read_checked(file, report))
    except ValueError as exc:
        raise _change_error(file) from exc


def _read_checked(file: LocalFile, report: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the blocks of a file; raise FetchError at the end if its hash has changed."""
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
        raise _change_error(file)


def _change_error(file: LocalFile) -> FetchError:
    return FetchError(
        f"{file.path} changed while it was being packed.", fix="Do not change it, and run the command again."
    )
