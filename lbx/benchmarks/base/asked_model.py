"""The model that a run asks, for families with samples that depend on its tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from lbx.prompting.wrapping import Tokenizer


class ModelTokenizer(NamedTuple):
    """A model's tokenizer, loaded without the weights.

    Attributes:
        sha256: hash of the tokenizer's definition; of a GGUF file, hash of the header's keys of the tokenizer, so that
            all quantisations of a model share it.
        wrapping_tokens: tokens that the card's chat template adds to a user's message, BOS included, with the reasoning
            on or off, whichever adds more; 0 without a template.
        count: returns the number of tokens of a text, without BOS and with control tokens as single tokens.
    """

    tokenizer: Tokenizer
    sha256: str
    wrapping_tokens: int
    count: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class AskedModel:
    """A model before its weights are loaded. It can be pickled.

    Attributes:
        context_window: tokens; None if only the loaded model, or its server, has the number.
        load_tokenizer: takes seconds with a large vocabulary. Raises UsageError if the card has no tokenizer, and
            BackendError if its files are damaged.
    """

    context_window: int | None
    load_tokenizer: Callable[[], ModelTokenizer]
