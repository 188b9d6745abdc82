"""Whether a model can compute many sequences in one row, found out by trying. Imported only with transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from transformers.cache_utils import DynamicCache, DynamicLayer

from lbx.backends.hf.attention import PLAIN_ATTENTION
from lbx.backends.hf.copies import HfCopies
from lbx.backends.hf.library import attention_name, first_line, length_dependent_ropes, model_tokens
from lbx.backends.hf.sequence_memory import FORKS, HfSequences
from lbx.backends.hf.single import (
    Forward,
    can_compute_in_pieces,
    full_logits,
    keeps_tokens,
    long_from,
    make_cache,
    rounding_tolerance,
    small_windows,
)
from lbx.base.errors import BackendError
from lbx.base.phases import phases
from lbx.engine.model import Extend, SequenceMemory

if TYPE_CHECKING:
    from lbx.engine.model import Logits

_PREFIX, _LONG, _SHORT = 7, 24, 9
_STATES, _WEIGHTS_PART, _FEWEST_ANSWERS = 1 << 30, 4, 2


class Packing(NamedTuple):
    """Whether and how a model computes many sequences in one row.

    Attributes:
        reason: reason why it cannot, a clause; None if it can.
        parts: whether attention is computed part by part (``lbx.backends.hf.attention``).
        single_reason: reason against continuing copies of a sequence; None if it works.
        state_bytes: bytes per sequence in addition to its tokens' keys and values.
        uses_kernel: whether the compiled kernel computes the layers (``lbx.backends.hf.decoder``).
    """

    reason: str | None
    parts: bool
    single_reason: str | None = None
    state_bytes: int = 0
    uses_kernel: bool = False

    def sequence_limit(self, answers: int, weights_bytes: int) -> int:
        """Most sequences with states of at most a quarter of the weights' memory, or of a GiB if that is more."""
        if not self.state_bytes:
            return answers
        room = max(_STATES, weights_bytes // _WEIGHTS_PART) // self.state_bytes
        return FORKS + max(_FEWEST_ANSWERS, min(answers, room - FORKS))


class ModelProbe(NamedTuple):
    """Whether several tokens of a prompt may follow others in one pass, and how sequences are packed."""

    pieces: bool
    packing: Packing


@phases.measure("probe")
def probe_model(model: Any, name: str) -> ModelProbe:
    """Try a model's ways to compute sequences on a few tokens, fastest first: one row, copies, one by one.

    The last test of each is a measurement: a few tokens in two sequences with a common prefix, against one by one.
    If layers keep only tokens, one row with the same logits as computing all at once is sufficient: each pass tried
    reads all weights.

    Raises:
        BackendError: continuing a sequence gives other logits than computing it all at once.
    """
    dependent = length_dependent_ropes(model.config)
    if dependent:
        reason = f"its rotary embedding ({', '.join(dependent)}) depends on the length of the input"
        if not long_from(model):
            return ModelProbe(False, Packing(reason, False, reason))
        return ModelProbe(False, _with_copies(model, Packing(reason, False), True))
    row = _pack_in_one_row(model, True) if keeps_tokens(model) else None
    if row and row.reason is None:
        return ModelProbe(True, row)
    pieces = can_compute_in_pieces(model, name)
    return ModelProbe(pieces, _with_copies(model, row or _pack_in_one_row(model, pieces), pieces))


def _with_copies(model: Any, packing: Packing, pieces: bool) -> Packing:
    """Test whether copies of a sequence can be continued if one row is ruled out, and add the result."""
    if packing.reason is None:
        return packing
    copies = HfCopies(model, max_cells=256, max_step=64, pieces=pieces)
    with small_windows(model):
        return packing._replace(single_reason=_rejection_reason(model, copies, "copied"))


def _pack_in_one_row(model: Any, pieces: bool) -> Packing:
    """Packing by parts, unless the card asks for another attention, or by a mask if all layers keep every token."""
    reason: str | None = "its card asks for another attention"
    with small_windows(model):
        try:
            row = _make_sequences(model, parts=True, pieces=pieces, uses_kernel=True)
        except ValueError as exc:
            return Packing(first_line(exc), False)
        if attention_name(model) == PLAIN_ATTENTION or not getattr(model, "_supports_sdpa", False):
            reason = _rejection_reason(model, row, "packed")
            if reason and row.is_compiled:
                row = _make_sequences(model, parts=True, pieces=pieces)
                reason = _rejection_reason(model, row, "packed")
    if reason is None:
        return Packing(None, True, state_bytes=row.state_bytes, uses_kernel=row.is_compiled)
    if all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers):
        reason = _rejection_reason(model, _make_sequences(model, parts=False, pieces=pieces), "packed")
    return Packing(reason, False)


def _make_sequences(model: Any, *, parts: bool, pieces: bool, uses_kernel: bool = False) -> HfSequences:
    return HfSequences(
        model,
        max_sequences=3,
        max_cells=64,
        max_step=64,
        uses_parts=parts,
        takes_pieces=pieces,
        uses_kernel=uses_kernel,
    )


def _rejection_reason(model: Any, memory: SequenceMemory, method: str) -> str | None:
    try:
        difference = _difference(model, memory)
    except (BackendError, RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError) as exc:
        return f"it does not take positions and a mask of its own: {first_line(exc.__cause__ or exc)}"
    if not difference <= rounding_tolerance(model):
        return f"{method} logits differ from single ones by {difference:.2g} of their range"
    return None


def _difference(model: Any, memory: SequenceMemory) -> float:
    """Largest difference of logits in a memory from single-sequence logits, as a fraction of the latter's range."""
    prefix, long, short = (model_tokens(model, n, seed) for seed, n in enumerate((_PREFIX, _LONG, _SHORT)))
    step = model_tokens(model, 2, 3)
    memory.extend([Extend(0, prefix, False)])
    memory.fork(0, _PREFIX, [1, 2])
    packed = memory.extend([Extend(1, long, True), Extend(2, short, True)])
    packed += memory.extend([Extend(2, step[:1], True), Extend(1, step[1:], True)])
    single = [*_single_logits(model, [*prefix, *long, step[1]]), *_single_logits(model, [*prefix, *short, step[0]])]
    differences = [
        float(np.abs(ours - theirs).max() / np.ptp(theirs))
        for ours, theirs in zip(packed, [single[0], single[2], single[3], single[1]], strict=True)
        if ours is not None
    ]
    return float(np.max(differences))  # NaN stays NaN


def _single_logits(model: Any, tokens: Sequence[int]) -> tuple[Logits, Logits]:
    """The logits after all but the last token, and after the last one."""
    if keeps_tokens(model):
        previous, final = full_logits(model, tokens)[-2:].cpu().numpy()
        return previous, final
    forward, cache = Forward(model), make_cache(model.config)
    first, last = forward(tokens[:-1], cache, 0), forward(tokens[-1:], cache, len(tokens) - 1)
    return first[0, -1].float().cpu().numpy(), last[0, -1].float().cpu().numpy()
