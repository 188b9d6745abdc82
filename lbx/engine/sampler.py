"""Choice of an answer's next token from the logits, equal on every backend that computes the same logits."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from lbx.base.errors import BackendError
from lbx.base.records import Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.engine.model import Logits


def gumbel_noise(seed: int, key: str, step: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise for sampling, one number for each of at least one token ids.

    The noise depends only on the arguments: not on order, batch, or library versions (numpy promises to keep the bits
    of Philox, but not the output of its generators).
    """

    digest = hashlib.sha256(f"{seed}\n{key}\n{step}".encode("utf-8", "surrogatepass")).digest()
    bits = np.random.Philox(key=int.from_bytes(digest[:16], "big")).random_raw(int(ids.max()) + 1)[ids]
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) / 2**52  # never 0 and never 1
    gumbel: NDArray[np.float64] = -np.log(-np.log(uniform))
    return gumbel


class Sampler:
    """Sampler of an answer's tokens, by the sampling settings and the key of the request."""

    def __init__(self, request: Request) -> None:
        self._sampling = request.sampling
        self._key = str(request.key)

    def choose(self, logits: Logits, step: int, forbidden: Collection[int] = ()) -> int:
        """Choose the next token of the answer.

        Args:
            logits: shape (vocabulary,), float32; not changed.
            step: number of tokens generated before.
            forbidden: ids that may not be chosen now.

        Raises:
            BackendError: the logits contain NaN, e.g. from broken weights or an overflow of float16.
        """
        if forbidden:
            logits = logits.copy()
            logits[sorted(forbidden)] = -np.inf
        best = int(np.argmax(logits))
        if not np.isfinite(logits[best]):
            raise BackendError(
                "The model produced NaN or infinite logits for the next token.",
                fix="Either its weights are damaged or the number format overflows: try dtype float32 or bfloat16.",
            )
        if self._sampling.temperature == 0:
            return best
        # Apply temperature and cuts, and take the remaining token with the largest sum of logit and noise. Such a draw
        # follows the softmax exactly (the Gumbel-max trick), and as each token's noise is its own, logits that differ
        # in their last bits give another token only at a near-tie. Drawing by cumulated probabilities is less stable:
        # if two of many unlikely tokens change places, all tokens after them shift.
        candidates = self._candidate_ids(logits)
        gumbel = gumbel_noise(self._sampling.seed, self._key, step, candidates)
        return int(candidates[np.argmax(logits[candidates].astype(np.float64) / self._sampling.temperature + gumbel)])

    def _candidate_ids(self, logits: Logits) -> NDArray[np.int64]:
        """Token ids that remain after top-k, top-p and min-p, applied in this order, as in transformers."""
        sampling = self._sampling
        if not sampling.top_k and sampling.top_p >= 1 and not sampling.min_p:
            return np.arange(len(logits))
        ids = np.arange(len(logits))
        if 0 < sampling.top_k < len(ids):  # to sort these and their ties takes a tenth of the time
            ids = np.flatnonzero(logits >= np.partition(logits, -sampling.top_k)[-sampling.top_k])
        # Sorted, so that each cut is a prefix; stable, so that ties fall to the lower id as argmax has it.
        order = ids[np.argsort(-logits[ids], kind="stable")]
        if sampling.top_k:
            order = order[: sampling.top_k]
        scaled = logits[order].astype(np.float64) / sampling.temperature
        weights = np.exp(scaled - scaled[0])
        if sampling.top_p < 1:
            before = np.cumsum(weights) - weights
            weights = weights[before < sampling.top_p * weights.sum()]
        if sampling.min_p > 0:
            weights = weights[weights >= sampling.min_p * weights[0]]
        return order[: len(weights)]
