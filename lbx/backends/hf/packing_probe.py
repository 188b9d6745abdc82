"""Probe of a loaded model: can it compute several sequences packed into one row? Imports transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from transformers.cache_utils import DynamicCache, DynamicLayer

from lbx.backends.hf.attention import PLAIN_ATTENTION
from lbx.backends.hf.library import attention_name, first_line, length_dependent_ropes, model_tokens
from lbx.backends.hf.sequence_copies import HfCopies
from lbx.backends.hf.sequence_memory import FORKS, HfSequences
from lbx.backends.hf.single import (
    Forward,
    can_compute_in_chunks,
    full_logits,
    keeps_tokens,
    longrope_length,
    make_cache,
    rounding_tolerance,
    shrink_windows,
)
from lbx.base.errors import BackendError
from lbx.base.phases import phases
from lbx.engine.model import SequenceExtension, SequenceMemory

if TYPE_CHECKING:
    from lbx.engine.model import Logits

_PREFIX, _LONG, _SHORT = 7, 24, 9
_STATES, _WEIGHTS_PART, _FEWEST_ANSWERS = 1 << 30, 4, 2


class Packing(NamedTuple):
    """Result of the probe: whether and how a model computes several sequences packed into one row.

    Attributes:
        reason: why the model cannot pack sequences, as a clause, or None if it can.
        by_segments: whether attention is computed segment by segment (``lbx.backends.hf.attention``).
        single_reason: why copies of a sequence cannot be continued, or None if they can.
        state_bytes: bytes per sequence in addition to its tokens' keys and values.
        uses_kernel: whether the compiled kernel computes the layers (``lbx.backends.hf.decoder``).
    """

    reason: str | None
    by_segments: bool
    single_reason: str | None = None
    state_bytes: int = 0
    uses_kernel: bool = False

    def sequence_limit(self, answers: int, weights_bytes: int) -> int:
        """Maximum number of sequences: their states take a quarter of the weights' memory, or a GiB if that is more."""
        if not self.state_bytes:
            return answers
        n_states = max(_STATES, weights_bytes // _WEIGHTS_PART) // self.state_bytes
        return FORKS + max(_FEWEST_ANSWERS, min(answers, n_states - FORKS))


class ModelProbe(NamedTuple):
    """Result of probing a model: whether prompts may be computed in chunks, and how sequences are packed."""

    takes_chunks: bool
    packing: Packing


@phases.measure("probe")
def probe_model(model: Any, name: str) -> ModelProbe:
    """Probe how a model can compute sequences, the fastest way first: one row, copies, one by one.

    The last test of each is a measurement: a few tokens in two sequences with a common prefix, against one by one.
    If layers keep only tokens, one row with the same logits as computing all at once is sufficient: each pass tried
    reads all weights.

    Raises:
        BackendError: continuing a sequence gives other logits than computing it at once.
    """
    dependent = length_dependent_ropes(model.config)
    if dependent:
        reason = f"its rotary embedding ({', '.join(dependent)}) depends on the length of the input"
        if not longrope_length(model):
            return ModelProbe(False, Packing(reason, False, reason))
        return ModelProbe(False, _with_copies(model, Packing(reason, False), True))
    row = _pack_in_one_row(model, True) if keeps_tokens(model) else None
    if row and row.reason is None:
        return ModelProbe(True, row)
    takes_chunks = can_compute_in_chunks(model, name)
    return ModelProbe(takes_chunks, _with_copies(model, row or _pack_in_one_row(model, takes_chunks), takes_chunks))


def _with_copies(model: Any, packing: Packing, takes_chunks: bool) -> Packing:
    """Add to a packing whether copies of a sequence can be continued, tested if one row is ruled out."""
    if packing.reason is None:
        return packing
    copies = HfCopies(model, max_cells=256, max_step=64, takes_chunks=takes_chunks)
    with shrink_windows(model):
        return packing._replace(single_reason=_rejection_reason(model, copies, "copied"))


def _pack_in_one_row(model: Any, takes_chunks: bool) -> Packing:
    """Test packing by segments, unless the card sets another attention, or by a mask if all layers keep every token."""
    reason: str | None = "its card asks for another attention"
    with shrink_windows(model):
        try:
            row = _make_sequences(model, by_segments=True, takes_chunks=takes_chunks, uses_kernel=True)
        except ValueError as exc:
            return Packing(first_line(exc), False)
        if attention_name(model) == PLAIN_ATTENTION or not getattr(model, "_supports_sdpa", False):
            reason = _rejection_reason(model, row, "packed")
            if reason and row.is_compiled:
                row = _make_sequences(model, by_segments=True, takes_chunks=takes_chunks)
                reason = _rejection_reason(model, row, "packed")
    if reason is None:
        return Packing(None, True, state_bytes=row.state_bytes, uses_kernel=row.is_compiled)
    if all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers):
        reason = _rejection_reason(
            model, _make_sequences(model, by_segments=False, takes_chunks=takes_chunks), "packed"
        )
    return Packing(reason, False)


def _make_sequences(model: Any, *, by_segments: bool, takes_chunks: bool, uses_kernel: bool = False) -> HfSequences:
    return HfSequences(
        model,
        max_sequences=3,
        max_cells=64,
        max_step=64,
        by_segments=by_segments,
        takes_chunks=takes_chunks,
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
    """Largest difference between logits in a memory and single-sequence logits, as a fraction of the latter's range."""
    prefix, long, short = (model_tokens(model, n, seed) for seed, n in enumerate((_PREFIX, _LONG, _SHORT)))
    step = model_tokens(model, 2, 3)
    memory.extend([SequenceExtension(0, prefix, False)])
    memory.fork(0, _PREFIX, [1, 2])
    packed = memory.extend([SequenceExtension(1, long, True), SequenceExtension(2, short, True)])
    packed += memory.extend([SequenceExtension(2, step[:1], True), SequenceExtension(1, step[1:], True)])
    single = [*_single_logits(model, [*prefix, *long, step[1]]), *_single_logits(model, [*prefix, *short, step[0]])]
    differences = [
        float(np.abs(ours - theirs).max() / np.ptp(theirs))
        for ours, theirs in zip(packed, [single[0], single[2], single[3], single[1]], strict=True)
        if ours is not None
    ]
    return float(np.max(differences))  # NaN stays NaN


def _single_logits(model: Any, tokens: Sequence[int]) -> tuple[Logits, Logits]:
    """Logits after all but the last token, and after the last token, of a single sequence."""
    if keeps_tokens(model):
        previous, final = full_logits(model, tokens)[-2:].cpu().numpy()
        return previous, final
    forward, cache = Forward(model), make_cache(model.config)
    first, last = forward(tokens[:-1], cache, 0), forward(tokens[-1:], cache, len(tokens) - 1)
    return first[0, -1].float().cpu().numpy(), last[0, -1].float().cpu().numpy()
