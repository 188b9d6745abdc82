"""Requests from an air-gapped machine: a small file that lists the wanted sources and the bundle already present.

    inside      lbx bundle RECIPE... --have DIR --request wanted.json      no network; reads the unpacked bundle
    outside     lbx bundle wanted.json -o out                              answers with a delta
    inside      lbx unpack NAME.tar --to NEW --base DIR

The file contains only names, sizes and hashes, so that a reviewer at the gap can read all of it. A request may list
only hub and https sources to fetch: it must not be able to ask for files of the machine that answers it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.inputs import read_input
from lbx.base.outputs import write_file
from lbx.bundle.bag import Evidence
from lbx.bundle.making.delta import BaseBundle, parse_base, read_base
from lbx.bundle.making.outline import label
from lbx.bundle.making.recipe import (
    BaseSource,
    BundleSource,
    HttpsSource,
    HubSource,
    PathSource,
    Recipe,
    join,
    load_recipes,
    parse_recipe,
)

_FORMAT, _VERSION = "lbx-request", 1
_LIMIT = 512 << 20
_KINDS: dict[type[BundleSource], str] = {HubSource: "hub", HttpsSource: "https"}


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """Source in a request.

    Attributes:
        source: label, as in an outline.
        state: "missing"; "held": the base has it and it cannot change; "held, may have moved": the base has a commit
            of the requested branch or tag; "partly held": the base has the repository at another revision, or other
            files from it.
        revision: requested revision of a hub source, or "".
        held_commit: commit in the base, or "".
    """

    source: str
    state: str
    revision: str
    held_commit: str


@dataclass(frozen=True)
class RequestResult(Evidence):
    """State of the sources in a written request.

    Attributes:
        base: name of the bundle already present, or "".
        base_digest: its digest, or "".
        asked: state of each source.
    """

    file: Path
    name: str
    base: str
    base_digest: str
    asked: Sequence[SourceRequest]


def write_request(
    paths: Sequence[Path], file: Path, *, name: str | None = None, have: Path | None = None
) -> RequestResult:
    """Write a request with the sources of the recipes and the contents of a bundle already present. Uses no network.

    Args:
        paths: recipes or model cards.
        file: the request, ending in .json.
        name: name of the bundle to be made; the joined names of the recipes by default.
        have: folder, archive or bundle.json of the bundle already present, if any.

    Raises:
        UsageError: a recipe or the base cannot be read, the base has every source, or a local file is not in the base.
    """
    if file.suffix != ".json":
        raise UsageError(
            f"A request must be a .json file, not {file}.", fix=f"Name it {file.with_suffix('.json').name}."
        )
    recipe, base = load_recipes(paths, name), read_base(have) if have else None
    sources = [_replace_local(source, base) for source in recipe.sources]
    sources_asked = [_source_state(source, base) for source in sources]
    if all(line.state == "held" for line in sources_asked):
        raise UsageError(f"No request is needed: {have} already contains every source.", fix="Use that bundle.")
    base_records = [dict(source.record) for source in sources if isinstance(source, BaseSource)]
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "name": recipe.name,
        "description": recipe.description,
        "source": [_table(source) for source in sources if not isinstance(source, BaseSource)],
        "keep": base_records,
        "base": {"name": base.name, "digest": base.digest, "sources": _lists(base)} if base else None,
    }
    _write(file, json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    return RequestResult(file, recipe.name, base.name if base else "", base.digest if base else "", sources_asked)


def read_inputs(paths: Sequence[Path], name: str | None = None) -> tuple[Recipe, BaseBundle | None]:
    """Read the inputs of ``lbx bundle``: recipes and model cards, or one request with its base.

    Raises:
        UsageError: a file is missing or invalid, or a request is combined with other files.
    """
    requests = [path for path in paths if path.suffix == ".json"]
    if not requests:
        return load_recipes(paths, name), None
    if len(paths) > 1:
        raise UsageError(
            f"{requests[0]} is a request, and lbx answers only one request at a time, without other files.",
            fix="Pass only this file; the author of the request can add recipes to it.",
        )
    recipe, base = read_request(requests[0])
    return join([recipe], name), base


def read_request(file: Path) -> tuple[Recipe, BaseBundle | None]:
    """Read the sources of a request and the base bundle of its author.

    Raises:
        UsageError: the file cannot be read, is not a request, or asks for files of this machine.
    """
    table = _read_json(file)
    recipe_table = {key: table[key] for key in ("name", "description", "source") if key in table}
    entries = recipe_table.get("source")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("kind") not in _KINDS.values():
            raise UsageError(
                f"{file} asks for a source of kind {entry.get('kind')!r}; a request may contain only hub and https.",
                fix="Do not answer it until you know its author.",
            )
    recipe = parse_recipe(recipe_table, file)
    base = table.get("base")
    base_bundle = None
    if base is not None:
        base = base if isinstance(base, dict) else {}
        base_bundle = parse_base(base.get("name"), base.get("digest"), base.get("sources"), f"{file}: base")
    return replace(
        recipe, sources=(*recipe.sources, *_base_sources(table.get("keep", []), base_bundle, file))
    ), base_bundle


def _replace_local(source: BundleSource, base: BaseBundle | None) -> BundleSource:
    """Replace a local source by the base's copy, because the answering machine does not have the file."""
    if not isinstance(source, PathSource):
        return source
    for record in base.sources if base else ():
        if record.get("kind") == "path" and label(record) in (source.to, f"{source.type} {source.repo}"):
            return BaseSource(record, tuple(record.get("allowed", ())), source.origin)
    raise UsageError(
        f"{source.origin} is a local file ({source.path}), which the other side cannot provide.",
        fix="Omit it from the request, and bundle it on this machine with a separate recipe.",
    )


