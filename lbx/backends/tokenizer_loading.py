"""Loading of tokenizers without the weights: of a Hugging Face folder, a GGUF file, or the scripted backend.

A model can be loaded only to count tokens, even if its whole cache does not fit into memory, or it has no weights.
"""

from __future__ import annotations

import functools
import hashlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, NoReturn

from lbx.backends.cards import NO_WEIGHTS, Chat, ModelCard, missing_library_error, require_window, window_of
from lbx.backends.endpoint.options import EndpointOptions
from lbx.backends.endpoint.tokenizer import CHARACTERS, CharacterTokenizer
from lbx.backends.headers import DeclaredWindow, declared_window, gguf_tokenizer_sha256
from lbx.backends.hf.folder_checks import refuse_unsafe_files
from lbx.backends.hf.library import (
    prepare_environment,
    refuse_without_tokenizer,
    set_verbosity,
    show_warnings,
    vocabulary_files,
)
from lbx.backends.hf.options import HfOptions
from lbx.backends.hf.tokenizer import HfTokenizer, OwnTemplate, own_chat_template, read_tokenizer
from lbx.backends.llama.formats import check_gguf
from lbx.backends.llama.library import load_llama_cpp, load_vocabulary, log
from lbx.backends.llama.options import LlamaOptions
from lbx.backends.llama.tokenizer import LlamaTokenizer
from lbx.backends.llama.tokenizer import own_chat_template as template_of_gguf
from lbx.backends.options import ScriptedOptions
from lbx.backends.scripted import ByteTokenizer
from lbx.backends.weights import weights_path
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BackendError, DoesNotFitError, UsageError
from lbx.base.inputs import read_input
from lbx.base.limits import TOKENIZER_BYTES
from lbx.base.records import Request, sha256_text
from lbx.engine.model import Backend, BackendInfo
from lbx.engine.wrapping import Tokenizer

_BYTES_SHA256 = hashlib.sha256(b"the bytes of UTF-8").hexdigest()


class LoadedTokenizer(NamedTuple):
    """Tokenizer of a model, with the chat template, a hash and a counter.

    Attributes:
        sha256: see ``hash_tokenizer``.
        count: function that returns the number of tokens of ``encode(text, special=True)``.
    """

    tokenizer: Tokenizer
    sha256: str
    count: Callable[[str], int]


def load_tokenizer(card: ModelCard, bundle: Bundle | None, *, debug: bool = False) -> LoadedTokenizer:
    """Load the tokenizer of a card's model, without the weights. No code from the folder is run.

    Raises:
        UsageError: the card has no tokenizer, or needs a bundle and none was given.
        BackendError: the files are missing or damaged, or the library is not installed.
    """
    if isinstance(card.options, ScriptedOptions):
        return _with_count(ByteTokenizer(card.chat.choose_template(None), card.chat.reasoning), _BYTES_SHA256)
    if card.weights == NO_WEIGHTS:
        raise UsageError(
            f"The card of {card.name} has no tokenizer, but the samples of these tasks depend on it.",
            fix="Add [tokenizer] to the card: path, bundle or repo of the model's tokenizer.",
        )
    path = weights_path(card, bundle)
    try:
        tokenizer, free = open_tokenizer(path, card.chat, own_template=True, debug=debug)
    except ImportError as exc:
        raise missing_library_error(card, str(exc)) from exc
    weakref.finalize(tokenizer, free).atexit = False
    return _with_count(tokenizer, hash_tokenizer(tokenizer, path))


def _with_count(tokenizer: Tokenizer, sha256: str) -> LoadedTokenizer:
    count = tokenizer.count if isinstance(tokenizer, HfTokenizer) else functools.partial(_encoded_length, tokenizer)
    return LoadedTokenizer(tokenizer, sha256, count)


def _encoded_length(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text, special=True))


def context_window_of(card: ModelCard, bundle: Bundle | None) -> int | None:
    """Context window of a card's model, from the card or else the model's files, or None if only a server knows it.

    Raises:
        UsageError, BackendError: the model's files are missing, or the card's window exceeds theirs.
    """
    if card.kind.remote or isinstance(card.options, ScriptedOptions):
        return card.context_window
    return window_of(card, declared_window(weights_path(card, bundle))) or None


