"""What a bundle will be, before anything big is fetched: licences, gates, sizes, and whether the disks hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.bundle.bag import Evidence


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """One source, as a person who answers for its licence wants it.

    Attributes:
        source: e.g. "dataset THUDM/LongBench", or where a file goes.
        kind: hub, https, path or image.
        revision: commit of a hub source, or "".
        licence: as its maker states it, "" where nobody does.
        gated: readers must have accepted conditions.
        files, bytes: number and size of its files.
        held_bytes: of those, what the base bundle has already.
        links: "NAME -> PLACE" of its files that are links to elsewhere on this machine; what they lead to is packed.
    """

    source: str
    kind: str
    revision: str
    licence: str
    gated: bool
    files: int
    bytes: int
    held_bytes: int
    links: Sequence[str] = ()


@dataclass(frozen=True)
class Outline(Evidence):
    """A bundle that could be made.

    Attributes:
        lines: one a source, in the recipes' order.
        fetch_bytes: still to be downloaded.
        archive_bytes: size of the archive, all volumes together, before any compression; tag files estimated.
        work, work_free: folder that takes the downloads, bytes free on its disk.
        out, out_free: folder that takes the archive, bytes free on its disk.
        one_disk: both are on the same file system.
        unread: datasets that no built-in benchmark reads.
    """

    name: str
    lines: Sequence[SourceSummary]
    files: int
    bytes: int
    held_bytes: int
    fetch_bytes: int
    archive_bytes: int
    work: Path
    work_free: int
    out: Path
    out_free: int
    one_disk: bool
    unread: Sequence[str] = ()


def require_space(outline: Outline) -> None:
    """Refuse a bundle that the disks cannot hold.

    Raises:
        UsageError: with what is needed and what is there, in bytes, for each disk that is too small.
    """
    fetch, archive = outline.fetch_bytes, outline.archive_bytes
    if outline.one_disk and fetch + archive > outline.out_free:
        raise UsageError(
            f"The disk of {outline.out} is too small: {fetch:,} bytes are to be fetched and the archive takes "
            f"{archive:,}, but {outline.out_free:,} are free.",
            fix="Free some space, give a folder on a larger disk with -o, or another disk for the downloads with "
            "--work.",
        )
    needs = (
        (outline.work, outline.work_free, fetch, "are to be fetched", "--work"),
        (outline.out, outline.out_free, archive, "is what the archive takes", "-o"),
    )
    for folder, free, needed, what, option in needs:
        if not outline.one_disk and needed > free:
            raise UsageError(
                f"The disk of {folder} is too small: {needed:,} bytes {what}, but {free:,} are free.",
                fix=f"Free some space, or give a folder on a larger disk with {option}.",
            )


def label(record: Mapping[str, Any]) -> str:
    """A source by what people call it."""
    if record["kind"] == "image":
        return f"image {record['to']}"
    return f"{record['type']} {record['repo']}" if "repo" in record else str(record["to"])
