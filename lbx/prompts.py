"""From a prompt's text to the tokens that a model reads: chat wrapping, truncation, one BOS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """What prompts need of a tokenizer. No method adds BOS or EOS; ``Prompter`` does, once."""

    @property
    def bos_token(self) -> str:
        """The BOS token's text for chat templates, "" where the model has none."""
        ...

    @property
    def eos_token(self) -> str: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def adds_bos(self) -> bool:
        """Whether the model expects a BOS before plain text."""
        ...

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Text -> id of the tokens that ``encode(special=True)`` recognises and ``special=False`` spells out."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The model's Jinja chat template, or None for a base model."""
        ...

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of the text. special=True turns control tokens' texts into their ids; False keeps them text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, control tokens left out, spaces untouched."""
        ...
