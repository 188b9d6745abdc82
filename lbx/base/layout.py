"""Where things lie in an unpacked bundle. The bundle room writes by it; benchmarks and backends read by it.

    ROOT/bagit.txt bag-info.txt manifest-sha256.txt tagmanifest-sha256.txt
    ROOT/lbx/bundle.json                       every source, as it was fetched
    ROOT/data/hub/datasets--org--name/refs/<revision>           text: the commit
    ROOT/data/hub/datasets--org--name/snapshots/<commit>/...    regular files only
    ROOT/data/hub/models--org--name/...
    ROOT/data/files/<to>                       files of https and path sources
    ROOT/data/images/<name>                    container images (OCI archives)

``data/hub`` is a Hugging Face hub cache without symlinks: ``HF_HUB_CACHE`` may point at it, read-only.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from lbx.base.commands import as_command
from lbx.base.errors import BundleError
from lbx.base.inputs import read_input

BAGIT = "bagit.txt"
BAG_INFO = "bag-info.txt"
MANIFEST = "manifest-sha256.txt"
TAG_MANIFEST = "tagmanifest-sha256.txt"
BUNDLE_JSON = "lbx/bundle.json"
SBOM = "lbx/sbom.cdx.json"
HUB = "data/hub"
FILES = "data/files"
IMAGES = "data/images"
TAGS_LIMIT = 128 << 20
"""Bytes of a bundle's own records, all files together."""
_COMMIT = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,200}")
_REF_LIMIT = 4096


def repo_folder(kind: str, repo: str) -> str:
    """Name of a hub repository's folder: ("dataset", "THUDM/LongBench") -> "datasets--THUDM--LongBench"."""
    return f"{kind}s--" + repo.replace("/", "--")


class Bundle:
    """An unpacked bundle, for reading.

    Args:
        root: the folder that ``lbx unpack`` made.

    Raises:
        BundleError: the folder is missing, or no bundle (an unpacked one always has its tag manifest).
    """

    def __init__(self, root: Path) -> None:
        if root.is_file():
            raise BundleError(
                f"There is no bundle folder at {root}: it is a file.",
                fix="If it is an archive, unpack it first.",
                command=as_command("lbx", "unpack", root, "--to", "DIR"),
            )
        if not root.is_dir():
            raise BundleError(
                f"There is no bundle folder at {root}.",
                fix="Unpack an archive first.",
                command=as_command("lbx", "unpack", "NAME.tar", "--to", root),
            )
        if not (root / TAG_MANIFEST).is_file() or not (root / BUNDLE_JSON).is_file():
            raise BundleError(
                f"{root} is not an unpacked bundle: {TAG_MANIFEST} or {BUNDLE_JSON} is missing.",
                fix="Give the folder that `lbx unpack` made, not the archive or a folder above or inside it.",
                command="lbx unpack NAME.tar --to DIR",
            )
        self.root = root

    @property
    def digest(self) -> str:
        """SHA-256 of the tag manifest, hex: it covers every other byte of the bundle."""
        return hashlib.sha256(read_input(self.root / TAG_MANIFEST, TAGS_LIMIT)).hexdigest()

    @property
    def description(self) -> dict[str, Any]:
        """bundle.json: name and sources."""
        loaded: dict[str, Any] = json.loads(read_input(self.root / BUNDLE_JSON, TAGS_LIMIT))
        return loaded

    @property
    def allowed(self) -> list[str]:
        """Payload files of unsafe formats, and configurations naming code, that the recipe let through by name."""
        return sorted(path for source in self.description.get("sources", ()) for path in source.get("allowed", ()))

    def snapshot(self, kind: str, repo: str, revision: str | None = None) -> Path | None:
        """Folder of a hub repository's files, or None where the bundle does not hold it.

        Args:
            kind: "dataset" or "model".
            repo: "org/name".
            revision: the revision the recipe asked for; None takes the only one, or "main" of several.

        Raises:
            BundleError: what names it leads out of the bundle.
        """
        folder = self._inside(self.root / HUB / repo_folder(kind, repo))
        refs = folder / "refs"
        if revision is None:
            names = sorted(str(p.relative_to(refs)) for p in refs.rglob("*") if p.is_file()) if refs.is_dir() else []
            if not names:
                return None
            revision = "main" if "main" in names else names[0]
        ref = self._inside(refs / revision)
        if not ref.is_file() and not _COMMIT.fullmatch(revision):
            return None
        commit = _commit_in(ref) if ref.is_file() else revision
        if not _COMMIT.fullmatch(commit):
            raise BundleError(
                f"{ref} names no commit, but {commit[:80]!r}.",
                fix="Do not trust this bundle; check it with `lbx verify`.",
            )
        path = self._inside(folder / "snapshots" / commit)
        return path if path.is_dir() else None

    def file(self, to: str) -> Path | None:
        """A file of an https or path source by its place under data/files, or None where it is not there."""
        path = self._inside(self.root / FILES / to)
        return path if path.exists() else None

    def _inside(self, path: Path) -> Path:
        """The path, which a file or a card has named: it must not lead out of the bundle, by ``..`` or by a link."""
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise BundleError(
                f"{path} leads out of the bundle {self.root}; the bundle's digest does not cover it.",
                fix="Correct the card that names it; if none does, do not trust this bundle.",
            )
        return path


def _commit_in(ref: Path) -> str:
    try:
        return read_input(ref, _REF_LIMIT).decode("utf-8", "replace").strip()
    except OSError as exc:
        raise BundleError(f"{ref} names no commit: {exc.strerror}.", fix="Unpack the bundle again.") from exc
