"""Recipes: TOML files that list the sources of a bundle and their revisions.

    name = "longbench"                      # name of the archive: longbench.tar
    description = "purpose of the bundle"

    [[source]]                              # files of a Hugging Face dataset or model
    kind = "hub"
    repo = "THUDM/LongBench"
    type = "dataset"                        # or "model"
    revision = "main"                       # branch, tag or commit; default "main"
    files = ["data.zip"]                    # glob patterns, "*" also matches "/"; default: all files
    optional = ["LICENSE*"]                 # patterns that need not match
    licence = "MIT"                         # used if the hub states none
    allow = ["code.py"]                     # allowed files of unsafe formats, by name

    [[source]]                              # a file at any https address, pinned by its SHA-256
    kind = "https"
    url = "https://example.org/prompt.txt"
    sha256 = "..."
    to = "example/prompt.txt"               # path under data/files
    licence = "MIT"

    [[source]]                              # a file or folder of this machine, relative to the recipe
    kind = "path"
    path = "../models/demo/hf"
    to = "models/demo/hf"                   # path under data/files; or repo and type, to make it a hub snapshot
    files = ["*.json"]

Several recipes make one bundle: sources with the same repository and revision are merged, contradictions are refused.
A model card (``lbx.backends.cards``) is a recipe for the repository of its weights; a custom benchmark
(``lbx.benchmarks.own.definition``) is a recipe for its definition and its data.

Sources are validated on construction.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from lbx.backends.cards import ModelCard, parse_card
from lbx.base.errors import UsageError
from lbx.base.inputs import open_input
from lbx.base.tables import check_table, check_texts, read_table, suggest_names
from lbx.base.visible import as_command
from lbx.benchmarks.own.benchmark import FOLDER as OWN_FOLDER
from lbx.benchmarks.own.benchmark import read_for_bundle
from lbx.benchmarks.own.definition import FILE as OWN_FILE
from lbx.benchmarks.registry import reserved_names
from lbx.bundle.names import is_bundle_name, unsafe_format, unsafe_reason

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TYPES = ("dataset", "model")
_INDEX_LIMIT = 4 << 20
_IMAGE_NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, slots=True)
class HubSource:
    """Source: files of a repository on the Hugging Face hub.

    Attributes:
        repo: name of the repository, such as "THUDM/LongBench".
        type: "dataset" or "model".
        revision: branch, tag or commit.
        files: glob patterns that must each match a file; "*" also matches "/". If ``files`` and ``optional`` are
            empty, all files are taken.
        optional: patterns that need not match.
        licence: licence if the hub does not state it.
        allow: names or paths of files of unsafe formats, such as code and pickles, that the bundle may contain.
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
    """File at an https address, pinned by its SHA-256.

    Attributes:
        url: address of the file.
        sha256: hash of the file, 64 lower-case hex digits.
        to: path of the file under data/files.
        licence: licence of the file.
        allow: name of the file, if its format is unsafe.
    """

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
    """Source: local file or folder, placed under data/files (``to``) or packed as a hub snapshot (``repo``).

    Attributes:
        path: file or folder of this machine, relative to the recipe; recorded in the bundle.
        to: path under data/files; this or ``repo`` is required.
        repo: name of the hub repository that the folder becomes a snapshot of.
        type: "dataset" or "model", with ``repo``.
        files: glob patterns of the files to take; all files if empty.
        licence: licence of the files.
        allow: names or paths of files of unsafe formats that the bundle may contain.
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
    """Source: container image saved as an OCI archive, placed under data/images."""

    path: Path
    allow: tuple[str, ...] = ()
    origin: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if reason := unsafe_reason(self.path.name):
            raise ValueError(f"{self.path} does not have a valid name for an image: {reason}.")

    @property
    def key(self) -> str:
        return f"image {self.path.name}"


BundleSource = HubSource | HttpsSource | PathSource | ImageSource
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


def list_images(path: Path) -> list[dict[str, str]]:
    """List the images of an OCI archive, reading only the small index files into memory.

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


