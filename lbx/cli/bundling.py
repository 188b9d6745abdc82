"""Commands ``lbx bundle``, ``lbx verify`` and ``lbx unpack``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lbx import bundle
from lbx.base.commands import as_command
from lbx.base.errors import LbxError, UsageError
from lbx.base.units import counted
from lbx.base.version import __version__
from lbx.base.visible import one_line
from lbx.bundle import (
    CreateResult,
    Outline,
    RequestResult,
    Trust,
    VerifyReport,
    Where,
    Writing,
    create,
    parse_volume_size,
    survey,
    write_request,
)
from lbx.cli.gap_options import Bundle, Unpack, Verify
from lbx.cli.output import ByteProgress, answer, answer_json, note, stderr, stdout

_LINKS = 5
"""Number of links listed by name per source."""


def make_bundle(options: Bundle) -> None:
    recipes, name, as_json = options.recipes, options.name, options.as_json
    if options.request is not None:
        _refuse_with_request(options)
        _show_request(write_request(recipes, options.request, name=name, have=options.have), as_json=as_json)
        return
    if options.have is not None:
        raise UsageError("--have needs --request.", fix="To leave out the files of another bundle, pass --base.")
    where = Where(
        name=name,
        hub=options.hub,
        mirror=options.mirror,
        work=options.work,
        base=options.base,
        images=options.images,
    )
    size = {"volume_size": parse_volume_size(options.volume_size)} if options.volume_size else {}
    writing = Writing(**size, zstd=options.zstd, key=options.sign)
    with ByteProgress() as progress:
        if options.dry_run:
            outline = survey(recipes, options.out, **where, progress=progress)
        else:
            made = create(recipes, options.out, **where, writing=writing, on_outline=_announce, progress=progress)
    if not options.dry_run:
        _show_made(made, as_json=as_json)
    elif as_json:
        answer_json(outline.to_json())
    else:
        _show_outline(outline, stdout())


def _refuse_with_request(options: Bundle) -> None:
    for flag in ("base", "include-image", "hub", "mirror", "work", "dry-run"):
        if getattr(options, {"include-image": "images"}.get(flag, flag.replace("-", "_"))):
            raise UsageError(
                f"--{flag} cannot be combined with --request, which fetches no files.", fix="Leave it out."
            )


def _announce(outline: Outline) -> None:
    _show_outline(outline, stderr())


def _show_outline(outline: Outline, console: Console) -> None:
    """Print sources with licences and gates, then download and archive sizes: the officer's list, before downloads."""
    held = ["in base"] if any(line.held_bytes for line in outline.lines) else []
    table = Table("source", "revision", "licence", "gated", "files", "bytes", *held, box=None, pad_edge=False)
    table.columns[0].overflow = "fold"
    for column in table.columns[4:]:
        column.justify = "right"
    for line in outline.lines:
        in_base = [f"{line.held_bytes:,}" if line.held_bytes else ""] if held else []
        licence, gated = line.licence or "not stated", "yes" if line.gated else "no"
        table.add_row(line.source, line.revision[:12], licence, gated, f"{line.files:,}", f"{line.bytes:,}", *in_base)
    console.print(table)
    for line in outline.lines:
        if line.links:
            more = f" and {len(line.links) - _LINKS:,} more" if line.links[_LINKS:] else ""
            shown = ", ".join(line.links[:_LINKS])
            console.print(
                one_line(
                    f"{line.source}: the archive contains the targets of links that lead out of the folder: "
                    f"{shown}{more}"
                )
            )
    for dataset in outline.unread:
        console.print(f"No benchmark reads the dataset {dataset}; it is packed unchanged.")
    console.print(
        f"{outline.name}: {counted(outline.files, 'file')}, {outline.bytes:,} bytes; {outline.fetch_bytes:,} "
        f"to download, an archive of about {outline.archive_bytes:,}; {outline.out_free:,} free in "
        f"{outline.out.parent}"
    )


def _show_made(made: CreateResult, *, as_json: bool) -> None:
    if as_json:
        answer_json(made.to_json())
        return
    answer(f"{made.archive}: {made.files} files, {made.bytes:,} bytes, digest {made.digest}")
    if made.held_files:
        note(
            f"{made.held_files} of the files, {made.held_bytes:,} bytes, are in the base and therefore not in "
            "this archive."
        )
    for volume in made.volumes[1:]:
        answer(f"{volume}")
    beside = made.sums.name + (f" and {made.signature.name}" if made.signature else "")
    believed = ["--trust", "KEYS"] if made.signature else ["--allow-unsigned"]
    base = ["--base", "DIR"] if made.held_files else []
    unpack = as_command("lbx", "unpack", Path(made.archive.name), "--to", "DIR", *believed, *base)
    note(f"Carry it across together with {beside}, then run: {unpack}")


def _show_request(made: RequestResult, *, as_json: bool) -> None:
    if as_json:
        answer_json(made.to_json())
        return
    table = Table("source", "revision", "state", "present", box=None, pad_edge=False)
    for line in made.asked:
        table.add_row(line.source, line.revision[:12], line.state, line.held_commit[:12])
    stdout().print(table)
    answer(f"{made.file}: {len(made.asked)} sources" + (f", on the base {made.base}" if made.base else ""))
    answering = as_command("lbx", "bundle", Path(made.file.name), "-o", "DIR")
    note(f"The request contains only names, sizes and hashes. Carry it out, then run: {answering}")


def verify(options: Verify) -> None:
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
        answer(f"{unpacked.root} already contains this bundle, digest {unpacked.digest}; every file was hashed again")
    else:
        answer(f"{unpacked.root}: {unpacked.files} files, {unpacked.bytes:,} bytes, digest {unpacked.digest}")
    for path in unpacked.unsafe:
        answer(f"  unsafe     {path}: allowed by the recipe")
    if not unpacked.trusted:
        note("No trusted key has signed this bundle; --allow-unsigned accepted it.")


def _evidence(checked: VerifyReport) -> Iterator[str]:
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
        yield f"  unsafe     {path}: allowed by the recipe"
    yield f"  checked    {checked.started_at}, in {checked.seconds:.1f} s, by lbx {checked.lbx_version}"


@contextmanager
def _refusals_as_json(archive: Path, as_json: bool) -> Iterator[None]:
    """Also print a refusal as JSON, so that scripts always get an answer; people read the error message."""
    try:
        yield
    except LbxError as error:
        if as_json:
            refused = {"path": f"{archive}", "result": "refused", "cause": error.cause, "fix": error.fix}
            answer_json(json.dumps({**refused, "lbx_version": __version__}, indent=1, ensure_ascii=False))
        raise
