"""``lbx verify`` and ``lbx unpack``; ``lbx bundle`` is in ``lbx.cli.bundling``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import AsJson
from lbx.cli.output import ByteProgress


def verify(
    archive: Annotated[Path, typer.Argument(help="The archive, or an unpacked bundle's folder.")],
    as_json: AsJson = False,
) -> None:
    """Check every byte of an archive against its manifests, without unpacking it.

    Example: lbx verify demo.tar
    """
    from lbx.bundle import verify as verify_archive
    from lbx.bundle import verify_folder

    with ByteProgress() as progress:
        checked = verify_folder(archive, progress) if archive.is_dir() else verify_archive(archive, progress)
    if as_json:
        typer.echo(checked.to_json())
    else:
        typer.echo(f"{archive}: intact. {checked.files} files, {checked.bytes:,} bytes, digest {checked.digest}")


def unpack(
    archive: Annotated[Path, typer.Argument(help="The archive that `lbx bundle` wrote.")],
    to: Annotated[Path, typer.Option("--to", help="Folder to make; it appears only when everything is in it.")],
    as_json: AsJson = False,
) -> None:
    """Verify an archive and unpack it, all or nothing.

    Example: lbx unpack demo.tar --to demo
    """
    from lbx.bundle import unpack as unpack_archive

    with ByteProgress() as progress:
        unpacked = unpack_archive(archive, to, progress)
    if as_json:
        typer.echo(unpacked.to_json())
    elif unpacked.already:
        typer.echo(f"{unpacked.root} already holds this bundle, digest {unpacked.digest}")
    else:
        typer.echo(f"{unpacked.root}: {unpacked.files} files, {unpacked.bytes:,} bytes, digest {unpacked.digest}")
