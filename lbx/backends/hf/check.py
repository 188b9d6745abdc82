"""Whether a model can compute many sequences in one row, found out by trying. Imported only with transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from transformers.cache_utils import DynamicCache, DynamicLayer

from lbx.backends.hf.attention import PLAIN_ATTENTION
from lbx.backends.hf.copies import HfCopies
from lbx.backends.hf.library import attention_of, first_line, length_dependent, model_tokens
from lbx.backends.hf.sequence_memory import HfSequences
from lbx.backends.hf.single import Forward, rounding
from lbx.backends.sequence_memory import Extend, SequenceMemory
from lbx.errors import BackendError

if TYPE_CHECKING:
    from lbx.backends.sampling import Logits

_PREFIX, _LONG, _SHORT = 7, 24, 9


class Packing(NamedTuple):
    """Whether and how a model computes many sequences in one row.

    Attributes:
        reason: why it cannot, a clause; None: it can.
        parts: whether attention is computed part by part (``lbx.backends.hf.attention``), for one sequence, too.
        single_reason: why not even a copy of a sequence can go on; None: it can.
    """

    reason: str | None
    parts: bool
    single_reason: str | None = None


def packing_of(model: Any, *, pieces: bool) -> Packing:
    """How this model takes many sequences, found out by trying the fastest way first: in one row, then as copies.

    The last reason against each is a measurement: a few tokens in two sequences with a common prefix, against alone.

    Args:
        pieces: whether several tokens may follow others in one pass.
    """
    dependent = length_dependent(model.config)
    if dependent:
        reason = f"its rotary embedding ({', '.join(dependent)}) depends on the length of the input"
        return Packing(reason, False, reason)
    packing = _in_one_row(model)
    if packing.reason is None:
        return packing
    return packing._replace(
        single_reason=_why_not(model, HfCopies(model, max_cells=256, max_step=64, pieces=pieces), "copied")
    )


def _in_one_row(model: Any) -> Packing:
    layers = _layers(model)
    other = sorted({type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer})
    if other or not layers:
        return Packing(f"its layers do not all keep every token ({', '.join(other) or 'unknown'})", False)
    if attention_of(model) == PLAIN_ATTENTION and _why_not(model, _row(model, parts=True), "packed") is None:
        return Packing(None, True)
    return Packing(_why_not(model, _row(model, parts=False), "packed"), False)


def _row(model: Any, *, parts: bool) -> HfSequences:
    return HfSequences(model, layer_count(model), max_sequences=3, max_cells=64, max_step=64, parts=parts)


def _why_not(model: Any, memory: SequenceMemory, how: str) -> str | None:
    try:
        difference = _difference(model, memory)
    except (BackendError, RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError) as exc:
        return f"it does not take positions and a mask of its own: {first_line(exc.__cause__ or exc)}"
    if not difference <= rounding(model):
        return f"{how} logits differ from single ones by {difference:.2g} of their range"
    return None


def layer_count(model: Any) -> int:
    return len(_layers(model))


def _layers(model: Any) -> list[Any]:
    return list(DynamicCache(config=model.config).layers)


def _difference(model: Any, memory: SequenceMemory) -> float:
    """How far the logits of sequences in a memory are from single ones at most, as a part of the latter's range."""
    prefix, long, short = (model_tokens(model, n, seed) for seed, n in enumerate((_PREFIX, _LONG, _SHORT)))
    step = model_tokens(model, 2, 3)
    memory.extend([Extend(0, prefix, False)])
    memory.fork(0, _PREFIX, [1, 2])
    packed = memory.extend([Extend(1, long, True), Extend(2, short, True)])
    packed += memory.extend([Extend(2, step[:1], True), Extend(1, step[1:], True)])
    single = [*_alone(model, [*prefix, *long, step[1]]), *_alone(model, [*prefix, *short, step[0]])]
    differences = [
        float(np.abs(ours - theirs).max() / np.ptp(theirs))
        for ours, theirs in zip(packed, [single[0], single[2], single[3], single[1]], strict=True)
        if ours is not None
    ]
    return float(np.max(differences))  # NaN stays NaN


def _alone(model: Any, tokens: Sequence[int]) -> tuple[Logits, Logits]:
    """The logits after all but the last token, and after the last one."""
    forward, cache = Forward(model), DynamicCache(config=model.config)
    first, last = forward(tokens[:-1], cache, 0), forward(tokens[-1:], cache, len(tokens) - 1)
    return first[0, -1].float().cpu().numpy(), last[0, -1].float().cpu().numpy()
