"""The folder where a bundle is made: locked while in use, kept after a failure, removed after success."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lbx.base.errors import UsageError
from lbx.base.outputs import open_folder
from lbx.base.processes import try_lock


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
