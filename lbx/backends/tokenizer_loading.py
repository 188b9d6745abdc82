"""Tokenizers without the weights: of a Hugging Face folder, a GGUF file, or the scripted backend."""

from __future__ import annotations

import functools
import hashlib
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lbx.backends.cards import NO_WEIGHTS, Chat, ModelCard, window_of
from lbx.backends.headers import declared_window, gguf_tokenizer_sha256
from lbx.backends.hf.files import refuse_unsafe_files
from lbx.backends.hf.library import (
    prepare_environment,
    refuse_without_tokenizer,
    set_verbosity,
    show_warnings_if,
    vocabulary_files,
)
from lbx.backends.hf.tokenizer import HfTokenizer, OwnTemplate, own_chat_template, read_tokenizer
from lbx.backends.kinds import missing_library_error
from lbx.backends.llama.formats import check_gguf
from lbx.backends.llama.library import load_llama_cpp, load_vocabulary, log
from lbx.backends.llama.tokenizer import LlamaTokenizer
from lbx.backends.llama.tokenizer import own_chat_template as template_of_gguf
from lbx.backends.options import ScriptedOptions
from lbx.backends.scripted import ByteTokenizer
from lbx.backends.weights import weights_path
from lbx.base.errors import BackendError, UsageError
from lbx.base.inputs import read_input
from lbx.base.layout import Bundle
from lbx.base.limits import TOKENIZER_BYTES
from lbx.base.records import sha256_text
from lbx.prompting.wrapping import Tokenizer

_BYTES_SHA256 = hashlib.sha256(b"the bytes of UTF-8").hexdigest()


class LoadedTokenizer(NamedTuple):
    """A model's tokenizer, with its chat template.

    Attributes:
        sha256: see ``hash_tokenizer``.
        count: returns the number of tokens of ``encode(text, special=True)``.
    """

    tokenizer: Tokenizer
    sha256: str
    count: Callable[[str], int]


def load_tokenizer(card: ModelCard, bundle: Bundle | None, *, debug: bool = False) -> LoadedTokenizer:
    """Load the tokenizer that the card's model uses, without the weights. No code from its folder is run.

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
    count = tokenizer.count if isinstance(tokenizer, HfTokenizer) else functools.partial(_count_encoded, tokenizer)
    return LoadedTokenizer(tokenizer, sha256, count)


def _count_encoded(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text, special=True))


def context_window_of(card: ModelCard, bundle: Bundle | None) -> int | None:
    """Return the context window of the card, else of the model's files; None if only a server has the number.

    Raises:
        UsageError, BackendError: the model's files are missing, or the card's window exceeds theirs.
    """
    if card.kind.remote or isinstance(card.options, ScriptedOptions):
        return card.context_window
    return window_of(card, declared_window(weights_path(card, bundle))) or None


def hash_tokenizer(tokenizer: Tokenizer, path: Path) -> str:
    """Return the hash of a tokenizer's definition, or of the tokenizer's keys in a GGUF header.

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
        raise BackendError(f"The tokenizer in {path} cannot be read: {exc.strerror or exc}.") from exc
    digests = [hashlib.sha256(content) for content in contents]
    if len(digests) == 1:
        return digests[0].hexdigest()
    return hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()


def open_tokenizer(path: Path, chat: Chat, *, own_template: bool, debug: bool) -> tuple[Tokenizer, Callable[[], None]]:
    """Load the tokenizer of a GGUF file (without its weights) or a Hugging Face folder, and a function that frees it.

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
    with show_warnings_if(debug):
        raw = read_tokenizer(transformers, folder)
    found = own_chat_template(raw, folder) if own_template else OwnTemplate()
    return HfTokenizer(raw, chat.choose_template(found.source) if own_template else None, chat.reasoning, found.names)
