"""Text at the tokenizers' door, and the stop rule that every backend shares."""

from __future__ import annotations

from collections.abc import Sequence

from lbx.prompts import Tokenizer


def encodable(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD: they have no UTF-8 form, and tokenizers fail on them.

    A high and a low surrogate that stand together become the character they mean.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class StopStrings:
    """Finds the first stop string in what was generated so far, looking at the tail only.

    Args:
        stop: the strings; empty ones are ignored.
        exempt: how many leading tokens a stop string may not touch (``Request.min_new_tokens``).
    """

    def __init__(self, stop: Sequence[str], tokenizer: Tokenizer, exempt: int) -> None:
        self._stop = tuple(s for s in stop if s)
        self._tokenizer = tokenizer
        self._exempt = exempt
        self._silent = frozenset(tokenizer.control_tokens.values()) if self._stop else frozenset()
        # A token that is no control token stands for at least one byte, so this many tokens hold any stop string;
        # a few more, because the first of them may begin inside a character or lose its leading space.
        self._tail = max((len(s.encode("utf-8", "replace")) for s in self._stop), default=0) + 4
        self._recent: list[int] = []

    def find(self, ids: Sequence[int]) -> str | None:
        """The text before the first stop string, or None where there is none. Call it after every token."""
        if not self._stop:
            return None
        if ids[-1] not in self._silent:
            self._recent = [*self._recent[-self._tail :], ids[-1]]
        tail = self._tokenizer.decode(self._recent)
        if len(ids) <= self._exempt or not any(s in tail for s in self._stop):
            return None
        text = self._tokenizer.decode(ids)
        start = len(self._tokenizer.decode(ids[: self._exempt])) if self._exempt else 0
        found = [at for s in self._stop if (at := text.find(s, start)) >= 0]
        return text[: min(found)] if found else None


def stop_ids(stop: Sequence[str], tokenizer: Tokenizer) -> frozenset[int]:
    """Tokens whose whole text is a stop string: they may not come before ``min_new_tokens``.

    LongBench's samsum forbids the line break's token as the first one this way (``min_length``, with that token
    among the ends of sequence). Longer tokens that merely begin with a line break stay allowed, as they are there.
    """
    ids = (tokenizer.encode(s, special=False)[-1:] for s in stop if s)
    return frozenset(i[0] for i, s in zip(ids, (s for s in stop if s), strict=True) if i and tokenizer.decode(i) == s)
