"""Attestations: the statement on runs, its file, and the signing of the rows of a results file.

An attestation is a gzip file of JSON lines: first the statement, then the signature, then the digests of rows.

The signature is over the first line. It covers the rows, because the statement contains a hash of each run's lines.
Readers verify the signature before anything else, and accept no row of a run whose lines do not match the hash.

Statements follow the format of in-toto: https://github.com/in-toto/attestation (Statement v1).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lbx.base.errors import BundleError, StoreError, UsageError
from lbx.base.inputs import ATTESTATION_SUFFIX, open_input
from lbx.base.outputs import open_output
from lbx.base.records import canonical_json
from lbx.base.version import __version__
from lbx.base.visible import as_command
from lbx.bundle.signing.signature import RESULTS_NAMESPACE, parse, sign
from lbx.bundle.signing.trust import SignedBy, Trust
from lbx.results.file.store import Store
from lbx.results.read.runs import resolve_runs
from lbx.results.schema import SCHEMA_VERSION
from lbx.results.scoring.reading import runs_without_numbers
from lbx.results.whole.row_digests import COLUMNS, iterate_row_digests

_STATEMENT_TYPE, _PREDICATE_TYPE = "https://in-toto.io/Statement/v1", "urn:lbx:results:v1"
_MOST_ROWS = 10**12


@dataclass(frozen=True, slots=True)
class RunStatement:
    """Statement on a run of a results file.

    Attributes:
        rows: number of the run's rows.
        sha256: hash of the run's lines of ``lbx.results.whole.row_digests``, each followed by a line feed.
        facts: {name: value} from the table ``runs``: bundle, weights, settings, versions, times, status.
    """

    name: str
    rows: int
    sha256: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """Statement on runs of a results file.

    Attributes:
        created_at: UTC, by the clock of the signer's machine.
        lbx_version: version of lbx that read the rows.
        salt: mixed into the digests of rows.
    """

    created_at: str
    lbx_version: str
    salt: str
    runs: Sequence[RunStatement]

    def encode(self) -> bytes:
        """Encode the statement as the bytes to sign: a line of JSON."""
        return (
            canonical_json(
                {
                    "_type": _STATEMENT_TYPE,
                    "predicateType": _PREDICATE_TYPE,
                    "subject": [{"name": run.name, "digest": {"sha256": run.sha256}} for run in self.runs],
                    "predicate": {
                        "createdAt": self.created_at,
                        "lbxVersion": self.lbx_version,
                        "salt": self.salt,
                        "schemaVersion": SCHEMA_VERSION,
                        "columns": _columns(),
                        "runs": [{"name": run.name, "rows": run.rows, **run.facts} for run in self.runs],
                    },
                }
            ).encode()
            + b"\n"
        )


def parse_statement(text: bytes) -> Statement:
    """Parse the bytes of ``Statement.encode``.

    Raises:
        ValueError: the bytes are not such a statement. The message continues a sentence: "its statement ...".
    """
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except RecursionError as exc:
        raise ValueError("is nested too deeply") from exc
    except json.JSONDecodeError as exc:
        raise ValueError("is not JSON") from exc
    _require_keys(document, "_type predicateType subject predicate")
    if (document["_type"], document["predicateType"]) != (_STATEMENT_TYPE, _PREDICATE_TYPE):
        raise ValueError("is a statement of another type")
    predicate = document["predicate"]
    _require_keys(predicate, "createdAt lbxVersion salt schemaVersion columns runs")
    if predicate["schemaVersion"] != SCHEMA_VERSION or predicate["columns"] != _columns():
        raise ValueError("was made by another version of lbx, with other columns")
    names = (predicate["createdAt"], predicate["lbxVersion"], predicate["salt"])
    subjects, runs = document["subject"], predicate["runs"]
    if not all(isinstance(name, str) for name in names) or not isinstance(subjects, list) or not isinstance(runs, list):
        raise ValueError("has no text as createdAt, lbxVersion or salt, or no list as subject or runs")
    if len(subjects) != len(runs) or not runs:
        raise ValueError("does not have one subject for each run")
    statement = Statement(*names, [_parse_run(subject, run) for subject, run in zip(subjects, runs, strict=True)])
    if len({run.name for run in statement.runs}) != len(runs):
        raise ValueError("names a run twice")
    return statement


def _parse_run(subject: Any, run: Any) -> RunStatement:
    _require_keys(subject, "name digest")
    _require_keys(subject["digest"], "sha256")
    if not isinstance(run, dict) or run.get("name") != subject["name"] or not isinstance(run["name"], str):
        raise ValueError("has a subject that is not its run")
    rows, digest = run.get("rows"), subject["digest"]["sha256"]
    if type(rows) is not int or not 0 < rows < _MOST_ROWS:
        raise ValueError("has an impossible number of rows")
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError("has a digest that is not a SHA-256")
    facts = {name: value for name, value in run.items() if name not in ("name", "rows")}
    return RunStatement(run["name"], rows, digest, facts)


def _columns() -> dict[str, dict[str, list[str]]]:
    return {table: {"values": [*columns.values], "texts": [*columns.texts]} for table, columns in COLUMNS.items()}


def _require_keys(value: Any, names: str) -> None:
    if not isinstance(value, dict) or value.keys() != {*names.split()}:
        raise ValueError(f"does not have exactly the keys {', '.join(names.split())}")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("has a key twice")
    return dict(pairs)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"contains {name}, which is not JSON")


_STATEMENT_LIMIT, _SIGNATURE_LIMIT, _ROW_LIMIT = 1 << 26, 1 << 17, 1 << 20
_LEVEL = 1
"""Digests are random: more effort makes the file two percent smaller."""


def attestation_path(results: Path) -> Path:
    """Return the default path of the attestation of a results file."""
    return results.parent / (results.name + ATTESTATION_SUFFIX)  # an empty path has no name to replace


class RowLines:
    """Lines of runs, compressed in memory, because the statement at the start of the file needs their hashes."""

    def __init__(self) -> None:
        self._content = io.BytesIO()
        self._file = gzip.GzipFile(fileobj=self._content, mode="wb", compresslevel=_LEVEL, mtime=0)

    def add(self, lines: Iterable[str]) -> tuple[int, str]:
        """Add the lines of a run, and return the number of lines and their SHA-256."""
        digest, count = hashlib.sha256(), 0
        for line in lines:
            data = line.encode() + b"\n"
            digest.update(data)
            self._file.write(data)
            count += 1
        return count, digest.hexdigest()

    def close(self) -> bytes:
        """End the compression, and return the compressed lines."""
        self._file.close()
        return self._content.getvalue()


def encode_attestation(statement: bytes, signature: bytes, rows: bytes) -> bytes:
    """Build the content of an attestation file. ``rows`` is the result of ``RowLines.close``."""
    lines = statement + canonical_json({"signature": signature.decode()}).encode() + b"\n"
    return gzip.compress(lines, _LEVEL, mtime=0) + rows


@dataclass(frozen=True, slots=True)
class Attestation:
    """An open attestation with a verified signature. ``iterate_rows`` reads each run's lines, in order, once.

    Attributes:
        signature: the verified signature, or None for an unsigned attestation.
    """

    path: Path
    statement: Statement
    signature: SignedBy | None
    file: gzip.GzipFile

    def iterate_rows(self, run: RunStatement) -> Iterator[str]:
        """Yield the lines of the next run. The lines are verified only at the end of the iteration.

        Raises:
            BundleError: the lines are not those that were signed.
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
        """Raise BundleError if the attestation contains lines after those of the last run."""
        with _reading(self.path):
            if self.file.read(1):
                raise _damage(self.path, "it has extra lines")


