"""Registry of backends: class of card options and loading function."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.backends.endpoint.options import EndpointEmbeddingOptions, EndpointOptions
from lbx.backends.hf.options import HfOptions, SentenceTransformersOptions
from lbx.backends.llama.options import LlamaEmbeddingOptions, LlamaOptions
from lbx.backends.options import BackendOptions, ScriptedOptions
from lbx.base.commands import as_command
from lbx.base.errors import BackendError
from lbx.base.tables import nearest

if TYPE_CHECKING:
    from lbx.backends.cards import ModelCard


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendKind:
    """Backend before its library is imported.

    Attributes:
        options: class of a card's ``[options]``.
        load: "module:function", imported when a model is loaded.
        library, extra: package that it imports, and the extra of lbx that installs it; "" for none.
        embeds: whether its models are embedding models, not text-generating ones.
        gguf: whether its weights are a GGUF file.
        remote: whether a server has the weights; the card may have a tokenizer.
    """

    options: type[BackendOptions]
    load: str
    library: str = ""
    extra: str = ""
    embeds: bool = False
    gguf: bool = False
    remote: bool = False


KINDS: dict[str, BackendKind] = {
    "llamacpp": BackendKind(
        options=LlamaOptions, load="lbx.backends.llama.backend:load", library="llama_cpp", extra="llama", gguf=True
    ),
    "hf": BackendKind(options=HfOptions, load="lbx.backends.hf.backend:load", library="transformers", extra="hf"),
    "scripted": BackendKind(options=ScriptedOptions, load="lbx.backends.scripted:load"),
    "endpoint": BackendKind(options=EndpointOptions, load="lbx.backends.endpoint.backend:load", remote=True),
    "sentence_transformers": BackendKind(
        options=SentenceTransformersOptions,
        load="lbx.backends.hf.embedding:load",
        library="sentence_transformers",
        extra="hf",
        embeds=True,
    ),
    "llamacpp_embedding": BackendKind(
        options=LlamaEmbeddingOptions,
        load="lbx.backends.llama.embedding:load",
        library="llama_cpp",
        extra="llama",
        embeds=True,
        gguf=True,
    ),
    "endpoint_embedding": BackendKind(
        options=EndpointEmbeddingOptions, load="lbx.backends.endpoint.embedding:load", embeds=True, remote=True
    ),
}
"""Backends by their names in cards."""

OPTIONS = {name: kind.options for name, kind in KINDS.items() if not kind.embeds}
"""Names of backends for text-generating models."""


def suggest_backend(name: str, names: Collection[str]) -> str:
    """Fix message for an unknown backend's name: people give names of servers, which need a card."""
    server = 'To use a server (vLLM, SGLang, an API), write a card with backend = "endpoint" (docs/models.md).'
    return f"{nearest(name, names, cutoff=0.6)} {server}"


def load_backend(card: ModelCard, weights: Path | None, *, debug: bool) -> Any:
    """Load the card's model: the only function that imports a backend's module.

    Raises:
        BackendError: the weights are damaged, or the library is not installed.
    """
    module, _, function = card.kind.load.partition(":")
    try:
        return getattr(importlib.import_module(module), function)(card, weights, debug=debug)
    except ImportError as exc:
        raise missing_library_error(card, str(exc)) from exc


def missing_library_error(card: ModelCard, reason: str) -> BackendError:
    """Error of a backend with a missing library."""
    extra = card.kind.extra or card.backend
    return BackendError(
        f"The backend {card.backend} needs a library that is not installed ({reason}).",
        fix=f"Install lbx[{extra}].",
        command=as_command("pip", "install", f"lbx[{extra}]"),
    )
