"""How prompts travel to a server so that they arrive as they are: found out by trying, when a model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lbx.backends.endpoint_answers import read_reply
from lbx.backends.endpoint_http import RefusedError, Server, UnreachableError
from lbx.backends.endpoint_server import Facts
from lbx.errors import BackendError
from lbx.prompts import Tokenizer

# Words, digits, two scripts and a symbol: two tokenizers hardly cut all of it into equally many tokens.
_PROBE = (
    "Twenty-three boats (No. 70481) left Ångström harbour at 5:06; 三条船在清晨离开了港口。 def f(x): return x**2  ⛵"
)


@dataclass(frozen=True, slots=True)
class Wire:
    """How prompts travel.

    Attributes:
        api: "completions" or "chat".
        ids: token ids are sent; otherwise text.
        adds_bos: the server puts a BOS before a text.
        overhead: tokens that the server's own template adds.
    """

    api: str
    ids: bool = False
    adds_bos: bool = False
    overhead: int = 0

    @property
    def path(self) -> str:
        return "/completions" if self.api == "completions" else "/chat/completions"


def find_wire(server: Server, facts: Facts, api: str, tokenizer: Tokenizer | None) -> Wire:
    """Find out by two requests of one new token how prompts must travel to arrive as they are.

    Raises:
        BackendError: the server counts other tokens than the tokenizer makes.
        EndpointError: it does not answer, or refuses every request.
    """
    if tokenizer is None:
        return Wire(api)
    bare = tokenizer.encode(_PROBE, special=False)
    if api == "chat":
        read = _read_tokens(server, facts, "/chat/completions", {"messages": [{"role": "user", "content": _PROBE}]})
        if read is None or read < len(bare):
            raise _other_tokens(server, len(bare), read)
        return Wire(api, overhead=read - len(bare))
    read = _read_tokens(server, facts, "/completions", {"prompt": _PROBE})
    if read not in (len(bare), len(bare) + (tokenizer.bos_id is not None)):
        raise _other_tokens(server, len(bare), read)
    adds_bos = read == len(bare) + 1
    ids = [tokenizer.bos_id, *bare] if tokenizer.bos_id is not None else bare
    try:
        takes_ids = _read_tokens(server, facts, "/completions", {"prompt": ids}, refusable=True) == len(ids)
    except RefusedError:
        takes_ids = False
    return Wire(api, ids=takes_ids, adds_bos=adds_bos and not takes_ids)


def _read_tokens(
    server: Server, facts: Facts, path: str, prompt: Mapping[str, Any], *, refusable: bool = False
) -> int | None:
    """How many tokens the server reads in a prompt; None where it does not say."""
    try:
        found = server.post(path, {"model": facts.model, **prompt, "max_tokens": 1}, unready_only=True)
    except (RefusedError, UnreachableError) as exc:
        if refusable and isinstance(exc, RefusedError):
            raise
        raise server.explain(exc) from exc
    return read_reply(found, 0.0).prompt_tokens


def _other_tokens(server: Server, mine: int, read: int | None) -> BackendError:
    counted = "does not say how many tokens it reads" if read is None else f"reads {read} tokens"
    return BackendError(
        f"The server {server.url} {counted} in a text that the card's tokenizer cuts into {mine}.",
        fix='Name the tokenizer of the very model that the server runs, or leave [tokenizer] out and use api = "chat".',
    )
