"""What a delta takes from the bundle that it was made against: its own copy of each file, proven by its hash."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from lbx.base.commands import as_command
from lbx.base.errors import BundleError
from lbx.base.inputs import open_input, read_input
from lbx.base.layout import BUNDLE_JSON, MANIFEST, TAGS_LIMIT, Bundle
from lbx.base.outputs import new_file
from lbx.bundle.bag import Contents, ManifestEntry
from lbx.bundle.disk import BLOCK, read_blocks
from lbx.bundle.hashing import BackgroundSha256
from lbx.bundle.names import first_names
from lbx.bundle.parallel import Tally

_CLONE = 0x40049409  # FICLONE of linux/fs.h: a copy that shares its blocks until one of the two is changed


class Base:
    """An unpacked bundle that lends its files.

    Args:
        given: its folder, or its ``lbx/bundle.json``.
        contents: what the delta says it holds and needs.
        delta: the delta's own name, for messages.

    Raises:
        BundleError: it is no bundle, or lacks a file that the delta needs; names up to 10.
    """

    def __init__(self, given: Path, contents: Contents, delta: Path) -> None:
        self.root = given.parent.parent if given.name == Path(BUNDLE_JSON).name else given
        Bundle(self.root)
        self._delta = delta
        self._asked = f"{contents.base['name']} {contents.base['digest']}".strip()
        located = {path: self._find(contents.entries[path], name) for path, name in contents.fetched.items()}
        if missing := [f"{contents.fetched[path]}" for path, file in located.items() if file is None]:
            raise BundleError(
                f"{self.root} lacks what {delta} takes from its base ({len(missing)}): {first_names(missing)}.",
                fix=f"Give the unpacked folder of the bundle that it was made against ({self._asked}) with --base.",
            )
        self._files: Mapping[str, Path] = {path: file for path, file in located.items() if file is not None}

    def _find(self, entry: ManifestEntry, there: str) -> Path | None:
        """Where the base says it has the content: the place that the delta names, or another with the same sum."""
        for place in (there, self._places.get(entry.sha256)):
            path = self.root / place if place else None
            if path is not None and path.is_file() and not path.is_symlink() and path.stat().st_size == entry.size:
                return path
        return None

    def takes_no_room(self, folder: Path) -> bool:
        """Whether ``folder`` is on a file system where a clone of the base's files shares their blocks."""
        probe = folder / f".{self._delta.name}.clone-{os.getpid()}"
        try:
            return _clone(self.root / BUNDLE_JSON, probe)
        except OSError:
            return False
        finally:
            probe.unlink(missing_ok=True)

    @cached_property
    def _places(self) -> dict[str, str]:
        complete = (self.root / MANIFEST).is_file()
        text = read_input(self.root / MANIFEST, TAGS_LIMIT).decode("utf-8", "replace") if complete else ""
        return {line[:64]: line[66:] for line in text.splitlines() if ".." not in line and line[66:67] != "/"}

    def lend(self, entry: ManifestEntry, target: Path, tally: Tally) -> None:
        """Make ``target`` the base's file: a clone where the file system can, else a copy.

        Never a link: who may write to the base would write to this bundle, too. ``target`` is what is hashed, so that
        a base that changes meanwhile is noticed.

        Raises:
            BundleError: the base's file has been changed since it was bundled.
        """
        source = self._files[entry.path]
        if not _clone(source, target):
            with open_input(source) as file, new_file(target) as out:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
                shutil.copyfileobj(file, out, BLOCK)
                out.flush()
                os.fsync(out.fileno())
        digest = BackgroundSha256(threaded=tally.outweighs(entry.size))
        try:
            for block in read_blocks(target):
                digest.update(block)
                tally.add(entry.path, len(block))
        finally:
            digest.close()
        if not stat.S_ISREG(target.lstat().st_mode) or digest.hexdigest() != entry.sha256:
            raise BundleError(
                f"{source} has changed since {self._asked} was bundled; {self._delta} cannot build on it.",
                fix="Unpack the base again, from its own archive.",
                command=as_command("lbx", "verify", self.root),
            )


def _clone(source: Path, target: Path) -> bool:
    with open_input(source) as file, new_file(target) as out:
        try:
            fcntl.ioctl(out.fileno(), _CLONE, file.fileno())
            os.fsync(out.fileno())
        except OSError:
            target.unlink()
            return False
    return True
