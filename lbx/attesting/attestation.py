"""Files of attestations: gzip of JSON lines. First the statement, then its signature, then the digests of rows.

The signature is over the first line. It covers the rows, because the statement has the hash of each run's lines. Every
reader checks the signature before anything else, and takes no row from a run whose lines do not have their hash.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lbx.attesting.statement import RunStatement, Statement, parse_statement
from lbx.base.errors import BundleError
from lbx.base.inputs import ATTESTATION_SUFFIX, open_input
from lbx.base.records import canonical_json
from lbx.bundle.signing.trust import SignedBy, Trust

_STATEMENT_LIMIT, _SIGNATURE_LIMIT, _ROW_LIMIT = 1 << 26, 1 << 17, 1 << 20
_LEVEL = 1
"""Digests are random: more effort makes the file two percent smaller."""


def attestation_path(results: Path) -> Path:
    """Default path of the attestation of a results file."""
    return results.parent / (results.name + ATTESTATION_SUFFIX)  # an empty path has no name to replace


class RowLines:
    """Compressed lines of runs, in memory: the statement at the start of the file needs their hashes."""

    def __init__(self) -> None:
        self._content = io.BytesIO()
        self._file = gzip.GzipFile(fileobj=self._content, mode="wb", compresslevel=_LEVEL, mtime=0)

    def add(self, lines: Iterable[str]) -> tuple[int, str]:
        """Add the lines of a run; return their number and SHA-256."""
        digest, count = hashlib.sha256(), 0
        for line in lines:
            data = line.encode() + b"\n"
            digest.update(data)
            self._file.write(data)
            count += 1
        return count, digest.hexdigest()

    def close(self) -> bytes:
        """Return the compressed lines."""
        self._file.close()
        return self._content.getvalue()


def encode_attestation(statement: bytes, signature: bytes, rows: bytes) -> bytes:
    """Content of an attestation: ``rows`` is the result of ``RowLines.close``."""
    lines = statement + canonical_json({"signature": signature.decode()}).encode() + b"\n"
    return gzip.compress(lines, _LEVEL, mtime=0) + rows


@dataclass(frozen=True, slots=True)
class Attestation:
    """An open attestation with a verified signature; ``iterate_rows`` reads each run's lines, in order, once.

    Attributes:
        signature: the signer; None for an unsigned attestation.
    """

    path: Path
    statement: Statement
    signature: SignedBy | None
    file: gzip.GzipFile

    def iterate_rows(self, run: RunStatement) -> Iterator[str]:
        """Yield the lines of the next run. They are verified only when the iteration has ended.

        Raises:
            BundleError: they are not the lines that were signed.
        """
        digest, previous = hashlib.sha256(), b""
        for _ in range(run.rows):
            line = _read_line(self.file, _ROW_LIMIT, self.path)
            if line <= previous:
                raise _damage(self.path, "its rows are not in order")
            digest.update(line)
            yield line[:-1].decode("utf-8", "replace")
            previous = line
        if digest.hexdigest() != run.sha256:
            raise _damage(self.path, f"the rows of {run.name} do not match the signed statement")

    def require_end(self) -> None:
        """Raise BundleError if there are lines after the last run's."""
        with _reading(self.path):
            if self.file.read(1):
                raise _damage(self.path, "it has extra lines")


@contextmanager
def open_attestation(path: Path, trust: Trust) -> Iterator[Attestation]:
    """Open an attestation and verify its signature before its statement is parsed.

    Raises:
        BundleError: it cannot be read, is not signed as ``trust`` requires, or is not an attestation of this version.
    """
    try:
        raw = open_input(path)
    except OSError as exc:
        raise BundleError(f"Cannot read the attestation {path}: {exc.strerror}.") from exc
    with raw, gzip.GzipFile(fileobj=raw) as file:
        text = _read_line(file, _STATEMENT_LIMIT, path)
        signature = _parse_signature(_read_line(file, _SIGNATURE_LIMIT, path), path)
        signed_by = None
        if signature:
            signed_by = trust.check_signature(signature, text, path.name, f"The signature in {path}")
        else:
            trust.require_signed(f"{path}")
        try:
            statement = parse_statement(text)
        except ValueError as exc:
            raise BundleError(
                f"{path} cannot be used: its statement {exc}.", fix="Ask its signer to attest the file again."
            ) from exc
        yield Attestation(path, statement, signed_by, file)


def _parse_signature(line: bytes, path: Path) -> bytes:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or value.keys() != {"signature"} or not isinstance(value["signature"], str):
        raise _damage(path, "its second line is not a signature")
    return str(value["signature"]).encode("utf-8", "replace")


def _read_line(file: gzip.GzipFile, limit: int, path: Path) -> bytes:
    with _reading(path):
        line = file.readline(limit)
    if not line.endswith(b"\n"):
        raise _damage(path, "it is truncated" if len(line) < limit else "it has a line that is too long")
    return line


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as exc:
        raise _damage(path, str(exc).rstrip(".")) from exc


def _damage(path: Path, reason: str) -> BundleError:
    return BundleError(
        f"{path} is damaged, or not an attestation: {reason}.", fix="Copy it again from the machine that made it."
    )
