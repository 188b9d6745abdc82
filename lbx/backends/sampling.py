"""The choice of the next token, shared by all backends: the same logits give the same token."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lbx.errors import BackendError
from lbx.records import Request

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Logits = NDArray[np.float32]


def uniform(seed: int, key: str, step: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments: not on order, batch, or library versions."""
    digest = hashlib.sha256(f"{seed}\n{key}\n{step}".encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:7], "big") >> 3) / 2**53  # 53 bits: what a float holds, so never rounded up to 1


class Sampler:
    """Chooses the tokens of one request.

    Args:
        request: its ``sampling``, ``key`` and ``min_new_tokens`` count.
        endings: ids that may not be chosen among the first ``min_new_tokens`` tokens.
    """

    def __init__(self, request: Request, endings: Iterable[int]) -> None:
        self._sampling = request.sampling
        self._key = str(request.key)
        self._exempt = request.min_new_tokens
        self._endings = sorted(set(endings)) if self._exempt > 0 else []

    def choose(self, logits: Logits, step: int) -> int:
        """The token of this step.

        Args:
            logits: shape (vocabulary,), float32; not changed.
            step: how many tokens were made before.

        Raises:
            BackendError: the logits hold NaN, as broken weights or an overflow of float16 give.
        """
        import numpy as np

        if step < self._exempt and self._endings:
            logits = logits.copy()
            logits[self._endings] = -np.inf
        best = int(np.argmax(logits))
        if not np.isfinite(logits[best]):
            raise BackendError(
                "The model computed no numbers (NaN or infinity) for the next token.",
                fix="Its weights are damaged, or the number format overflows: try dtype float32 or bfloat16.",
            )
        if self._sampling.temperature == 0:
            return best
        return self._draw(logits, uniform(self._sampling.seed, self._key, step))

    def _draw(self, logits: Logits, u: float) -> int:
        """Temperature, then top-k, top-p and min-p, each on what the one before left (the order of transformers)."""
        import numpy as np

        sampling = self._sampling
        # Sorted, so that each cut is a prefix; stable, so that ties fall to the lower id as argmax has it.
        order = np.argsort(-logits, kind="stable")
        if sampling.top_k:
            order = order[: sampling.top_k]
        scaled = logits[order].astype(np.float64) / sampling.temperature
        weights = np.exp(scaled - scaled[0])
        if sampling.top_p < 1:
            before = np.cumsum(weights) - weights
            weights = weights[before < sampling.top_p * weights.sum()]
        if sampling.min_p > 0:
            weights = weights[weights >= sampling.min_p * weights[0]]
        bounds = np.cumsum(weights)
        at = int(np.searchsorted(bounds, u * bounds[-1], side="right"))
        return int(order[min(at, len(bounds) - 1)])