@contextmanager
def open_attestation(path: Path, trust: Trust) -> Iterator[Attestation]:
    """Open an attestation and verify its signature before its statement is parsed.

    Raises:
        BundleError: the file cannot be read, is not signed as ``trust`` requires, or is not an attestation of this
            version.
    """
    try:
        raw = open_input(path)
    except OSError as exc:
        raise BundleError(f"Cannot read the attestation {path}: {exc.strerror}.", fix="Check the path.") from exc
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


_FACTS = {
    "model": "model",
    "backend": "backend",
    "backendVersion": "backend_version",
    "bundleDigest": "bundle_digest",
    "benchmarkVersions": "benchmark_versions",
    "lbxVersion": "lbx_version",
    "settings": "settings",
    "status": "status",
    "startedAt": "started_at",
    "finishedAt": "finished_at",
}
"""{name in the statement: column of the table of runs}"""
_JSON_FACTS = ("settings", "benchmarkVersions")
_SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class AttestResult:
    """Attestation that ``attest_results`` wrote.

    Attributes:
        runs: statements on the attested runs.
        key: fingerprint of the signer's key.
        bytes: size of the attestation.
    """

    path: Path
    runs: Sequence[RunStatement]
    key: str
    bytes: int

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)


def attest_results(results: Path, output: Path, key: Path, runs: Sequence[str] = ()) -> AttestResult:
    """Write a signed attestation of some runs of a results file, or of all its runs, to ``output``.

    Raises:
        StoreError: the results file cannot be read.
        UsageError: a run does not exist, is unfinished or lacks its numbers, or ssh-keygen cannot sign with ``key``.
    """
    salt, lines = secrets.token_hex(_SALT_BYTES), RowLines()
    with Store(results, allow_writer=True) as store:
        facts = {run["run_id"]: run for run in store.query("FROM runs ORDER BY run_id").dicts()}
        names = sorted(resolve_runs(store, runs) if runs else facts)
        _require_end_of_runs(results, names, facts)
        if without_numbers := sorted(runs_without_numbers(store).intersection(names)):
            raise UsageError(
                f"{', '.join(without_numbers)} in {results} has scores without the numbers computed from them.",
                fix="A program was killed before it had written them. Compute them first.",
                command=as_command("lbx", "score", results),
            )
        statements = [
            RunStatement(name, *lines.add(iterate_row_digests(store, name, salt)), run_facts(facts[name]))
            for name in names
        ]
    created_at = datetime.now(UTC).isoformat(timespec="seconds")
    statement = Statement(created_at, __version__, salt, statements).encode()
    signature = sign(statement, key, RESULTS_NAMESPACE)
    content = encode_attestation(statement, signature, lines.close())
    with open_output(output) as file:
        file.write(content)
    signer = parse(signature, "the new signature", RESULTS_NAMESPACE)
    return AttestResult(output, statements, signer.fingerprint, len(content))


