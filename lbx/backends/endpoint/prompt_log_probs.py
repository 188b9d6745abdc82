"""Log probabilities of a prompt's tokens from a server: vLLM's ``prompt_logprobs``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lbx.backends.endpoint.http import LIMIT, RefusedError, Server, UnreachableError
from lbx.backends.endpoint.probe import ServerFacts
from lbx.base.errors import BackendError
from lbx.engine.model import TopLogProbs

TOP_TOKENS = 10
"""Number of likeliest tokens to request."""
MAX_TEXT_TOKENS = LIMIT // 1024
"""Number of tokens of a text whose answer is small enough. vLLM sends about 800 bytes a token."""

_HIGHEST = 1e-6
"""Highest log probability, but for rounding."""


def read_top_log_probs(server: Server, facts: ServerFacts, tokens: Sequence[int]) -> TopLogProbs:
    """Request the log probabilities of the likeliest tokens after each token of a text.

    Raises:
        BackendError: the server does not return them, or refuses the text.
        EndpointError: the server does not answer, or refuses every request.
    """
    if facts.kind != "vllm":
        raise BackendError(
            f"The server {server.url} ({facts.kind}) does not return the probabilities of a prompt's tokens, which "
            "--depth compares.",
            fix="Run the model on vLLM, or on one of lbx's own backends (llama.cpp for a GGUF file).",
        )
    payload = {"model": facts.model, "prompt": [*tokens], "max_tokens": 1, "prompt_logprobs": TOP_TOKENS}
    try:
        reply = server.post("/completions", payload, object_hook=compact_position)
    except UnreachableError as exc:
        raise server.to_error(exc) from exc
    except RefusedError as exc:
        if exc.is_general:
            raise server.to_error(exc) from exc
        raise BackendError(
            f"The model server {server.url} refused a text of {len(tokens):,} tokens ({exc}).",
            fix="Read less of each text with --length, or start the server with a larger context window.",
        ) from exc
    try:
        return _to_top_log_probs(reply["choices"][0]["prompt_logprobs"], tokens)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as exc:
        raise BackendError(
            f"The model server {server.url} returned no log probabilities of a prompt that lbx can read ({exc!r}).",
            fix="Use a vLLM with prompt_logprobs in /v1/completions, without a proxy that removes them.",
        ) from exc


def compact_position(item: dict[str, Any]) -> Any:
    """Replace vLLM's ``{id: {"logprob": ..., "rank": ...}}`` of a position by an array: a twentieth of the memory."""
    if isinstance(item.get("logprob"), float | int) and isinstance(item.get("rank"), float | int):
        return item["logprob"], item["rank"]
    if not item or not all(isinstance(value, tuple) for value in item.values()):
        return item
    try:
        return np.array([(int(name), *value) for name, value in item.items()], np.float64)
    except (OverflowError, TypeError, ValueError):
        return item  # refused later, with the whole answer


def _to_top_log_probs(entries: Sequence[Any], tokens: Sequence[int]) -> TopLogProbs:
    """Convert the arrays of (id, log probability, rank) of the likeliest tokens at each position.

    Raises:
        IndexError, OverflowError, TypeError, ValueError: the list is not of this form.
    """
    count = len(tokens)
    ids, log_probs = np.full((count, TOP_TOKENS + 1), -1), np.full((count, TOP_TOKENS + 1), -np.inf)
    top, following = np.full(count, -1), np.full(count, np.nan)
    for index, (entry, token) in enumerate(zip(entries[1:], tokens[1:], strict=True)):
        if not isinstance(entry, np.ndarray):
            raise TypeError("a position without log probabilities")
        found, values, ranks = entry.T
        if not (values <= _HIGHEST).all() or not np.isfinite(ranks).all():
            raise ValueError("a log probability above 0, or NaN, or a token without a rank")
        ids[index, : len(found)], log_probs[index, : len(found)] = found, values
        top[index] = found[ranks.argmin()]
        following[index] = values[found == token][0]
    return TopLogProbs(ids, log_probs, top, following)
