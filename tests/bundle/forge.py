"""Archives made by hand: bundles that are right in every respect but the one under test."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lbx.bundle.manifest import render_tags

FILES = {"data/files/a.txt": b"first", "data/files/b/c.txt": b"second" * 400, "data/files/empty.txt": b""}


@dataclass
class Member:
    """One entry to write: a header that may claim anything, and the bytes that follow it."""

    info: tarfile.TarInfo
    content: bytes = b""


def member(name: str, content: bytes = b"", **claims: object) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for claim, value in claims.items():
        setattr(info, claim, value)
    return Member(info, content)


def members(
    files: Mapping[str, bytes] = FILES,
    listed: Mapping[str, bytes] | None = None,
    top: str = "x",
    allowed: Sequence[str] = (),
    held: Mapping[str, str] | None = None,
    extra: Mapping[str, bytes] | None = None,
) -> list[Member]:
    """A whole bundle's members.

    Args:
        listed: what its manifest says, where that differs from ``files``.
        allowed: unsafe files that the recipe has named.
        held: of a delta, the files that are not in it: path here -> path in the base, a bundle "x".
        extra: further tag files, in the tag manifest, too.
    """
    listed = files if listed is None else listed
    described = [
        {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for path, content in listed.items()
    ]
    sources = [{"kind": "path", "allowed": list(allowed), "files": described}]
    base = None if held is None else {"name": "x", "digest": ""}
    tags = render_tags("x", "", sources, 0, base=base, base_paths=held, extra=extra)
    here = {path: content for path, content in files.items() if path not in (held or {})}
    return [member(f"{top}/{path}", content) for path, content in [*tags.items(), *sorted(here.items())]]


def write(path: Path, entries: Iterable[Member], tar_format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=tar_format) as tar:
        for entry in entries:
            tar.addfile(entry.info, io.BytesIO(entry.content))
    return path


def forged(tmp_path: Path, change: Callable[[list[Member]], object]) -> Path:
    """A good archive's members, changed in place, as an archive."""
    entries = members()
    change(entries)
    return write(tmp_path / "x.tar", entries)


def reseal(tags: list[Member], old: bytes, new: bytes, old_oxum: bytes, new_oxum: bytes) -> list[Member]:
    """Tag files with sizes replaced and the tag manifest made to fit."""
    by_name = {entry.info.name: entry for entry in tags}
    by_name["x/lbx/bundle.json"].content = by_name["x/lbx/bundle.json"].content.replace(old, new)
    by_name["x/bag-info.txt"].content = by_name["x/bag-info.txt"].content.replace(old_oxum, new_oxum)
    sealed = {name: entry.content for name, entry in by_name.items() if "tagmanifest" not in name}
    by_name["x/tagmanifest-sha256.txt"].content = "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name.removeprefix('x/')}\n" for name, content in sealed.items()
    ).encode()
    for entry in tags:
        entry.info.size = len(entry.content)
    return tags
