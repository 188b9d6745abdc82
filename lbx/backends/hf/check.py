"""Whether a model can compute many sequences in one row, found out by trying. Imported only with transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from lbx.backends.hf.attention import PLAIN_ATTENTION
from lbx.backends.hf.library import attention_of, first_line, input_device, length_dependent, model_tokens
from lbx.backends.hf.sequence_memory import HfSequences
from lbx.backends.sequence_memory import Extend
from lbx.errors import BackendError

if TYPE_CHECKING:
    from lbx.backends.sampling import Logits

# Largest difference of logits that rounding explains, as a part of their range.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_HALF_TOLERANCE = 0.05

_PREFIX, _LONG, _SHORT = 7, 24, 9


class Packing(NamedTuple):
    """Whether and how a model computes many sequences in one row.

    Attributes:
        reason: why it cannot, a clause; None: it can.
        parts: whether attention is computed part by part (``lbx.backends.hf.attention``), for one sequence, too.
    """

    reason: str | None
    parts: bool


def packing_of(model: Any) -> Packing:
    """How this model takes many sequences in one row, found out by trying the fastest way first.

    The last reason against it is a measurement: a few tokens in two sequences that share a prefix, against each alone.
    """
    dependent = length_dependent(model.config)
    if dependent:
        return Packing(f"its rotary embedding ({', '.join(dependent)}) depends on the length of the input", False)
    layers = _layers(model)
    other = sorted({type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer})
    if other or not layers:
        return Packing(f"its layers do not all keep every token ({', '.join(other) or 'unknown'})", False)
    if attention_of(model) == PLAIN_ATTENTION and _why_not(model, len(layers), parts=True) is None:
        return Packing(None, True)
    return Packing(_why_not(model, len(layers), parts=False), False)


def _why_not(model: Any, layers: int, *, parts: bool) -> str | None:
    try:
        difference = _difference(model, layers, parts)
    except (BackendError, RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError) as exc:
        return f"it does not take positions and a mask of its own: {first_line(exc.__cause__ or exc)}"
    if not difference <= _TOLERANCE.get(model.dtype, _HALF_TOLERANCE):
        return f"packed logits differ from single ones by {difference:.2g} of their range"
    return None


def layer_count(model: Any) -> int:
    return len(_layers(model))


def _layers(model: Any) -> list[Any]:
    return list(DynamicCache(config=model.config).layers)


def _difference(model: Any, layers: int, parts: bool) -> float:
    """How far packed logits are from single ones at most, as a part of the latter's range."""
    prefix, long, short = (model_tokens(model, n, seed) for seed, n in enumerate((_PREFIX, _LONG, _SHORT)))
    step = model_tokens(model, 2, 3)
    memory = HfSequences(model, layers, max_sequences=3, max_cells=64, max_step=64, parts=parts)
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
    with torch.inference_mode():
        ids = torch.tensor([tokens], dtype=torch.long, device=input_device(model))
        cache = DynamicCache(config=model.config)
        first = model(input_ids=ids[:, :-1], past_key_values=cache, use_cache=True).logits
        last = model(input_ids=ids[:, -1:], past_key_values=cache, use_cache=True).logits
        return first[0, -1].float().cpu().numpy(), last[0, -1].float().cpu().numpy()
