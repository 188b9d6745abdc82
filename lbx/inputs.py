"""Files from outside, opened so that none of them can hold lbx up or fill its memory."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_input(path: Path) -> int:
    """A descriptor of a regular file, for reading; a FIFO of its name is not waited for.

    Raises:
        OSError: it is missing, may not be read, or is something else.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file, but a pipe, a folder or a device", str(path))
    return handle


def read_input(path: Path, limit: int | None = None) -> bytes:
    """A file's bytes.

    Raises:
        OSError: as ``open_input``; or there are more than ``limit``.
    """
    with os.fdopen(open_input(path), "rb") as file:
        content = file.read(-1 if limit is None else limit + 1)
    if limit is not None and len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes, too large for what it is", str(path))
    return content
