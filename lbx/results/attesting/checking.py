"""Check of a results file against its attestation: which rows changed, were removed or were added.

A run's attested rows are compared with the rows of a file line by line (``lbx.results.whole.row_digests``). Both are
sorted, so that equal lines are skipped and only differing lines are parsed.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lbx.base.errors import BundleError, LbxError, StoreError, UsageError
from lbx.base.records import canonical_json
from lbx.base.version import __version__
from lbx.base.visible import as_command
from lbx.bundle.manifest import Evidence
from lbx.bundle.signing.signature import RESULTS_NAMESPACE
from lbx.bundle.signing.trust import SignedBy, Trust
from lbx.results.attesting.attestation import Attestation, RunStatement, attestation_path, open_attestation, run_facts
from lbx.results.file.store import Store
from lbx.results.file.texts import ANSWERS, NO_TEXTS, texts_of
from lbx.results.read.runs import match_runs
from lbx.results.scoring.reading import NumberDifference, number_differences
from lbx.results.whole.row_digests import (
    COLUMNS,
    DIGITS,
    MARK_DIGITS,
    PLAIN,
    is_blank,
    iterate_row_digests,
    runs_with_rows,
)

_MOST_LINES = 2_000_000
"""Maximum number of differing lines in memory. A file in which more lines differ is another file."""
UNKNOWN_COLUMN = "?"
"""Name for a changed column whose mark is equal by chance, as for one change in 256."""


@dataclass(frozen=True, slots=True)
class Change:
    """Difference between the attested rows and the rows of a file.

    Attributes:
        kind: "missing" is a removed row about another run that the file does not contain either.
        key: {column of the table's primary key: value}.
        columns: columns that differ, if the row is "changed".
    """

    kind: Literal["changed", "removed", "added", "missing"]
    table: str
    key: Mapping[str, str | int | None]
    columns: Sequence[str] = ()


@dataclass(slots=True)
class Comparison:
    """Differences that ``compare_rows`` found.

    Attributes:
        unchecked_texts: number of texts that were removed from the file, according to the file's record.
        remaining_texts: number of texts that the file contains despite that record.
    """

    changes: list[Change] = field(default_factory=list)
    unchecked_texts: int = 0
    remaining_texts: int = 0


@dataclass(frozen=True, slots=True)
class _Row:
    table: str
    key: Sequence[str | int | None]
    about: Sequence[str]
    values: str
    marks: str
    texts: Sequence[str | None]

    def change(self, kind: Literal["changed", "removed", "added", "missing"], columns: Sequence[str] = ()) -> Change:
        return Change(kind, self.table, dict(zip(COLUMNS[self.table].key, self.key, strict=True)), columns)


def compare_rows(
    attested: Iterable[str], current: Iterable[str], *, texts: str | None, missing_runs: frozenset[str]
) -> Comparison:
    """Compare the attested lines of a run with the lines of a file.

    Args:
        texts: which texts were kept when others were removed after the attestation, according to the file's record
            (``runs.texts``), or None if the file contains all texts.
        missing_runs: attested runs that the file does not contain.

    Raises:
        BundleError: an attested line is malformed, or nearly all lines differ.
    """
    result = Comparison()
    old: list[_Row] = []
    new: dict[tuple[str, Sequence[str | int | None]], list[_Row]] = {}
    for old_line, new_line in _pair_lines(attested, current, with_equal=texts is not None):
        if len(old) + len(new) > _MOST_LINES:
            raise BundleError(f"More than {_MOST_LINES:,} rows differ.", fix="Is it the attestation of another file?")
        if old_line is not None and new_line is not None:
            if texts is None or not _has_only_removed_texts(old_line, new_line, result):
                _compare_columns(_parse_row(old_line), _parse_row(new_line), texts, result)
            continue
        if old_line is not None:
            old.append(_parse_row(old_line))
        if new_line is not None:
            row = _parse_row(new_line)
            new.setdefault((row.table, row.key), []).append(row)
    for row in old:
        others = new.get((row.table, row.key))
        if others:
            _compare_columns(row, others.pop(0), texts, result)
        else:
            result.changes.append(row.change("missing" if missing_runs.intersection(row.about) else "removed"))
    result.changes += [row.change("added") for rows in new.values() for row in rows]
    return result


def _pair_lines(
    attested: Iterable[str], current: Iterable[str], *, with_equal: bool
) -> Iterator[tuple[str, None] | tuple[None, str] | tuple[str, str]]:
    """Yield lines that only one side contains, pairs of lines that differ only in texts, and on request equal lines."""
    old_lines, new_lines = iter(attested), iter(current)
    old, new = next(old_lines, None), next(new_lines, None)
    while old is not None and new is not None:
        if old == new:
            if with_equal:
                yield old, new
            old, new = next(old_lines, None), next(new_lines, None)
        elif old.rpartition(",[")[0] == new.rpartition(",[")[0]:
            yield old, new
            old, new = next(old_lines, None), next(new_lines, None)
        elif old < new:
            yield old, None
            old = next(old_lines, None)
        else:
            yield None, new
            new = next(new_lines, None)
    if old is not None:
        yield old, None
    if new is not None:
        yield None, new
    yield from ((line, None) for line in old_lines)
    yield from ((None, line) for line in new_lines)


def _has_only_removed_texts(old_line: str, new_line: str, result: Comparison) -> bool:
    """Whether two lines that are equal but for their texts differ only by removed texts. If so, count those texts.

    In a file without texts nearly all lines differ like this, and parsing whole lines takes three times as long.
    """
    head = old_line.rpartition(",[")[0]
    table = head[2 : head.index('"', 2)]
    old_texts, new_texts = (line[len(head) + 2 : -2].split(",") for line in (old_line, new_line))
    if len(old_texts) != len(new_texts):  # malformed
        return False
    unchecked_count = 0
    for name, before, after in zip(COLUMNS[table].texts, old_texts, new_texts, strict=False):
        if not is_blank(table, name, None if after == "null" else after[1:-1]):
            return False
        unchecked_count += before not in (after, "null")
    result.unchecked_texts += unchecked_count
    return True


def _compare_columns(old: _Row, new: _Row, kept_texts: str | None, result: Comparison) -> None:
    """Add the change of a row, if there is one, to ``result``.

    The mark of a text is computed from what remains without texts: the text's hash, or the other keys of an object.
    """
    columns = COLUMNS[old.table]
    differing = [
        name
        for at, name in enumerate(columns.values)
        if old.marks[at * MARK_DIGITS :][:MARK_DIGITS] != new.marks[at * MARK_DIGITS :][:MARK_DIGITS]
    ]
    changed = [name for name in differing if name not in columns.texts]
    for name, before, after in zip(columns.texts, old.texts, new.texts, strict=True):
        may_be_removed = kept_texts is not None and is_blank(old.table, name, after)
        if before != after and may_be_removed and name not in differing:
            result.unchecked_texts += before is not None
        elif before != after or (name in differing and (kept_texts is not None or after == PLAIN)):
            changed.append(name)
        elif kept_texts is not None and not may_be_removed and (kept_texts, name) != (ANSWERS, "output"):
            result.remaining_texts += 1
    if changed or old.values != new.values:
        result.changes.append(old.change("changed", changed or [UNKNOWN_COLUMN]))


def _parse_row(line: str) -> _Row:
    try:
        table, key, about, values, marks, texts = json.loads(line)
        columns = COLUMNS[table]
        is_row = (
            _is_list(key, (str, int, type(None)), len(columns.key))
            and _is_list(about, (str,))
            and _is_hex(values, DIGITS)
            and _is_hex(marks, MARK_DIGITS * len(columns.values))
            and _is_list(texts, (str, type(None)), len(columns.texts))
            and all(text is None or text == PLAIN or _is_hex(text, DIGITS) for text in texts)
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        is_row = False
    if not is_row:
        raise BundleError("A row of the attestation is malformed.", fix="Ask its signer to attest the file again.")
    return _Row(table, tuple(key), about, values, marks, texts)


def _is_list(value: object, kinds: tuple[type, ...], length: int | None = None) -> bool:
    return isinstance(value, list) and length in (None, len(value)) and {*map(type, value)} <= {*kinds}


def _is_hex(value: object, digits: int) -> bool:
    return isinstance(value, str) and re.fullmatch(rf"[0-9a-f]{{{digits}}}", value) is not None


VERIFIED, CHANGED, MISSING = "verified", "changed", "missing"
_MOST_ROWS_IN_REPORTS = 20_000
"""Maximum number of attested rows that a report checks. Checking that many takes about a second."""


@dataclass(frozen=True, slots=True)
class RunCheck:
    """Result of the check of a run.

    Attributes:
        result: "verified", "changed", or "missing" if the file contains no row of the run.
        rows: number of attested rows.
        facts: facts of the run's signed statement.
        changes: {kind of change: number of rows}.
        unchecked_texts: number of texts that `lbx runs extract --without-texts` removed.
        maybe_renamed_to: for a missing run, a run with the same settings and start that is not attested.
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
        result: "verified", "changed", or "incomplete" if whole runs are missing and the others are verified.
        attested_at: time of the attestation, by the signer's clock.
        signatures: the signature of the attestation, or [] if it is unsigned.
        changes: changed rows, each once, even if a row belongs to several runs.
        other_runs: runs of the file that the attestation does not name.
        numbers: count of the stored numbers that were computed again from the file's rows, or None if none was.
        different_numbers: stored numbers that differ from the computed numbers.
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
    unattested_tables: Sequence[str] = ("sessions", "embeddings", "depth_pairs", "depth_parity")
    lbx_version: str = __version__

    @property
    def is_trusted(self) -> bool:
        return any(signature.trusted for signature in self.signatures)

    def run_names(self, result: str) -> list[str]:
        """Return the names of the runs with this result."""
        return [run.name for run in self.runs if run.result == result]


def check_results(
    results: Path, attestation: Path, trust: Trust, runs: Sequence[str] = (), *, numbers: bool = True
) -> ResultsReport:
    """Compare a results file with an attestation.

    Args:
        trust: accepted keys, for the namespace of results.
        runs: names of the runs to check. Runs that are not named may be missing without the result "incomplete".
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
    """Compute stored numbers again with ``number_differences``. Returns (None, []) for a file without texts."""
    return (None, []) if texts_of(store) else number_differences(store, runs)


class AttestationNotice(NamedTuple):
    """Notice on the attestation of a results file, with empty texts if there is none.

    Attributes:
        state: Short state, such as "attested".
        text: Sentence.
    """

    state: str = ""
    text: str = ""


def attestation_notice(results: Path) -> AttestationNotice:
    """Describe the attestation under a results file's default name.

    The signer's key is not checked, because a report knows no trusted keys. A long attestation is not checked.
    """
    path = attestation_path(results)
    if not path.is_file():
        return AttestationNotice()
    command = as_command("lbx", "verify", results, "--trust", "KEYS")
    trust = Trust(allow_unsigned=True, namespace=RESULTS_NAMESPACE)
    try:
        with open_attestation(path, trust) as opened:
            rows = sum(run.rows for run in opened.statement.runs)
        if rows > _MOST_ROWS_IN_REPORTS:
            text = f"Attestation {path.name}: not checked here, because it has {rows:,} rows. To check it: {command}"
            return AttestationNotice("attestation not checked", text)
        report = check_results(results, path, trust, numbers=False)
    except LbxError as exc:
        text = f"Attestation {path.name}: NOT VALID for this file. {exc.cause}"
        return AttestationNotice("attestation NOT VALID", text)
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
    short_state = state.partition(",")[0]
    if not parts and not missing:
        short_state += " in part" if report.other_runs else ""
        short_state += "" if report.signatures else ", unsigned"
    return AttestationNotice(
        short_state,
        f"Attestation {path.name}: {'; '.join([state, *facts])}; {signed}.{trusted} All checks: {command}",
    )


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
    """Return which texts were kept after the attestation, according to the file's record, or None for all texts."""
    if row is None or run.facts.get("texts") is not None or row["texts"] not in (ANSWERS, NO_TEXTS):
        return None
    return str(row["texts"])


def _find_new_name(run: RunStatement, others: Mapping[str, dict[str, Any]]) -> str | None:
    """Find the name of a run with the same start and settings as a missing run."""
    for name, row in others.items():
        with suppress(StoreError):
            facts = run_facts(row)
            if all(facts[key] == run.facts.get(key) for key in ("startedAt", "settings", "model", "bundleDigest")):
                return name
    return None
