"""Recipes: TOML files that say what a bundle snapshots, and at which revision.

    name = "longbench"                      # of the archive: longbench.tar
    description = "what it is for"

    [[source]]                              # files of a Hugging Face dataset or model
    kind = "hub"
    repo = "THUDM/LongBench"
    type = "dataset"                        # or "model"
    revision = "main"                       # branch, tag or commit; "main" when left out
    files = ["data.zip"]                    # glob patterns, "*" also crosses "/"; all files when left out
    allow = ["code.py"]                     # unsafe formats that may travel, each by its name

    [[source]]                              # one file from anywhere, pinned
    kind = "https"
    url = "https://example.org/prompt.txt"
    sha256 = "..."
    to = "example/prompt.txt"               # its place under data/files
    licence = "MIT"

    [[source]]                              # a file or folder of this machine, relative to the recipe
    kind = "path"
    path = "../models/demo/hf"
    to = "models/demo/hf"                   # its place under data/files; or repo and type, to make it a hub snapshot
    files = ["*.json"]

Several recipes make one bundle: sources of one repository at one revision merge, contradictions are refused.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lbx.bundle.names import is_bundle_name, why_unsafe
from lbx.errors import UsageError

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TYPES = ("dataset", "model")


@dataclass(frozen=True, slots=True)
class HubSource:
    """Files of a repository on the Hugging Face hub. ``files`` empty means all of them."""

    repo: str
    type: str
    revision: str = "main"
    files: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _check_repo(self.repo, self.type)
        if reason := why_unsafe(self.revision):
            raise ValueError(f'revision = "{self.revision}" cannot be used: {reason}.')

    @property
    def place(self) -> str:
        """What no two sources of a bundle may share."""
        return f"{self.type} {self.repo}"


@dataclass(frozen=True, slots=True)
class HttpsSource:
    """One file by its address, pinned by its SHA-256; ``to`` is its place under data/files."""

    url: str
    sha256: str
    to: str
    licence: str = ""
    allow: tuple[str, ...] = ()
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme != "https" or not parts.netloc or not parts.path.strip("/"):
            raise ValueError(f'url = "{self.url}" is no https address of a file.')
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError(f'sha256 = "{self.sha256}" is not 64 lower-case hex digits.')
        _check_to(self.to)

    @property
    def place(self) -> str:
        return f"file {self.to}"


@dataclass(frozen=True, slots=True)
class PathSource:
    """A file or folder of this machine. It goes under data/files (``to``) or becomes a hub snapshot (``repo``).

    Attributes:
        path: as the recipe writes it; recorded in the bundle.
        folder: the recipe's own folder, which ``path`` is relative to.
    """

    path: str
    to: str = ""
    repo: str = ""
    type: str = "model"
    files: tuple[str, ...] = ()
    licence: str = ""
    allow: tuple[str, ...] = ()
    folder: Path = field(default=Path(), compare=False)
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if bool(self.to) == bool(self.repo):
            raise ValueError("a path source takes either `to` or `repo`.")
        if self.repo:
            _check_repo(self.repo, self.type)
        else:
            _check_to(self.to)

    @property
    def place(self) -> str:
        return f"{self.type} {self.repo}" if self.repo else f"file {self.to}"

    @property
    def full_path(self) -> Path:
        return (self.folder / self.path).resolve()


Source = HubSource | HttpsSource | PathSource
KINDS: dict[str, type[HubSource] | type[HttpsSource] | type[PathSource]] = {
    "hub": HubSource,
    "https": HttpsSource,
    "path": PathSource,
}
_REQUIRED = {"hub": ("repo", "type"), "https": ("url", "sha256", "to"), "path": ("path",)}
_NOT_IN_TOML = ("origin", "folder")
_LISTS = ("files", "allow")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one bundle holds: a name, a description, and the sources in the order of the recipes."""

    name: str
    description: str
    sources: tuple[Source, ...]


def load_recipes(paths: Sequence[Path], name: str | None = None) -> Recipe:
    """Read recipes and make one of them.

    Args:
        paths: TOML files; several are merged, and the bundle is named after them, joined by "+".
        name: of the bundle instead.

    Raises:
        UsageError: a file is missing or no valid recipe, or two recipes contradict each other.
    """
    if not paths:
        raise UsageError("No recipe was given.", command="lbx bundle bundle/longbench.toml -o DIR")
    recipes = [_load(path) for path in dict.fromkeys(paths)]
    name = name or "+".join(dict.fromkeys(recipe.name for recipe in recipes))
    if not is_bundle_name(name):
        raise UsageError(
            f"A bundle cannot be named {name!r}.", fix="Use at most 100 letters, digits and . _ + - (--name)."
        )
    description = "\n".join(dict.fromkeys(recipe.description for recipe in recipes if recipe.description))
    return Recipe(name, description, _merge(source for recipe in recipes for source in recipe.sources))


