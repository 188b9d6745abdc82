"""A Hugging Face tokenizer, as prompts need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from lbx.base.records import encodable
from lbx.prompting.reasoning import choose_marks


class HfTokenizer:
    """Wraps a tokenizer of transformers.

    The Rust tokenizer inside is asked directly where there is one: no truncation set in tokenizer.json, no warning
    about long texts, no clean-up of spaces stands between text and ids.

    Args:
        chat_template: the template to use, or None.
        reasoning: the marks that the model card names.
    """

    def __init__(self, tokenizer: Any, chat_template: str | None, reasoning: tuple[str, str] | None = None) -> None:
        self._tokenizer = tokenizer
        self._rust = tokenizer.backend_tokenizer if getattr(tokenizer, "is_fast", False) else None
        if self._rust is not None:
            self._rust.no_truncation()
            self._rust.no_padding()
        self.chat_template = chat_template
        self.reasoning_marks = choose_marks(chat_template, self._is_token, reasoning)

    @property
    def bos_id(self) -> int | None:
        token: int | None = self._tokenizer.bos_token_id
        return token

    @property
    def bos_token(self) -> str:
        return str(self._tokenizer.bos_token or "")

    @property
    def eos_token(self) -> str:
        return str(self._tokenizer.eos_token or "")

    @cached_property
    def prefix_ids(self) -> tuple[int, ...]:
        bare, whole = (self._encode("a", split=False, add=add) for add in (False, True))
        return next((tuple(whole[:n]) for n in range(len(whole)) if whole[n : n + len(bare)] == bare), ())

    @cached_property
    def control_tokens(self) -> Mapping[str, int]:
        added = self._tokenizer.added_tokens_decoder
        return {token.content: number for number, token in added.items() if token.special and token.content}

    def encode(self, text: str, *, special: bool) -> list[int]:
        return self._encode(encodable(text), split=not special, add=False)

    def decode(self, ids: Sequence[int]) -> str:
        if self._rust is not None:
            return str(self._rust.decode(list(ids), skip_special_tokens=True))
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _is_token(self, text: str) -> bool:
        return any(token.content == text for token in self._tokenizer.added_tokens_decoder.values())

    def _encode(self, text: str, *, split: bool, add: bool) -> list[int]:
        if self._rust is not None:
            self._rust.encode_special_tokens = split
            return list(self._rust.encode(text, add_special_tokens=add).ids)
        ids: list[int] = self._tokenizer(text, add_special_tokens=add, split_special_tokens=split, verbose=False)[
            "input_ids"
        ]
        return ids


def own_chat_template(tokenizer: Any) -> str | None:
    """The tokenizer's chat template (of several the one called "default"), or None for a base model."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        template = template.get("default") or next(iter(template.values()), None)
    return template or None
