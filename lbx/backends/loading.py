"""From a card to its backend: the one place where a backend's module is imported."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from lbx.backends.cards import ModelCard
from lbx.base.commands import as_command
from lbx.base.errors import BackendError


def load_by_kind(card: ModelCard, weights: Path | None, *, debug: bool) -> Any:
    """What the card's backend makes of it.

    Raises:
        BackendError: the weights are damaged, or the library is not installed.
    """
    module, _, function = card.kind.load.partition(":")
    try:
        return getattr(importlib.import_module(module), function)(card, weights, debug=debug)
    except ImportError as exc:
        raise not_installed(card, str(exc)) from exc


def not_installed(card: ModelCard, why: str) -> BackendError:
    """The error of a backend whose library is missing."""
    extra = card.kind.extra or card.backend
    return BackendError(
        f"The backend {card.backend} needs a library that is not installed ({why}).",
        fix=f"Install lbx[{extra}].",
        command=as_command("pip", "install", f"lbx[{extra}]"),
    )
