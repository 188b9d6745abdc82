"""Plan of a bundle's files: sources are resolved to files and paths in the bundle, before large downloads."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from lbx.base.bundle_folder import FILES, HUB, IMAGES, repo_folder
from lbx.base.errors import FetchError, UsageError
from lbx.bundle.disk import BackgroundSha256, Progress, Tally, map_in_threads, read_blocks
from lbx.bundle.making.delta import BaseBundle, BaseFile
from lbx.bundle.making.fetch import Download, Fetcher, Hub, LocalFile, parse_web_address
from lbx.bundle.making.recipe import (
    BundleSource,
    HttpsSource,
    HubSource,
    ImageSource,
    PathSource,
    list_images,
)
from lbx.bundle.names import PathSet, unsafe_format, unsafe_reason


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """Payload file of a planned bundle.

    Attributes:
        path: path in the bag, ``data/...``.
        name: path inside the source; ``allow`` refers to this name.
        origin: a download, a local file, a file of the base, or the content itself.
        size: bytes, or None if the server does not report it.
        git_sha1: git blob sha1 if the hub states it, or "".
    """

    path: str
    name: str
    origin: Download | LocalFile | BaseFile | bytes
    size: int | None
    git_sha1: str = ""


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """Source of a bundle with its resolved files.

    Attributes:
        record: description of the source for bundle.json, without the files.
        links: see ``SourceSummary``.
    """

    source: BundleSource
    record: dict[str, Any]
    items: tuple[PlannedFile, ...]
    links: tuple[str, ...] = ()

    def allows(self, item: PlannedFile) -> bool:
        return any(allowed in (item.name, PurePosixPath(item.name).name) for allowed in self.source.allow)


class Planner:
    """Planner that resolves sources to files, by asking servers for sizes and access, and by hashing local files.

    Args:
        mirror: address that replaces scheme and host of every https source, or None.
        base: bundle with files that need not be fetched, or None.
    """

    def __init__(
        self, hub: Hub, mirror: str | None, fetcher: Fetcher, progress: Progress, base: BaseBundle | None = None
    ) -> None:
        self._base = base
        self._hub = hub
        self._mirror = parse_web_address(mirror, "--mirror") if mirror else None
        self._fetcher = fetcher
        self._progress = progress

    def plan(self, sources: Sequence[BundleSource]) -> list[SourcePlan]:
        """Resolve all files of all sources.

        Raises:
            UsageError: a local path is missing, an unsafe format is not allowed, two files have the same path.
            FetchError: a repository or revision does not exist, or a pattern does not match any file.
        """
        plans = []
        for source in sources:
            plan = self._plan_one(source)
            plans.append(replace(plan, items=tuple(self._match_base(item) for item in plan.items)))
        names = PathSet()
        for entry in plans:
            # Refuse unsafe formats that are not allowed, and `allow` entries without a file, which may be typos
            source = entry.source
            for item in entry.items:
                if (what := unsafe_format(item.name)) and not entry.allows(item):
                    raise unsafe_file_error(source, item, what)
            for allowed in source.allow:
                if not any(allowed in (item.name, PurePosixPath(item.name).name) for item in entry.items):
                    raise UsageError(
                        f'{source.origin}: allow = "{allowed}" does not match any of its files.',
                        fix="Give a file's name or its path inside the source, not a pattern.",
                    )
            for item in entry.items:
                if reason := unsafe_reason(item.path) or names.add(item.path):
                    raise UsageError(
                        f"{entry.source.origin}: {item.path} cannot go into the bundle: {reason}.",
                        fix="Narrow `files` to exclude it, or rename it at its source.",
                    )
        return plans

    def _plan_one(self, source: BundleSource) -> SourcePlan:
        match source:
            case HubSource():
                return self._plan_hub(source)
            case HttpsSource():
                return self._plan_https(source)
            case PathSource():
                return self._plan_path(source)
            case ImageSource():
                return self._plan_image(source)

    def _match_base(self, item: PlannedFile) -> PlannedFile:
        """Replace a download by the base's file, if the base contains a file with the same hash."""
        origin = item.origin
        if self._base is None or not isinstance(origin, Download):
            return item
        base_file = self._base.find(origin.algorithm, origin.digest, origin.size, item.path)
        return item if base_file is None else replace(item, origin=base_file, size=base_file.size)

    def _plan_hub(self, source: HubSource) -> SourcePlan:
        snapshot = self._hub.snapshot(source.repo, source.type, source.revision)
        by_path = {file.path: file for file in snapshot.files}
        location = f"the {source.type} {source.repo} at {snapshot.commit}"
        paths = _match_patterns(by_path, source.files, source, location, source.optional)
        root = f"{HUB}/{repo_folder(source.type, source.repo)}"
        items = [
            PlannedFile(
                f"{root}/snapshots/{snapshot.commit}/{path}",
                path,
                self._hub.download(snapshot, file),
                file.size,
                file.digest if file.algorithm == "git" else "",
            )
            for path in paths
            for file in [by_path[path]]
        ]
        if snapshot.gated:
            # Request one file now: a hub lists gated repositories to everybody, and would refuse access hours later
            smallest = min(items, key=lambda item: item.size or 0)
            if isinstance(smallest.origin, Download) and self._fetcher.denied_status(smallest.origin):
                raise self._hub.gated_error(source.repo, source.type, snapshot.licence)
        return SourcePlan(
            source,
            {
                "kind": "hub",
                "type": source.type,
                "repo": source.repo,
                "resolved_repo": snapshot.resolved_repo,
                "revision": source.revision,
                "commit": snapshot.commit,
                "licence": snapshot.licence or source.licence,
                "gated": snapshot.gated,
                "patterns": [*source.files, *source.optional],
            },
            (*items, *_refs(root, source.revision, snapshot.commit)),
        )

    def _plan_https(self, source: HttpsSource) -> SourcePlan:
        parts = urlsplit(source.url)
        url = source.url
        if self._mirror:
            url = self._mirror + parts.path + (f"?{parts.query}" if parts.query else "")
        download = Download(source.to, url, "sha256", source.sha256, None)
        download = replace(download, size=self._fetcher.size(download))
        record = {"kind": "https", "url": source.url, "to": source.to, "licence": source.licence}
        return SourcePlan(source, record, (PlannedFile(f"{FILES}/{source.to}", source.to, download, download.size),))

    def _plan_image(self, source: ImageSource) -> SourcePlan:
        images = list_images(source.path)
        file = _hash_files([source.path], self._progress)[source.path]
        name = source.path.name
        record = {"kind": "image", "to": name, "licence": "", "images": images}
        return SourcePlan(source, record, (PlannedFile(f"{IMAGES}/{name}", name, file, file.size),))

    def _plan_path(self, source: PathSource) -> SourcePlan:
        local_files = {name: source.full_path / name for name in source.names} or _local_files(source)
        names = _match_patterns(local_files, source.files, source, f"{source.path}")
        files = _hash_files([local_files[name] for name in names], self._progress)
        ends = {name: local_files[name].resolve() for name in names}
        links = tuple(f"{name} -> {end}" for name, end in ends.items() if not end.is_relative_to(source.full_path))
        read = {name: files[local_files[name]] for name in names}
        record = {"kind": "path", "path": source.path, "licence": source.licence}
        if source.to:
            single = source.full_path.is_file()
            places = {name: f"{FILES}/{source.to}" + ("" if single else f"/{name}") for name in read}
            items = [PlannedFile(places[name], name, file, file.size) for name, file in read.items()]
            return SourcePlan(source, {**record, "to": source.to}, tuple(items), links)
        # A snapshot needs a commit; a hash over the files changes exactly when they do.
        listing = "".join(f"{file.sha256}  {name}\n" for name, file in sorted(read.items()))
        commit = hashlib.sha1(listing.encode(), usedforsecurity=False).hexdigest()
        root = f"{HUB}/{repo_folder(source.type, source.repo)}"
        items = [PlannedFile(f"{root}/snapshots/{commit}/{name}", name, file, file.size) for name, file in read.items()]
        record |= {"type": source.type, "repo": source.repo, "revision": "main", "commit": commit}
        return SourcePlan(source, record, (*items, *_refs(root, "main", commit)), links)


