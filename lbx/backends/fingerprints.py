"""Fingerprints that identify a model's weights without reading hundreds of gigabytes.

They differ for weights of the same names and sizes. Models up to ``WHOLE`` bytes are read completely. For larger ones
the fingerprint covers the tables of their tensors (names, shapes, formats), pieces of every tensor, and the other
files. It misses a change of a few bytes between two pieces: ``every_byte`` reads everything.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from lbx.backends.cards import ModelCard
from lbx.backends.headers import tensor_table
from lbx.backends.places import model_files
from lbx.base.errors import BackendError
from lbx.base.inputs import open_input

WHOLE = 1 << 29
"""Bytes of tensors that are read completely, in less than a second."""
_WITH_TENSORS = (".safetensors", ".gguf")
_PIECE, _PIECES, _LEAST = 1 << 10, 1 << 14, 3
"""Bytes of a piece; pieces of a model, spread over its bytes; minimum pieces of a tensor."""
_BLOCK = 1 << 22
_TOGETHER = 256
_THREADS = 16
"""Concurrent reads. A network file system takes as long for one read as for many."""
_GOLDEN, _ONE = 0x9E3779B97F4A7C15, 1 << 64

Piece = tuple[int, int]
"""Offset and length of a read."""


class _File(NamedTuple):
    """File of a model: number of leading bytes to read completely, and spans to read pieces of."""

    path: Path
    size: int
    head_bytes: int
    spans: Sequence[tuple[int, int]] = ()


class _ReadBatch(NamedTuple):
    path: Path
    pieces: Sequence[Piece]


def fingerprint(path: Path, *, every_byte: bool = False) -> str:
    """Hex digest of a model's weights; it excludes the folder, so that a model may move.

    Args:
        path: a model's folder, or its (first) file.

    Raises:
        BackendError: a file is missing, is not a regular file, or cannot be read.
    """
    paths = model_files(path)
    try:
        sizes = [file.stat().st_size for file in paths]
        tensors = sum(size for file, size in zip(paths, sizes, strict=True) if file.suffix in _WITH_TENSORS)
        every = every_byte or tensors <= WHOLE
        files = [_plan_reads(file, size, every=every) for file, size in zip(paths, sizes, strict=True)]
        digest = hashlib.blake2b(b"every byte" if every else b"pieces", digest_size=32)
        for file in files:
            digest.update(f"{file.path.name}\0{file.size}\0{file.head_bytes}\0".encode("utf-8", "surrogateescape"))
        with ThreadPoolExecutor(_THREADS) as threads:
            for part in threads.map(_digest, _reads(files)):
                digest.update(part)
    except OSError as exc:
        raise BackendError(
            f"The model in {path} cannot be read: {exc.filename or path}: {exc.strerror or exc}.",
            fix="Check that all files of the model are regular files, and that you may read them.",
        ) from exc
    return digest.hexdigest()


def weights_settings(card: ModelCard, path: Path) -> dict[str, str]:
    """Settings that identify a run's weights, for ``BackendInfo.settings``."""
    settings = {"weights": fingerprint(path)}
    return settings | {"weights_whole": fingerprint(path, every_byte=True)} if card.hash_weights else settings


def _plan_reads(path: Path, size: int, *, every: bool) -> _File:
    """Plan the reads of a file. A tensor file without a valid table is treated as one long tensor."""
    if every or path.suffix not in _WITH_TENSORS:
        return _File(path, size, size)
    with open_input(path, buffering=1 << 16) as stream:
        table = tensor_table(stream, size)
    return _File(path, size, 0, [(0, size)]) if table is None else _File(path, size, table.header, table.spans)


def _reads(files: Sequence[_File]) -> Iterator[_ReadBatch]:
    """Yield batches of reads, each small enough for one thread to finish quickly."""
    sizes = sum(end - begin for file in files for begin, end in file.spans)
    spacing = max(sizes // _PIECES, _PIECE)
    turn = 0
    for file in files:
        for begin in range(0, file.head_bytes, _BLOCK):
            yield _ReadBatch(file.path, [(begin, min(_BLOCK, file.head_bytes - begin))])
        pieces = chain.from_iterable(
            _spread_pieces(begin, end, spacing, turn + n) for n, (begin, end) in enumerate(file.spans)
        )
        while some := list(islice(pieces, _TOGETHER)):
            yield _ReadBatch(file.path, some)
        turn += len(file.spans)


def _spread_pieces(begin: int, end: int, spacing: int, turn: int) -> list[Piece]:
    """Places of a tensor's pieces: one in each of equal parts, at a different offset in each part.

    Pieces at equal distances would read the same columns of a matrix in each of its rows.
    """
    size = end - begin
    count = max(_LEAST, -(-size // spacing))
    if size <= count * _PIECE:
        return [(begin, size)]
    pieces, at, part = [], begin, turn * _GOLDEN
    for number in range(1, count + 1):
        after = begin + size * number // count
        pieces.append((at + ((after - at - _PIECE) * (part % _ONE) // _ONE), _PIECE))
        at, part = after, part + _GOLDEN
    return pieces


def _digest(batch: _ReadBatch) -> bytes:
    path, pieces = batch
    with open_input(path) as file:
        handle = file.fileno()
        if len(pieces) > 1 and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead after a piece
        content = b"".join([os.pread(handle, size, offset) for offset, size in pieces])
    return hashlib.blake2b(content, digest_size=32).digest()
