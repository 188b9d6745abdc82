"""One sequence through a model of transformers, and whether it may go in pieces. Imported only with transformers."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from lbx.backends.hf.cache import make_cache
from lbx.backends.hf.library import first_line, input_device, model_tokens
from lbx.base.errors import BackendError

_CACHES = ("past_key_values", "cache_params")
"""What models call the argument that takes their memory; by another name it is passed over in silence."""

_KNOWN = (DynamicLayer, DynamicSlidingWindowLayer)
"""Kinds of memory that every model of transformers goes on from, by one token or by many."""

_PIECES = (11, 24)
_ROUNDING, _HALF_ROUNDING = 1e-3, 0.05
_WRONG = 0.2
"""Parts of the logits' range: what rounding explains, and what it cannot in any number format."""


class Forward:
    """A model's pass over the next tokens of one sequence, with the arguments that this model takes."""

    def __init__(self, model: Any) -> None:
        self._model = model
        takes = inspect.signature(model.forward).parameters
        self._cache = next((name for name in _CACHES if name in takes), _CACHES[0])
        self._positions = "position_ids" in takes
        self._keeps = "logits_to_keep" in takes

    def __call__(self, tokens: Sequence[int], cache: Any, held: int) -> Any:
        """Append tokens to a cache that holds so many; logits of shape (1, 1 or len(tokens), vocabulary)."""
        ids = torch.tensor([tokens], dtype=torch.long)
        with torch.inference_mode():
            return self.pass_over(ids, torch.arange(held, held + len(tokens))[None], cache, keep=1)

    def pass_over(
        self, ids: torch.Tensor, positions: torch.Tensor, cache: Any, *, keep: int | list[int], **more: Any
    ) -> Any:
        """Logits of tokens at these positions, both of shape (batch, tokens).

        Args:
            keep: at how many of the last tokens, or at which, if the model can leave others out. A list, because
                accelerate would carry a tensor to the first device of many, and it is used on the last.
        """
        device = input_device(self._model)
        more = {name: value for name, value in more.items() if value is not None}
        arguments: dict[str, Any] = {self._cache: cache, **({"logits_to_keep": keep} if self._keeps else {}), **more}
        if self._positions:  # a model whose first layer is recurrent would ask that one, which keeps no count
            arguments["position_ids"] = positions.to(device)
        return self._model(input_ids=ids.to(device), use_cache=True, **arguments).logits


def goes_in_pieces(model: Any, name: str) -> bool:
    """Whether a prompt may be computed in pieces: some recurrent layers forget what came before several new tokens.

    Tried on a few tokens, where the model's memory is of an unusual kind.

    Raises:
        BackendError: it does not even go on by single tokens as if it had computed all at once.
    """
    if all(type(layer) in _KNOWN for layer in DynamicCache(config=model.config).layers):
        return True
    forward, tokens = Forward(model), model_tokens(model, _PIECES[-1] + 1, 5)
    try:
        whole = _last(forward, model, [tokens])
        span = float(whole.max() - whole.min())
        first, second, last = tokens[: _PIECES[0]], tokens[_PIECES[0] : _PIECES[1]], tokens[_PIECES[1] :]
        by_steps = float((_last(forward, model, [first + second, last]) - whole).abs().max()) / span
        by_pieces = float((_last(forward, model, [first, second, last]) - whole).abs().max()) / span
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError) as exc:
        raise BackendError(
            f"{name} cannot be computed token by token: {first_line(exc)}",
            fix="lbx gives models the cache that transformers makes by default, and this one takes another.",
        ) from exc
    if not by_steps <= _WRONG:
        raise BackendError(
            f"{name} forgets: after {_PIECES[1]} tokens and one more its logits are {by_steps:.2g} of their range off "
            "those of all at once.",
            fix="This version of transformers computes the model wrongly; a GGUF file of it may run on llama.cpp.",
        )
    return by_pieces <= rounding(model)


def rounding(model: Any) -> float:
    """How far logits may be off by rounding, as a part of their range."""
    return _ROUNDING if model.dtype in (torch.float32, torch.float64) else _HALF_ROUNDING


def _last(forward: Forward, model: Any, pieces: Sequence[Sequence[int]]) -> torch.Tensor:
    """The logits behind the last of these pieces of one sequence."""
    cache, held = make_cache(model.config), 0
    for piece in pieces:
        logits = forward(piece, cache, held)
        held += len(piece)
    found: torch.Tensor = logits[0, -1].float()
    return found


def forget_lengths(model: Any) -> None:
    """Give rotary embeddings that stretch with the longest input so far the factors of a new model.

    They keep them from one prompt to the next, and an answer would depend on what was asked before.
    """
    for module in model.modules():
        if not hasattr(module, "original_max_seq_len"):
            continue
        for name, factors in [*module.named_buffers(recurse=False), *vars(module).items()]:
            if name.endswith("original_inv_freq"):
                now = getattr(module, name.replace("original_", ""))
                setattr(module, name.replace("original_", ""), factors.to(now.device, copy=True))  # some write into it
            elif name.endswith("max_seq_len_cached"):
                setattr(module, name, module.original_max_seq_len)
