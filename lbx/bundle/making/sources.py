"""Sources of a recipe, validated on construction."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.inputs import open_input
from lbx.bundle.names import unsafe_reason

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TYPES = ("dataset", "model")
_INDEX_LIMIT = 4 << 20
_IMAGE_NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, slots=True)
class HubSource:
    """Files of a repository on the Hugging Face hub.

    Attributes:
        files: glob patterns that must each match a file; if ``files`` and ``optional`` are empty, all files are taken.
        optional: patterns that need not match.
        licence: licence if the hub does not state it.
    """

    repo: str
    type: str
    revision: str = "main"
    files: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    licence: str = ""
    allow: tuple[str, ...] = ()
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _check_repo(self.repo, self.type)
        if reason := unsafe_reason(self.revision):
            raise ValueError(f'revision = "{self.revision}" cannot be used: {reason}.')

    @property
    def key(self) -> str:
        """Key that is unique among the sources of a bundle."""
        return f"{self.type} {self.repo}"


@dataclass(frozen=True, slots=True)
class HttpsSource:
    """File at an https address, pinned by its SHA-256; ``to`` is its path under data/files."""

    url: str
    sha256: str
    to: str
    licence: str = ""
    allow: tuple[str, ...] = ()
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme != "https" or not parts.netloc or not parts.path.strip("/"):
            raise ValueError(f'url = "{self.url}" is not an https address of a file.')
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError(f'sha256 = "{self.sha256}" is not 64 lower-case hex digits.')
        _check_to(self.to)

    @property
    def key(self) -> str:
        return f"file {self.to}"


@dataclass(frozen=True, slots=True)
class PathSource:
    """Local file or folder, placed under data/files (``to``) or packed as a hub snapshot (``repo``).

    Attributes:
        path: path as written in the recipe; recorded in the bundle.
        folder: folder of the recipe; ``path`` is relative to it.
        names: the only files below ``path``, without patterns.
    """

    path: str
    to: str = ""
    repo: str = ""
    type: str = "model"
    files: tuple[str, ...] = ()
    licence: str = ""
    allow: tuple[str, ...] = ()
    folder: Path = field(default=Path(), compare=False)
    names: tuple[str, ...] = ()
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if bool(self.to) == bool(self.repo):
            raise ValueError("a path source needs either `to` or `repo`, not both.")
        if self.repo:
            _check_repo(self.repo, self.type)
        else:
            _check_to(self.to)

    @property
    def key(self) -> str:
        return f"{self.type} {self.repo}" if self.repo else f"file {self.to}"

    @property
    def full_path(self) -> Path:
        return (self.folder / self.path).resolve()


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Container image saved as an OCI archive, placed under data/images."""

    path: Path
    allow: tuple[str, ...] = ()
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if reason := unsafe_reason(self.path.name):
            raise ValueError(f"{self.path} does not have a valid name for an image: {reason}.")

    @property
    def key(self) -> str:
        return f"image {self.path.name}"


@dataclass(frozen=True, slots=True)
class BaseSource:
    """Source available only in the base bundle: files from an air-gapped machine.

    Attributes:
        record: entry of the source in the base's bundle.json, with its files.
    """

    record: Mapping[str, Any] = field(hash=False)
    allow: tuple[str, ...] = ()
    origin: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        return f"{self.record['type']} {self.record['repo']}" if "repo" in self.record else f"file {self.record['to']}"


BundleSource = HubSource | HttpsSource | PathSource | ImageSource | BaseSource
KINDS: dict[str, type[HubSource] | type[HttpsSource] | type[PathSource]] = {
    "hub": HubSource,
    "https": HttpsSource,
    "path": PathSource,
}


def _check_repo(repo: str, kind: str) -> None:
    if kind not in _TYPES:
        raise ValueError(f'type = "{kind}" must be "dataset" or "model".')
    if not _REPO.fullmatch(repo) or "--" in repo or ".." in repo or len(repo) > 96:
        raise ValueError(f'repo = "{repo}" is not a repository name such as "THUDM/LongBench".')


def _check_to(to: str) -> None:
    if reason := unsafe_reason(to):
        raise ValueError(f'to = "{to}" is not a valid path in a bundle: {reason}.')


def read_image(path: Path) -> list[dict[str, str]]:
    """List the images of an OCI archive; only its small index files are read into memory.

    Returns:
        [{"name": "localhost/lbx:latest", "digest": "sha256:..."}], name "" if the index gives none.

    Raises:
        UsageError: the file does not exist, or is not an OCI archive (a plain tar with oci-layout and index.json).
    """
    config: dict[str, Any] = {}
    try:
        with open_input(path) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in ("oci-layout", "index.json") and member.isfile() and member.size <= _INDEX_LIMIT:
                    content = tar.extractfile(member)
                    assert content is not None
                    config[name] = json.load(content)
        manifests = config["index.json"]["manifests"]
        config["oci-layout"]["imageLayoutVersion"]
        images = [
            {"name": str((m.get("annotations") or {}).get(_IMAGE_NAME, "")), "digest": m["digest"]} for m in manifests
        ]
    except OSError as exc:
        raise UsageError(f"Cannot read the image {path}: {exc.strerror}.", fix="Check the path.") from exc
    except (tarfile.TarError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise UsageError(
            f"{path} is not an OCI archive ({type(exc).__name__}: {exc}).",
            fix="Save the image in that format.",
            command=as_command("podman", "save", "--format", "oci-archive", "-o", path, "IMAGE"),
        ) from exc
    if not images or not all(isinstance(image["digest"], str) for image in images):
        raise UsageError(f"{path} does not contain an image.", fix="Save it again.")
    return images
