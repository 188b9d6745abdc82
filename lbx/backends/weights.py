"""Models by name: resolving names to cards and weights, listing models, and fingerprints of weights.

Models are listed without loading any: cards, weights, and models of the bundle. Fingerprints identify weights without
reading hundreds of gigabytes: they differ for weights of the same names and sizes. Models up to ``WHOLE`` bytes are
read completely. For larger ones the fingerprint covers the tables of their tensors (names, shapes, formats), pieces of
every tensor, and the other files. It misses a change of a few bytes between two pieces: ``every_byte`` reads
everything.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from lbx.backends.cards import (
    CARDS,
    KINDS,
    NO_WEIGHTS,
    OPTIONS,
    ModelCard,
    Weights,
    has_weights,
    is_card,
    is_first_gguf,
    model_files,
    model_name,
    paths_by_name,
    read_card,
    refuse_broken_links,
    suggest_backend,
    window_of,
)
from lbx.backends.headers import declared_window, tensor_table
from lbx.backends.hf.checkpoint import read_checkpoint
from lbx.backends.llama.formats import check_gguf, format_title
from lbx.backends.options import MOST_THREADS
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BackendError, LbxError, UsageError
from lbx.base.inputs import expand_user, open_input
from lbx.base.phases import phases
from lbx.base.tables import suggest_names
from lbx.base.visible import as_command

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
    """Resolve the name given by ``--model`` to a card.

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
    """Resolve the name of an embedding model to a card.

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
    """Full path of the card, file or folder that ``resolve_model`` finds for a name, or the name if none exists."""
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
    """Build a card for weights without a card, with the backend that the files imply."""
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
        card = (CARDS / f"{text}.toml").absolute()
        cause = f"Model {text} not found: no file or folder has this name, and {card} does not exist"
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
    """Find the weights of a card: GGUF file, model folder or table of answers.

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
                fix=f"Correct path under [weights] in the card. {suggest_names(weights.path.name, file_names)}".strip(),
            )
        return weights.path
    if bundle is None:
        raise UsageError(
            f"The weights of {card.name} come from a bundle ({weights.source}), but no bundle was given.",
            fix="Pass --bundle DIR.",
        )
    path = _find_in_bundle(weights, bundle)
    if path is None:
        raise BackendError(
            f"The bundle {bundle.root} does not contain {weights.source}, which the model {card.name} needs.",
            fix="Add it as a source to a recipe, and make the bundle again.",
        )
    return path


def _find_in_bundle(weights: Weights, bundle: Bundle) -> Path | None:
    return bundle.file(weights.bundle) if weights.bundle else bundle.snapshot("model", weights.repo, weights.revision)


def _gguf(card: ModelCard, folder: Path) -> Path:
    """Find the only GGUF model in a folder: a file, or the first file of a split model."""
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


@dataclass(frozen=True, slots=True)
class ListedModel:
    """Model that ``--model`` accepts.

    Attributes:
        name: name for ``--model`` (for an embedding model, ``--embedding`` and ``--retriever``).
        kind: "card" or "weights".
        backend: name of the backend, or "" if a card cannot be read.
        embeds: whether it is an embedding model.
        context_window: context window in tokens, from the card or else the files, or None if unknown.
        size_bytes: size of the weight files, or None if they are missing or on a server.
        stored_as: quantised format, or "" if not quantised or unknown.
        files_exist: whether the model's files exist, or None for a server's model.
        problem: sentence on a missing or damaged file, or "".
        not_in_bundle: source of the weights ("Qwen/Qwen3-8B") that the bundle does not contain, or that comes from a
            bundle and none was given, or "".
    """

    name: str
    kind: str
    backend: str = ""
    embeds: bool = False
    context_window: int | None = None
    size_bytes: int | None = None
    stored_as: str = ""
    files_exist: bool | None = False
    problem: str = ""
    not_in_bundle: str = ""

    @property
    def state(self) -> str:
        state = {True: "present", False: "missing", None: "on a server"}[self.files_exist]
        return f"{state}, {self.stored_as}" if self.stored_as else state

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def list_models(bundle: Bundle | None = None) -> list[ListedModel]:
    """List cards and weights in models/ and the bundle's folder (or the current one), then weights in the bundle."""
    return [
        _card(name, path, bundle) if path.suffix == ".toml" else _weights(name, path)
        for name, path in paths_by_name(bundle).items()
    ]


def _card(name: str, path: Path, bundle: Bundle | None) -> ListedModel:
    try:
        card = read_card(path)
    except LbxError as error:
        return ListedModel(name, "card", problem=error.cause)
    return _list_model(name, "card", card, bundle)


def _weights(name: str, path: Path) -> ListedModel:
    """List weights without a card: a text-generating or embedding model, or a folder that lbx cannot run."""
    embeds = (path / "modules.json").is_file()
    try:
        card = (resolve_embedder if embeds else resolve_model)(str(path))
    except LbxError as error:
        return ListedModel(name, "weights", problem=error.cause)
    return _list_model(name, "weights", card, None)


def _list_model(name: str, kind: str, card: ModelCard, bundle: Bundle | None) -> ListedModel:
    model = ListedModel(name, kind, card.backend, card.embeds, card.context_window)
    if card.weights == NO_WEIGHTS:
        return replace(model, files_exist=None)
    try:
        if card.weights.path is None and (bundle is None or _find_in_bundle(card.weights, bundle) is None):
            model = replace(model, not_in_bundle=card.weights.source)
        path = weights_path(card, bundle)
        size = sum(file.stat().st_size for file in model_files(path))
        stored_as = _format_of(card, path)
    except (LbxError, OSError) as error:
        return replace(model, problem=error.cause if isinstance(error, LbxError) else str(error))
    model = replace(model, size_bytes=size, stored_as=stored_as, files_exist=True)
    try:
        return replace(model, context_window=window_of(card, declared_window(path)) or None)
    except BackendError as error:
        return replace(model, problem=error.cause)


