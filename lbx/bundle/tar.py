"""Plain tar archives: deterministic writing, block-wise reading.

Reading does not use ``tarfile``, because it treats a damaged header in the middle as the end of the archive, allocates
memory as claimed by headers, and accepts a dozen entry types, while bundles only contain regular files. This reader
supports regular files (ustar, with pax records for long names and sizes), and names the type of all other entries.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lbx.base.errors import BundleError
from lbx.bundle.compression import Readable, Writable
from lbx.bundle.disk import BLOCK

_UNIT = 512
_RECORD = 20 * _UNIT
_PAX_LIMIT = 1 << 20
_MOST_FILLING = 4 << 20  # compressed zeros take almost no space
_ZEROS = bytes(_UNIT)

_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"5": "a folder",
    b"6": "a FIFO",
    b"S": "a sparse file",
    b"L": "a GNU long name",
    b"K": "a GNU long link",
    b"g": "a global header",
}
_OTHER_FORMATS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}


@dataclass(frozen=True, slots=True)
class Member:
    """Member of a tar: name, size in bytes, offset of the content, and type if it is not a regular file."""

    name: str
    size: int
    offset: int = 0
    other_kind: str = ""


class ArchiveStream:
    """Sequential stream of a tar, with the position. ``read`` returns fewer bytes than requested only at the end."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.position = 0

    def read(self, size: int) -> bytes:
        parts = [self._stream.read(size)]
        while (size := size - len(parts[-1])) and parts[-1]:
            parts.append(self._stream.read(size))
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.position += len(data)
        return data

    def skip(self, size: int) -> int:
        """Skip ``size`` bytes and return the number skipped, which is smaller at the end."""
        remaining = size
        while remaining and (data := self.read(min(remaining, BLOCK))):
            remaining -= len(data)
        return size - remaining


class SeekableStream:
    """Stream of a tar that can skip contents without reading them.

    Args:
        read_at: function (offset, size) that returns at most ``size`` bytes, and b"" only at the end.
        size: size of the tar in bytes.
    """

    def __init__(self, read_at: Callable[[int, int], bytes], size: int) -> None:
        self._read_at = read_at
        self._size = size
        self.position = 0

    def read(self, size: int) -> bytes:
        parts = []
        while size and (data := self._read_at(self.position, size)):
            parts.append(data)
            size -= len(data)
            self.position += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def skip(self, size: int) -> int:
        start = self.position
        self.position = min(start + size, self._size)
        return self.position - start


