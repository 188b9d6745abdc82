"""Commands ``lbx attest``, and ``lbx verify`` for results files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import typer

from lbx.base.errors import UsageError
from lbx.base.exit_codes import ExitCode
from lbx.base.inputs import ATTESTATION_SUFFIX, is_results_file
from lbx.base.units import format_count, format_size
from lbx.base.visible import as_command
from lbx.bundle.signing.signature import RESULTS_NAMESPACE
from lbx.bundle.signing.trust import Trust
from lbx.cli.gap_options import AttestOptions, VerifyOptions
from lbx.cli.output import answer, answer_json, note
from lbx.cli.receiving import describe_trust, refusals_as_json, signature_line
from lbx.cli.table_output import check_output
from lbx.results import Store
from lbx.results.attesting.attestation import attest_results, attestation_path
from lbx.results.attesting.checking import (
    CHANGED,
    MISSING,
    VERIFIED,
    Change,
    ResultsReport,
    RunCheck,
    check_numbers,
    check_results,
)
from lbx.results.file.opening import check_path, require_file
from lbx.results.scoring.reading import NumberDifference
from lbx.results.whole.row_digests import runs_with_rows

_ROWS = 20
"""Maximum number of changed rows that are listed by name."""


def attest(options: AttestOptions) -> None:
    require_file(options.results)
    check_path(options.results)
    output = options.output or attestation_path(options.results)
    check_output(output)
    if output.exists() and options.sign.exists() and output.samefile(options.sign):
        raise UsageError(f"{output} is the key, and would be overwritten.", fix="Choose another file with -o.")
    if output.is_file() and not options.force:
        raise UsageError(
            f"{output} already exists, and its statement cannot be made again.",
            fix="Choose another file with -o, or replace it with --force.",
        )
    result = attest_results(options.results, output, options.sign, options.runs)
    if options.as_json:
        runs = [{"name": run.name, "rows": run.rows, "sha256": run.sha256} for run in result.runs]
        answer_json(json.dumps({**asdict(result), "runs": runs}, indent=1, ensure_ascii=False, default=str))
        return
    rows, runs_text = format_count(result.rows, "row"), format_count(len(result.runs), "run")
    answer(f"{result.path}: {runs_text}, {rows}, {format_size(result.bytes)}, signed by {result.key}")
    key = options.sign if options.sign.suffix == ".pub" else Path(f"{options.sign}.pub")
    where: list[str | Path] = [] if output == attestation_path(options.results) else ["--attestation", output]
    verifying = as_command("lbx", "verify", options.results, "--trust", key, *where)
    note(f"Keep it with the results file. To check that no row has changed: {verifying}")


def verify_results(options: VerifyOptions) -> None:
    if is_results_file(options.archive):
        _check_results(options)
        return
    if options.archive.name.endswith(ATTESTATION_SUFFIX) and options.archive.is_file():
        _refuse_attestation(options)
    require_file(options.archive)
    raise UsageError(
        f"--attestation and --run are for results files, and {options.archive} is not one.", fix="Omit them."
    )


def _refuse_attestation(options: VerifyOptions) -> NoReturn:
    results = options.archive.with_name(options.archive.name.removesuffix(ATTESTATION_SUFFIX))
    trust: list[str | Path] = ["--trust", options.trust] if options.trust else []
    raise UsageError(
        f"{options.archive} is an attestation.",
        fix="Give its results file, and the attestation with --attestation if it has another name:",
        command=as_command("lbx", "verify", results, *trust),
    )


def _check_results(options: VerifyOptions) -> None:
    results = options.archive
    attestation = options.attestation or attestation_path(results)
    if options.refuse_unsafe:
        raise UsageError(f"--refuse-unsafe is for archives, and {results} is a results file.", fix="Omit it.")
    if not attestation.exists():
        with Store(results, allow_writer=True) as store:
            numbers, different = check_numbers(store, runs_with_rows(store))
        if not options.as_json:
            for line in _number_lines(numbers, different):
                answer(line)
        raise UsageError(
            f"The attestation {attestation} does not exist.",
            fix="Name it with --attestation. To attest the present state of the results file:",
            command=as_command("lbx", "attest", results, "--sign", "KEY"),
        )
    with refusals_as_json(results, options.as_json):
        trust = Trust.from_key_file(options.trust, allow_unsigned=options.allow_unsigned, namespace=RESULTS_NAMESPACE)
        report = check_results(results, attestation, trust, options.runs)
    if options.as_json:
        answer_json(report.to_json())
    else:
        for line in _report_lines(report):
            answer(line)
    if report.result != VERIFIED or report.different_numbers:
        _note_next_command(report, options)
        raise typer.Exit(ExitCode.FAILED)


def _report_lines(report: ResultsReport) -> Iterator[str]:
    rows = sum(run.rows for run in report.runs if run.result != MISSING)
    present = len(report.runs) - len(report.run_names(MISSING))
    counts = f"{format_count(present, 'run')} with {format_count(rows, 'attested row')}"
    state = {VERIFIED: "verified", CHANGED: "CHANGED"}.get(report.result, "INCOMPLETE")
    yield f"{report.path}: {state}. {counts}; {describe_trust(report.is_trusted)}"
    yield from map(signature_line, report.signatures)
    yield f"  attested   {report.attested_at}, by {report.attested_by}: {report.attestation}"
    for run in report.runs:
        yield f"  run        {run.name}: {_describe_run(run)}"
    if report.other_runs:
        yield f"  other runs {', '.join(report.other_runs)}: not attested, not checked"
    yield f"  tables     {', '.join(report.unattested_tables)}: never attested, not checked"
    yield from _number_lines(report.numbers, report.different_numbers)
    changes = [change for change in report.changes if change.kind != "missing"]
    for change in changes[:_ROWS]:
        yield f"  {change.kind:10} {_describe_change(change)}"
    if len(changes) > _ROWS:
        yield f"  ... and {len(changes) - _ROWS:,} more rows (--json lists all)"


def _number_lines(numbers: int | None, different: Sequence[NumberDifference]) -> Iterator[str]:
    if numbers is None:
        yield "  numbers    not computed again, because this file has no texts"
        return
    count = f"{len(different):,} DIFFER" if different else "all equal"
    yield f"  numbers    {format_count(numbers, 'number')} computed again from the rows: {count}"
    for one in different[:_ROWS]:
        key = ", ".join(f"{name} {value!r}" for name, value in one.key.items())
        values = f"{one.stored_value}, and {one.computed_value} from the rows"
        yield f"  differs    {key}: {one.column or 'score'} is {values}"
    if len(different) > _ROWS:
        yield f"  ... and {len(different) - _ROWS:,} more numbers (--json lists all)"


def _describe_run(run: RunCheck) -> str:
    if run.result == MISSING:
        renamed = f"; the run {run.maybe_renamed_to} has its settings and start" if run.maybe_renamed_to else ""
        return f"NOT IN THIS FILE{renamed}"
    texts = (
        f"; {format_count(run.unchecked_texts, 'text')} removed by extract, not checked" if run.unchecked_texts else ""
    )
    if missing := run.changes.get("missing"):
        texts += f"; {format_count(missing, 'row')} about runs that are not in this file"
    if run.result == VERIFIED:
        return f"verified, {format_count(run.rows, 'row')}{texts}"
    counts = Counter(run.changes)
    parts = [f"{counts[kind]:,} {kind}" for kind in ("changed", "removed", "added") if counts[kind]]
    return f"CHANGED, of {format_count(run.rows, 'row')} {', '.join(parts)}{texts}"


def _describe_change(change: Change) -> str:
    key = ", ".join(f"{name} {value!r}" for name, value in change.key.items() if value not in ("", None))
    return f"{change.table} ({key})" + (f": {', '.join(change.columns)}" if change.columns else "")


def _note_next_command(report: ResultsReport, options: VerifyOptions) -> None:
    verified = report.run_names(VERIFIED)
    if report.result in (CHANGED, VERIFIED) or not verified:
        return
    words = [word for run in verified for word in ("--run", run)]
    trust: list[str | Path] = ["--trust", options.trust] if options.trust else ["--allow-unsigned"]
    where: list[str | Path] = ["--attestation", options.attestation] if options.attestation else []
    note(
        "Attested runs are not in this file. If it was made without them, check the others alone: "
        + as_command("lbx", "verify", options.archive, *trust, *where, *words)
    )
