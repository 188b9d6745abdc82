"""Load a model only to count tokens, even if its whole cache does not fit into memory, or it has no weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from lbx.backends.cards import NO_WEIGHTS, ModelCard, require_window
from lbx.backends.context_windows import DeclaredWindow
from lbx.backends.endpoint.options import EndpointOptions
from lbx.backends.endpoint.tokenizer import CHARACTERS, CharacterTokenizer
from lbx.backends.hf.options import HfOptions
from lbx.backends.llama.options import LlamaOptions
from lbx.backends.tokenizer_loading import context_window_of, load_tokenizer
from lbx.backends.weights import weights_path
from lbx.base.errors import BackendError, DoesNotFitError, UsageError
from lbx.base.layout import Bundle
from lbx.base.records import Request
from lbx.inference.model import Backend, BackendInfo
from lbx.prompting.wrapping import Tokenizer

_SMALL = 256
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")


def with_small_cache(card: ModelCard) -> ModelCard:
    """Reduce the card's context window; cards of backends without a library are unchanged."""
    if not card.kind.library:
        return card
    options = replace(card.options, kv_cells=0) if isinstance(card.options, LlamaOptions) else card.options
    return replace(card, context_window=_SMALL, options=options)


@dataclass(frozen=True, slots=True)
class _TokenizerBackend:
    tokenizer: Tokenizer
    info: BackendInfo
    eos_ids: frozenset[int] = frozenset()

    def generate_many(self, requests: Sequence[Request], *, one_by_one: bool = False) -> NoReturn:
        raise DoesNotFitError(f"{self.info.model} has no weights and cannot answer.")

    def takes_system(self) -> bool:
        return False

    def close(self) -> None:
        """No resources to free."""


def tokenizer_backend(card: ModelCard, bundle: Bundle | None, *, debug: bool = False) -> Backend | None:
    """Return a backend that only counts tokens; None for models that can be loaded.

    It is for a Hugging Face folder without weights, and for a server that only a run starts (a card without a url).

    Raises:
        UsageError: the card of a server has a tokenizer but no context window.
        BackendError: the folder has no tokenizer, or its files are damaged.
    """
    if isinstance(card.options, EndpointOptions) and not card.options.url:
        return _server_counter(card, card.options, bundle, debug=debug)
    if not isinstance(card.options, HfOptions):
        return None
    folder = weights_path(card, bundle)
    if not folder.is_dir() or any(path.suffix in _WEIGHTS for path in folder.iterdir()):
        return None
    window = context_window_of(card, bundle)
    if window is None:
        return None  # loading the model then fails with a better error
    tokenizer = load_tokenizer(card, bundle, debug=debug).tokenizer
    return _TokenizerBackend(tokenizer, BackendInfo(card.backend, "", card.name, window))


def _server_counter(card: ModelCard, options: EndpointOptions, bundle: Bundle | None, *, debug: bool) -> Backend:
    wraps = (options.api or ("chat" if card.weights == NO_WEIGHTS else "completions")) == "chat"
    if card.weights == NO_WEIGHTS:
        info = BackendInfo(card.backend, "", card.name, CHARACTERS, counts_tokens=False, wraps_prompts=wraps)
        return _TokenizerBackend(CharacterTokenizer(card.chat.reasoning), info)
    if not card.context_window:
        raise UsageError(
            f"The context window of {card.name} is known only to its server, which only a run starts.",
            fix="Pass --context-window, or set context_window in the card.",
        )
    tokenizer = load_tokenizer(card, bundle, debug=debug).tokenizer
    return _TokenizerBackend(
        tokenizer, BackendInfo(card.backend, "", card.name, card.context_window, wraps_prompts=wraps)
    )


class CountingBackend:
    """A backend with a small cache that reports the window and the cache of its card.

    Args:
        small: the loaded backend; closed with this one.
        card: the model's own.

    Raises:
        BackendError: the card's window exceeds the one that the model's files declare, or neither has one; ``small`` is
            closed.
    """

    def __init__(self, small: Backend, card: ModelCard) -> None:
        self._small = small
        self.tokenizer, self.eos_ids = small.tokenizer, small.eos_ids
        info = small.info
        try:
            declared = DeclaredWindow(info.declared_context) if info.declared_context else None
            window = require_window(card, declared) if card.kind.library else info.context_window
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
