"""The logits behind a given text, and where an answer parts from another one to the same prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lbx.inference.model import Extend, LocalBackend

if TYPE_CHECKING:
    from lbx.inference.model import Logits


class Flip(NamedTuple):
    """Where two answers to one prompt part.

    Attributes:
        place: index of the first differing token.
        gap: how far the logit of the token chosen there lies above that of the other answer's; None where the model
            has no such token.
    """

    place: int
    gap: float | None


class FlipWatch:
    """Watches an answer for the first token that is not another answer's.

    Attributes:
        flip: where they part; None as long as they do not.
    """

    def __init__(self, other: Sequence[int]) -> None:
        self._other = other
        self.flip: Flip | None = None

    def __call__(self, place: int, logits: Logits, token: int) -> None:
        if self.flip is None and place < len(self._other) and token != (other := self._other[place]):
            self.flip = Flip(place, float(logits[token] - logits[other]) if other < len(logits) else None)


def forced(backend: LocalBackend, prompt: Sequence[int], tokens: Sequence[int]) -> Iterator[Logits]:
    """The logits after a prompt, and after each of the tokens that are put behind it.

    Raises:
        BackendError: the model failed.
    """
    memory = backend.sequences()

    def after(ids: Sequence[int]) -> Logits:
        (logits,) = memory.extend([Extend(0, ids, wants_logits=True)])
        assert logits is not None
        return logits

    try:
        for at in range(0, len(prompt), memory.max_step):
            logits = after(prompt[at : at + memory.max_step])
        yield logits
        yield from (after((token,)) for token in tokens)
    finally:
        memory.drop(0)
