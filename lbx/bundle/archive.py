"""The last step of ``lbx bundle``: tag files and payload into the tar, and the tar into its place."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from lbx.bundle.disk import sync_folder
from lbx.bundle.fetch import Fetched, read_blocks
from lbx.bundle.progress import Meter
from lbx.bundle.tar import TarWriter
from lbx.errors import FetchError


def write_archive(
    draft: Path, top: str, tags: Mapping[str, bytes], contents: Mapping[str, Fetched], *, epoch: int, meter: Meter
) -> str:
    """The tar, tag files first, on disk for good; its SHA-256.

    Raises:
        FetchError: a file is no longer what was hashed.
    """
    with draft.open("wb") as out:
        tar = TarWriter(out, epoch)
        for path, content in sorted(tags.items()):
            tar.add(f"{top}/{path}", len(content), [content])
        for path, file in sorted(contents.items()):
            try:
                tar.add(f"{top}/{path}", file.size, _unchanged(file, partial(meter.at, path)))
            except ValueError as exc:
                raise _changed(file) from exc
            meter.finish(path, file.size)
        sha256 = tar.close()
        out.flush()
        os.fsync(out.fileno())
    return sha256


def _unchanged(file: Fetched, report: Callable[[int], None]) -> Iterator[bytes]:
    """A file's blocks; raises where they are not those that the manifest was made of."""
    digest = hashlib.sha256()
    count = 0
    for block in read_blocks(file.path):
        digest.update(block)
        yield block
        count += len(block)
        report(count)
    if digest.hexdigest() != file.sha256:
        raise _changed(file)


def _changed(file: Fetched) -> FetchError:
    return FetchError(
        f"{file.path} changed while it was being packed.", fix="Leave it alone and give the command again."
    )


def publish(draft: Path, out_dir: Path, name: str, sha256: str) -> tuple[Path, Path]:
    """Put archive and sums in place. The old sums go first: a kill in between must leave no wrong ones."""
    archive, sums = out_dir / f"{name}.tar", out_dir / f"{name}.SHA256SUMS"
    sums.unlink(missing_ok=True)
    draft.replace(archive)
    listing = draft.with_name("sums")
    listing.write_text(f"{sha256}  {archive.name}\n", "utf-8")
    listing.replace(sums)
    sync_folder(out_dir)
    return archive, sums
