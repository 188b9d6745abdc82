"""Load a model only to count tokens, even if its whole cache does not fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from lbx.backends.cards import ModelCard, window_of
from lbx.backends.context_windows import DeclaredWindow
from lbx.backends.llama.options import LlamaOptions
from lbx.base.errors import BackendError, DoesNotFitError
from lbx.base.records import Request
from lbx.inference.model import Backend

_SMALL = 256


def with_small_cache(card: ModelCard) -> ModelCard:
    """Reduce the card's context window; cards of backends without a library are unchanged."""
    if not card.kind.library:
        return card
    options = replace(card.options, kv_cells=0) if isinstance(card.options, LlamaOptions) else card.options
    return replace(card, context_window=_SMALL, options=options)


class CountingBackend:
    """A backend with a small cache that reports the window and the cache of its card.

    Args:
        small: the loaded backend; closed with this one.
        card: the model's own.

    Raises:
        BackendError: the card's window exceeds the one that the model's files declare; ``small`` is closed.
    """

    def __init__(self, small: Backend, card: ModelCard) -> None:
        self._small = small
        self.tokenizer, self.eos_ids = small.tokenizer, small.eos_ids
        info = small.info
        try:
            declared = DeclaredWindow(info.declared_context) if info.declared_context else None
            window = window_of(card, declared) or info.context_window
        except BackendError:
            small.close()
            raise
        cells = getattr(card.options, "kv_cells", 0) or window
        self.info = replace(info, context_window=window, kv_cells=cells)

    def generate_many(self, requests: Sequence[Request], *, one_by_one: bool = False) -> NoReturn:
        """Refuse to answer.

        Raises:
            DoesNotFitError: always.
        """
        raise DoesNotFitError(f"{self.info.model} was loaded only to count tokens and cannot answer.")

    def takes_system(self) -> bool:
        return False

    def close(self) -> None:
        self._small.close()