def hash_tokenizer(tokenizer: Tokenizer, path: Path) -> str:
    """Hash of a tokenizer's definition, or of the tokenizer's keys in a GGUF header.

    Files next to tokenizer.json can add tokens, so that the definition is that of the loaded tokenizer. Without one, it
    is the vocabulary's files.

    Raises:
        BackendError: a file cannot be read.
    """
    if isinstance(tokenizer, HfTokenizer) and tokenizer.definition:
        return sha256_text(tokenizer.definition)
    if path.is_file():
        if (digest := gguf_tokenizer_sha256(path)) is None:
            raise BackendError(f"The header of {path} cannot be read.", fix="The file may be truncated.")
        return digest
    try:
        contents = [read_input(file, TOKENIZER_BYTES) for file in vocabulary_files(path)]
    except OSError as exc:
        raise BackendError(
            f"The tokenizer in {path} cannot be read: {exc.strerror or exc}.",
            fix="Check that its files are regular files that you may read.",
        ) from exc
    digests = [hashlib.sha256(content) for content in contents]
    if len(digests) == 1:
        return digests[0].hexdigest()
    return hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()


def open_tokenizer(path: Path, chat: Chat, *, own_template: bool, debug: bool) -> tuple[Tokenizer, Callable[[], None]]:
    """Load the tokenizer of a GGUF file or a Hugging Face folder, and return it with a function that frees it.

    Args:
        own_template: whether lbx wraps prompts in the chat template; otherwise the tokenizer has none.

    Raises:
        ImportError: the library for this tokenizer is not installed.
        BackendError: the tokenizer is missing or damaged.
    """
    if path.is_file():
        return _from_gguf(path, chat, own_template=own_template, debug=debug)
    return _from_folder(path, chat, own_template=own_template, debug=debug), lambda: None


def _from_gguf(path: Path, chat: Chat, *, own_template: bool, debug: bool) -> tuple[Tokenizer, Callable[[], None]]:
    check_gguf(path)
    log.debug = debug
    llama_cpp = load_llama_cpp()
    model = load_vocabulary(llama_cpp, path)
    template = chat.choose_template(template_of_gguf(llama_cpp, model)) if own_template else None
    return LlamaTokenizer(llama_cpp, model, path, template, chat.reasoning), lambda: llama_cpp.llama_model_free(model)


def _from_folder(folder: Path, chat: Chat, *, own_template: bool, debug: bool) -> HfTokenizer:
    refuse_unsafe_files(folder)
    refuse_without_tokenizer(folder)
    prepare_environment()
    import transformers

    set_verbosity(transformers, debug)
    with show_warnings(debug):
        raw = read_tokenizer(transformers, folder)
    found = own_chat_template(raw, folder) if own_template else OwnTemplate()
    return HfTokenizer(raw, chat.choose_template(found.source) if own_template else None, chat.reasoning, found.names)


_SMALL = 256
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")


def with_small_cache(card: ModelCard) -> ModelCard:
    """Copy of a card with a small context window, unchanged for backends without a library."""
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
        raise DoesNotFitError(
            f"{self.info.model} has no weights and cannot answer.", fix="Add its weights to the card."
        )

    def takes_system(self) -> bool:
        return False

    def close(self) -> None:
        """Ignore the call: there are no resources to free."""


def tokenizer_backend(card: ModelCard, bundle: Bundle | None, *, debug: bool = False) -> Backend | None:
    """Make a backend that only counts tokens, or None for models that can be loaded.

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
        info = BackendInfo(card.backend, "", card.name, CHARACTERS, counted_in="characters", wraps_prompts=wraps)
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
    """Backend with a small cache, which reports the context window and the cache of the full model.

    Args:
        small: the loaded backend; closed with this one.
        card: card of the full model.

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
        raise DoesNotFitError(
            f"{self.info.model} was loaded only to count tokens and cannot answer.",
            fix="Free memory, or choose a smaller model or context window, and load it again.",
        )

    def takes_system(self) -> bool:
        return False

    def close(self) -> None:
        self._small.close()