class TarReader:
    """Reader of a tar, an iterator over the members. Read ``blocks`` or call ``skip`` before the next member.

    Args:
        stream: the archive, positioned at its first byte.
        archive: path of the archive, for messages.

    Raises:
        BundleError (while iterating): not a tar, damaged, or cut short; the message gives the position.
    """

    def __init__(self, stream: ArchiveStream | SeekableStream, archive: Path) -> None:
        self._stream = stream
        self._archive = archive
        self._member: Member | None = None

    def __iter__(self) -> Iterator[Member]:
        while (header := self._header()) is not None:
            name, size, kind = header
            self._member = Member(name, size, self._stream.position, kind)
            yield self._member
        self._read_tail()

    def blocks(self) -> Iterator[bytes]:
        """Yield the current member's content in blocks of at most 1 MiB."""
        assert self._member is not None
        remaining = self._member.size
        while remaining:
            data = self._stream.read(min(remaining, BLOCK))
            if not data:
                raise self._truncated_member_error(self._member, remaining)
            remaining -= len(data)
            yield data
        self._read_padding(self._member)

    def skip(self) -> None:
        """Skip the current member's content."""
        assert self._member is not None
        if (missing := self._member.size - self._stream.skip(self._member.size)) > 0:
            raise self._truncated_member_error(self._member, missing)
        self._read_padding(self._member)

    def _truncated_member_error(self, member: Member, missing: int) -> BundleError:
        return self._truncation_error(f"in the middle of {member.name}, {missing:,} bytes before its end")

    def _read_padding(self, member: Member) -> None:
        padding = -member.size % _UNIT
        if padding and self._read_exactly(padding, f"right after {member.name}") != bytes(padding):
            raise self._damage_error(f"the padding after {member.name} is not empty")

    def _header(self) -> tuple[str, int, str] | None:
        """Read name, size and ``other_kind`` of the next member, or return None at the end mark."""
        pax: dict[str, str] = {}
        while True:
            first = self._stream.position == 0
            raw = self._first_block() if first else self._read_exactly(_UNIT, "at the start of a file")
            if raw == _ZEROS:
                return None
            if not _sum_fits(raw):
                raise self._damage_error("the header of a file does not match its checksum")
            size = self._octal(raw[124:136])
            if raw[156:157] != b"x":
                return self._describe(raw, size, pax)
            if pax or size > _PAX_LIMIT:
                raise self._damage_error("an extended header is too large or appears twice")
            pax = self._pax_records(self._read_exactly(size + -size % _UNIT, "in an extended header")[:size])

    def _describe(self, raw: bytes, size: int, pax: dict[str, str]) -> tuple[str, int, str]:
        if "size" in pax:
            if not pax["size"].isascii() or not pax["size"].isdigit() or len(pax["size"]) > 18:
                raise self._damage_error("an extended header has no valid size")
            size = int(pax["size"])
        name = pax.get("path") or self._name(raw)
        kind = raw[156:157]
        other = "" if kind in (b"0", b"\0") else _KINDS.get(kind, f"an entry of type {kind!r}")
        if any(key.startswith("GNU.sparse.") for key in pax):
            other = _KINDS[b"S"]
        return name, size, other

    def _first_block(self) -> bytes:
        raw = self._stream.read(_UNIT)
        if not raw:
            raise BundleError(f"{self._archive} is empty.", fix="Copy the archive again.")
        for magic, name in _OTHER_FORMATS.items():
            if raw.startswith(magic):
                raise BundleError(
                    f"{self._archive} is a {name} file, not a plain tar.", fix=f"Decompress it first ({name})."
                )
        if len(raw) < _UNIT or raw == _ZEROS or not _sum_fits(raw):
            raise BundleError(
                f"{self._archive} is not a tar archive, or its first bytes are damaged.",
                fix="Give the NAME.tar that `lbx bundle` wrote, or copy it again.",
            )
        return raw

    def _name(self, raw: bytes) -> str:
        name, prefix = raw[:100].split(b"\0")[0], b""
        if raw[257:263] == b"ustar\0":
            prefix = raw[345:500].split(b"\0")[0]
        try:
            return ((prefix + b"/" if prefix else b"") + name).decode()
        except UnicodeDecodeError as exc:
            raise self._damage_error(f"the name {name!r} is not UTF-8") from exc

    def _octal(self, field: bytes) -> int:
        digits = field.strip(b" \0")
        if not digits or digits.strip(b"01234567"):
            raise self._damage_error("the header of a file has no valid size")
        return int(digits, 8)

    def _pax_records(self, data: bytes) -> dict[str, str]:
        records: dict[str, str] = {}
        while data:
            length, space, _ = data.partition(b" ")
            if not space or not length.isdigit() or len(length) > 8 or not len(length) + 3 <= int(length) <= len(data):
                raise self._damage_error("an extended header is garbled")
            record = data[len(length) + 1 : int(length)]
            try:
                key, equals, value = record[:-1].decode().partition("=")
            except UnicodeDecodeError as exc:
                raise self._damage_error("an extended header is not UTF-8") from exc
            if not equals or record[-1:] != b"\n" or key in records:
                raise self._damage_error("an extended header is garbled")
            records[key] = value
            data = data[int(length) :]
        return records

    def _read_tail(self) -> None:
        second = self._stream.read(_UNIT)
        if len(second) < _UNIT:
            raise self._truncation_error("at its end mark")
        end = self._stream.position + _MOST_FILLING
        while second:
            if second.strip(b"\0"):
                raise self._damage_error("extra bytes follow its end mark")
            if self._stream.position > end:
                raise self._damage_error(f"more than {_MOST_FILLING:,} bytes of padding follow its end mark")
            second = self._stream.read(BLOCK)
        if self._stream.position % _RECORD:
            raise self._truncation_error("in the padding after its end mark")

    def _read_exactly(self, size: int, location: str) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise self._truncation_error(location)
        return data

    def _truncation_error(self, location: str) -> BundleError:
        return BundleError(
            f"{self._archive} is truncated: it ends after {self._stream.position:,} bytes, {location}.",
            fix="Copy the archive again, and compare its size with the original's.",
        )

    def _damage_error(self, what: str) -> BundleError:
        return BundleError(
            f"{self._archive} is damaged near byte {self._stream.position:,}: {what}.", fix="Copy the archive again."
        )


def _sum_fits(raw: bytes) -> bool:
    """Whether a header's checksum is correct, and in a format that tar programs write."""
    total = sum(raw) - sum(raw[148:156]) + 8 * 0x20
    return raw[148:156] in (b"%06o\0 " % total, b"%06o \0" % total, b"%07o\0" % total)


class TarWriter:
    """Writer of a tar that depends only on names, contents and ``mtime``, a time in seconds since 1970."""

    def __init__(self, stream: Writable, mtime: int) -> None:
        self._stream = stream
        self._mtime = mtime
        self._written_bytes = 0

    def add(self, name: str, size: int, blocks: Iterable[bytes]) -> None:
        """Add a regular file with mode 0644 and owner 0:0.

        Raises:
            ValueError: ``blocks`` do not contain exactly ``size`` bytes in total.
        """
        self._write(_header(name, size, self._mtime))
        start = self._written_bytes
        for block in blocks:
            self._write(block)
        if self._written_bytes - start != size:
            raise ValueError(f"{name}: {self._written_bytes - start} bytes instead of {size}")
        self._write(bytes(-size % _UNIT))

    def close(self) -> None:
        """Write the end mark, and leave the stream open."""
        self._write(bytes(2 * _UNIT))
        self._write(bytes(-self._written_bytes % _RECORD))

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._written_bytes += len(data)


def _header(name: str, size: int, mtime: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, mtime, 0o644
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def tar_size(sizes: Iterable[tuple[str, int]]) -> int:
    """Size in bytes of a tar that contains files given by (name, size)."""
    total = 2 * _UNIT + sum(len(_header(name, size, 0)) + size + -size % _UNIT for name, size in sizes)
    return total + -total % _RECORD
