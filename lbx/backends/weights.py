"""Resolve the user's model name to a card, and a card to files on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path

from lbx.backends.cards import ModelCard, Weights, read_card
from lbx.backends.kinds import KINDS, OPTIONS, suggest_backend
from lbx.backends.options import MOST_THREADS
from lbx.backends.places import (
    CARDS,
    has_weights,
    is_card,
    is_first_gguf,
    model_name,
    paths_by_name,
    refuse_broken_links,
)
from lbx.base.commands import as_command
from lbx.base.errors import BackendError, UsageError
from lbx.base.inputs import expand_user
from lbx.base.layout import Bundle
from lbx.base.tables import nearest

_FILES = (".toml", ".gguf", ".jsonl", ".json")
BackendDetector = Callable[[Path], str]


def resolve_model(
    text: str,
    *,
    backend: str | None = None,
    bundle: Bundle | None = None,
    threads: int | None = None,
    context_window: int | None = None,
) -> ModelCard:
    """Resolve the model that ``--model`` names.

    Args:
        text: a card (NAME.toml, or NAME of models/NAME.toml), a .gguf file, a folder with config.json, a table of
            answers (.jsonl or .json), or "org/name" of a model repository in the bundle.
        backend: value of ``--backend``, or None; it must agree.
        threads: value of ``--threads``, which replaces the card's; None keeps the card's.
        context_window: value of ``--context-window``, which replaces the card's. ``window_of`` checks either.

    Raises:
        UsageError: no model has this name, it is not for that backend, it is an embedding model, or threads are given
            and the model computes outside this process.
    """
    if backend is not None and backend not in OPTIONS:
        raise UsageError(f"Unknown backend {backend!r}.", fix=suggest_backend(backend, OPTIONS))
    card = _find(text, bundle, _generation_backend)
    refuse_embedding(card)
    if backend is not None and card.backend != backend:
        raise UsageError(
            f"The model {text} runs with the backend {card.backend}, not {backend}.",
            fix="Remove --backend, or pass weights or a card for that backend.",
        )
    return _with_threads(replace(card, context_window=context_window or card.context_window), threads)


def resolve_embedder(text: str, *, bundle: Bundle | None = None, threads: int | None = None) -> ModelCard:
    """Resolve the name of an embedding model.

    Args:
        text: a card (NAME.toml, or NAME of models/NAME.toml), a .gguf file, a folder with config.json, or "org/name" of
            a model repository in the bundle.
        threads: see ``resolve_model``.

    Raises:
        UsageError: no model has this name, or it is a text-generating model.
    """
    card = _find(text, bundle, _embedding_backend)
    refuse_generation(card)
    return card if card.kind.remote else _with_threads(card, threads)


def full_path(model: str) -> str:
    """Full path of the card, file or folder that ``resolve_model`` finds for a name; the name itself if none exists."""
    path, card = expand_user(Path(model)), CARDS / f"{model}.toml"
    path_given = card if "/" not in model and card.is_file() and path.suffix != ".toml" else path
    return str(path_given.absolute()) if path_given.exists() else model


def _with_threads(card: ModelCard, threads: int | None) -> ModelCard:
    if threads is None:
        return card
    if threads > MOST_THREADS:
        raise UsageError(
            f"--threads {threads} is too high: llama.cpp allows at most {MOST_THREADS}.", fix="Pass fewer."
        )
    if "threads" not in {field.name for field in fields(card.options)}:
        raise UsageError(
            f"--threads does not apply to {card.name}: its backend {card.backend} does not compute in this process.",
            fix="Remove --threads.",
        )
    return replace(card, options=replace(card.options, **{"threads": threads}))


def refuse_embedding(card: ModelCard) -> None:
    """Raise UsageError for the card of an embedding model."""
    if card.embeds:
        raise UsageError(
            f"{card.name} is an embedding model (backend = {card.backend!r}): it cannot generate text.",
            fix="Pass a model with backend llamacpp or hf; embedding models compare summaries and retrieve chunks.",
        )


def refuse_generation(card: ModelCard) -> None:
    """Raise UsageError for the card of a text-generating model."""
    if not card.embeds:
        other = "llamacpp_embedding" if card.kind.gguf else "sentence_transformers"
        raise UsageError(
            f"{card.name} is not an embedding model (backend = {card.backend!r}).",
            fix=f"Pass an embedding model, with backend = {other!r} in its card.",
        )


def _find(text: str, bundle: Bundle | None, detector: BackendDetector) -> ModelCard:
    path = expand_user(Path(text))
    if path.suffix == ".toml" and path.is_file():
        return read_card(path)
    card_path = CARDS / f"{text}.toml"
    if "/" not in text and card_path.is_file():
        return read_card(card_path)
    if os.path.lexists(path):
        refuse_broken_links(path)
        return _card_without_file(model_name(path), Weights(path=path), path, detector)
    if bundle is not None and text.count("/") == 1:
        snapshot = bundle.snapshot("model", text)
        if snapshot is not None:
            return _card_without_file(text, Weights(repo=text), snapshot, detector)
    raise _not_found_error(text, bundle)


def _card_without_file(name: str, weights: Weights, path: Path, detector: BackendDetector) -> ModelCard:
    """Build a card for weights without one; the backend follows from the files."""
    backend = detector(path)
    options = KINDS[backend].options()
    return ModelCard(name=name, backend=backend, weights=weights, options=options)


def _generation_backend(path: Path) -> str:
    if path.is_dir():
        return _folder_backend(path, "hf", "llamacpp")
    backend = {".gguf": "llamacpp", ".jsonl": "scripted", ".json": "scripted"}.get(path.suffix, "")
    if not backend:
        raise UsageError(
            f"{path} is not a model that lbx can run.",
            fix="Pass a model card (.toml), a .gguf file, a folder with config.json, or a table of answers (.jsonl).",
        )
    return backend


def _embedding_backend(path: Path) -> str:
    if path.is_dir():
        return _folder_backend(path, "sentence_transformers", "llamacpp_embedding")
    if path.suffix != ".gguf":
        raise UsageError(
            f"{path} is not an embedding model that lbx can run.",
            fix="Pass a model card (.toml), a .gguf file, or a folder with config.json.",
        )
    return "llamacpp_embedding"


def _folder_backend(folder: Path, hugging_face: str, gguf: str) -> str:
    if (folder / "config.json").is_file():
        return hugging_face
    if any(folder.glob("*.gguf")):
        return gguf
    snapshots = " or ".join(map(str, sorted(folder.glob("snapshots/*"))))
    raise UsageError(
        f"The folder {folder} contains no model: neither config.json nor a .gguf file.",
        fix=f"Pass one of its snapshots: {snapshots}."
        if snapshots
        else "Pass the folder with config.json and the .safetensors files, or a .gguf file.",
    )


def _not_found_error(text: str, bundle: Bundle | None) -> UsageError:
    path = expand_user(Path(text))
    a_file = path.suffix in _FILES
    if "/" in text or a_file:
        cause = f"The file {text} does not exist"
        if bundle is not None and text.count("/") == 1 and not a_file:
            cause += ", and the bundle has no repository with this name"
    else:
        cause = f"Model {text} not found: no file or folder has this name, and {CARDS / text}.toml does not exist"
    names = {Path(name).name: name for name in paths_by_name(bundle) if name != text}
    if path.parent.is_dir():
        neighbours = [p for p in path.parent.iterdir() if p.suffix in _FILES or has_weights(p)]
        names |= {p.name: str(p) for p in neighbours if p.exists() and (p.suffix != ".toml" or is_card(p))}
    suffixes = {name: suffix for name in names if (suffix := Path(name).suffix) in _FILES}
    alike = {name.removesuffix(suffixes.get(name, "")): name for name in names if name in suffixes or not a_file}
    near = get_close_matches(path.name.removesuffix(path.suffix if a_file else ""), alike, n=3, cutoff=0.5)
    return UsageError(
        f"{cause}.",
        fix=f"Did you mean {' or '.join(names[alike[name]] for name in near)}?"
        if near
        else "List the names that --model accepts:",
        command=as_command("lbx", "models", *(("--bundle", bundle.root) if bundle else ())),
    )


def weights_path(card: ModelCard, bundle: Bundle | None) -> Path:
    """Find the card's GGUF file, model folder or table of answers.

    Raises:
        UsageError: the card needs a bundle and none was given.
        BackendError: the files are missing.
    """
    path = _source_path(card, bundle)
    wants_gguf = card.kind.gguf or bool(card.kind.remote and card.weights.file)
    return _gguf(card, path) if wants_gguf and not path.is_file() else path


def _source_path(card: ModelCard, bundle: Bundle | None) -> Path:
    weights = card.weights
    if weights.path is not None:
        if os.path.lexists(weights.path):
            refuse_broken_links(weights.path)
        else:
            folder = weights.path.parent
            file_names = [p.name for p in folder.iterdir() if p.suffix != ".toml"] if folder.is_dir() else []
            raise BackendError(
                f"The weights of {card.name} are missing: {weights.path} does not exist.",
                fix=f"Correct path under [weights] in the card. {nearest(weights.path.name, file_names)}".strip(),
            )
        return weights.path
    if bundle is None:
        what = weights.bundle or weights.repo
        raise UsageError(
            f"The weights of {card.name} come from a bundle ({what}), but no bundle was given.",
            fix="Pass --bundle DIR.",
        )
    path = bundle.file(weights.bundle) if weights.bundle else bundle.snapshot("model", weights.repo, weights.revision)
    if path is None:
        what = weights.bundle or weights.repo + (f" at {weights.revision}" if weights.revision else "")
        raise BackendError(
            f"The bundle {bundle.root} does not contain {what}, which the model {card.name} needs.",
            fix="Add it as a source to a recipe, and make the bundle again.",
        )
    return path


def _gguf(card: ModelCard, folder: Path) -> Path:
    """The only GGUF model of a folder: a file, or the first part of a split model."""
    every = sorted(p for p in folder.rglob("*.gguf") if p.is_file())
    files = sorted(p for p in folder.glob(card.weights.file) if p.is_file()) if card.weights.file else every
    models = [p for p in files if is_first_gguf(p)]
    if len(models) == 1:
        return models[0]
    names = ", ".join(str(p.relative_to(folder)) for p in (models or every)) or "none"
    how = f"matching {card.weights.file!r} " if card.weights.file else ""
    raise BackendError(
        f"{card.name} needs exactly one GGUF file {how}in {folder}, but there are {len(models)}.",
        fix=f"Set file under [weights] in the card. The folder contains: {names}.",
    )
