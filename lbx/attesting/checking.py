"""Check a results file by its attestation: which rows changed, were removed or were added."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lbx.attesting.attestation import Attestation, attestation_path, open_attestation
from lbx.attesting.making import run_facts
from lbx.attesting.rows import Change, compare_rows
from lbx.attesting.statement import RunStatement
from lbx.base.commands import as_command
from lbx.base.errors import LbxError, StoreError, UsageError
from lbx.base.records import canonical_json
from lbx.base.version import __version__
from lbx.bundle.bag import Evidence
from lbx.bundle.signing.signature import RESULTS_NAMESPACE
from lbx.bundle.signing.trust import SignedBy, Trust
from lbx.scoring.reading import NumberDifference, number_differences
from lbx.store.row_digests import iterate_row_digests, runs_with_rows
from lbx.store.runs import match_runs
from lbx.store.store import Store
from lbx.store.texts import ANSWERS, NO_TEXTS, texts_of

VERIFIED, CHANGED, MISSING = "verified", "changed", "missing"
_MOST_ROWS_IN_REPORTS = 20_000
"""Number of attested rows that a report checks, which takes about a second."""


@dataclass(frozen=True, slots=True)
class RunCheck:
    """Result of a run.

    Attributes:
        result: "verified", "changed", or "missing" if the file has nothing of the run.
        rows: number of attested rows.
        changes: number of rows by kind of change.
        unchecked_texts: texts that `lbx runs extract --without-texts` removed.
        maybe_renamed_to: a run with the same settings and start that is not attested, if this one is missing.
        facts: of the signed statement.
    """

    name: str
    result: str
    rows: int
    facts: Mapping[str, Any]
    changes: Mapping[str, int] = field(default_factory=dict)
    unchecked_texts: int = 0
    maybe_renamed_to: str | None = None


@dataclass(frozen=True, slots=True)
class ResultsReport(Evidence):
    """Evidence on a results file.

    Attributes:
        result: "verified"; "changed"; or "incomplete" if whole runs are missing and the others are verified.
        attested_at: time of the attestation, by its signer's clock.
        signatures: the signature; empty for an unsigned attestation.
        changes: each row once, even if several runs have it.
        other_runs: runs of the file that the attestation does not name.
        numbers: number of stored numbers that were computed again from the file's rows; None if they were not.
        different_numbers: those that differ.
        unattested_tables: tables that no attestation covers.
    """

    path: str
    attestation: str
    result: str
    signatures: Sequence[SignedBy]
    attested_at: str
    attested_by: str
    runs: Sequence[RunCheck]
    changes: Sequence[Change]
    other_runs: Sequence[str]
    numbers: int | None = None
    different_numbers: Sequence[NumberDifference] = ()
    unattested_tables: Sequence[str] = ("sessions", "embeddings")
    lbx_version: str = __version__

    @property
    def is_trusted(self) -> bool:
        return any(signature.trusted for signature in self.signatures)

    def run_names(self, result: str) -> list[str]:
        """Names of the runs with this result."""
        return [run.name for run in self.runs if run.result == result]


def check_results(
    results: Path, attestation: Path, trust: Trust, runs: Sequence[str] = (), *, numbers: bool = True
) -> ResultsReport:
    """Compare a results file with its attestation.

    Args:
        trust: keys to accept, for the namespace of results.
        runs: check only these; a missing run is then no reason for "incomplete".
        numbers: whether to compute the stored numbers again from the file's rows.

    Raises:
        BundleError: the attestation is damaged, or not signed as ``trust`` requires.
        StoreError: the results file cannot be read.
        UsageError: the attestation does not name a run.
    """
    changes: dict[str, Change] = {}
    checks = []
    with open_attestation(attestation, trust) as opened, Store(results, allow_writer=True) as store:
        names, present = _choose_runs(opened, runs), runs_with_rows(store)
        rows = {row["run_id"]: row for row in store.query("FROM runs").dicts()}
        attested = {run.name for run in opened.statement.runs}
        for run in opened.statement.runs:
            lines = opened.iterate_rows(run)
            if run.name not in names or run.name not in present:
                deque(lines, maxlen=0)  # verified, too
                if run.name in names:
                    renamed = _find_new_name(run, {name: row for name, row in rows.items() if name not in attested})
                    checks.append(RunCheck(run.name, MISSING, run.rows, run.facts, maybe_renamed_to=renamed))
                continue
            comparison = compare_rows(
                lines,
                iterate_row_digests(store, run.name, opened.statement.salt),
                texts=_kept_texts(run, rows.get(run.name)),
                missing_runs=frozenset(attested - present),
            )
            if comparison.remaining_texts:  # the record is false
                comparison.changes.append(Change("changed", "runs", {"run_id": run.name}, ["texts"]))
            counts = dict(Counter(str(change.kind) for change in comparison.changes))  # asdict() breaks a Counter
            result = VERIFIED if counts.keys() <= {"missing"} else CHANGED
            checks.append(RunCheck(run.name, result, run.rows, run.facts, counts, comparison.unchecked_texts))
            changes.update(
                {canonical_json([change.kind, change.table, change.key]): change for change in comparison.changes}
            )
        opened.require_end()
        compared, different_numbers = check_numbers(store, names) if numbers else (None, [])
    results_of_runs = {check.result for check in checks}
    result = "incomplete" if MISSING in results_of_runs else VERIFIED
    signature = opened.signature
    return ResultsReport(
        path=str(results),
        attestation=str(attestation),
        result=CHANGED if CHANGED in results_of_runs else result,
        signatures=[signature] if signature else [],
        attested_at=opened.statement.created_at,
        attested_by=f"version {opened.statement.lbx_version} of lbx",
        runs=checks,
        changes=[*changes.values()],
        other_runs=sorted(present - attested),
        numbers=compared,
        different_numbers=different_numbers,
    )


def check_numbers(store: Store, runs: Collection[str]) -> tuple[int | None, Sequence[NumberDifference]]:
    """Compute stored numbers again (``number_differences``); None for a file without the texts that some need."""
    return (None, []) if texts_of(store) else number_differences(store, runs)


def attestation_notice(results: Path) -> str:
    """Sentence about the attestation with the default name of a results file; "" if there is none.

    The keys of its signer are not checked, because a report has no trusted keys. A long attestation is not checked.
    """
    path = attestation_path(results)
    if not path.is_file():
        return ""
    command = as_command("lbx", "verify", results, "--trust", "KEYS")
    trust = Trust(allow_unsigned=True, namespace=RESULTS_NAMESPACE)
    try:
        with open_attestation(path, trust) as opened:
            rows = sum(run.rows for run in opened.statement.runs)
        if rows > _MOST_ROWS_IN_REPORTS:
            return f"Attestation {path.name}: not checked here, because it has {rows:,} rows. To check it: {command}"
        report = check_results(results, path, trust, numbers=False)
    except LbxError as exc:
        return f"Attestation {path.name}: NOT VALID for this file. {exc.cause}"
    signer = f"the key {report.signatures[0].key}" if report.signatures else "no key: it is unsigned"
    signed = f"signed {report.attested_at} by {signer}"
    counts = Counter(change.kind for change in report.changes if change.kind != "missing")
    parts = [f"{counts[kind]:,} {kind}" for kind in ("changed", "removed", "added") if counts[kind]]
    facts = [f"rows that differ: {', '.join(parts)}"] if parts else []
    if missing := report.run_names(MISSING):
        facts.append(f"attested runs that are not in this file: {', '.join(missing)}")
    if report.other_runs:
        facts.append(f"runs that are not attested: {', '.join(report.other_runs)}")
    state = "CHANGED since it was attested" if parts else "INCOMPLETE" if missing else "attested, no row has changed"
    trusted = " Whether this key is trusted was not checked." if report.signatures else ""
    return f"Attestation {path.name}: {'; '.join([state, *facts])}; {signed}.{trusted} All checks: {command}"


def _choose_runs(opened: Attestation, runs: Sequence[str]) -> set[str]:
    models = {run.name: str(run.facts.get("model")) for run in opened.statement.runs}
    if not runs:
        return {*models}
    chosen: set[str] = set()
    for run in runs:
        matches = match_runs(run, models)
        if len(matches) != 1:
            problem = f"matches {', '.join(matches)}" if matches else "matches none"
            raise UsageError(
                f"--run {run} {problem} of the runs in {opened.path}.", fix=f"Attested runs: {', '.join(models)}."
            )
        chosen.update(matches)
    return chosen


def _kept_texts(run: RunStatement, row: Mapping[str, Any] | None) -> str | None:
    """Texts that were kept when others were removed after the attestation, by the file's record; None for all."""
    if row is None or run.facts.get("texts") is not None or row["texts"] not in (ANSWERS, NO_TEXTS):
        return None
    return str(row["texts"])


def _find_new_name(run: RunStatement, others: Mapping[str, dict[str, Any]]) -> str | None:
    """Name of a run with the same start and settings as a missing one."""
    for name, row in others.items():
        with suppress(StoreError):
            facts = run_facts(row)
            if all(facts[key] == run.facts.get(key) for key in ("startedAt", "settings", "model", "bundleDigest")):
                return name
    return None
