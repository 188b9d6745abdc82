"""zstd compression for slow links (``lbx bundle --zstd``): the tar as a single frame, with the usual checksums.

zstd is in the standard library from Python 3.14 on; earlier versions need the same module in the package
backports.zstd. Compression shrinks weights by at most a fifth and parquet files not at all, so it is optional, and so
is the package.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from lbx.base.errors import BundleError, UsageError
from lbx.bundle.disk import BLOCK

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".zst"
_LEVEL = 10
_WINDOW_LOG = 27  # default limit of `zstd -d`: 128 MiB


class Writable(Protocol):
    """Stream to write bytes to."""

    def write(self, data: bytes, /) -> object: ...


class Readable(Protocol):
    """Stream to read bytes from. ``read`` returns at most ``size`` bytes, and b"" only at the end."""

    def read(self, size: int, /) -> bytes: ...


def require_zstd() -> None:
    """Raise UsageError if zstd is not installed, to fail before any work is done."""
    _zstd()


class Compressor:
    """Compressor that writes a zstd frame to ``out``. ``close`` ends the frame and leaves ``out`` open.

    Output is reproducible only with the same version of the zstd library.

    Raises:
        UsageError: zstd is missing.
    """

    def __init__(self, out: Writable, level: int = _LEVEL) -> None:
        zstd = _zstd()
        parameter = zstd.CompressionParameter
        self._zstd = zstd.ZstdCompressor(options={parameter.compression_level: level, parameter.checksum_flag: 1})
        self._out = out

    def write(self, data: bytes, /) -> int:
        self._out.write(self._zstd.compress(data))
        return len(data)

    def close(self) -> None:
        self._out.write(self._zstd.flush())


class Decompressor:
    """Decompressor of a stream, which never decompresses more than requested.

    Args:
        archive: path of the archive, for messages.

    Raises:
        UsageError: zstd is missing.
        BundleError (while reading): the archive is damaged, cut short, or compressed with a window of more than
            128 MiB.
    """

    def __init__(self, stream: Readable, archive: Path) -> None:
        zstd = _zstd()
        self._stream = stream
        self._archive = archive
        self._zstd = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})
        self._error = zstd.ZstdError

    def read(self, size: int) -> bytes:
        parts = []
        while size > 0 and not self._zstd.eof:
            data = self._stream.read(BLOCK) if self._zstd.needs_input else b""
            if not data and self._zstd.needs_input:
                raise BundleError(
                    f"{self._archive} is truncated: it ends within its zstd frame.", fix="Copy the archive again."
                )
            try:
                part = self._zstd.decompress(data, size)
            except self._error as exc:
                raise BundleError(f"{self._archive} is damaged: {exc}.", fix="Copy the archive again.") from exc
            size -= len(part)
            parts.append(part)
        if size > 0 and (self._zstd.unused_data or self._stream.read(1)):
            raise BundleError(f"{self._archive} is damaged: extra bytes follow its zstd frame.", fix="Copy it again.")
        return b"".join(parts)


def _zstd() -> Any:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError as exc:
        raise UsageError(
            "Compression with zstd needs a package that is not installed.",
            fix="Install it.",
            command="pip install backports.zstd",
        ) from exc
    return zstd
