"""Reading again what has been hashed, and taking nothing that has changed since.

The volumes lie where others may write. Signatures hold for the bytes that were hashed, so nothing else is parsed.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from lbx.base.errors import BundleError
from lbx.bundle.disk import BLOCK
from lbx.bundle.hashing import Checkpoints
from lbx.bundle.receiving.received import Joined

_ZIP_READ_LIMIT = 64 << 20


class Proven:
    """Parts of an archive that were hashed before. Not for several threads.

    Args:
        starts: where in the archive each part begins, ascending.
        checkpoints: what was noted while each was hashed.
        archive: how messages call it.
    """

    def __init__(
        self, joined: Joined, starts: Sequence[int], checkpoints: Sequence[Checkpoints], archive: Path
    ) -> None:
        self._joined, self._starts, self._checkpoints, self._archive = joined, starts, checkpoints, archive
        self._begin, self._data = 0, b""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes, fewer only at the end of what was hashed at once.

        Raises:
            BundleError: they are not what they were.
        """
        if not self._begin <= offset < self._begin + len(self._data):
            self._load(offset)
        at = offset - self._begin
        return self._data[at : at + size]

    def _load(self, offset: int) -> None:
        number = max(bisect_right(self._starts, offset) - 1, 0)
        start, checkpoints = self._starts[number], self._checkpoints[number]
        begin, end = checkpoints.piece(offset - start)
        self._begin, self._data = start + begin, b"".join(self._joined.blocks(start + begin, end - begin))
        if end > begin and not checkpoints.proves(begin, self._data):
            raise BundleError(
                f"{self._archive} has been changed while it was read (near byte {self._begin:,}).",
                fix="Somebody writes to it: copy it to a place where nobody else can, and check it there.",
            )


class Extent(io.RawIOBase):
    """A file inside an archive, seekable.

    Raises:
        ValueError: somebody wants to have more of it at once than any zip's directory takes.
        BundleError: it is not what it was when it was hashed.
    """

    def __init__(self, proven: Proven, offset: int, size: int) -> None:
        super().__init__()
        self._proven, self._offset, self._size = proven, offset, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError("before the start")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), max(self._size - self._at, 0))
        if wanted > _ZIP_READ_LIMIT:
            raise ValueError("too much at once")
        data = self._proven.read_at(self._offset + self._at, min(wanted, BLOCK)) if wanted else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
