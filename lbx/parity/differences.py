"""Differences of two models: logits after a given text, and the first differing token of their answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from lbx.inference.model import Extend, LocalBackend

if TYPE_CHECKING:
    from lbx.inference.model import Logits


@dataclass(frozen=True, slots=True)
class LogitDifference:
    """Differences of logits over a number of positions.

    Attributes:
        positions: number of compared positions; all means are over these.
        max_abs: largest |a - b| of any token at any position.
        mean_abs: mean over tokens and positions.
        kl, max_kl: Kullback-Leibler divergence of the second model's distribution from the first one's, KL(a || b),
            in nats: its mean and its maximum.
        same_top: number of positions with the same likeliest token in both models.
    """

    positions: int = 0
    max_abs: float = 0.0
    mean_abs: float = 0.0
    kl: float = 0.0
    max_kl: float = 0.0
    same_top: int = 0

    @property
    def top_agreement(self) -> float:
        """Share of positions with the same likeliest token; 0 without positions."""
        return self.same_top / self.positions if self.positions else 0.0

    def to_json(self) -> dict[str, Any]:
        values = asdict(self) | {"top_agreement": self.top_agreement}
        del values["same_top"]
        return values


NO_DIFFERENCE = LogitDifference()
"""Difference over no positions."""


def compare(a: Logits, b: Logits) -> LogitDifference:
    """Compare logits at one position.

    Shapes (vocabulary,); vocabularies of different sizes (padding) are compared on their common tokens.
    """
    import numpy as np

    size = min(len(a), len(b))
    first, second = a[:size].astype(np.float64), b[:size].astype(np.float64)
    apart = np.abs(np.subtract(first, second, where=first != second, out=np.zeros(size)))
    p, q = _log_softmax(first), _log_softmax(second)
    possible = np.exp(p) > 0
    kl = max(0.0, float(np.sum(np.exp(p[possible]) * (p[possible] - q[possible]))))
    same = int(np.argmax(first) == np.argmax(second))
    return LogitDifference(1, float(apart.max()), float(apart.mean()), kl, kl, same)


def merge(parts: Iterable[LogitDifference]) -> LogitDifference:
    measured = [part for part in parts if part.positions]
    total = sum(part.positions for part in measured)
    if not total:
        return NO_DIFFERENCE
    return LogitDifference(
        positions=total,
        max_abs=max(part.max_abs for part in measured),
        mean_abs=sum(part.mean_abs * part.positions for part in measured) / total,
        kl=sum(part.kl * part.positions for part in measured) / total,
        max_kl=max(part.max_kl for part in measured),
        same_top=sum(part.same_top for part in measured),
    )


def _log_softmax(logits: Any) -> Any:
    import numpy as np

    shifted = logits - logits.max()
    return shifted - np.log(np.sum(np.exp(shifted)))


class Flip(NamedTuple):
    """First difference between two answers to one prompt.

    Attributes:
        position: index of the first differing token.
        gap: logit of the token chosen there minus the logit of the other answer's token; None if the model has no such
            token.
    """

    position: int
    gap: float | None


class FlipWatch:
    """Watch for the first token of an answer that differs from another answer; ``flip`` is None until then."""

    def __init__(self, other: Sequence[int]) -> None:
        self._other = other
        self.flip: Flip | None = None

    def __call__(self, position: int, logits: Logits, token: int) -> None:
        if self.flip is None and position < len(self._other) and token != (other := self._other[position]):
            self.flip = Flip(position, float(logits[token] - logits[other]) if other < len(logits) else None)


def forced_logits(backend: LocalBackend, prompt: Sequence[int], tokens: Sequence[int]) -> Iterator[Logits]:
    """Yield the logits after a prompt, and after each token that follows it.

    Raises:
        BackendError: the model failed.
    """
    memory = backend.sequences()

    def extend(ids: Sequence[int]) -> Logits:
        (logits,) = memory.extend([Extend(0, ids, wants_logits=True)])
        assert logits is not None
        return logits

    try:
        for at in range(0, len(prompt), memory.max_step):
            logits = extend(prompt[at : at + memory.max_step])
        yield logits
        yield from (extend((token,)) for token in tokens)
    finally:
        memory.drop(0)
