"""Files from outside, opened so that none of them can hold lbx up or fill its memory. Everything that lbx reads is
opened here; ``tests/test_one_way.py`` holds the others to it, and says which few do so themselves, and why. Names of
files that come from files are checked here, too.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import cast

from lbx.base.limits import LARGE as LARGE  # noqa: PLC0414 (for whoever reads files)
from lbx.base.limits import SMALL as SMALL  # noqa: PLC0414
from lbx.base.visible import one_line

_HANDED = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/([0-9]{1,9})")
_BLOCK = 1 << 16
_MAGIC = slice(8, 12)
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
"""Devices on Windows, in every folder and with every ending."""
_LONGEST_NAME = 255


def open_input(path: Path, buffering: int = -1) -> BufferedReader:
    """A regular file, for reading; a FIFO of its name is not waited for.

    Raises:
        OSError: it is missing, may not be read, or is something else.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file, but a pipe, a folder or a device", str(path))
    return cast("BufferedReader", os.fdopen(handle, "rb", buffering))


def read_input(path: Path, limit: int) -> bytes:
    """A file's bytes.

    Raises:
        OSError: as ``open_input``; or there are more than ``limit``.
    """
    with open_input(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise too_large(path, limit)
        content = file.read(max(size, _BLOCK))
        while len(content) <= limit and (more := file.read(_BLOCK)):  # it grows, or is the system's own and says 0
            content += more
    if len(content) > limit:
        raise too_large(path, limit)
    return content


def read_handed(path: Path, limit: int) -> bytes:
    """The bytes of what an option names: a file, or a pipe that lbx was started with (``/dev/stdin``, ``<(...)``).

    Such a pipe is waited for, as whoever started lbx holds its other end. A FIFO in a folder is nobody's.

    Raises:
        OSError: as ``read_input``.
    """
    handed = _HANDED.fullmatch(str(path))
    number = int(handed[1] or 0) if handed else -1
    if handed is None or not stat.S_ISFIFO(os.fstat(number).st_mode):
        return read_input(path, limit)
    content = bytearray()
    while block := os.read(number, _BLOCK):
        content += block
        if len(content) > limit:
            raise too_large(path, limit)
    return bytes(content)


def is_database(start: bytes) -> bool:
    """Whether a file that starts so is DuckDB's, as results files are."""
    return start[_MAGIC] == b"DUCK"


def is_results_file(path: Path) -> bool:
    """Whether a file begins as DuckDB's do."""
    try:
        with open_input(path) as file:
            return is_database(file.read(_MAGIC.stop))
    except OSError:
        return False


def require_file(path: Path) -> None:
    """For a file that a library opens itself. Raises OSError as ``open_input``."""
    open_input(path).close()


def too_large(path: Path, limit: int) -> OSError:
    """The error for a file that has more bytes than it may have."""
    return OSError(errno.EFBIG, f"it has more than {limit:,} bytes, too large for what it is", str(path))


def inside(folder: Path, name: str) -> Path:
    """``folder / name``, which lies in the folder.

    Args:
        name: from a file; its parts are parted by "/".

    Raises:
        ValueError: it leads elsewhere, or is no name of a plain file on every system; says why, as "it ...".
    """
    for part in name.split("/"):
        if problem := _name_problem(part):
            raise ValueError(problem)
    return folder / PurePosixPath(name)


def expanded(path: Path) -> Path:
    """With the home folder for ``~``, and as it is where nobody has that name."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def _name_problem(part: str) -> str:
    if part in ("", "."):
        return "it is absolute, or has an empty part"
    if part == "..":
        return "it leads out of the folder"
    if "\\" in part or one_line(part) != part:
        return "it has a backslash or invisible characters"
    if _DEVICES.fullmatch(part):
        return "it is the name of a device on some systems"
    return "it is too long" if len(os.fsencode(part)) > _LONGEST_NAME else ""
