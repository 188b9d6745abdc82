"""Compressed distributions of the next token at successive positions, and comparison of a candidate with them.

Of each position a sample of the vocabulary is stored: every token with a probability of at least ``CERTAIN``, and every
other token with a chance of its probability divided by ``CERTAIN``. The stored tokens' log ratios, weighted by their
probabilities, estimate the Kullback-Leibler divergence without bias: the tokens below ``CERTAIN`` count with the mean
of those in the sample. Counting them as one token instead ("top k and the rest") leaves out their own divergence:
half of their mass for SmolLM2 in Q4_0, which took 13,000 tokens a position.

``CERTAIN`` is the largest probability with a mean error at a position below 1e-4 nats, with margin. Measured on a long
text for formats of SmolLM2-135M with these divergences from float32 (mean error at a position, in nats; the error
of a mean over positions is far smaller):

    CERTAIN    tokens a position    Q4_0, 2.8e-1    Q8_0, 3.4e-3    bfloat16, 1.0e-3
    1e-6                   4,686          3.4e-5          3.4e-6              1.7e-6
    2e-6                   3,471          5.8e-5          6.8e-6              3.0e-6
    5e-6                   2,269          1.2e-4          1.5e-5              6.0e-6
    1e-5                   1,613          2.1e-4          2.4e-5              1.1e-5

A token takes three bytes: the low byte of the id (the other bytes follow from the number of tokens in each block of
256 ids) and the root of its probability in 16 bits. The error of a probability is then in proportion to its root, so
that the sum of all such errors is about 1e-5 whatever the distribution. Of every ``AUDIT_STEP``-th position the whole
distribution is stored, which measures the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lbx.base.errors import BackendError
from lbx.engine.model import TopLogProbs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.engine.model import Logits

_STEPS = 2**16 - 1
_CERTAIN_STEPS = 92
CERTAIN = ((_CERTAIN_STEPS - 0.5) / _STEPS) ** 2
"""Probability from which a token is always stored: 1.95e-6."""
AUDIT_STEP = 255
"""Number of positions between two stored whole distributions; odd, so that they fall on all places of a pass."""
_BLOCK = 256
_LEAST_MASS = 1e-12
"""Probability of a token that a candidate does not have."""
_STRIDE = 7919
"""Prime by which the sample's random numbers are shifted from a position to the next."""


class PositionParity(NamedTuple):
    """Comparison of a candidate with the reference at each of successive positions.

    Attributes:
        divergence: Kullback-Leibler divergence of the candidate from the reference, in nats.
        same_top: whether the likeliest token is the same.
        candidate, reference: log probability of the text's next token, or NaN after the last one.
        error: error of the divergence, or NaN at a position without a stored whole distribution.
    """

    divergence: NDArray[np.float64]
    same_top: NDArray[np.bool_]
    candidate: NDArray[np.float64]
    reference: NDArray[np.float64]
    error: NDArray[np.float64]