def _require_end_of_runs(results: Path, names: Sequence[str], runs: dict[str, dict[str, Any]]) -> None:
    if not names:
        raise UsageError(f"{results} has no runs.", fix="Give a results file with answers.")
    unfinished = [name for name in names if runs[name]["status"] == "running"]
    if unfinished:
        others = [word for name in names if name not in unfinished for word in ("--run", name)]
        raise UsageError(
            f"{', '.join(unfinished)} in {results} has not ended, so its answers may change.",
            fix="Wait for its end, or continue it if it was killed." + (" Or attest the others." if others else ""),
            command=as_command("lbx", "attest", results, "--sign", "KEY", *others) if others else "",
        )


def run_facts(run: dict[str, Any]) -> dict[str, Any]:
    """Build the facts of a run's statement from the run's row. Raises StoreError if JSON in the row is malformed."""
    try:
        facts = {name: _plain(name, run[column]) for name, column in _FACTS.items()}
    except (ValueError, RecursionError) as exc:
        raise StoreError(
            f"The settings of the run {run['run_id']} are not JSON.",
            fix="lbx never writes such settings: restore a copy of the file.",
        ) from exc
    settings = facts["settings"]
    weights = settings.get("weights_whole", settings.get("weights")) if isinstance(settings, dict) else None
    return {**facts, "weights": weights, "texts": run.get("texts")}


def _plain(name: str, value: Any) -> Any:
    if name in _JSON_FACTS:
        return json.loads(value)
    return value.isoformat() if isinstance(value, datetime) else value
