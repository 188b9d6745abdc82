"""Control tokens, and the marks around reasoning."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

_HTML = frozenset(
    """
    a abbr b big blockquote body br button caption center cite code col dd del div dl dt em footer form h1 h2 h3 h4
    h5 h6 head header hr html i iframe img input ins kbd label li link main meta nav ol option p pre q s samp script
    section select small span strike strong style sub summary sup svg table tbody td textarea tfoot th thead title
    tr tt u ul var
    """.split()  # noqa: SIM905
)
_TAG = re.compile(r"</?([a-z]+[1-6]?)/?>")
_WORDS = re.compile(r"[\w\s▁]*")
_BRACKETS = frozenset("<>[]|｜")


def is_control_token(text: str, chat_template: str | None) -> bool:
    """Whether an added token without the special flag steers the model, like the role tokens of DeepSeek and Command R.

    Other added tokens shorten texts: words, runs of blanks (Phi-2, Gemma), HTML tags (Gemma). Documents are encoded
    with them.

    Args:
        chat_template: Jinja source of the template in use, or None.
    """
    if _WORDS.fullmatch(text) or not any(map(str.isalnum, text)):
        return False
    if text in (chat_template or ""):
        return True
    tag = _TAG.fullmatch(text)
    if tag and tag[1] in _HTML:
        return False
    return not _BRACKETS.isdisjoint(text)


def is_control_name(text: str) -> bool:
    """Whether a token's text has the form of a control token, in a vocabulary that does not flag them: <|end|>."""
    is_bracketed = text[:1] in _BRACKETS and text[-1:] in _BRACKETS
    return text in ("<s>", "</s>") or (is_bracketed and is_control_token(text, None))


class _Encoder(Protocol):
    def encode(self, text: str, *, special: bool) -> list[int]: ...


def encode_separately(tokenizer: _Encoder, pieces: Sequence[str | int]) -> list[int]:
    """Encode texts and control tokens in order, so that control tokens do not affect the texts around them."""
    parts = ([piece] if isinstance(piece, int) else tokenizer.encode(piece, special=False) for piece in pieces)
    return [token for part in parts for token in part]


class ReasoningMarks(NamedTuple):
    """Marks that open and close reasoning, as text; control tokens appear by their texts.

    Attributes:
        header: for answers in several messages: end of a message, alternative beginnings of a header, and last the end
            of the header. () for others.
        end: text that ends the answer after the reasoning; "" if only the end of sequence does.
    """

    open: str
    close: str
    header: tuple[str, ...] = ()
    end: str = ""


THINK = ReasoningMarks("<think>", "</think>")
KNOWN = (
    THINK,
    ReasoningMarks("[THINK]", "[/THINK]"),  # Magistral
    ReasoningMarks("<seed:think>", "</seed:think>"),  # Seed-OSS
    ReasoningMarks("<|channel>thought", "<channel|>"),  # Gemma 4
    ReasoningMarks("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", end="[END FINAL RESPONSE]"),  # Apriel
    # Harmony: a model that skips the analysis goes to the final channel at once, so the close is short.
    ReasoningMarks(
        "<|channel|>analysis<|message|>",
        "<|channel|>final<|message|>",
        ("<|end|>", "<|start|>", "<|channel|>", "<|message|>"),
    ),
)
