"""``lbx verify`` and ``lbx unpack``; ``lbx bundle`` is in ``lbx.cli.bundling``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.base.errors import LbxError
from lbx.base.version import __version__
from lbx.cli.options import AsJson
from lbx.cli.output import ByteProgress, answer, answer_json, note

if TYPE_CHECKING:
    from lbx.bundle import VerifyReport

Archive = Annotated[Path, typer.Argument(help="NAME.tar, one of its volumes, or NAME.SHA256SUMS.", metavar="ARCHIVE")]
Keys = Annotated[
    Path | None,
    typer.Option(
        "--trust", metavar="KEYS", help="The bundler's public key, or a file of allowed signers as ssh-keygen reads it."
    ),
]
AllowUnsigned = Annotated[
    bool, typer.Option("--allow-unsigned", help="Accept a bundle that is not signed, or not by a key of --trust.")
]
RefuseUnsafe = Annotated[
    bool,
    typer.Option("--refuse-unsafe", help="Refuse pickles and code even where the recipe allowed them."),
]


def verify(
    *,
    archive: Annotated[
        Path,
        typer.Argument(
            help="NAME.tar, one of its volumes, NAME.SHA256SUMS, or an unpacked bundle's folder.", metavar="ARCHIVE"
        ),
    ],
    trust: Keys = None,
    allow_unsigned: AllowUnsigned = False,
    refuse_unsafe: RefuseUnsafe = False,
    as_json: AsJson = False,
) -> None:
    """Check an archive without unpacking it: who signed it, every volume, then every file against the manifest.

    Example: lbx verify demo.tar --trust bundler.pub
    """
    from lbx import bundle

    with _refusals_as_json(archive, as_json), ByteProgress() as progress:
        trusted = bundle.Trust.of(trust, allow_unsigned=allow_unsigned)
        check = bundle.verify_folder if archive.is_dir() else bundle.verify
        checked = check(archive, progress, trust=trusted, unsafe=not refuse_unsafe)
    if as_json:
        answer_json(checked.to_json())
        return
    for line in _evidence(checked):
        answer(line)


def unpack(
    *,
    archive: Archive,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="The new folder; it appears only when everything is in it.")
    ],
    trust: Keys = None,
    allow_unsigned: AllowUnsigned = False,
    refuse_unsafe: RefuseUnsafe = False,
    base: Annotated[
        Path | None,
        typer.Option("--base", metavar="DIR", help="For a delta: the unpacked bundle that it was made against."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify an archive and unpack it, all or nothing.

    Example: lbx unpack demo.tar --trust bundler.pub --to demo
    """
    from lbx import bundle

    with _refusals_as_json(archive, as_json), ByteProgress() as progress:
        trusted = bundle.Trust.of(trust, allow_unsigned=allow_unsigned)
        unpacked = bundle.unpack(archive, to, progress, trust=trusted, unsafe=not refuse_unsafe, base=base)
    if as_json:
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
    whose = "signed by a trusted key" if checked.trusted else "NOT signed by a trusted key (--allow-unsigned)"
    yield (f"{checked.path}: intact. {checked.files} files, {checked.bytes:,} bytes, digest {checked.digest}; {whose}")
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
