"""Names of files: those that files give, looked at here and nowhere else."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from lbx.base.visible import one_line

_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
"""Devices on Windows, in every folder and with every ending."""
_LONGEST = 255


def inside(folder: Path, name: str) -> Path:
    """``folder / name``, which lies in the folder.

    Args:
        name: from a file; its parts are parted by "/".

    Raises:
        ValueError: it leads elsewhere, or is no name of a plain file on every system; says why, as "it ...".
    """
    for part in name.split("/"):
        if problem := _problem(part):
            raise ValueError(problem)
    return folder / PurePosixPath(name)


def expanded(path: Path) -> Path:
    """With the home folder for ``~``, and as it is where nobody has that name."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def _problem(part: str) -> str:
    if part in ("", "."):
        return "it is absolute, or has an empty part"
    if part == "..":
        return "it leads out of the folder"
    if "\\" in part or one_line(part) != part:
        return "it has a backslash or invisible characters"
    if _RESERVED.fullmatch(part):
        return "it is the name of a device on some systems"
    return "it is too long" if len(os.fsencode(part)) > _LONGEST else ""
