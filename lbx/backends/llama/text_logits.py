"""Logits at every position of a text, in a separate llama.cpp context."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lbx.backends.llama.flash import FLASH_PASS
from lbx.backends.llama.library import FIX_MEMORY, StepBatch, compute, log
from lbx.base.errors import BackendError

if TYPE_CHECKING:
    from lbx.engine.model import Logits

_TEXT, _PADDING = 0, 1


def compute_text_logits(
    llama_cpp: Any, make: Callable[[], Any], tokens: Sequence[int], *, chunk: int, vocabulary: int, filler: int
) -> Iterator[Logits]:
    """Yield the logits after each token of a text, as views of shape (up to ``chunk`` tokens, vocabulary).

    A view is valid until the next one is yielded. Small passes are padded with tokens of another sequence, so that all
    passes use the same kernels. They are not where the context is for one sequence, or full.

    Args:
        make: function that makes a context for passes of ``chunk`` tokens and their padding, all with logits.
        filler: a token of the vocabulary, for padding.

    Raises:
        BackendError: llama.cpp failed, or a logit is NaN.
    """
    context = make()
    try:
        batch = StepBatch(llama_cpp, max(chunk, FLASH_PASS.padded_size(chunk)))
        takes_padding = llama_cpp.llama_n_seq_max(context) > 1
        for start in range(0, len(tokens), chunk):
            part = tokens[start : start + chunk]
            count, padding = len(part), FLASH_PASS.padding(len(part))
            if not takes_padding or start + count + padding > llama_cpp.llama_n_ctx(context):
                padding = 0
            batch.fill(
                [*part, *[filler] * padding],
                [*range(start, start + count), *range(padding)],
                [_TEXT] * count + [_PADDING] * padding,
                range(count),
            )
            log.clear()
            if code := compute(llama_cpp.llama_decode, context, batch.native):
                raise BackendError(
                    f"llama.cpp failed on tokens {start + 1:,} to {start + count:,} of a text: code {code}: "
                    f"{log.error_text()}.",
                    fix=FIX_MEMORY,
                )
            pointer = llama_cpp.llama_get_logits(context)
            data = (ctypes.c_float * (count * vocabulary)).from_address(ctypes.addressof(pointer.contents))
            logits = np.frombuffer(memoryview(data).cast("B"), np.float32).reshape(count, vocabulary)
            if np.isnan(logits[:, 0]).any():
                raise BackendError(
                    f"The model produced NaN logits among tokens {start + 1:,} to {start + count:,} of a text.",
                    fix="Use another number format of the weights or the cache.",
                )
            yield logits
            if padding:
                llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(context), _PADDING, -1, -1)
    finally:
        llama_cpp.llama_free(context)
