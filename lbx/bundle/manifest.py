"""Tag files of a bundle (BagIt, RFC 8493): rendering and parsing.

    bagit.txt, bag-info.txt     BagIt declaration and metadata
    manifest-sha256.txt         SHA-256 of every payload file (``data/...``)
    tagmanifest-sha256.txt      SHA-256 of every other tag file; its own SHA-256 is the bundle's digest
    tagmanifest-sha256.txt.sig  if the bundle is signed: an SSH signature of the tag manifest
    lbx/bundle.json             {"format", "name", "description", "sources": [{..., "files": [{path, size, sha256}]}]}
    lbx/sbom.cdx.json           the bill of materials; further tag files are not allowed
    fetch.txt                   only in a delta, which has "base": {"name", "digest"} in bundle.json: the payload files
                                that are not in the tar but in the base, "lbx-base://BASE/PATH-THERE size path-here"

Every payload file belongs to exactly one source, so that bundle.json contains its size. A delta also lists the files
taken from its base; their paths in the base may differ, so fetch.txt gives both paths.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from lbx.base.bundle_folder import BAG_INFO, BAGIT, BUNDLE_JSON, MANIFEST, SBOM, TAG_MANIFEST
from lbx.base.errors import BundleError
from lbx.bundle.names import PathSet, is_bundle_name, unsafe_reason

FORMAT = 1
PAYLOAD = "data/"
TAG_SIGNATURE = f"{TAG_MANIFEST}.sig"
FETCH = "fetch.txt"
_DECLARATION = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
_REQUIRED = (BAGIT, BAG_INFO, MANIFEST, TAG_MANIFEST, BUNDLE_JSON)
_TAGS = frozenset((*_REQUIRED, TAG_SIGNATURE, FETCH, SBOM))
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FETCH_LINE = re.compile(r"lbx-base://([^/ ]+)/([^ ]+) (\d{1,19}) (.+)")
_OXUM = re.compile(r"^Payload-Oxum: (\d{1,20})\.(\d{1,12})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """Payload file in the manifest: path inside the bag (``data/...``), size in bytes, SHA-256 in hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of a bundle, as described by tag files that have been checked against each other.

    Attributes:
        digest: SHA-256 of the tag manifest, hex; equals ``lbx.base.bundle_folder.Bundle.digest``.
        entries: all payload files by path.
        sources: unmodified sources of bundle.json.
        base: name and digest of the bundle that a delta requires, or empty for other bundles.
        base_paths: {path here: path in the base} of a delta's payload files that the base contains.
    """

    name: str
    description: str
    digest: str
    entries: Mapping[str, ManifestEntry]
    sources: Sequence[Mapping[str, Any]]
    base: Mapping[str, str] = field(default_factory=dict)
    base_paths: Mapping[str, str] = field(default_factory=dict)

    @property
    def payload_bytes(self) -> int:
        return sum(entry.size for entry in self.entries.values())


def render_tags(
    name: str,
    description: str,
    sources: Sequence[Mapping[str, Any]],
    epoch: int,
    *,
    extra: Mapping[str, bytes] | None = None,
    base: Mapping[str, str] | None = None,
    base_paths: Mapping[str, str] | None = None,
) -> dict[str, bytes]:
    """Render the tag files of a bag as {path: content}, sorted by path. The result depends only on the arguments.

    Args:
        sources: sources for bundle.json, each with its ``files``.
        epoch: creation time in seconds since 1970, passed in so that the same inputs give the same bytes.
        extra: further tag files.
        base: for a delta, name and digest of its base.
        base_paths: for a delta, {path here: path in the base} of every payload file that is not packed.
    """
    files = sorted((file for source in sources for file in source["files"]), key=lambda file: file["path"])
    bundle_json: dict[str, Any] = {"format": FORMAT, "name": name, "description": description, "sources": list(sources)}
    if base is not None:
        bundle_json["base"] = dict(base)
    info = [
        f"Bagging-Date: {datetime.fromtimestamp(epoch, UTC):%Y-%m-%d}",
        "Bag-Software-Agent: lbx",
        f"External-Identifier: {name}",
        f"Payload-Oxum: {sum(file['size'] for file in files)}.{len(files)}",
    ]
    tags = {
        **(extra or {}),
        BAG_INFO: "".join(line + "\n" for line in info).encode(),
        BAGIT: _DECLARATION,
        BUNDLE_JSON: (json.dumps(bundle_json, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(),
        MANIFEST: _render_manifest((file["sha256"], file["path"]) for file in files),
    }
    if base is not None and base_paths:
        tags[FETCH] = _render_fetch(files, base["name"], base_paths)
    tags[TAG_MANIFEST] = _render_manifest((hashlib.sha256(tags[path]).hexdigest(), path) for path in sorted(tags))
    return dict(sorted(tags.items()))


def _render_manifest(lines: Iterable[tuple[str, str]]) -> bytes:
    return "".join(f"{digest}  {path}\n" for digest, path in lines).encode()


def _render_fetch(files: Iterable[Mapping[str, Any]], base: str, base_paths: Mapping[str, str]) -> bytes:
    lines = (
        f"lbx-base://{base}/{quote(base_paths[f['path']])} {f['size']} {f['path']}\n"
        for f in files
        if f["path"] in base_paths
    )
    return "".join(lines).encode()


def refuse_foreign_tag(path: str, location: str) -> None:
    """Raise BundleError for an unknown file outside ``data/``, where file formats are not checked."""
    if path not in _TAGS:
        raise BundleError(
            f"{location} is refused: it contains {path}, but outside {PAYLOAD} a bundle has only its own records.",
            fix="Do not trust it; ask its author for a new copy.",
        )


def parse_tags(tags: Mapping[str, bytes], location: str) -> Contents:
    """Check the tag files against each other, and return the contents of the bundle.

    Args:
        tags: every file outside ``data/``, by path.
        location: the archive or folder, for messages.

    Raises:
        BundleError: a tag file is missing, changed, unlisted or unknown, or a payload name is unsafe; the message
            names the file.
    """
    for path in tags:
        refuse_foreign_tag(path, location)
    for path in _REQUIRED:
        if path not in tags:
            raise BundleError(
                f"{location} is not a complete bundle: {path} is missing.", fix="Copy it again, or bundle again."
            )
    if tags[BAGIT] != _DECLARATION:
        raise _bundle_error(location, f"{BAGIT} does not have a bundle's content", "Copy it again, or bundle again.")
    _check_tag_sums(tags, location)
    sums = _parse_manifest(tags[MANIFEST], MANIFEST, location)
    bundle_json = _parse_description(tags[BUNDLE_JSON], location)
    entries = _entries(bundle_json, sums, location)
    _check_oxum(tags[BAG_INFO], entries, location)
    digest = hashlib.sha256(tags[TAG_MANIFEST]).hexdigest()
    base = _parse_base(bundle_json, location)
    base_paths = _parse_fetch(tags.get(FETCH), base, entries, location)
    return Contents(
        bundle_json["name"], bundle_json["description"], digest, entries, bundle_json["sources"], base, base_paths
    )


_DISTRUST = "Do not trust this bundle: ask its sender for a new copy, and check it with `lbx verify --trust KEY`."


def _bundle_error(location: str, what: str, fix: str = "Bundle again.") -> BundleError:
    return BundleError(f"{location}: {what}.", fix=fix)


def _parse_base(bundle_json: Mapping[str, Any], location: str) -> dict[str, str]:
    base = bundle_json.get("base")
    if base is None:
        return {}
    if not isinstance(base, dict) or not is_bundle_name(str(base.get("name"))):
        raise _bundle_error(location, f"{BUNDLE_JSON} does not name the base bundle")
    digest = str(base.get("digest", ""))
    if digest and not _DIGEST.fullmatch(digest):
        raise _bundle_error(location, f"{BUNDLE_JSON} has no valid digest of the base bundle")
    return {"name": str(base["name"]), "digest": digest}


def _parse_fetch(
    content: bytes | None, base: Mapping[str, str], entries: Mapping[str, ManifestEntry], location: str
) -> dict[str, str]:
    """Parse fetch.txt into {path here: path in the base}. Each path must be in the manifest with the same size."""
    base_paths: dict[str, str] = {}
    if content is None:
        return base_paths
    if not base:
        raise BundleError(f"{location} has a {FETCH}, but does not name a base bundle.", fix=_DISTRUST)
    try:
        lines = content.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as exc:
        raise _bundle_error(location, f"{FETCH} is not UTF-8", "Copy it again.") from exc
    for number, line in enumerate(lines, 1):
        match = _FETCH_LINE.fullmatch(line)
        if match is None or match[1] != base["name"]:
            raise _bundle_error(location, f"line {number} of {FETCH} does not name a file of the base bundle")
        url, size, path = unquote(match[2]), int(match[3]), match[4]
        if path not in entries or entries[path].size != size or path in base_paths:
            raise _bundle_error(location, f"{FETCH} and {MANIFEST} disagree about {path!r}", _DISTRUST)
        reason = unsafe_reason(url) or ("" if url.startswith(PAYLOAD) else "it is not a payload file")
        if reason:
            raise _bundle_error(
                location, f"{FETCH} takes the unsafe path {url!r} from the base bundle: {reason}", _DISTRUST
            )
        base_paths[path] = url
    return base_paths


def _check_tag_sums(tags: Mapping[str, bytes], location: str) -> None:
    listed = _parse_manifest(tags[TAG_MANIFEST], TAG_MANIFEST, location)
    for path, digest in listed.items():
        if path not in tags:
            raise _bundle_error(location, f"{path} is missing, though {TAG_MANIFEST} lists it", "Copy it again.")
        if hashlib.sha256(tags[path]).hexdigest() != digest:
            raise _bundle_error(location, f"{path} has changed since the bundle was made", "Copy it again.")
    for path in sorted(set(tags) - {TAG_MANIFEST, TAG_SIGNATURE} - set(listed)):
        raise _bundle_error(location, f"{path} is not listed in {TAG_MANIFEST}", _DISTRUST)


def _parse_manifest(content: bytes, name: str, location: str) -> dict[str, str]:
    sums: dict[str, str] = {}
    names = PathSet()
    try:
        lines = content.decode().removesuffix("\n").split("\n") if content else []
    except UnicodeDecodeError as exc:
        raise _bundle_error(location, f"{name} is not UTF-8", "Copy it again.") from exc
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise _bundle_error(location, f"line {number} of {name} is not 'sha256  path'", "Copy it again.")
        digest, path = match.groups()
        reason = unsafe_reason(path) or names.add(path)
        if reason:
            raise _bundle_error(location, f"{name} lists the unsafe path {path!r}: {reason}", _DISTRUST)
        sums[path] = digest
    return sums


def _parse_description(content: bytes, location: str) -> dict[str, Any]:
    try:
        bundle_json = json.loads(content)
    except (ValueError, RecursionError) as exc:
        raise _bundle_error(location, f"{BUNDLE_JSON} is not valid JSON: {exc}") from exc
    if not isinstance(bundle_json, dict) or not isinstance(bundle_json.get("format"), int):
        raise _bundle_error(location, f"{BUNDLE_JSON} has no format number")
    if bundle_json["format"] != FORMAT:
        raise BundleError(
            f"{location} has bundle format {bundle_json['format']}, but this version of lbx reads only format "
            f"{FORMAT}.",
            fix="Use the version of lbx that made it.",
        )
    fields = {"name": str, "description": str, "sources": list}
    if not all(isinstance(bundle_json.get(field), kind) for field, kind in fields.items()):
        raise _bundle_error(location, f"{BUNDLE_JSON} lacks name, description or sources")
    if not is_bundle_name(bundle_json["name"]):
        raise _bundle_error(location, f"{BUNDLE_JSON} has the invalid bundle name {bundle_json['name']!r}")
    return bundle_json


def _entries(bundle_json: Mapping[str, Any], sums: Mapping[str, str], location: str) -> dict[str, ManifestEntry]:
    """Build {path: payload file} from bundle.json and the manifest, which must agree on every file."""
    entries: dict[str, ManifestEntry] = {}
    for file in _listed_files(bundle_json, location):
        if file.path in entries or not file.path.startswith(PAYLOAD) or sums.get(file.path) != file.sha256:
            raise _bundle_error(location, f"{BUNDLE_JSON} and {MANIFEST} disagree about {file.path!r}", _DISTRUST)
        entries[file.path] = file
    for path in sorted(set(sums) - set(entries)):
        raise _bundle_error(location, f"{path} does not belong to any source in {BUNDLE_JSON}", _DISTRUST)
    return entries


def _listed_files(bundle_json: Mapping[str, Any], location: str) -> Iterable[ManifestEntry]:
    try:
        for source in bundle_json["sources"]:
            for file in source["files"]:
                path, size, digest = str(file["path"]), file["size"], str(file["sha256"])
                if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                    raise _bundle_error(location, f"{BUNDLE_JSON} has no valid size for {path!r}")
                yield ManifestEntry(path, size, digest)
    except (TypeError, KeyError) as exc:
        raise _bundle_error(location, f"a source in {BUNDLE_JSON} has no valid list of files") from exc


def _check_oxum(info: bytes, entries: Mapping[str, ManifestEntry], location: str) -> None:
    match = _OXUM.search(info.decode("utf-8", "replace"))
    total = sum(entry.size for entry in entries.values())
    if match is None or (int(match[1]), int(match[2])) != (total, len(entries)):
        raise _bundle_error(location, f"the Payload-Oxum of {BAG_INFO} does not match the manifest")


@dataclass(frozen=True)
class Evidence:
    """Base class of results that can be serialized to JSON."""

    def to_json(self) -> str:
        """Serialize all fields to a JSON object, with paths as text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False, default=str)
