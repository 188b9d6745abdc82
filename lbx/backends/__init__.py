"""Backends, which run models: ``load(resolve_model(...))`` returns a backend, and imports its library only then.

``load_embedder(resolve_embedder(...))`` returns an embedding model in the same way.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lbx.backends.cards import KINDS, NO_WEIGHTS, Chat, ModelCard, Weights, load_backend, read_card
from lbx.backends.embedding import Embedder, EmbedderInfo, load_embedder
from lbx.backends.weights import refuse_embedding, resolve_embedder, resolve_model, weights_path
from lbx.engine.model import Backend, BackendInfo

if TYPE_CHECKING:
    from lbx.base.bundle_folder import Bundle

__all__ = [
    "KINDS",
    "Backend",
    "BackendInfo",
    "Chat",
    "Embedder",
    "EmbedderInfo",
    "ModelCard",
    "Weights",
    "is_debugging",
    "load",
    "load_embedder",
    "load_embedding_model",
    "read_card",
    "resolve_embedder",
    "resolve_model",
    "weights_path",
]


def load(card: ModelCard, *, bundle: Bundle | None = None, debug: bool = False) -> Backend:
    """Load the model of a card.

    Args:
        debug: pass the library's own log to stderr.

    Raises:
        UsageError: the card is for an embedding model, or needs a bundle and none was given.
        BackendError: the weights are missing or damaged, or the library is not installed.
    """
    refuse_embedding(card)
    weights = weights_path(card, bundle) if card.weights != NO_WEIGHTS else None
    loaded: Backend = load_backend(card, weights, debug=debug)
    return loaded


def load_embedding_model(name: str, bundle: Bundle | None, threads: int | None = None) -> Embedder:
    """Load an embedding model by the name of its card. Raises as ``load_embedder``."""
    return load_embedder(resolve_embedder(name, bundle=bundle, threads=threads), bundle=bundle, debug=is_debugging())


def is_debugging() -> bool:
    """Whether the libraries' own logs go to stderr."""
    return bool(os.environ.get("LBX_DEBUG"))
