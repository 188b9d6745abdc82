"""Where two answers to one prompt part: the token at which one way of decoding chose otherwise than the other.

Of the stored answer only the text is known, not its tokens. The answer made alone is known token by token, with the
likeliest tokens at each place. Its tokens follow the stored text up to some place; there, or a little before, the
other one was chosen. "Before", because a token may begin as the stored text goes on and yet be another than the one
chosen there (" the" where " there" was said). Of all such tokens that continue the stored text the one with the
smallest gap to the token chosen alone is taken: what moves logits a little flips near-ties, and alternative spellings
of a text lie far apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lbx.backends.loop import Decoding
from lbx.backends.text import HALF
from lbx.prompts import Tokenizer
from lbx.records import Completion, Request

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lbx.backends.sampling import Logits

LIKELIEST = 32
"""How many tokens are kept of each place."""

_HIDDEN = 4
"""So many tokens before the texts part the other one may have been chosen: the bytes of a character, the parts of a
word. Further back it would have had to lead to the same words."""


class Choice(NamedTuple):
    """The likeliest tokens of one place, the best first, and their logits; and the logit of the one chosen."""

    ids: NDArray[np.int64]
    logits: NDArray[np.float32]
    chosen: float

    @classmethod
    def of(cls, logits: Logits, token: int, count: int = LIKELIEST) -> Choice:
        import numpy as np

        count = min(count, len(logits))
        best = np.argpartition(logits, len(logits) - count)[len(logits) - count :]
        best = best[np.argsort(-logits[best], kind="stable")]
        return cls(best, logits[best], float(logits[token]))


class Flip(NamedTuple):
    """Where the answers part.

    Attributes:
        place: of the first differing token, from 0.
        gap: how much larger the logit of the token chosen alone is than that of the best token that continues the
            other answer; None where none of those looked at does, or the answer was sampled.
    """

    place: int
    gap: float | None


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer of which the text is known.

    Attributes:
        output_tokens, finish_reason: None where they are not known.
    """

    request: Request
    tokenizer: Tokenizer
    eos_ids: Collection[int]
    output: str
    reasoning: str | None = None
    finish_reason: str | None = None
    output_tokens: int | None = None

    def equals(self, said: Completion) -> bool:
        """Whether an answer is this one: its text, its reasoning, how it ended, and after how many tokens."""
        return (
            (said.text, said.reasoning) == (self.output, self.reasoning)
            and self.finish_reason in (None, said.finish_reason)
            and self.output_tokens in (None, said.output_tokens)
        )

    def begins(self, tokens: Sequence[int]) -> bool:
        """Whether this answer may begin with these tokens, an end of sequence included."""
        decoding = Decoding(self.request, self.tokenizer, self.eos_ids)
        ended = False
        for token in tokens:
            ended = not decoding.push(token)
            if ended:
                break
        said = decoding.completion()
        if ended:
            same = (said.text, said.reasoning) == (self.output, self.reasoning)
            return same and self.finish_reason in (None, said.finish_reason)
        if said.reasoning is None:
            return self._begins_without_block(said.text)
        if self.reasoning is None:
            return False
        if not said.reasoning_closed:
            return _is_start(said.reasoning, self.reasoning)
        return said.reasoning == self.reasoning and self._goes_on(said.text.lstrip(), self.output.lstrip())

    def _begins_without_block(self, text: str) -> bool:
        if self.reasoning is None:
            return self._goes_on(text, self.output)
        # A block may open yet, with or without words before it, or be found by its closing mark alone.
        opening = self.tokenizer.reasoning_marks.open
        output = self.output.lstrip()
        words, mark, inside = text.strip().partition(opening)
        if mark:
            return output.startswith(words) and _is_start(inside.strip(), self.reasoning)
        begun = next((n for n in range(len(opening), 0, -1) if words.endswith(opening[:n])), 0)
        words = words[: len(words) - begun]
        return _is_start(words, output) or _is_start(words, self.reasoning)

    def _goes_on(self, text: str, whole: str) -> bool:
        """Whether the text is the start of the whole, or goes beyond it into a stop string, which is left out of it."""
        if _is_start(text, whole):
            return True
        rest = text.removeprefix(whole).rstrip(HALF)
        return (
            text.startswith(whole)
            and self.finish_reason != "length"
            and any(stop.startswith(rest) for stop in self.request.stop)
        )


def _is_start(text: str, whole: str) -> bool:
    """Whether the whole begins with the text, whose last character may be half."""
    known = text.rstrip(HALF)
    if not whole.startswith(known):
        return False
    return whole.startswith(text) or not whole[len(known) : len(known) + 1].isascii()


def find_flip(stored: StoredAnswer, tokens: Sequence[int], choices: Sequence[Choice]) -> Flip | None:
    """Where the stored answer parts from the one whose tokens are given, with the choice at each of them.

    None: it does not.
    """
    length = _shared(stored, tokens)
    if length == len(tokens):
        return None
    if stored.request.sampling.temperature:
        return Flip(length, None)
    found = Flip(length, _gap(stored, tokens, choices, length))
    for place in range(max(0, length - _HIDDEN), length):
        bound = float("inf") if found.gap is None else found.gap
        earlier = _gap(stored, tokens, choices, place, below=bound)
        if earlier is not None:
            found = Flip(place, earlier)
    return found


def _shared(stored: StoredAnswer, tokens: Sequence[int]) -> int:
    """How many of the first tokens the stored answer may begin with."""
    low, high = 0, len(tokens)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if stored.begins(tokens[:middle]) else (low, middle - 1)
    return low


def _gap(
    stored: StoredAnswer,
    tokens: Sequence[int],
    choices: Sequence[Choice],
    place: int,
    *,
    below: float = float("inf"),
) -> float | None:
    """The gap to the best other token that continues the stored answer, where that is smaller than a bound."""
    choice = choices[place]
    for token, logit in zip(choice.ids.tolist(), choice.logits.tolist(), strict=True):
        gap = choice.chosen - logit
        if gap >= below:
            return None
        if token != tokens[place] and stored.begins([*tokens[:place], token]):
            return float(gap)
    return None


def gap_in(
    stored: StoredAnswer, tokens: Sequence[int], logits: Logits, place: int, *, most: int = 4096
) -> float | None:
    """As ``Flip.gap``, looking beyond the likeliest tokens: the logits are all of those at the place."""
    whole = Choice.of(logits, tokens[place], most)
    return _gap(stored, tokens, [whole] * (place + 1), place)
