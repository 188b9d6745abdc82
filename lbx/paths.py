"""Names that files give for files, and files that may be something else: the one place where both are looked at."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PurePosixPath

from lbx.visible import one_line

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


def _problem(part: str) -> str:
    if part in ("", "."):
        return "it is absolute, or has an empty part"
    if part == "..":
        return "it leads out of the folder"
    if "\\" in part or one_line(part) != part:
        return "it has a backslash, or characters that cannot be seen"
    if _RESERVED.fullmatch(part):
        return "it is the name of a device on some systems"
    return "it is too long" if len(os.fsencode(part)) > _LONGEST else ""


def read_plain(path: Path) -> bytes:
    """A file's bytes. A pipe or a device, whose reader might wait for ever, is not opened to wait.

    Raises:
        OSError: it cannot be read, or is no plain file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(None, "it is no plain file, but a pipe, a folder or a device", str(path))
        return file.read()
