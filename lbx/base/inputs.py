"""Safe reading of untrusted files, without blocking and with bounded memory.

Every file that lbx reads is opened here; ``tests/test_one_way.py`` enforces it, and lists the few exceptions with
their reasons. File names read from files are validated here, too.
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

_DESCRIPTOR_PATH = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/([0-9]{1,9})")
_BLOCK = 1 << 16
ATTESTATION_SUFFIX = ".attestation.jsonl.gz"
"""Suffix of an attestation's file name, after the name of the results file."""
_MAGIC = slice(8, 12)
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
"""Device names on Windows, reserved in every folder and with every extension."""
_LONGEST_NAME = 255


def open_input(path: Path, buffering: int = -1) -> BufferedReader:
    """Open a regular file for reading. A FIFO is refused without blocking.

    Raises:
        OSError: the file is missing, not readable, or not a regular file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is a pipe, a folder or a device, not a regular file", str(path))
    return cast("BufferedReader", os.fdopen(handle, "rb", buffering))


def read_input(path: Path, limit: int) -> bytes:
    """Read a file's bytes.

    Raises:
        OSError: as for ``open_input``, or the file is larger than ``limit`` bytes.
    """
    with open_input(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise too_large_error(path, limit)
        content = file.read(max(size, _BLOCK))
        while len(content) <= limit and (more := file.read(_BLOCK)):  # it grows, or is in /proc with a size of 0
            content += more
    if len(content) > limit:
        raise too_large_error(path, limit)
    return content


def read_file_or_pipe(path: Path, limit: int) -> bytes:
    """Read an option's file, or a pipe inherited by lbx (``/dev/stdin``, ``<(...)``).

    An inherited pipe is waited for, because the process that started lbx writes to it. A FIFO in a folder is rejected,
    because it may never get a writer.

    Raises:
        OSError: see ``read_input``.
    """
    handed = _DESCRIPTOR_PATH.fullmatch(str(path))
    number = int(handed[1] or 0) if handed else -1
    if handed is None or not stat.S_ISFIFO(os.fstat(number).st_mode):
        return read_input(path, limit)
    content = bytearray()
    while block := os.read(number, _BLOCK):
        content += block
        if len(content) > limit:
            raise too_large_error(path, limit)
    return bytes(content)


def is_database(start: bytes) -> bool:
    """Whether a file with these first bytes is a DuckDB database, the format of results files."""
    return start[_MAGIC] == b"DUCK"


def is_results_file(path: Path) -> bool:
    """Whether a file is a DuckDB database, judged by its first bytes."""
    try:
        with open_input(path) as file:
            return is_database(file.read(_MAGIC.stop))
    except OSError:
        return False


def require_file(path: Path) -> None:
    """Check that a library can open a file. Raises OSError like ``open_input``."""
    open_input(path).close()


def too_large_error(path: Path, limit: int) -> OSError:
    """Create the error for a file that is larger than ``limit`` bytes."""
    return OSError(errno.EFBIG, f"it has more than {limit:,} bytes, too large for a file of this kind", str(path))


def path_inside(folder: Path, name: str) -> Path:
    """Return ``folder / name``, checked to be inside the folder.

    Args:
        name: untrusted relative path, with "/" between the components.

    Raises:
        ValueError: the path leads out of the folder, or is not a portable file name; the message starts with "it".
    """
    for part in name.split("/"):
        if part in ("", "."):
            problem = "it is absolute, or has an empty part"
        elif part == "..":
            problem = "it leads out of the folder"
        elif "\\" in part or one_line(part) != part:
            problem = "it has a backslash or invisible characters"
        elif _DEVICES.fullmatch(part):
            problem = "it is a device name on some systems"
        else:
            problem = "it is too long" if len(os.fsencode(part)) > _LONGEST_NAME else ""
        if problem:
            raise ValueError(problem)
    return folder / PurePosixPath(name)


def expand_user(path: Path) -> Path:
    """Expand ``~`` and ``~user`` in a path, or return the path unchanged if the user does not exist."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path
