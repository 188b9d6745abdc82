"""Base bundles: a delta neither fetches nor packs their contents again.

Files are matched by content, not by path: a new commit of a dataset moves every file to another folder, although most
files have not changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import BUNDLE_JSON, TAG_MANIFEST, TAGS_LIMIT, Bundle
from lbx.base.errors import UsageError
from lbx.base.inputs import open_input, read_input
from lbx.bundle.names import unsafe_reason
from lbx.bundle.receiving.verification import read_contents


@dataclass(frozen=True, slots=True)
class BaseFile:
    """Payload file of the base bundle.

    Attributes:
        path: path in the base bundle, ``data/...``.
        size: bytes.
        sha256: hex.
        git_sha1: git blob sha1 if the base recorded it, or "".
        allowed: whether the file has an unsafe format that the base's recipe allows.
    """

    path: str
    size: int
    sha256: str
    git_sha1: str = ""
    allowed: bool = False


@dataclass(frozen=True)
class BaseBundle:
    """Base bundle of a delta, as described by bundle.json.

    Attributes:
        digest: digest of the bundle, hex, or "" if only its bundle.json is known.
        sources: as in bundle.json.
    """

    name: str
    digest: str
    sources: Sequence[Mapping[str, Any]]

    @cached_property
    def files(self) -> tuple[BaseFile, ...]:
        files = []
        for source in self.sources:
            allowed = set(source.get("allowed", ()))
            files += [
                BaseFile(file["path"], file["size"], file["sha256"], file.get("git_sha1", ""), file["path"] in allowed)
                for file in source["files"]
            ]
        return tuple(sorted(files, key=lambda file: file.path))

    @cached_property
    def _by_content(self) -> dict[tuple[str, str, int], dict[str, BaseFile]]:
        index: dict[tuple[str, str, int], dict[str, BaseFile]] = {}
        for file in self.files:
            index.setdefault(("sha256", file.sha256, file.size), {})[file.path] = file
            if file.git_sha1:
                index.setdefault(("git", file.git_sha1, file.size), {})[file.path] = file
        return index

    def find(self, algorithm: str, digest: str, size: int | None, path: str) -> BaseFile | None:
        """Find a file with the given hash, preferably at ``path``, or None if the base does not contain the file."""
        if size is None and algorithm == "sha256":
            size = next((file.size for file in self.files if file.sha256 == digest), None)
        same = self._by_content.get((algorithm, digest, size or 0))
        return (same.get(path) or next(iter(same.values()))) if same else None


def read_base(path: Path) -> BaseBundle:
    """Read the description of a base bundle.

    Args:
        path: folder of an unpacked bundle, its lbx/bundle.json or a copy of it, or an archive.

    Raises:
        UsageError: the path cannot be read, or does not describe a bundle.
        BundleError: an archive's tag files are damaged.
    """
    try:
        if path.is_dir():
            root = Bundle(path)
            return _parse_description(root.description, root.digest, path)
        with open_input(path) as file:
            is_json = file.read(1) == b"{"
        if not is_json:
            contents = read_contents(path)
            return BaseBundle(contents.name, contents.digest, contents.sources)
        manifest = path.parent.parent / TAG_MANIFEST
        in_place = path == path.parent.parent / BUNDLE_JSON and manifest.is_file()
        digest = hashlib.sha256(read_input(manifest, TAGS_LIMIT)).hexdigest() if in_place else ""
        return _parse_description(json.loads(read_input(path, TAGS_LIMIT)), digest, path)
    except (OSError, ValueError, RecursionError) as exc:
        raise UsageError(
            f"Cannot read the base bundle {path}: {exc}.",
            fix="Give the folder of an unpacked bundle, its lbx/bundle.json, or its archive.",
        ) from exc


def _parse_description(description: Any, digest: str, path: Path) -> BaseBundle:
    if not isinstance(description, dict):
        raise UsageError(f"{path} does not describe a bundle.", fix="Give the bundle's lbx/bundle.json.")
    return _parse_base(description.get("name"), digest, description.get("sources"), f"{path}")


def _parse_base(name: object, digest: str, sources: object, location: str) -> BaseBundle:
    """Create a ``BaseBundle`` from untrusted values of a file, checked first.

    Raises:
        UsageError: a value is missing or has the wrong type, or a path is unsafe.
    """
    try:
        if not isinstance(name, str) or not isinstance(sources, list):
            raise TypeError("name or sources")  # noqa: TRY301
        base = BaseBundle(name, digest, sources)
        for file in base.files:
            texts = (file.path, file.sha256, file.git_sha1)
            if not all(isinstance(text, str) for text in texts) or type(file.size) is not int or file.size < 0:
                raise TypeError(f"the file {file.path!r}")  # noqa: TRY301
            if reason := unsafe_reason(file.path):
                raise ValueError(f"the file {file.path!r}: {reason}")  # noqa: TRY301
    except (TypeError, KeyError, AttributeError, ValueError) as exc:
        raise UsageError(f"{location} does not describe a bundle ({exc}).", fix="Create it again.") from exc
    return base
