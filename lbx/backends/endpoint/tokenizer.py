"""Tokenizers for remote models: from a Hugging Face folder or a GGUF file, or a count of characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from lbx.backends.cards import Chat
from lbx.backends.hf.files import refuse_unsafe_files
from lbx.backends.hf.library import go_offline, refuse_without_tokenizer, set_verbosity, show_warnings_if
from lbx.backends.hf.tokenizer import HfTokenizer, own_chat_template, read_tokenizer
from lbx.backends.llama.formats import check_gguf
from lbx.backends.llama.library import load_llama_cpp, load_vocabulary, log
from lbx.backends.llama.tokenizer import LlamaTokenizer
from lbx.backends.llama.tokenizer import own_chat_template as template_of_gguf
from lbx.base.records import encodable
from lbx.prompting.control_tokens import encode_separately
from lbx.prompting.prompter import Tokenizer
from lbx.prompting.reasoning import choose_marks

CHARACTERS = 100_000_000
"""Window that never truncates: if characters are counted, only the server knows the limit."""


class CharacterTokenizer:
    """Replacement for a missing tokenizer: each character is a token with its code point as id."""

    bos_token = eos_token = ""
    bos_id: int | None = None
    prefix_ids: tuple[int, ...] = ()
    chat_template: str | None = None

    def __init__(self, reasoning: tuple[str, str] | None = None) -> None:
        self.reasoning_marks = choose_marks(None, lambda text: False, reasoning)

    @property
    def control_tokens(self) -> Mapping[str, int]:
        return {}

    hidden_tokens = control_tokens

    def encode(self, text: str, *, special: bool) -> list[int]:
        return list(map(ord, encodable(text)))

    def encode_pieces(self, pieces: Sequence[str | int]) -> list[int]:
        return encode_separately(self, pieces)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


class PromptText:
    """Converter of token ids to text that encodes to the same ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _texts(self) -> Mapping[int, str]:
        return {number: text for text, number in self._tokenizer.control_tokens.items()}

    @cached_property
    def drops_first_space(self) -> bool:
        """Whether ``decode`` drops the leading space of its first token, like SentencePiece's."""
        ids = self._tokenizer.encode("a", special=False)
        return self._tokenizer.decode([*ids, *ids]) == "a a"

    def of(self, ids: Sequence[int], *, special: bool) -> str | None:
        """Convert ids; None if no text encodes to exactly these ids, e.g. if a document spells out a control token.

        Args:
            special: whether the reader turns a control token's text into the token; otherwise the ids must have none.
        """
        text = "".join(self._pieces(ids))
        return text if self._tokenizer.encode(text, special=special) == list(ids) else None

    def _pieces(self, ids: Sequence[int]) -> list[str]:
        pieces: list[str] = []
        start = 0
        for at, number in enumerate(ids):
            if number in self._texts:
                pieces += [self._tokenizer.decode(ids[start:at]), self._texts[number]]
                start = at + 1
        return [*pieces, self._tokenizer.decode(ids[start:])]


def load_tokenizer(path: Path, chat: Chat, *, own_template: bool, debug: bool) -> tuple[Tokenizer, Callable[[], None]]:
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
    go_offline()
    import transformers

    set_verbosity(transformers, debug)
    with show_warnings_if(debug):
        raw = read_tokenizer(transformers, folder)
    return HfTokenizer(raw, chat.choose_template(own_chat_template(raw)) if own_template else None, chat.reasoning)
