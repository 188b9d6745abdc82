"""Outline of a bundle before large downloads: licences, gated repositories, sizes and disk space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.units import format_size
from lbx.bundle.manifest import Evidence


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """Summary of a source, for licence review.

    Attributes:
        source: source_label, e.g. "dataset THUDM/LongBench", or the target path of a file.
        kind: hub, https, path or image.
        revision: commit of a hub source, or "".
        licence: licence stated by its author, or "".
        gated: whether readers must first accept conditions.
        files, bytes: number and total size of the source's files.
        held_bytes: size of the files that the base bundle already contains.
        links: "NAME -> TARGET" for files that link out of the source's folder; the link targets are packed.
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
    """Outline of a planned bundle.

    Attributes:
        lines: summary per source, in the order of the recipes.
        fetch_bytes: remaining size to download.
        archive_bytes: size of the archive, all volumes together, before any compression; tag files estimated.
        work, work_free: folder for the downloads, and bytes free on the disk of that folder.
        out, out_free: folder for the archive, and bytes free on the disk of that folder.
        one_disk: whether both folders are on the same file system.
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
    """Check that the disks have enough space for a bundle.

    Raises:
        UsageError: a disk is too small; the message names the needed and the free bytes.
    """
    fetch, archive = outline.fetch_bytes, outline.archive_bytes
    if outline.one_disk and fetch + archive > outline.out_free:
        raise UsageError(
            f"The disk of {outline.out} is too small: {format_size(fetch)} must be downloaded and the "
            f"archive needs {format_size(archive)}, but {format_size(outline.out_free)} are free.",
            fix="Free some space, choose a folder on a larger disk with -o, or another disk for the downloads with "
            "--work.",
        )
    needs = (
        (outline.work, outline.work_free, fetch, "must be downloaded", "--work"),
        (outline.out, outline.out_free, archive, "are needed for the archive", "-o"),
    )
    for folder, free, needed, what, option in needs:
        if not outline.one_disk and needed > free:
            raise UsageError(
                f"The disk of {folder} is too small: {format_size(needed)} {what}, but {format_size(free)} are free.",
                fix=f"Free some space, or choose a folder on a larger disk with {option}.",
            )


def source_label(record: Mapping[str, Any]) -> str:
    """Return a readable name of a source, e.g. "dataset THUDM/LongBench"."""
    if record["kind"] == "image":
        return f"image {record['to']}"
    return f"{record['type']} {record['repo']}" if "repo" in record else str(record["to"])