def _refs(root: str, revision: str, commit: str) -> list[PlannedFile]:
    """Plan the ref files of the requested revision and of ``main``, the default revision of offline libraries."""
    content = commit.encode()
    names = sorted({revision, "main"})
    return [PlannedFile(f"{root}/refs/{name}", f"refs/{name}", content, len(content)) for name in names]


def _match_patterns(
    names: Iterable[str], patterns: Sequence[str], source: BundleSource, location: str, optional: Sequence[str] = ()
) -> list[str]:
    """Return the names that match any pattern, sorted. Every pattern except optional ones must match a name."""
    names = sorted(names)
    if not names:
        raise FetchError(f"{source.origin}: {location} contains no files.", fix="Correct the source.")
    matched_names: set[str] = set()
    for pattern in [*patterns, *optional] or ["*"]:
        matches = {name for name in names if fnmatchcase(name, pattern + "*" * pattern.endswith("/"))}
        if not matches and pattern not in optional:
            close = difflib.get_close_matches(pattern, names, n=3, cutoff=0.4) or names[:5]
            raise FetchError(
                f'{source.origin}: files = "{pattern}" does not match any of the {len(names)} files in {location}.',
                fix=f"It contains, for example, {', '.join(close)}.",
            )
        matched_names |= matches
    if not matched_names:
        raise FetchError(f"{source.origin}: no file in {location} matches any pattern.", fix="Correct `optional`.")
    return sorted(matched_names)