REQUIRED = {"hub": ("repo", "type"), "https": ("url", "sha256", "to"), "path": ("path",)}
NOT_IN_TOML = ("origin", "folder", "names")
_LISTS = ("files", "optional", "allow")
_MODEL_FILES = ("*.json", "*.jinja", "*.model", "*.txt", "LICENSE*")
_OUTSIDE_NAMES = re.compile(r"[^A-Za-z0-9._+-]+")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Name, description and sources of a bundle. The sources are in the order of the recipes."""

    name: str
    description: str
    sources: tuple[BundleSource, ...]


def load_recipes(paths: Sequence[Path], name: str | None = None) -> Recipe:
    """Load recipes from files, and merge them.

    Args:
        paths: recipes or model cards (TOML).
        name: name of the bundle; by default the names of the recipes, joined by "+".

    Raises:
        UsageError: a file is missing or not a valid recipe, or two recipes contradict each other.
    """
    if not paths:
        raise UsageError("No recipe given.", command="lbx bundle bundle/longbench.toml -o DIR")
    return join([_load(path) for path in dict.fromkeys(paths)], name)


def join(recipes: Sequence[Recipe], name: str | None = None) -> Recipe:
    """Merge recipes into the recipe of one bundle.

    Raises:
        UsageError: two recipes contradict each other, or the name is not valid for a bundle.
    """
    name = name or "+".join(dict.fromkeys(recipe.name for recipe in recipes))
    if not is_bundle_name(name):
        raise UsageError(
            f"{name!r} is not a valid bundle name.",
            fix="Pass --bundle-name with at most 100 letters, digits and . _ + -.",
        )
    description = "\n".join(dict.fromkeys(recipe.description for recipe in recipes if recipe.description))
    merged: dict[str, BundleSource] = {}
    for source in (source for recipe in recipes for source in recipe.sources):
        before = merged.get(source.key)
        merged[source.key] = source if before is None else _merge_two(before, source)
    return Recipe(name, description, tuple(merged.values()))


def _load(path: Path) -> Recipe:
    if not path.exists():
        siblings = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        raise UsageError(
            f"Recipe {path} does not exist.", fix=suggest_names(path.name, siblings) or "Give a TOML file."
        )
    table = read_table(path, "The recipe")[0]
    if "source" not in table and "backend" in table:
        return _recipe_of_card(parse_card(table, path), path)
    if "source" not in table and "task" in table:
        return _recipe_of_benchmark(path)
    return parse_recipe(table, path)


def parse_recipe(table: Mapping[str, Any], path: Path) -> Recipe:
    """Parse the table of a recipe.

    Args:
        path: file of the table, for messages and relative paths.

    Raises:
        UsageError: a key is missing, unknown or wrong; names the file, the source and the key.
    """
    _check(table, {"name": str, "description": str, "source": list}, ("name", "source"), f"{path}:")
    if not is_bundle_name(table["name"]):
        raise UsageError(
            f"{path}: name = {table['name']!r} is not a valid bundle name.", fix="Use letters, digits and . _ + -"
        )
    if not table["source"]:
        raise UsageError(f"{path} has no [[source]].", fix="Add at least one.")
    sources = tuple(_parse_source(entry, path, number) for number, entry in enumerate(table["source"], 1))
    return Recipe(table["name"], table.get("description", ""), sources)


def _recipe_of_card(card: ModelCard, path: Path) -> Recipe:
    """Make the recipe of a model card: GGUF files, safetensors with accompanying files, or a tokenizer."""
    weights, location = card.weights, f"{path}, [{'tokenizer' if card.backend == 'endpoint' else 'weights'}]"
    if not weights.repo:
        raise UsageError(
            f"{location} does not name a hub repository, so lbx cannot download its files.",
            fix='Add repo = "org/name", or write a recipe with kind = "path" for files on this machine.',
        )
    files: tuple[str, ...]
    optional: tuple[str, ...] = _MODEL_FILES
    if card.kind.gguf or weights.file:
        files, optional = (weights.file or "*.gguf",), ("LICENSE*",)
    else:
        files = ("tokenizer*",)
        if card.backend != "endpoint":
            files = ("*.safetensors", "config.json")
    name = _OUTSIDE_NAMES.sub("-", card.name).strip("-._+")[:100] or "model"
    try:
        source = HubSource(
            weights.repo, "model", weights.revision or "main", files=files, optional=optional, origin=location
        )
    except ValueError as exc:
        raise UsageError(f"{location}: {exc}", fix="Correct the card's repo or revision.") from exc
    return Recipe(name, f"The model {card.name}", (source,))


def _recipe_of_benchmark(path: Path) -> Recipe:
    """Make the recipe of a custom benchmark from its definition, after checking every line of the data."""
    definition, data, documents = read_for_bundle(path, reserved_names())
    folder = f"{OWN_FOLDER}/{definition.name}"
    targets = {path.name: f"{folder}/{OWN_FILE}", **{name: f"{folder}/{name}" for name in data}}
    make = partial(PathSource, licence=definition.licence, folder=path.parent)
    try:
        sources = [make(name, to, origin=f"{path}, {name}") for name, to in targets.items()]
    except ValueError as exc:
        raise UsageError(f"{path}: {exc}", fix="Rename the file.") from exc
    for name in documents:
        if kind := unsafe_format(name):
            raise UsageError(
                f"{path}: no bundle can have the document {name}: by its name, it is {kind}.",
                fix=f"Rename it to {PurePosixPath(name).name}.txt, in the data, too.",
            )
    if documents:
        sources.append(make(".", folder, names=tuple(documents), origin=f"{path}, its documents"))
    return Recipe(definition.name, f"The benchmark {definition.name}", tuple(sources))


def _parse_source(entry: Any, path: Path, number: int) -> BundleSource:
    location = f"{path}, [[source]] number {number}"
    if not isinstance(entry, dict):
        raise UsageError(f"{location} is not a table.", fix="Write [[source]], then one key per line.")
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        problem = "has no kind" if kind is None else f"has the unknown kind {kind!r}"
        raise UsageError(f"{location} {problem}.", fix=suggest_names(str(kind), KINDS))
    keys = {f.name: list if f.name in _LISTS else str for f in fields(KINDS[kind]) if f.name not in NOT_IN_TOML}
    _check(entry, {"kind": str, **keys}, REQUIRED[kind], f"{location}:")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items() if k != "kind"}
    if kind == "path":
        values["folder"] = path.parent
    make: Callable[..., BundleSource] = KINDS[kind]
    try:
        return make(**values, origin=location)
    except ValueError as exc:
        raise UsageError(f"{location}: {exc}", fix="docs/bundling.md describes the keys of a source.") from exc


def _check(table: Mapping[str, Any], types: Mapping[str, type], required_keys: Collection[str], location: str) -> None:
    check_table(table, types, location, required_keys)
    for key, value in table.items():
        if key in _LISTS and not all(check_texts(value, f"{location} {key}") or [""]):
            raise UsageError(f"{location} {key} = {value!r} must be a list with at least one name.")
        if value == "" and key != "description":
            raise UsageError(f"{location} {key} is empty.", fix="Set it or omit it.")


def _merge_two(a: BundleSource, b: BundleSource) -> BundleSource:
    """Merge two sources with the same ``key``, which may differ in ``allow`` and, for hub sources, in the patterns."""
    allow = tuple(dict.fromkeys(a.allow + b.allow))
    if isinstance(a, HubSource) and isinstance(b, HubSource) and a.revision == b.revision:
        every = not (a.files or a.optional) or not (b.files or b.optional)
        files = () if every else tuple(dict.fromkeys(a.files + b.files))
        optional = () if every else tuple(dict.fromkeys(a.optional + b.optional))
        return replace(a, files=files, optional=optional, licence=a.licence or b.licence, allow=allow)
    if isinstance(a, HttpsSource) and isinstance(b, HttpsSource) and replace(a, allow=()) == replace(b, allow=()):
        return replace(a, allow=allow)
    if (
        isinstance(a, PathSource)
        and isinstance(b, PathSource)
        and a.full_path == b.full_path
        and (a.files, a.names, a.licence) == (b.files, b.names, b.licence)
    ):
        return replace(a, allow=allow)
    raise UsageError(
        f"{a.origin}, and {b.origin}, contradict each other: they define the {a.key} differently.",
        fix="Make both equal, or make a separate bundle for each.",
    )
