"""Backends run models: ``load(resolve_model(...))`` returns one and imports its library only then.

``load_embedder(resolve_embedder(...))`` returns an embedding model in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbx.backends.cards import KINDS, NO_WEIGHTS, Chat, ModelCard, Weights, load_backend, read_card
from lbx.backends.embedding import Embedder, EmbedderInfo, load_embedder
from lbx.backends.weights import refuse_embedding, resolve_embedder, resolve_model, weights_path
from lbx.inference.model import Backend, BackendInfo

if TYPE_CHECKING:
    from lbx.base.layout import Bundle

__all__ = [
    "KINDS",
    "Backend",
    "BackendInfo",
    "Chat",
    "Embedder",
    "EmbedderInfo",
    "ModelCard",
    "Weights",
    "load",
    "load_embedder",
    "read_card",
    "resolve_embedder",
    "resolve_model",
    "weights_path",
]


def load(card: ModelCard, *, bundle: Bundle | None = None, debug: bool = False) -> Backend:
    """Load the card's model.

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