def _local_files(source: PathSource) -> dict[str, Path]:
    """Return {name inside a path source: regular file}. Links to files are followed."""
    root = source.full_path
    if root.is_file():
        if source.repo or source.files:
            raise UsageError(
                f"{source.origin}: {source.path} is a file, but repo and files need a folder.",
                fix="Set path to its folder, or replace repo and files by to.",
            )
        return {root.name: root}
    if not root.is_dir():
        raise UsageError(
            f"{source.origin}: path = {source.path!r} does not exist ({root}).",
            fix="The path is relative to the recipe. If an earlier step builds it, run that step first.",
        )
    by_name: dict[str, Path] = {}
    for folder, folders, files in os.walk(root, onerror=_raise_error):
        for name in [*folders, *files]:
            path = Path(folder, name)
            if path.is_dir() and not path.is_symlink():
                continue
            if not path.is_file():
                raise UsageError(
                    f"{source.origin}: {path} is a link to a folder, or neither a file nor a folder.",
                    fix="Replace it by a copy, or move it out of the folder.",
                )
            by_name[path.relative_to(root).as_posix()] = path
    return by_name


def _raise_error(error: OSError) -> None:
    raise UsageError(
        f"{error.filename} cannot be read: {error.strerror}.", fix="Allow it to be read, or move it out of the folder."
    ) from error


def _hash_files(paths: Sequence[Path], progress: Progress) -> dict[Path, LocalFile]:
    """Hash local files in parallel on all processors, in descending order of size."""
    sizes = {path: path.stat().st_size for path in paths}
    tally = Tally(progress, "read", sum(sizes.values()))

    def hash_file(path: Path) -> LocalFile:
        digest = BackgroundSha256(threaded=tally.outweighs(sizes[path]))
        count = 0
        try:
            for block in read_blocks(path):
                digest.update(block)
                count += len(block)
                tally.add(str(path), len(block))
        finally:
            digest.close()
        return LocalFile(path, count, digest.hexdigest())

    paths = sorted(sizes, key=lambda path: -sizes[path])
    return dict(zip(paths, map_in_threads(hash_file, paths, tally), strict=True))


def unsafe_file_error(source: BundleSource, item: PlannedFile, what: str) -> UsageError:
    """Create the error for an unsafe file, which suggests two fixes."""
    name = PurePosixPath(item.name).name
    return UsageError(
        f"{source.origin}: {item.name} is refused: it is {what} and would run when loaded.",
        fix=f'Narrow `files` to exclude it, or, after reading it, add allow = ["{name}"] to the recipe.',
    )