def _source_state(source: BundleSource, base: BaseBundle | None) -> SourceRequest:
    if isinstance(source, BaseSource):
        return SourceRequest(label(source.record), "held", "", "")
    if isinstance(source, HttpsSource):
        in_base = base is not None and base.find("sha256", source.sha256, None, "") is not None
        return SourceRequest(source.to, "held" if in_base else "missing", "", "")
    assert isinstance(source, HubSource)
    records = [
        record
        for record in (base.sources if base else ())
        if record.get("kind") == "hub" and (record.get("type"), record.get("repo")) == (source.type, source.repo)
    ]
    if not records:
        return SourceRequest(source.key, "missing", source.revision, "")
    record, commit = records[0], str(records[0].get("commit", ""))
    patterns = {*source.files, *source.optional}
    same_files = patterns <= set(record.get("patterns", ())) if patterns else not record.get("patterns")
    if same_files and source.revision == commit:
        return SourceRequest(source.key, "held", source.revision, commit)
    same = same_files and source.revision == record.get("revision")
    return SourceRequest(source.key, "held, may have moved" if same else "partly held", source.revision, commit)


def _table(source: BundleSource) -> dict[str, Any]:
    """Convert a hub or https source to a table of a recipe."""
    values = {f.name: getattr(source, f.name) for f in fields(source) if f.name != "origin"}
    return {"kind": _KINDS[type(source)]} | {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items() if value
    }


def _lists(base: BaseBundle) -> list[dict[str, Any]]:
    """Return the parts of the base's description that a delta needs: its files and the allowed unsafe files."""
    return [{"files": list(source["files"]), "allowed": list(source.get("allowed", ()))} for source in base.sources]


def _base_sources(records: object, base: BaseBundle | None, file: Path) -> Iterable[BaseSource]:
    """Yield the sources that only the base has, after checking that it lists all their files."""
    base_files = {(entry.path, entry.size, entry.sha256) for entry in base.files} if base else set()
    entries: list[Any] = records if isinstance(records, list) else [None]
    for record in entries:
        try:
            files = {(entry["path"], entry["size"], entry["sha256"]) for entry in record["files"]}
            if record["kind"] != "path" or not files <= base_files:
                raise ValueError("the base bundle does not contain it")  # noqa: TRY301
            label(record)
            yield BaseSource(record, tuple(record.get("allowed", ())), f"{file}, keep")
        except (TypeError, KeyError, ValueError, AttributeError) as exc:
            raise UsageError(
                f"{file}: a source under `keep` is not valid ({exc}).", fix="Create the request again."
            ) from exc


def _read_json(file: Path) -> Mapping[str, Any]:
    try:
        table = json.loads(read_input(file, _LIMIT))
        if not isinstance(table, dict) or table.get("format") != _FORMAT:
            raise ValueError(f"its format is not {_FORMAT}")  # noqa: TRY301
    except (OSError, ValueError, RecursionError) as exc:
        raise UsageError(
            f"{file} is not a request: {exc}.", fix="Create one on the air-gapped machine.",
            command="lbx bundle RECIPE... --have DIR --request wanted.json",
        ) from exc  # fmt: skip
    if table.get("version") != _VERSION:
        raise UsageError(
            f"{file} is a request of version {table.get('version')!r}, but this lbx answers only version {_VERSION}.",
            fix="Use the version of lbx that made the request.",
        )
    return table


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, text, sync=True)
    except OSError as exc:
        raise UsageError(f"Cannot write the request {file}: {exc.strerror}.", fix="Choose another path.") from exc
