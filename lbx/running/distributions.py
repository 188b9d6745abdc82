"""Compressed distributions of the next token at successive positions of a text.

Of each position the likeliest tokens are stored, until the others sum to at most ``REST_MASS``, and the mass of the
others. Of every ``AUDIT_STEP``-th position the whole distribution is stored, which measures the error of the
Kullback-Leibler divergence that is computed from the likeliest tokens only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.engine.model import Logits

REST_MASS = 1e-4
"""Largest probability of all tokens of a position that are not stored one by one."""
AUDIT_STEP = 127
"""Number of positions between two stored whole distributions; odd, so that they fall on all places of a pass."""
_THRESHOLDS = (3e-5, 1e-5, 4e-6, 2e-6, 1e-6, 5e-7, 2e-7, 1e-7, 3e-8, 1e-8)
"""Probabilities from which a position's tokens are stored: the first that leaves at most ``REST_MASS``, or all."""
_LEAST_MASS = 1e-12


class Distributions(NamedTuple):
    """Distributions of the next token at successive positions, compressed.

    Attributes:
        counts: number of stored tokens of each position.
        ids, log_probs: stored tokens of all positions, position by position, and their log probabilities.
        rest_mass: probability of the other tokens.
        next_log_probs: log probability of the text's next token, or NaN after the last one.
        top: likeliest token.
        audit_indices: indices of the positions with whole distributions.
        whole_log_probs: log probabilities of all tokens there, shape (positions, vocabulary).
    """

    counts: NDArray[np.int32]
    ids: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    rest_mass: NDArray[np.float64]
    next_log_probs: NDArray[np.float64]
    top: NDArray[np.int32]
    audit_indices: NDArray[np.int32]
    whole_log_probs: NDArray[np.float32]

    @classmethod
    def of_logits(cls, logits: Logits, tokens: Sequence[int], start: int) -> Distributions:
        """Compress the distributions after ``tokens[start:]``. ``logits``: shape (positions, vocabulary)."""
        probs, normaliser = softmax(logits)
        bounds, rest = np.zeros(len(logits), np.float32), np.ones(len(logits))
        for threshold in _THRESHOLDS:
            rows = np.flatnonzero(rest > REST_MASS)
            bounds[rows] = threshold
            rest[rows] = np.sum(probs[rows], axis=1, dtype=np.float64, where=probs[rows] < threshold)
        everything = rest > REST_MASS
        bounds[everything], rest[everything] = 0, 0
        rows, ids = np.nonzero(probs >= bounds[:, None])
        audited = np.flatnonzero((start + np.arange(len(logits))) % AUDIT_STEP == 0)
        return cls(
            np.bincount(rows, minlength=len(logits)).astype(np.int32),
            ids.astype(np.int32),
            (logits[rows, ids] - normaliser[rows]).astype(np.float32),
            rest,
            next_log_probs(logits, normaliser, tokens, start),
            logits.argmax(axis=1).astype(np.int32),
            audited.astype(np.int32),
            (logits[audited] - normaliser[audited, None]).astype(np.float32),
        )

    @classmethod
    def load(cls, file: Any) -> Distributions:
        return cls(*(np.load(file, allow_pickle=False) for _ in cls._fields))

    def divergences(self, logits: Logits, normaliser: NDArray[np.float64]) -> NDArray[np.float64]:
        """Kullback-Leibler divergence of a candidate's logits from these distributions, in nats, by position.

        The tokens that are not stored count as one, so the divergence is too small by at most their share of it.
        """
        rows = np.repeat(np.arange(len(self.counts)), self.counts)
        own = self.log_probs.astype(np.float64)
        mass, is_known = np.exp(own), self.ids < logits.shape[1]  # another model's padded vocabulary may be shorter
        rest = self.rest_mass + np.bincount(rows[~is_known], mass[~is_known], len(self.counts))
        rows, own, mass = rows[is_known], own[is_known], mass[is_known]
        other = logits[rows, self.ids[is_known]] - normaliser[rows]
        other_rest = np.maximum(1 - np.bincount(rows, np.exp(other), len(self.counts)), _LEAST_MASS)
        divergence = np.bincount(rows, mass * (own - other), len(self.counts))
        divergence += rest * (np.log(np.maximum(rest, _LEAST_MASS)) - np.log(other_rest))
        return np.asarray(np.maximum(divergence, 0))

    def whole_divergences(self, logits: Logits) -> NDArray[np.float64]:
        """Divergence at the audited positions, from whole distributions."""
        size = min(logits.shape[1], self.whole_log_probs.shape[1])
        own = self.whole_log_probs[:, :size].astype(np.float64)
        other = logits[self.audit_indices].astype(np.float64) - softmax(logits[self.audit_indices])[1][:, None]
        return np.asarray(np.maximum(np.sum(np.exp(own) * (own - other[:, :size]), axis=1), 0))


def softmax(logits: Logits) -> tuple[Logits, NDArray[np.float64]]:
    """Probabilities, and the logarithm of the sum of the exponentials, of each row."""
    highest = logits.max(axis=1)
    probs = logits - highest[:, None]
    np.exp(probs, out=probs)
    sums = probs.sum(axis=1, dtype=np.float64)
    probs /= sums[:, None].astype(np.float32)
    return probs, np.asarray(highest + np.log(sums))


def next_log_probs(
    logits: Logits, normaliser: NDArray[np.float64], tokens: Sequence[int], start: int
) -> NDArray[np.float64]:
    """Log probability of the token after each position, or NaN after the text's last token."""
    following = np.asarray(tokens[start + 1 : start + 1 + len(logits)])
    result = np.full(len(logits), np.nan)
    result[: len(following)] = logits[np.arange(len(following)), following] - normaliser[: len(following)]
    return result
