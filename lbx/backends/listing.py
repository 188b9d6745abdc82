"""List the models that ``--model`` accepts: cards, weights, and models of the bundle, without loading any."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lbx.backends.cards import NO_WEIGHTS, ModelCard, read_card, window_of
from lbx.backends.headers import declared_window
from lbx.backends.hf.checkpoint import read_checkpoint
from lbx.backends.llama.formats import check_gguf, format_title
from lbx.backends.places import model_files, paths_by_name
from lbx.backends.weights import resolve_embedder, resolve_model, weights_path
from lbx.base.errors import BackendError, LbxError
from lbx.base.layout import Bundle


@dataclass(frozen=True, slots=True)
class ListedModel:
    """Model that ``--model`` accepts.

    Attributes:
        name: name for ``--model`` (for an embedding model, ``--embedding`` and ``--retriever``).
        kind: "card" or "weights".
        backend: "" if a card cannot be read.
        context_window: tokens, from its card or else its files; None if neither has it.
        size_bytes: size of its weight files; None if they are missing or on a server.
        stored_as: quantised format; "" if it has none or it is unknown.
        there: whether its files exist; None for a server's model.
        problem: sentence about a missing or damaged part.
        needs_bundle: whether the problem is a missing bundle.
    """

    name: str
    kind: str
    backend: str = ""
    embeds: bool = False
    context_window: int | None = None
    size_bytes: int | None = None
    stored_as: str = ""
    there: bool | None = False
    problem: str = ""
    needs_bundle: bool = False

    @property
    def state(self) -> str:
        state = {True: "present", False: "missing", None: "on a server"}[self.there]
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
    """Entry for weights without a card: a folder may contain either kind of model, or one that lbx cannot run."""
    embeds = (path / "modules.json").is_file()
    try:
        card = (resolve_embedder if embeds else resolve_model)(str(path))
    except LbxError as error:
        return ListedModel(name, "weights", problem=error.cause)
    return _list_model(name, "weights", card, None)


def _list_model(name: str, kind: str, card: ModelCard, bundle: Bundle | None) -> ListedModel:
    model = ListedModel(name, kind, card.backend, card.embeds, card.context_window)
    if bundle is None and card.weights != NO_WEIGHTS and card.weights.path is None:
        model = replace(model, needs_bundle=True)
    if card.weights == NO_WEIGHTS:
        return replace(model, there=None)
    try:
        path = weights_path(card, bundle)
        size = sum(file.stat().st_size for file in model_files(path))
        stored_as = _format_of(card, path)
    except (LbxError, OSError) as error:
        return replace(model, problem=error.cause if isinstance(error, LbxError) else str(error))
    model = replace(model, size_bytes=size, stored_as=stored_as, there=True)
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
