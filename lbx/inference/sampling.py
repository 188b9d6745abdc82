"""The choice of the next token, shared by all backends: the same logits give the same token."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from lbx.base.errors import BackendError
from lbx.base.records import Request, Sampling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Logits = NDArray[np.float32]


def noise(seed: int, key: str, step: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise, one number for each of these token ids (at least one).

    It depends on nothing but its arguments: not on order, batch, or library versions (numpy promises to keep the bits
    of Philox, not what its generators make of them).
    """
    import numpy as np

    digest = hashlib.sha256(f"{seed}\n{key}\n{step}".encode("utf-8", "surrogatepass")).digest()
    bits = np.random.Philox(key=int.from_bytes(digest[:16], "big")).random_raw(int(ids.max()) + 1)[ids]
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) / 2**52  # never 0 and never 1
    found: NDArray[np.float64] = -np.log(-np.log(uniform))
    return found


class Sampler:
    """Chooses the tokens of one request, by its ``sampling`` and ``key``."""

    def __init__(self, request: Request) -> None:
        self._sampling = request.sampling
        self._key = str(request.key)

    def choose(self, logits: Logits, step: int, forbidden: Collection[int] = ()) -> int:
        """The token of this step.

        Args:
            logits: shape (vocabulary,), float32; not changed.
            step: how many tokens were made before.
            forbidden: ids that may not be chosen now.

        Raises:
            BackendError: the logits hold NaN, as broken weights or an overflow of float16 give.
        """
        import numpy as np

        if forbidden:
            logits = logits.copy()
            logits[sorted(forbidden)] = -np.inf
        best = int(np.argmax(logits))
        if not np.isfinite(logits[best]):
            raise BackendError(
                "The model computed no numbers (NaN or infinity) for the next token.",
                fix="Its weights are damaged, or the number format overflows: try dtype float32 or bfloat16.",
            )
        if self._sampling.temperature == 0:
            return best
        return self._draw(logits, step)

    def _draw(self, logits: Logits, step: int) -> int:
        """Temperature, cuts, and of what is left the token with the largest sum of logit and noise.

        Such a draw follows the softmax exactly (the Gumbel-max trick), and as each token's noise is its own, logits
        that differ in their last bits give another token only at a near-tie. Drawing by cumulated probabilities
        would not do: wherever two of many unlikely tokens change places, all behind them move.
        """
        import numpy as np

        kept = self._cut(logits)
        found = noise(self._sampling.seed, self._key, step, kept)
        return int(kept[np.argmax(logits[kept].astype(np.float64) / self._sampling.temperature + found)])

    def _cut(self, logits: Logits) -> NDArray[np.int64]:
        """The ids that top-k, top-p and min-p leave, each of what the one before left (the order of transformers)."""
        import numpy as np

        sampling = self._sampling
        if not sampling.top_k and sampling.top_p >= 1 and not sampling.min_p:
            return np.arange(len(logits))
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
        return order[: len(weights)]


RANGES = "temperature >= 0, top_p in (0, 1], top_k >= 0, min_p in [0, 1)"


def out_of_range(sampling: Sampling) -> str | None:
    """The name of the first setting that is out of its range (``RANGES``), or None."""
    checks = {
        "temperature": math.isfinite(sampling.temperature) and sampling.temperature >= 0,
        "top_p": 0 < sampling.top_p <= 1,
        "top_k": sampling.top_k >= 0,
        "min_p": 0 <= sampling.min_p < 1,
    }
    return next((name for name, good in checks.items() if not good), None)


def recommended(values: Mapping[str, object]) -> Sampling | None:
    """What a model's makers recommend, from what they wrote beside it; None where that is nothing, or nonsense.

    Args:
        values: do_sample, temperature, top_p, top_k and min_p, as far as they are given; None counts as not given.
            do_sample false means greedy; otherwise temperature is 1 where it is not given.
    """
    given = {name: value for name, value in values.items() if value is not None}
    samples = given.pop("do_sample", None)
    if not (samples is None or isinstance(samples, bool)) or (samples is None and not given):
        return None
    numbers = {name: _number(value) for name, value in given.items()}
    temperature, top_p = numbers.get("temperature", 1.0), numbers.get("top_p", 1.0)
    top_k, min_p = numbers.get("top_k", 0), numbers.get("min_p", 0.0)
    if temperature is None or top_p is None or top_k is None or min_p is None or top_k != int(top_k):
        return None
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=int(top_k), min_p=min_p)
    if out_of_range(sampling):
        return None
    return Sampling() if samples is False else sampling


def left_out(penalty: object) -> tuple[dict[str, float], tuple[str, ...]]:
    """A repetition penalty that a model's files name, which lbx does not apply: for ``BackendInfo``.

    It would punish an answer for quoting its document.

    Returns:
        What stands in ``hardware``, and the sentence for ``notes``; both empty where there is no penalty.
    """
    number = _number(penalty)
    if number is None or number == 1.0:
        return {}, ()
    told = (
        f"The model's files name a repetition penalty of {number:g}, which lbx leaves out: it would punish quoting the "
        "document. Scripts that call transformers' generate apply it."
    )
    return {"repetition_penalty_left_out": number}, (told,)


def _number(value: object) -> float | None:
    """The value as a finite number, or None where it is none; true and false are none."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) else None  # type: ignore[arg-type]
