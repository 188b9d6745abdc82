"""Find cards and model files without loading any."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from lbx.base.errors import BackendError, UsageError
from lbx.base.layout import FILES, HUB, Bundle
from lbx.base.tables import read_table

CARDS = Path("models")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_REPO = "models--"
_MODEL_FILES = (".safetensors", ".json", ".jinja", ".model", ".txt")


def paths_by_name(bundle: Bundle | None = None) -> dict[str, Path]:
    """{name for ``--model``: card, file or folder} in models/, in the bundle's folder (or here), and in the bundle."""
    folder = bundle.root.parent if bundle is not None else Path()
    paths = dict(_in_folder(CARDS, cards_only=False)) | dict(_in_folder(folder, cards_only=True))
    return paths | dict(_in_bundle(bundle)) if bundle is not None else paths


def _in_folder(folder: Path, *, cards_only: bool) -> Iterator[tuple[str, Path]]:
    """Yield the models of a folder.

    The bundle's folder may contain any files: a TOML file without a backend is no card there.
    """
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.suffix == ".toml":
            if not cards_only or is_card(path):
                yield (path.stem if folder == CARDS else str(path)), path
        elif is_first_gguf(path) or has_weights(path):
            yield str(path), path


def _in_bundle(bundle: Bundle) -> Iterator[tuple[str, Path]]:
    hub = bundle.root / HUB
    for folder in sorted(hub.glob("models--*--*")):
        repo = _repo(folder)
        if snapshot := bundle.snapshot("model", repo):
            yield repo, snapshot
    for path in sorted((bundle.root / FILES).rglob("*")):
        if is_first_gguf(path) or path.name == "config.json":
            model_path = path.parent if path.name == "config.json" else path
            yield str(model_path), model_path


def is_card(path: Path) -> bool:
    """Whether a TOML file names a backend; recipes and other files do not."""
    try:
        return "backend" in read_table(path)[0]
    except UsageError:
        return False


def has_weights(folder: Path) -> bool:
    """Whether a folder has a model; the folder of cards and all models does not count."""
    if folder.name == CARDS.name:
        return False
    return os.path.lexists(folder / "config.json") or any(folder.glob("*.gguf"))


def model_name(path: Path) -> str:
    """Name of weights without a card; in a hub cache, where folders are named by commits, the repository's name."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 (a link keeps its own name)
    if path.parent.name == "snapshots" and path.parents[1].name.startswith(_REPO):
        return _repo(path.parents[1])
    return path.name if path.is_dir() else path.stem


def _repo(folder: Path) -> str:
    return folder.name.removeprefix(_REPO).replace("--", "/", 1)


def refuse_broken_links(model_path: Path) -> None:
    """Raise BackendError if a model file, or a file in the model folder, is a broken link."""
    for path in sorted(model_path.iterdir()) if model_path.is_dir() else [model_path]:
        if path.is_symlink() and not path.exists() and path.suffix in (*_MODEL_FILES, ".gguf"):
            raise BackendError(
                f"{path} is a link to {path.readlink()}, which does not exist.",
                fix="A cache of the hub has its files in blobs/: copy a snapshot with cp -rL, which follows links.",
            )


def shards(path: Path) -> list[Path]:
    """All files of a GGUF model, given its first one.

    Raises:
        BackendError: a part of a split model is missing, or the given file is not the first one.
    """
    match = _SHARD.search(path.name)
    if match is None:
        return [path]
    stem, total = path.name[: match.start()], int(match[2])
    parts = [path.with_name(f"{stem}-{n:05d}-of-{total:05d}.gguf") for n in range(1, total + 1)]
    if path != parts[0]:
        raise BackendError(
            f"{path} is part {int(match[1])} of {total} of a model.", fix=f"Use its first part: {parts[0]}."
        )
    for part in parts:
        if not part.is_file():
            raise BackendError(f"A part of the model is missing: {part}.", fix="Put all parts into one folder.")
    return parts


def is_first_gguf(path: Path) -> bool:
    """Whether this is the first file of a GGUF model, which may be split."""
    part = _SHARD.search(path.name)
    return path.suffix == ".gguf" and (part is None or int(part[1]) == 1)


def model_files(path: Path) -> list[Path]:
    """Files of a model folder or of a GGUF model, given its first one.

    Raises:
        BackendError: a part of a split model is missing, or one is a pipe, a device or a broken link: a library would
            wait for it.
    """
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix in _MODEL_FILES and not p.is_dir())
    else:
        files = shards(path)
    for file in files:
        if not file.is_file():
            raise BackendError(f"{file} is not a regular file.", fix="Replace it with the model's file.")
    return files
