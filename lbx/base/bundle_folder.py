"""Layout of an unpacked bundle: ``lbx.bundle`` writes the folder, benchmarks and backends read it.

    ROOT/bagit.txt bag-info.txt manifest-sha256.txt tagmanifest-sha256.txt
    ROOT/lbx/bundle.json                       all sources, as downloaded
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

from lbx.base.errors import BundleError
from lbx.base.inputs import read_input
from lbx.base.visible import as_command

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
"""Maximum total size in bytes of a bundle's tag files."""
_COMMIT = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,200}")
_REF_LIMIT = 4096


def repo_folder(kind: str, repo: str) -> str:
    """Folder name of a hub repository: ("dataset", "THUDM/LongBench") -> "datasets--THUDM--LongBench"."""
    return f"{kind}s--" + repo.replace("/", "--")


class Bundle:
    """Unpacked bundle, read-only.

    Args:
        root: the folder created by ``lbx unpack``.

    Raises:
        BundleError: the folder is missing, or is not a bundle (unpacked bundles always have their tag manifest).
    """

    def __init__(self, root: Path) -> None:
        if root.is_file():
            raise BundleError(
                f"{root} is a file, not a bundle folder.",
                fix="If it is an archive, unpack it first.",
                command=as_command("lbx", "unpack", root, "--to", "DIR"),
            )
        if not root.is_dir():
            raise BundleError(
                f"Bundle folder {root} does not exist.",
                fix="Unpack the archive first.",
                command=as_command("lbx", "unpack", "NAME.tar", "--to", root),
            )
        if not (root / TAG_MANIFEST).is_file() or not (root / BUNDLE_JSON).is_file():
            raise BundleError(
                f"{root} is not an unpacked bundle: {TAG_MANIFEST} or {BUNDLE_JSON} is missing.",
                fix="Give the folder created by `lbx unpack`, not the archive or a folder above or inside it.",
                command="lbx unpack NAME.tar --to DIR",
            )
        self.root = root

    @property
    def digest(self) -> str:
        """Digest of the bundle: SHA-256 of the tag manifest, hex, which covers every other byte of the bundle."""
        return hashlib.sha256(read_input(self.root / TAG_MANIFEST, TAGS_LIMIT)).hexdigest()

    @property
    def description(self) -> dict[str, Any]:
        """Contents of bundle.json, such as name and sources."""
        loaded: dict[str, Any] = json.loads(read_input(self.root / BUNDLE_JSON, TAGS_LIMIT))
        return loaded

    @property
    def allowed_files(self) -> list[str]:
        """Payload files that the recipe allows by name: files of unsafe formats, and configurations that name code."""
        return sorted(path for source in self.description.get("sources", ()) for path in source.get("allowed", ()))

    def snapshot(self, kind: str, repo: str, revision: str | None = None) -> Path | None:
        """Find the folder of a hub repository's files, or None if the bundle does not contain the repository.

        Args:
            kind: "dataset" or "model".
            repo: "org/name".
            revision: the revision given in the recipe; None selects "main" if present, else the first by name.

        Raises:
            BundleError: a path leads out of the bundle, or a ref contains no commit.
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
                f"{ref} does not contain a commit, but {commit[:80]!r}.",
                fix="Do not trust this bundle; check it with `lbx verify`.",
            )
        path = self._inside(folder / "snapshots" / commit)
        return path if path.is_dir() else None

    def file(self, path: str) -> Path | None:
        """Find a file of an https or path source by its path below data/files, or None if it is missing."""
        location = self._inside(self.root / FILES / path)
        return location if location.exists() else None

    def _inside(self, path: Path) -> Path:
        """Return an untrusted path from a file or a card, checked not to leave the bundle by ``..`` or a link."""
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise BundleError(
                f"{path} is outside the bundle {self.root}, so the bundle's digest does not cover it.",
                fix="Correct the card that contains this path. If no card does, do not trust this bundle.",
            )
        return path


def _commit_in(ref: Path) -> str:
    try:
        return read_input(ref, _REF_LIMIT).decode("utf-8", "replace").strip()
    except OSError as exc:
        raise BundleError(f"{ref} does not contain a commit: {exc.strerror}.", fix="Unpack the bundle again.") from exc
