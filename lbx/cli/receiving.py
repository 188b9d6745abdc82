"""What ``lbx verify`` and ``lbx unpack`` do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lbx import bundle
from lbx.base.errors import LbxError
from lbx.base.version import __version__
from lbx.bundle import Trust, VerifyReport
from lbx.cli.gap_options import Unpack, Verify
from lbx.cli.output import ByteProgress, answer, answer_json, note


def verify(options: Verify) -> None:
    """See ``lbx verify``."""
    archive = options.archive
    with _refusals_as_json(archive, options.as_json), ByteProgress() as progress:
        trusted = Trust.of(options.trust, allow_unsigned=options.allow_unsigned)
        check = bundle.verify_folder if archive.is_dir() else bundle.verify
        checked = check(archive, progress, trust=trusted, unsafe=not options.refuse_unsafe)
    if options.as_json:
        answer_json(checked.to_json())
        return
    for line in _evidence(checked):
        answer(line)


def unpack(options: Unpack) -> None:
    """See ``lbx unpack``."""
    with _refusals_as_json(options.archive, options.as_json), ByteProgress() as progress:
        trusted = Trust.of(options.trust, allow_unsigned=options.allow_unsigned)
        safe = options.refuse_unsafe
        unpacked = bundle.unpack(
            options.archive, options.to, progress, trust=trusted, unsafe=not safe, base=options.base
        )
    if options.as_json:
        answer_json(unpacked.to_json())
        return
    if unpacked.already:
        answer(f"{unpacked.root} already holds this bundle, digest {unpacked.digest}; every file was hashed again")
    else:
        answer(f"{unpacked.root}: {unpacked.files} files, {unpacked.bytes:,} bytes, digest {unpacked.digest}")
    for path in unpacked.unsafe:
        answer(f"  unsafe     {path}: let through by the recipe")
    if not unpacked.trusted:
        note("No trusted key has signed it; it was let in by --allow-unsigned.")


def _evidence(checked: VerifyReport) -> Iterator[str]:
    """What a person can put into a record, a line each; the first says it all."""
    signer = "signed by a trusted key" if checked.trusted else "NOT signed by a trusted key (--allow-unsigned)"
    yield (f"{checked.path}: intact. {checked.files} files, {checked.bytes:,} bytes, digest {checked.digest}; {signer}")
    for signed in checked.signatures:
        who = f"{signed.signer or 'somebody'} ({'trusted' if signed.trusted else 'not trusted'})"
        yield f"  signature  {signed.file}: {who}, {signed.key_type} {signed.key}, namespace {signed.namespace}"
    for volume in checked.volumes:
        yield f"  volume     {volume.name}: {volume.result}, {volume.size:,} bytes {volume.sha256}".rstrip()
    if checked.from_base:
        base = f"{checked.base['name']} {checked.base['digest']}".strip()
        yield f"  base       {checked.from_base} files are in the bundle {base}; `lbx unpack --base` checks them"
    for path in checked.unsafe:
        yield f"  unsafe     {path}: let through by the recipe"
    yield f"  checked    {checked.started_at}, in {checked.seconds:.1f} s, by lbx {checked.lbx_version}"


@contextmanager
def _refusals_as_json(archive: Path, as_json: bool) -> Iterator[None]:
    """A script that reads the answer gets one in any case; people read the error as ever."""
    try:
        yield
    except LbxError as error:
        if as_json:
            refused = {"path": f"{archive}", "result": "refused", "cause": error.cause, "fix": error.fix}
            answer_json(json.dumps({**refused, "lbx_version": __version__}, indent=1, ensure_ascii=False))
        raise
