"""Attest runs of a results file: read every row, sign the statement, write the attestation."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lbx.attesting.attestation import RowLines, encode_attestation
from lbx.attesting.statement import RunStatement, Statement
from lbx.base.commands import as_command
from lbx.base.errors import StoreError, UsageError
from lbx.base.outputs import open_output
from lbx.base.version import __version__
from lbx.bundle.signing.signature import RESULTS_NAMESPACE, parse, sign
from lbx.scoring.reading import runs_without_numbers
from lbx.store.row_digests import iterate_row_digests
from lbx.store.runs import resolve_runs
from lbx.store.store import Store

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
    """Result of ``attest_results``.

    Attributes:
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
    """Write a signed attestation of runs, or of all runs.

    Raises:
        StoreError: the file cannot be read.
        UsageError: a run does not exist or is unfinished, or ssh-keygen cannot sign with this key.
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
        raise UsageError(f"{results} has no runs.")
    unfinished = [name for name in names if runs[name]["status"] == "running"]
    if unfinished:
        others = [word for name in names if name not in unfinished for word in ("--run", name)]
        raise UsageError(
            f"{', '.join(unfinished)} in {results} has not ended, so its answers may change.",
            fix="Wait for its end, or continue it if it was killed." + (" Or attest the others." if others else ""),
            command=as_command("lbx", "attest", results, "--sign", "KEY", *others) if others else "",
        )


def run_facts(run: dict[str, Any]) -> dict[str, Any]:
    """Facts of a run's statement, from its row. Raises StoreError if its JSON is malformed."""
    try:
        facts = {name: _plain(name, run[column]) for name, column in _FACTS.items()}
    except (ValueError, RecursionError) as exc:
        raise StoreError(f"The settings of the run {run['run_id']} are not JSON.") from exc
    settings = facts["settings"]
    weights = settings.get("weights_whole", settings.get("weights")) if isinstance(settings, dict) else None
    return {**facts, "weights": weights, "texts": run.get("texts")}


def _plain(name: str, value: Any) -> Any:
    if name in _JSON_FACTS:
        return json.loads(value)
    return value.isoformat() if isinstance(value, datetime) else value
