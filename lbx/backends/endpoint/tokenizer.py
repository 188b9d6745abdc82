"""Tokenizers for remote models: one that counts characters, and a converter of token ids to text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from lbx.base.records import replace_surrogates
from lbx.engine.prompter import Tokenizer
from lbx.engine.reasoning import choose_marks, encode_separately

CHARACTERS = 100_000_000
"""Window that never truncates: if characters are counted, only the server knows the limit."""


class CharacterTokenizer:
    """Tokenizer in place of a missing one: each character is a token whose id is the code point."""

    bos_token = eos_token = ""
    bos_id: int | None = None
    prefix_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    template_names: tuple[str, ...] = ()

    def __init__(self, reasoning: tuple[str, str] | None = None) -> None:
        self.reasoning_marks = choose_marks(None, lambda text: False, reasoning)

    @property
    def control_tokens(self) -> Mapping[str, int]:
        return {}

    hidden_tokens = control_tokens

    def encode(self, text: str, *, special: bool) -> list[int]:
        return list(map(ord, replace_surrogates(text)))

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
        """Whether ``decode`` drops the leading space of the first token, as in SentencePiece."""
        ids = self._tokenizer.encode("a", special=False)
        return self._tokenizer.decode([*ids, *ids]) == "a a"

    def find_text(self, ids: Sequence[int], *, special: bool) -> str | None:
        """Find a text that encodes to exactly ``ids``, or None, e.g. if a document spells out a control token.

        Args:
            special: whether the server turns the text of a control token into the token; otherwise the ids must not
                contain control tokens.
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
