"""Real data in a bundle made on the spot: by hard links, for a bundle's symbolic links must not lead out of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def link_tree(source: Path, target: Path) -> None:
    """A file, or a folder with all that is in it, under another name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)
    else:
        _link(source, target)


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
