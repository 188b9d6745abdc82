"""Tokenizers for models that run elsewhere: of a Hugging Face folder, of a GGUF file, or none but characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from lbx.backends.cards import Chat
from lbx.backends.hf.files import refuse_unsound
from lbx.backends.hf.library import go_offline, quiet, refuse_without_tokenizer, warnings_if
from lbx.backends.hf.tokenizer import HfTokenizer, own_chat_template, read_tokenizer
from lbx.backends.llama.formats import check_gguf
from lbx.backends.llama.library import library, load_vocabulary, log
from lbx.backends.llama.tokenizer import LlamaTokenizer
from lbx.backends.llama.tokenizer import own_chat_template as template_of_gguf
from lbx.base.records import encodable
from lbx.prompting.control_tokens import encode_apart
from lbx.prompting.prompter import Tokenizer
from lbx.prompting.reasoning import choose_marks

CHARACTERS = 100_000_000
"""A window so wide that nothing is cut: where characters are counted, the server alone knows what fits."""


class CharacterTokenizer:
    """Stands in for a tokenizer where there is none: each character is a token, its id the code point."""

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
        return encode_apart(self, pieces)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


class PromptText:
    """Says token ids as the text that a tokenizer turns into them again."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _texts(self) -> Mapping[int, str]:
        return {number: text for text, number in self._tokenizer.control_tokens.items()}

    @cached_property
    def drops_first_space(self) -> bool:
        """Whether ``decode`` leaves out the space that its first token begins with, as SentencePiece's do."""
        ids = self._tokenizer.encode("a", special=False)
        return self._tokenizer.decode([*ids, *ids]) == "a a"

    def of(self, ids: Sequence[int], *, special: bool) -> str | None:
        """The text; None where no text becomes exactly these ids, e.g. a document that spells out a control token.

        Args:
            special: whether who reads the text takes a control token's text for the token; otherwise the ids must hold
                none.
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


def load_tokenizer(place: Path, chat: Chat, *, own_template: bool, debug: bool) -> tuple[Tokenizer, Callable[[], None]]:
    """The tokenizer in a GGUF file (its weights are not read) or a Hugging Face folder, and what frees it.

    Args:
        own_template: whether lbx wraps prompts in the chat template; otherwise the tokenizer has none.

    Raises:
        ImportError: the library that reads it is not installed.
        BackendError: there is no tokenizer, or it is damaged.
    """
    if place.is_file():
        return _from_gguf(place, chat, own_template=own_template, debug=debug)
    return _from_folder(place, chat, own_template=own_template, debug=debug), lambda: None


def _from_gguf(place: Path, chat: Chat, *, own_template: bool, debug: bool) -> tuple[Tokenizer, Callable[[], None]]:
    check_gguf(place)
    log.debug = debug
    llama_cpp = library()
    model = load_vocabulary(llama_cpp, place)
    template = chat.choose(template_of_gguf(llama_cpp, model)) if own_template else None
    return LlamaTokenizer(llama_cpp, model, place, template, chat.reasoning), lambda: llama_cpp.llama_model_free(model)


def _from_folder(place: Path, chat: Chat, *, own_template: bool, debug: bool) -> HfTokenizer:
    refuse_unsound(place)
    refuse_without_tokenizer(place)
    go_offline()
    import transformers

    quiet(transformers, debug)
    with warnings_if(debug):
        raw = read_tokenizer(transformers, place)
    return HfTokenizer(raw, chat.choose(own_chat_template(raw)) if own_template else None, chat.reasoning)
