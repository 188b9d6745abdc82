"""Command ``lbx bundle``."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from lbx.base.columns import Column
from lbx.base.units import format_count, format_size
from lbx.base.visible import as_command, one_line
from lbx.bundle.making.outline import Outline
from lbx.bundle.making.pack import ArchiveFormat, BundleInputs, CreateResult, create, survey
from lbx.bundle.volumes import parse_volume_size
from lbx.cli.gap_options import BundleOptions
from lbx.cli.output import answer, answer_json, note, stderr, stdout
from lbx.cli.progress import ByteProgress
from lbx.cli.table_output import print_table

_LINKS = 5
"""Maximum number of links that are listed by name per source."""


def make_bundle(options: BundleOptions) -> None:
    recipes, as_json = options.recipes, options.as_json
    locations = BundleInputs(
        name=options.bundle_name,
        hub=options.hub,
        mirror=options.mirror,
        work=options.work,
        base=options.base,
        images=options.images,
    )
    size = {"volume_size": parse_volume_size(options.volume_size)} if options.volume_size else {}
    archive_format = ArchiveFormat(**size, zstd=options.zstd, key=options.sign)
    with ByteProgress() as progress:
        if options.dry_run:
            outline = survey(recipes, options.output, **locations, progress=progress)
        else:
            result = create(
                recipes,
                options.output,
                **locations,
                archive_format=archive_format,
                on_outline=_announce,
                progress=progress,
            )
    if not options.dry_run:
        _show_archive(result, as_json=as_json)
    elif as_json:
        answer_json(outline.to_json())
    else:
        _show_outline(outline, stdout())


def _announce(outline: Outline) -> None:
    _show_outline(outline, stderr())


def _show_outline(outline: Outline, console: Console) -> None:
    """Print sources with licences and gates, then download and archive sizes, before any download."""
    columns = [
        *(Column(name, name) for name in ("source", "revision", "licence", "gated")),
        *(Column(name, name, "count") for name in ("files", "size")),
    ]
    rows = [
        [
            line.source, line.revision[:12], line.licence or "not stated", "yes" if line.gated else "no",
            f"{line.files:,}", format_size(line.bytes),
        ]
        for line in outline.lines
    ]  # fmt: skip
    if any(line.held_bytes for line in outline.lines):
        columns.append(Column("in base", "in base", "count"))
        for row, line in zip(rows, outline.lines, strict=True):
            row.append(format_size(line.held_bytes) if line.held_bytes else "")
    print_table((columns, rows), console)
    for line in outline.lines:
        if line.links:
            more = f" and {len(line.links) - _LINKS:,} more" if line.links[_LINKS:] else ""
            links = ", ".join(line.links[:_LINKS])
            console.print(
                one_line(
                    f"{line.source}: the archive contains the targets of links that lead out of the folder: "
                    f"{links}{more}"
                )
            )
    for dataset in outline.unread:
        console.print(f"No benchmark reads the dataset {dataset}; it is packed unchanged.")
    console.print(
        f"{outline.name}: {format_count(outline.files, 'file')}, {format_size(outline.bytes)}; "
        f"{format_size(outline.fetch_bytes)} to download, an archive of about {format_size(outline.archive_bytes)}; "
        f"{format_size(outline.out_free)} free in {outline.out.parent}"
    )


def _show_archive(result: CreateResult, *, as_json: bool) -> None:
    if as_json:
        answer_json(result.to_json())
        return
    size = f"{format_count(result.files, 'file')}, {format_size(result.bytes)}"
    answer(f"{result.archive}: {size}, digest {result.digest}")
    if result.held_files:
        note(
            f"{result.held_files} of the files, {format_size(result.held_bytes)}, are in the base and therefore not in "
            "this archive."
        )
    for volume in result.volumes[1:]:
        answer(f"{volume}")
    companion_files = result.sums.name + (f" and {result.signature.name}" if result.signature else "")
    trust_options = ["--trust", "KEYS"] if result.signature else ["--allow-unsigned"]
    base = ["--base", "DIR"] if result.held_files else []
    unpack = as_command("lbx", "unpack", Path(result.archive.name), "--to", "DIR", *trust_options, *base)
    note(f"Carry it across together with {companion_files}, then run: {unpack}")
