"""Log probabilities of a prompt's tokens from a server: vLLM's ``prompt_logprobs``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lbx.backends.endpoint.http import RefusedError, Server, UnreachableError
from lbx.backends.endpoint.probe import ServerFacts
from lbx.base.errors import BackendError
from lbx.engine.model import TopLogProbs

TOP_TOKENS = 10
"""Number of likeliest tokens to request. An answer on 32,000 tokens then takes about 100 MB while it is read."""

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
        reply = server.post("/completions", payload)
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


def _to_top_log_probs(entries: Sequence[Any], tokens: Sequence[int]) -> TopLogProbs:
    """Convert vLLM's list: ``{id: {"logprob": ..., "rank": ...}}`` of the likeliest tokens at each position.

    Raises:
        AttributeError, KeyError, OverflowError, TypeError, ValueError: the list is not of this form.
    """
    count = len(tokens)
    ids, log_probs = np.full((count, TOP_TOKENS + 1), -1), np.full((count, TOP_TOKENS + 1), -np.inf)
    top, following = np.full(count, -1), np.full(count, np.nan)
    for index, (entry, token) in enumerate(zip(entries[1:], tokens[1:], strict=True)):
        found = {int(name): value for name, value in entry.items()}
        ids[index, : len(found)] = [*found]
        values = [float(value["logprob"]) for value in found.values()]
        if not all(value <= _HIGHEST for value in values):
            raise ValueError("a log probability above 0, or NaN")
        log_probs[index, : len(found)] = values
        top[index] = min(found, key=lambda name: found[name]["rank"])
        following[index] = found[token]["logprob"]
    return TopLogProbs(ids, log_probs, top, following)