def _load(path: Path) -> Recipe:
    table = _read_toml(path)
    _check_keys(table, {"name": str, "description": str, "source": list}, ("name", "source"), f"{path}")
    if not is_bundle_name(table["name"]):
        raise UsageError(
            f"{path}: name = {table['name']!r} cannot name a bundle.", fix="Use letters, digits and . _ + -"
        )
    if not table["source"]:
        raise UsageError(f"{path} has no [[source]].", fix="A recipe lists at least one.")
    sources = tuple(_source(entry, path, number) for number, entry in enumerate(table["source"], 1))
    return Recipe(table["name"], table.get("description", ""), sources)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as exc:
        others = sorted(p.name for p in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, others, n=1) or difflib.get_close_matches(
            f"{path.name}.toml", others
        )
        fix = f"Did you mean {path.parent / close[0]}?" if close else f"Recipes there: {', '.join(others) or 'none'}."
        raise UsageError(f"There is no recipe {path}.", fix=fix) from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(
            f"The recipe {path} cannot be read: {exc}.", fix="Give a TOML file such as bundle/demo.toml."
        ) from exc
    except tomllib.TOMLDecodeError as exc:
        raise UsageError(f"The recipe {path} is not valid TOML: {exc}.") from exc


def _source(entry: Any, path: Path, number: int) -> Source:
    where = f"{path}, [[source]] number {number}"
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is not a table.", fix="Write [[source]], then one key a line.")
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        found = "has no kind" if kind is None else f"has the unknown kind {kind!r}"
        raise UsageError(f"{where} {found}.", fix=_did_you_mean(str(kind), KINDS))
    keys = {f.name: list if f.name in _LISTS else str for f in fields(KINDS[kind]) if f.name not in _NOT_IN_TOML}
    _check_keys(entry, {"kind": str, **keys}, _REQUIRED[kind], where)
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items() if k != "kind"}
    if kind == "path":
        values["folder"] = path.parent
    make: Callable[..., Source] = KINDS[kind]
    try:
        return make(**values, origin=where)
    except ValueError as exc:
        raise UsageError(f"{where}: {exc}") from exc


def _check_keys(table: Mapping[str, Any], known: Mapping[str, type], required: Iterable[str], where: str) -> None:
    for key, value in table.items():
        if key not in known:
            raise UsageError(f'{where} has an unknown key "{key}".', fix=_did_you_mean(key, known))
        if not isinstance(value, known[key]):
            wanted = "a list" if known[key] is list else "a string"
            raise UsageError(f"{where}: {key} = {value!r} must be {wanted}.")
        if key in _LISTS and not _is_list_of_names(value):
            raise UsageError(f"{where}: {key} = {value!r} must be a list of at least one name.")
        if value == "" and key != "description":
            raise UsageError(f"{where}: {key} is empty.", fix="Fill it in or leave it out.")
    for key in required:
        if key not in table:
            raise UsageError(f'{where} has no "{key}".', fix=f"It needs: {', '.join(required)}.")


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) and item for item in value)


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.5)
    return f'Did you mean "{close[0]}"?' if close else f"Known: {', '.join(known)}."


def _check_repo(repo: str, kind: str) -> None:
    if kind not in _TYPES:
        raise ValueError(f'type = "{kind}" is neither "dataset" nor "model".')
    if not _REPO.fullmatch(repo) or "--" in repo or ".." in repo or len(repo) > 96:
        raise ValueError(f'repo = "{repo}" is no repository name such as "THUDM/LongBench".')


def _check_to(to: str) -> None:
    if reason := why_unsafe(to):
        raise ValueError(f'to = "{to}" cannot be a place in the bundle: {reason}.')


def _merge(sources: Iterable[Source]) -> tuple[Source, ...]:
    merged: dict[str, Source] = {}
    for source in sources:
        before = merged.get(source.place)
        merged[source.place] = source if before is None else _merge_two(before, source)
    return tuple(merged.values())


def _merge_two(a: Source, b: Source) -> Source:
    """One source of two for the same place; they may differ in what they allow, and hub sources in their patterns."""
    allow = tuple(dict.fromkeys(a.allow + b.allow))
    if isinstance(a, HubSource) and isinstance(b, HubSource) and a.revision == b.revision:
        files = tuple(dict.fromkeys(a.files + b.files)) if a.files and b.files else ()
        return replace(a, files=files, allow=allow)
    if isinstance(a, HttpsSource) and isinstance(b, HttpsSource) and replace(a, allow=()) == replace(b, allow=()):
        return replace(a, allow=allow)
    if isinstance(a, PathSource) and isinstance(b, PathSource) and _same_path(a, b):
        return replace(a, allow=allow)
    raise UsageError(
        f"{a.origin}, and {b.origin}, contradict each other about the {a.place}.",
        fix="Make both the same, or bundle them apart.",
    )


def _same_path(a: PathSource, b: PathSource) -> bool:
    return a.full_path == b.full_path and (a.files, a.licence) == (b.files, b.licence)
