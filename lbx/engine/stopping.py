"""Stop strings and stop tokens: where an answer ends, found while the answer grows token by token."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from lbx.engine.prompter import Tokenizer


class TokenTail:
    """Last generated tokens, enough of them to detect a string that was just completed.

    Args:
        strings: strings to detect, none of them empty.
    """

    def __init__(self, strings: Sequence[str], tokenizer: Tokenizer) -> None:
        self._strings = tuple(strings)
        self._tokenizer = tokenizer
        self._silent = frozenset(tokenizer.hidden_tokens.values())
        # A token that is no control token is at least one byte long, so this many tokens contain any of the strings;
        # a few more, because the first of them may begin inside a character or lose its leading space.
        self._length = max((len(s.encode("utf-8", "replace")) for s in self._strings), default=0) + 5
        self._recent: list[int] = []

    def push(self, *tokens: int) -> None:
        heard = [token for token in tokens if token not in self._silent]
        self._recent = [*self._recent, *heard][-self._length :]

    def may_contain_string(self) -> bool:
        """Whether the tail's text contains a string: a cheap filter before a search of the whole text."""
        if not self._strings:
            return False
        tail = self._tokenizer.decode(self._recent)
        return any(s in tail for s in self._strings)


class StopSearch:
    """Search for the first stop string or stop token of an answer.

    Args:
        stop: stop strings; empty ones are ignored.
        exempt: number of leading tokens that are not searched (``Request.min_new_tokens``).
        tokens: stop tokens.
        view: decodes all tokens to the text that is searched; default: the tokenizer's.
        skip_blank: ignore stops in leading blanks.
        prefix_ids: tokens before the first call of ``find``.
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
        prefix_ids: Sequence[int] = (),
    ) -> None:
        self._stop = tuple(s for s in stop if s)
        self._exempt = exempt
        self._tokens = frozenset(tokens)
        self._view = view or tokenizer.decode
        self._skip_blank = skip_blank
        self._tail = TokenTail(self._stop, tokenizer)
        self._tail.push(*prefix_ids)

    def find(self, ids: Sequence[int]) -> str | None:
        """Text before the first stop, or None without a stop. Must be called after every token."""
        if not self._stop and not self._tokens:
            return None
        self._tail.push(ids[-1])
        if len(ids) <= self._exempt:
            return None
        if ids[-1] in self._tokens and ((text := self._view(ids[:-1])).strip() or not self._skip_blank):
            return text
        if not self._tail.may_contain_string():
            return None
        text = self._view(ids)
        start = len(text) - len(text.lstrip()) if self._skip_blank else 0
        if self._exempt:
            start = max(start, len(self._view(ids[: self._exempt])))
        places = [at for s in self._stop if (at := text.find(s, start)) >= 0]
        return text[: min(places)] if places else None


def stop_token_ids(stop: Sequence[str], tokenizer: Tokenizer) -> frozenset[int]:
    """Ids of tokens with a text in ``stop``: they end an answer, and are forbidden before ``min_new_tokens``.

    An official script treats the token of a line break as an end of sequence, and forbids it as the first token
    (``min_length``). As there, longer tokens that begin with a line break neither end the answer nor are forbidden.
    """
    ids = (tokenizer.encode(s, special=False)[-1:] for s in stop if s)
    return frozenset(i[0] for i, s in zip(ids, (s for s in stop if s), strict=True) if i and tokenizer.decode(i) == s)