def _format_of(card: ModelCard, path: Path) -> str:
    if card.kind.gguf:
        check_gguf(path)
        return format_title(path)
    if card.backend != "hf" or find_spec("safetensors") is None:
        return ""
    return read_checkpoint(path).title


WHOLE = 1 << 29
"""Maximum bytes of tensors that are read completely, which takes less than a second."""
_WITH_TENSORS = (".safetensors", ".gguf")
_PIECE, _PIECES, _LEAST = 1 << 10, 1 << 14, 3
"""Bytes of a piece; pieces of a model, spread over its bytes; minimum pieces of a tensor."""
_BLOCK = 1 << 22
_TOGETHER = 256
_THREADS = 16
"""Concurrent reads. A network file system takes as long for one read as for many."""
_GOLDEN, _ONE = 0x9E3779B97F4A7C15, 1 << 64

Piece = tuple[int, int]
"""Offset and length of a read."""


class _File(NamedTuple):
    """File of a model: number of leading bytes to read completely, and spans to read pieces of."""

    path: Path
    size: int
    head_bytes: int
    spans: Sequence[tuple[int, int]] = ()


class _ReadBatch(NamedTuple):
    path: Path
    pieces: Sequence[Piece]


@phases.measure("hash weights")
def fingerprint(path: Path, *, every_byte: bool = False) -> str:
    """Fingerprint of a model's weights, a hex digest that does not depend on the model's folder.

    Args:
        path: a model's folder, or its (first) file.

    Raises:
        BackendError: a file is missing, is not a regular file, or cannot be read.
    """
    paths = model_files(path)
    try:
        sizes = [file.stat().st_size for file in paths]
        tensors = sum(size for file, size in zip(paths, sizes, strict=True) if file.suffix in _WITH_TENSORS)
        every = every_byte or tensors <= WHOLE
        files = [_plan_reads(file, size, every=every) for file, size in zip(paths, sizes, strict=True)]
        digest = hashlib.blake2b(b"every byte" if every else b"pieces", digest_size=32)
        for file in files:
            digest.update(f"{file.path.name}\0{file.size}\0{file.head_bytes}\0".encode("utf-8", "surrogateescape"))
        with ThreadPoolExecutor(_THREADS) as threads:
            for part in threads.map(_digest, _reads(files)):
                digest.update(part)
    except OSError as exc:
        raise BackendError(
            f"The model in {path} cannot be read: {exc.filename or path}: {exc.strerror or exc}.",
            fix="Check that all files of the model are regular files, and that you may read them.",
        ) from exc
    return digest.hexdigest()


def weights_settings(card: ModelCard, path: Path) -> dict[str, str]:
    """Settings that identify a run's weights, for ``BackendInfo.settings``."""
    settings = {"weights": fingerprint(path)}
    return settings | {"weights_whole": fingerprint(path, every_byte=True)} if card.hash_weights else settings


def _plan_reads(path: Path, size: int, *, every: bool) -> _File:
    """Plan the reads of a file. A tensor file without a valid table is treated as one long tensor."""
    if every or path.suffix not in _WITH_TENSORS:
        return _File(path, size, size)
    with open_input(path, buffering=1 << 16) as stream:
        table = tensor_table(stream, size)
    return _File(path, size, 0, [(0, size)]) if table is None else _File(path, size, table.header, table.spans)


def _reads(files: Sequence[_File]) -> Iterator[_ReadBatch]:
    """Yield batches of reads, each small enough for one thread to finish quickly."""
    sizes = sum(end - begin for file in files for begin, end in file.spans)
    spacing = max(sizes // _PIECES, _PIECE)
    turn = 0
    for file in files:
        for begin in range(0, file.head_bytes, _BLOCK):
            yield _ReadBatch(file.path, [(begin, min(_BLOCK, file.head_bytes - begin))])
        pieces = chain.from_iterable(
            _spread_pieces(begin, end, spacing, turn + n) for n, (begin, end) in enumerate(file.spans)
        )
        while some := list(islice(pieces, _TOGETHER)):
            yield _ReadBatch(file.path, some)
        turn += len(file.spans)


def _spread_pieces(begin: int, end: int, spacing: int, turn: int) -> list[Piece]:
    """Choose the pieces of a tensor to read: one in each of equally long spans, at a different offset in each.

    Pieces at equal distances would read the same columns of a matrix in each of its rows.
    """
    size = end - begin
    count = max(_LEAST, -(-size // spacing))
    if size <= count * _PIECE:
        return [(begin, size)]
    pieces, at, part = [], begin, turn * _GOLDEN
    for number in range(1, count + 1):
        after = begin + size * number // count
        pieces.append((at + ((after - at - _PIECE) * (part % _ONE) // _ONE), _PIECE))
        at, part = after, part + _GOLDEN
    return pieces


def _digest(batch: _ReadBatch) -> bytes:
    path, pieces = batch
    with open_input(path) as file:
        handle = file.fileno()
        if len(pieces) > 1 and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead after a piece
        content = b"".join([os.pread(handle, size, offset) for offset, size in pieces])
    return hashlib.blake2b(content, digest_size=32).digest()