class Distributions(NamedTuple):
    """Distributions of the next token at successive positions, compressed.

    Attributes:
        counts: number of stored tokens in each block of 256 token ids, shape (positions, blocks).
        low_bytes, roots: stored tokens of all positions, position by position, by rising id: the id's low byte, and
            the root of the probability in steps of 1 / 65,535.
        rest_mass: probability of all tokens below ``CERTAIN``.
        next_log_probs: log probability of the text's next token, or NaN after the last one.
        top: likeliest token.
        audit_indices: indices of the positions with whole distributions.
        whole_log_probs: log probabilities of all tokens there, shape (positions, vocabulary).
    """

    counts: NDArray[np.uint16]
    low_bytes: NDArray[np.uint8]
    roots: NDArray[np.uint16]
    rest_mass: NDArray[np.float64]
    next_log_probs: NDArray[np.float64]
    top: NDArray[np.int32]
    audit_indices: NDArray[np.int32]
    whole_log_probs: NDArray[np.float32]

    @classmethod
    def of_logits(cls, logits: Logits, tokens: Sequence[int], start: int) -> Distributions:
        """Compress the distributions after ``tokens[start:]``. ``logits``: shape (positions, vocabulary)."""
        count, vocabulary = logits.shape
        counts = np.zeros((count, -(-vocabulary // _BLOCK)), np.uint16)
        rest, normalisers, top = np.zeros(count), np.zeros(count), np.zeros(count, np.int32)
        low_bytes, roots = [], []
        scratch, bounds = np.empty((2, vocabulary), np.float32)
        for index, row in enumerate(logits):
            top[index], normalisers[index], total = _exponentials(row, scratch)
            shift = (start + index) * _STRIDE % vocabulary
            np.multiply(_chances(vocabulary)[shift : shift + vocabulary], np.float32(CERTAIN * total), out=bounds)
            ids = np.flatnonzero(scratch >= bounds)
            probs = scratch[ids] / total
            steps = np.maximum(np.rint(_STEPS * np.sqrt(probs)), 1).astype(np.uint16)
            rest[index] = max(0.0, 1 - probs[steps >= _CERTAIN_STEPS].sum())
            counts[index] = np.bincount(ids // _BLOCK, minlength=counts.shape[1])
            low_bytes.append(ids.astype(np.uint8))
            roots.append(steps)
        audited = np.flatnonzero((start + np.arange(count)) % AUDIT_STEP == 0)
        return cls(
            counts,
            np.concatenate(low_bytes),
            np.concatenate(roots),
            rest,
            _next_log_probs(logits, normalisers, tokens, start),
            top,
            audited.astype(np.int32),
            (logits[audited] - normalisers[audited, None]).astype(np.float32),
        )

    @classmethod
    def load(cls, file: Any) -> Distributions:
        return cls(*(np.load(file, allow_pickle=False) for _ in cls._fields))

    def compare(self, candidate: Logits | TopLogProbs, tokens: Sequence[int], start: int) -> PositionParity:
        """Compare with a candidate's distributions at the same positions, after ``tokens[start:]``.

        If only the likeliest tokens are known of the candidate, all others count as one, so that the divergence is a
        lower bound.
        """
        return (
            self._compare_top(candidate)
            if isinstance(candidate, TopLogProbs)
            else self._compare_all(candidate, tokens, start)
        )

    def _compare_all(self, logits: Logits, tokens: Sequence[int], start: int) -> PositionParity:
        count, vocabulary = logits.shape
        divergence, error, normalisers = np.zeros(count), np.full(count, np.nan), np.zeros(count)
        top = np.zeros(count, np.int32)
        scratch = np.empty(vocabulary, np.float32)
        for index, (row, (ids, steps)) in enumerate(zip(logits, self._split_by_position(), strict=True)):
            top[index], normalisers[index], _ = _exponentials(row, scratch)
            roots = steps.astype(np.float64) / _STEPS
            ratios = 2 * np.log(roots) - _find_log_probs(row, ids, normalisers[index])
            is_certain = steps >= _CERTAIN_STEPS
            # The stored masses are rounded. Their sum is known, and is put right. Sums, because products of long
            # vectors (@) wait for BLAS's threads, ten times as long, and round by their number.
            known = (roots[is_certain] ** 2 * (ratios[is_certain] - 1)).sum() + 1 - self.rest_mass[index]
            others = ratios[~is_certain]
            divergence[index] = max(0.0, known + self.rest_mass[index] * (others.mean() if len(others) else 0.0))
        for index, whole in zip(self.audit_indices, self.whole_log_probs, strict=True):
            other = _find_log_probs(logits[index], np.arange(len(whole)), normalisers[index])
            error[index] = abs(divergence[index] - (np.exp(whole.astype(np.float64)) * (whole - other)).sum())
        return PositionParity(
            divergence,
            top == self.top,
            _next_log_probs(logits, normalisers, tokens, start),
            self.next_log_probs,
            error,
        )

    def _compare_top(self, candidate: TopLogProbs) -> PositionParity:
        divergence, error = np.zeros(len(candidate)), np.full(len(candidate), np.nan)
        for index, (wanted, (ids, steps)) in enumerate(zip(candidate.ids, self._split_by_position(), strict=True)):
            _, places, stored = np.intersect1d(wanted, ids, return_indices=True)
            own = np.zeros(len(wanted))  # no token that is not stored has a probability worth counting
            own[places] = (steps[stored] / _STEPS) ** 2
            divergence[index] = _divergence_of_groups(own, np.exp(candidate.log_probs[index]))
        for index, whole in zip(self.audit_indices, self.whole_log_probs, strict=True):
            wanted = candidate.ids[index]
            is_known = (wanted >= 0) & (wanted < len(whole))
            own = np.where(is_known, np.exp(whole[np.where(is_known, wanted, 0)]), 0)
            error[index] = abs(divergence[index] - _divergence_of_groups(own, np.exp(candidate.log_probs[index])))
        return PositionParity(
            divergence, candidate.top == self.top, candidate.next_log_probs, self.next_log_probs, error
        )

    def _split_by_position(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint16]]]:
        """Yield the token ids and roots of each position."""
        firsts, start = np.arange(self.counts.shape[1]) * _BLOCK, 0
        for counts in self.counts:
            ids = np.repeat(firsts, counts)
            stop = start + len(ids)
            ids += self.low_bytes[start:stop]
            yield ids, self.roots[start:stop]
            start = stop


@cache
def _chances(vocabulary: int) -> NDArray[np.float32]:
    """Random numbers from 0 to 1, repeated once: any ``vocabulary`` successive numbers include each number."""
    return np.tile(np.random.default_rng(0).random(vocabulary, np.float32), 2)


def _exponentials(row: Logits, scratch: NDArray[np.float32]) -> tuple[int, float, np.float32]:
    """Fill ``scratch`` with the exponentials of a row of logits, scaled to a maximum of 1.

    Returns:
        The likeliest token, the logarithm of the sum of the logits' exponentials, and the sum of ``scratch``.

    Raises:
        BackendError: a logit is NaN or infinite.
    """
    top = int(row.argmax())  # NaN, if there is one
    if not math.isfinite(row[top]):
        raise BackendError(
            "The model produced logits that are not numbers within a text.",
            fix="Use another number format of the weights or the cache.",
        )
    np.subtract(row, row[top], out=scratch)
    np.exp(scratch, out=scratch)
    total = scratch.sum()
    return top, float(row[top]) + math.log(total), total


def _find_log_probs(row: Logits, ids: NDArray[np.int64], normaliser: float) -> NDArray[np.float64]:
    """Log probabilities of tokens. Another model's vocabulary may be padded to another size."""
    if len(ids) and ids[-1] >= len(row):
        result = np.full(len(ids), math.log(_LEAST_MASS))
        is_known = ids < len(row)
        result[is_known] = row[ids[is_known]] - normaliser
        return result
    return np.asarray(row[ids] - normaliser)


def _next_log_probs(
    logits: Logits, normalisers: NDArray[np.float64], tokens: Sequence[int], start: int
) -> NDArray[np.float64]:
    following = np.asarray(tokens[start + 1 : start + 1 + len(logits)], np.int64)
    result = np.full(len(logits), np.nan)
    result[: len(following)] = logits[np.arange(len(following)), following] - normalisers[: len(following)]
    return result


def _divergence_of_groups(reference: NDArray[np.float64], candidate: NDArray[np.float64]) -> float:
    """Divergence between probabilities of some tokens, where all other tokens count as one."""
    reference, candidate = (np.append(probs, max(_LEAST_MASS, 1 - probs.sum())) for probs in (reference, candidate))
    is_known = reference > 0
    ratios = np.log(reference[is_known] / np.maximum(candidate[is_known], _LEAST_MASS))
    return max(0.0, float((reference[is_known] * ratios).sum()))
