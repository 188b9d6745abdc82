"""``lbx bundle``: recipes to an archive, or recipes to a request for one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.visible import one_line
from lbx.cli.options import AsJson
from lbx.cli.output import ByteProgress, answer, answer_json, note, stderr, stdout

if TYPE_CHECKING:
    from lbx.bundle import CreateResult, Outline, RequestResult

_LINKS = 5
"""Of a source that are shown by name."""

Recipes = Annotated[
    list[Path],
    typer.Argument(
        help="Recipes or model cards (TOML); several make one bundle. Or one request (.json) to answer.",
        metavar="RECIPE...",
    ),
]


def bundle(
    *,
    recipes: Recipes,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the archive.")] = Path(),
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the bundle; default: the recipes' names, joined."),
    ] = None,
    hub: Annotated[
        str | None, typer.Option("--hub", metavar="URL", help="Address of a hub mirror instead of the public hub.")
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option(
            "--mirror",
            metavar="URL",
            help="Address of a mirror that serves the paths of https sources, instead of their hosts.",
        ),
    ] = None,
    work: Annotated[
        Path | None, typer.Option("--work", metavar="DIR", help="Folder for the downloads; default: inside -o.")
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(
            "--base",
            metavar="BUNDLE",
            help="Make a delta: what this bundle holds (its lbx/bundle.json, folder or archive) is left out.",
        ),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option("--include-image", metavar="FILE", help="A container image (OCI archive) that travels along."),
    ] = None,
    volume_size: Annotated[
        str | None,
        typer.Option(
            "--volume-size",
            metavar="SIZE",
            help="Split the archive into volumes of 650M, 2GiB ...; default: 4294967295 bytes.",
        ),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(
            "--sign",
            metavar="KEY",
            help="Sign with this SSH key, by ssh-keygen; name the .pub if ssh-agent holds the key.",
        ),
    ] = None,
    zstd: Annotated[bool, typer.Option("--zstd", help="Compress, for slow links; weights shrink little.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show sources, licences and sizes, and download nothing.")
    ] = False,
    request: Annotated[
        Path | None,
        typer.Option(
            "--request",
            metavar="FILE",
            help="Inside the gap: write a request (.json) for what is missing, and fetch nothing; outside, "
            "`lbx bundle FILE` answers it with a delta.",
        ),
    ] = None,
    have: Annotated[
        Path | None, typer.Option("--have", metavar="DIR", help="With --request: the unpacked bundle that you have.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch everything the recipes name, check it, and write one archive. Needs a network (or your mirrors).

    What comes along, under which licence, and how large it is, is shown before the first download. A run that was
    stopped goes on where it was when the same command is given again. Inside the gap, --request asks for more.

    Example: lbx bundle bundle/longbench.toml bundle/leval.toml -o out

    Example: lbx bundle models/new.toml --have long --request new.json; outside: lbx bundle new.json -o out
    """
    from lbx.bundle import Where, Writing, create, parse_volume_size, survey, write_request

    if request is not None:
        _refuse_with_request(base=base, images=images, hub=hub, mirror=mirror, work=work, dry_run=dry_run)
        _show_request(write_request(recipes, request, name=name, have=have), as_json=as_json)
        return
    if have is not None:
        raise UsageError("--have goes with --request.", fix="To leave out what a bundle holds, say --base.")
    where = Where(name=name, hub=hub, mirror=mirror, work=work, base=base, images=images or ())
    writing = Writing(**({"volume_size": parse_volume_size(volume_size)} if volume_size else {}), zstd=zstd, key=sign)
    with ByteProgress() as progress:
        if dry_run:
            outline = survey(recipes, out, **where, progress=progress)
        else:
            made = create(recipes, out, **where, writing=writing, on_outline=_announce, progress=progress)
    if not dry_run:
        _show_made(made, as_json=as_json)
    elif as_json:
        answer_json(outline.to_json())
    else:
        _show_outline(outline, stdout())


def _refuse_with_request(**given: object) -> None:
    for option, value in given.items():
        if value:
            flag = {"images": "include-image"}.get(option, option.replace("_", "-"))
            raise UsageError(f"--{flag} does not go with --request, which fetches nothing.", fix="Leave it out.")


def _announce(outline: Outline) -> None:
    _show_outline(outline, stderr())


def _show_outline(outline: Outline, console: Console) -> None:
    """Sources with licence and gate, then what is fetched and written; the officer's list, before any download."""
    table = Table("source", "revision", "licence", "gated", "files", "bytes", "held", box=None, pad_edge=False)
    for column in table.columns[4:]:
        column.justify = "right"
    for line in outline.lines:
        held = f"{line.held_bytes:,}" if line.held_bytes else ""
        licence, gated = line.licence or "not stated", "yes" if line.gated else "no"
        table.add_row(line.source, line.revision[:12], licence, gated, f"{line.files:,}", f"{line.bytes:,}", held)
    console.print(table)
    for line in outline.lines:
        if line.links:
            more = f" and {len(line.links) - _LINKS:,} more" if line.links[_LINKS:] else ""
            shown = ", ".join(line.links[:_LINKS])
            console.print(one_line(f"{line.source}: links lead out of the folder, and are packed: {shown}{more}"))
    console.print(
        f"{outline.name}: {outline.files:,} files, {outline.bytes:,} bytes; {outline.fetch_bytes:,} to be fetched, "
        f"an archive of about {outline.archive_bytes:,}; {outline.out_free:,} free in {outline.out.parent}"
    )


def _show_made(made: CreateResult, *, as_json: bool) -> None:
    if as_json:
        answer_json(made.to_json())
        return
    answer(f"{made.archive}: {made.files} files, {made.bytes:,} bytes, digest {made.digest}")
    if made.held_files:
        note(f"{made.held_files} of the files, {made.held_bytes:,} bytes, are the base's and did not come along.")
    for volume in made.volumes[1:]:
        answer(f"{volume}")
    beside = made.sums.name + (f" and {made.signature.name}" if made.signature else "")
    believed = ["--trust", "KEYS"] if made.signature else ["--allow-unsigned"]
    base = ["--base", "DIR"] if made.held_files else []
    unpack = as_command("lbx", "unpack", Path(made.archive.name), "--to", "DIR", *believed, *base)
    note(f"Carry it across together with {beside}, then: {unpack}")


def _show_request(made: RequestResult, *, as_json: bool) -> None:
    if as_json:
        answer_json(made.to_json())
        return
    table = Table("source", "revision", "state", "held", box=None, pad_edge=False)
    for line in made.asked:
        table.add_row(line.source, line.revision[:12], line.state, line.held_commit[:12])
    stdout().print(table)
    answer(f"{made.file}: {len(made.asked)} sources" + (f", on the base {made.base}" if made.base else ""))
    answering = as_command("lbx", "bundle", Path(made.file.name), "-o", "DIR")
    note(f"It holds names, sizes and hashes only. Carry it out, then: {answering}")
