"""Text at the tokenizers' door, and the stop rule that every backend shares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from lbx.prompting.prompter import Tokenizer

HALF = "\ufffd"
"""What a character decodes to whose last bytes are still to come."""


def encodable(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD: they have no UTF-8 form, and tokenizers fail on them.

    A high and a low surrogate that stand together become the character they mean.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Tail:
    """The end of what was generated, long enough to show whether a string has just been completed.

    Args:
        strings: what to look for, none of them empty.
    """

    def __init__(self, strings: Sequence[str], tokenizer: Tokenizer) -> None:
        self._strings = tuple(strings)
        self._tokenizer = tokenizer
        self._silent = frozenset(tokenizer.control_tokens.values())
        # A token that is no control token stands for at least one byte, so this many tokens hold any of the strings;
        # a few more, because the first of them may begin inside a character or lose its leading space.
        self._length = max((len(s.encode("utf-8", "replace")) for s in self._strings), default=0) + 5
        self._recent: list[int] = []

    def push(self, *tokens: int) -> None:
        heard = [token for token in tokens if token not in self._silent]
        self._recent = [*self._recent, *heard][-self._length :]

    def hit(self) -> bool:
        """Whether one of the strings stands in the tail; only the whole text can tell whether it is really there."""
        if not self._strings:
            return False
        tail = self._tokenizer.decode(self._recent)
        return any(s in tail for s in self._strings)


class Stops:
    """Finds what ends an answer in what was generated so far: the first stop string, or a stop token.

    Args:
        stop: the strings; empty ones are ignored. Only the tail is searched for them.
        exempt: how many leading tokens a stop may not touch (``Request.min_new_tokens``).
        tokens: those that end the answer by themselves.
        view: the text that is searched, from all tokens; default: what the tokenizer decodes.
        skip_blank: blanks at the front of the text end nothing.
        seen: tokens that were made before the first call of ``find``.
    """

    def __init__(
        self,
        stop: Sequence[str],
        tokenizer: Tokenizer,
        exempt: int,
        *,
        tokens: Collection[int] = (),
        view: Callable[[Sequence[int]], str] | None = None,
        skip_blank: bool = False,
        seen: Sequence[int] = (),
    ) -> None:
        self._stop = tuple(s for s in stop if s)
        self._exempt = exempt
        self._tokens = frozenset(tokens)
        self._view = view or tokenizer.decode
        self._skip_blank = skip_blank
        self._tail = Tail(self._stop, tokenizer)
        self._tail.push(*seen)

    def find(self, ids: Sequence[int]) -> str | None:
        """The text before the first stop, or None where there is none. Call it after every token."""
        if not self._stop and not self._tokens:
            return None
        self._tail.push(ids[-1])
        if len(ids) <= self._exempt:
            return None
        if ids[-1] in self._tokens and ((text := self._view(ids[:-1])).strip() or not self._skip_blank):
            return text
        if not self._tail.hit():
            return None
        text = self._view(ids)
        start = len(text) - len(text.lstrip()) if self._skip_blank else 0
        if self._exempt:
            start = max(start, len(self._view(ids[: self._exempt])))
        found = [at for s in self._stop if (at := text.find(s, start)) >= 0]
        return text[: min(found)] if found else None


def stop_ids(stop: Sequence[str], tokenizer: Tokenizer) -> frozenset[int]:
    """Tokens whose whole text is one of these: stop tokens, and what may not come before ``min_new_tokens``.

    LongBench's samsum has the line break's token among the ends of sequence and forbids it as the first one this way
    (``min_length``). Longer tokens that merely begin with a line break are neither, as they are there.
    """
    ids = (tokenizer.encode(s, special=False)[-1:] for s in stop if s)
    return frozenset(i[0] for i, s in zip(ids, (s for s in stop if s), strict=True) if i and tokenizer.decode(i) == s)
