"""Commands ``lbx unpack``, and ``lbx verify`` for archives and unpacked bundles.

An officer reviews this module with ``lbx.bundle.receiving`` and ``lbx.bundle.signing``. An import contract keeps out
bundle making, benchmarks, results files, NumPy and DuckDB. The one exception is ``lbx.cli.attesting``, which ``verify``
imports in a function for results files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lbx.base.errors import LbxError
from lbx.base.inputs import ATTESTATION_SUFFIX, is_results_file
from lbx.base.units import format_count, format_size
from lbx.base.version import __version__
from lbx.bundle.receiving import unpacking
from lbx.bundle.receiving.verification import VerifyReport
from lbx.bundle.receiving.verification import verify as check_archive
from lbx.bundle.receiving.verification import verify_folder as check_folder
from lbx.bundle.signing.trust import SignedBy, Trust
from lbx.cli.gap_options import UnpackOptions, VerifyOptions
from lbx.cli.output import answer, answer_json, note
from lbx.cli.progress import ByteProgress


def verify(options: VerifyOptions) -> None:
    archive = options.archive
    is_attested = is_results_file(archive) or archive.name.endswith(ATTESTATION_SUFFIX)
    if is_attested or options.attestation is not None or options.runs:
        from lbx.cli.attesting import verify_results  # loads DuckDB, which no archive needs

        verify_results(options)
    else:
        _verify_archive(options)


def _verify_archive(options: VerifyOptions) -> None:
    archive = options.archive
    with refusals_as_json(archive, options.as_json), ByteProgress() as progress:
        trusted = Trust.from_key_file(options.trust, allow_unsigned=options.allow_unsigned)
        check = check_folder if archive.is_dir() else check_archive
        report = check(archive, progress, trust=trusted, unsafe=not options.refuse_unsafe)
    if options.as_json:
        answer_json(report.to_json())
        return
    for line in _report_lines(report):
        answer(line)


def unpack(options: UnpackOptions) -> None:
    with refusals_as_json(options.archive, options.as_json), ByteProgress() as progress:
        trusted = Trust.from_key_file(options.trust, allow_unsigned=options.allow_unsigned)
        unsafe = not options.refuse_unsafe
        result = unpacking.unpack(
            options.archive, options.to, progress, trust=trusted, unsafe=unsafe, base=options.base
        )
    if options.as_json:
        answer_json(result.to_json())
        return
    if result.already:
        answer(f"{result.root} already contains this bundle, digest {result.digest}; every file was hashed again")
    else:
        size = f"{format_count(result.files, 'file')}, {format_size(result.bytes)}"
        answer(f"{result.root}: {size}, digest {result.digest}")
    for path in result.unsafe:
        answer(f"  unsafe     {path}: allowed by the recipe")
    if not result.trusted:
        note("No trusted key has signed this bundle; --allow-unsigned accepted it.")


def _report_lines(report: VerifyReport) -> Iterator[str]:
    signer = describe_trust(report.trusted)
    size = f"{format_count(report.files, 'file')}, {format_size(report.bytes)}"
    yield f"{report.path}: intact. {size}, digest {report.digest}; {signer}"
    yield from map(signature_line, report.signatures)
    for volume in report.volumes:
        yield f"  volume     {volume.name}: {volume.result}, {volume.size:,} bytes {volume.sha256}".rstrip()
    if report.from_base:
        base = f"{report.base['name']} {report.base['digest']}".strip()
        yield f"  base       {report.from_base} files are in the bundle {base}; `lbx unpack --base` checks them"
    for path in report.unsafe:
        yield f"  unsafe     {path}: allowed by the recipe"
    yield f"  checked    {report.started_at}, in {report.seconds:.1f} s, by lbx {report.lbx_version}"


def describe_trust(trusted: bool) -> str:
    """Describe in a phrase whether a trusted key signed the file."""
    return "signed by a trusted key" if trusted else "NOT signed by a trusted key (--allow-unsigned)"


def signature_line(signature: SignedBy) -> str:
    """Describe a valid signature in a line for the evidence."""
    who = f"{signature.signer or 'somebody'} ({'trusted' if signature.trusted else 'not trusted'})"
    return (
        f"  signature  {signature.file}: {who}, {signature.key_type} {signature.key}, namespace {signature.namespace}"
    )


@contextmanager
def refusals_as_json(archive: Path, as_json: bool) -> Iterator[None]:
    """Print a refusal as JSON too, so that scripts always get an answer."""
    try:
        yield
    except LbxError as error:
        if as_json:
            refused = {"path": f"{archive}", "result": "refused", "cause": error.cause, "fix": error.fix}
            answer_json(json.dumps({**refused, "lbx_version": __version__}, indent=1, ensure_ascii=False))
        raise
