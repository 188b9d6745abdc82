"""How prompts travel to a server so that they arrive as they are: found out by trying, when a model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lbx.backends.endpoint.answers import read_reply
from lbx.backends.endpoint.http import RefusedError, Server, UnreachableError
from lbx.backends.endpoint.server import Facts
from lbx.base.errors import BackendError
from lbx.prompting.prompter import Tokenizer

# Words, digits, two scripts and a symbol: two tokenizers hardly cut all of it into equally many tokens.
_PROBE = (
    "Twenty-three boats (No. 70481) left Ångström harbour at 5:06; 三条船在清晨离开了港口。 def f(x): return x**2  ⛵"
)


_TOKENIZERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama-server": ("/tokenize", "content", {"add_special": False, "parse_special": False}),
    "llama-cpp-python": ("/extras/tokenize", "input", {}),
    "vllm": ("/tokenize", "prompt", {"add_special_tokens": False}),
    "sglang": ("/tokenize", "prompt", {"add_special_tokens": False}),
}
"""Where servers lend their tokenizers: path from the root, the text's name, what else to say."""


@dataclass(frozen=True, slots=True)
class Wire:
    """How prompts travel.

    Attributes:
        api: "completions" or "chat".
        ids: token ids are sent; otherwise text.
        adds_bos: the server puts a BOS before a text.
        overhead: tokens that the server's own template adds.
        reads_controls: the server takes the text of a control token for the token.
    """

    api: str
    ids: bool = False
    adds_bos: bool = False
    overhead: int = 0
    reads_controls: bool = True

    @property
    def path(self) -> str:
        return "/completions" if self.api == "completions" else "/chat/completions"


def find_wire(server: Server, facts: Facts, api: str, tokenizer: Tokenizer | None) -> Wire:
    """Find out by a few requests of one new token how prompts must travel to arrive as they are.

    Raises:
        BackendError: the server makes or counts other tokens than the tokenizer.
        EndpointError: it does not answer, or refuses every request.
    """
    if tokenizer is None:
        return Wire(api)
    bare = tokenizer.encode(_PROBE, special=False)
    _check_same_tokens(server, facts, bare)
    if api == "chat":
        read = _read_message(server, facts, _PROBE)
        if read is None or read < len(bare):
            raise _other_tokens(server, len(bare), read)
        spelled = _PROBE + (tokenizer.eos_token or next(iter(tokenizer.control_tokens), "")) + _PROBE
        as_text = read - len(bare) + len(tokenizer.encode(spelled, special=False))
        return Wire(api, overhead=read - len(bare), reads_controls=_read_message(server, facts, spelled) != as_text)
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


def takes_system(server: Server, facts: Facts) -> bool:
    """Find out by a request of one new token whether a server's chat template takes system messages."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": _PROBE}]
    try:
        server.post(
            "/chat/completions", {"model": facts.model, "messages": messages, "max_tokens": 1}, unready_only=True
        )
    except RefusedError:
        return False
    except UnreachableError as exc:
        raise server.explain(exc) from exc
    return True


def _check_same_tokens(server: Server, facts: Facts, bare: Sequence[int]) -> None:
    """Compare token by token, where the server lends its tokenizer; else the count alone must do."""
    if facts.kind not in _TOKENIZERS:
        return
    path, name, extra = _TOKENIZERS[facts.kind]
    try:
        payload = {"model": facts.model, name: _PROBE, **extra}
        tokens = server.post(path, payload, root=True, unready_only=True).get("tokens")
    except RefusedError:
        return
    except UnreachableError as exc:
        raise server.explain(exc) from exc
    if isinstance(tokens, list) and tokens != bare and tokens[1:] != bare:  # the first may be a BOS
        raise _other_tokens(server, len(bare), len(tokens))


def _read_message(server: Server, facts: Facts, text: str) -> int | None:
    """Number of tokens that the server reads in a user's message, with its template."""
    return _read_tokens(server, facts, "/chat/completions", {"messages": [{"role": "user", "content": text}]})


def _read_tokens(
    server: Server, facts: Facts, path: str, prompt: Mapping[str, Any], *, refusable: bool = False
) -> int | None:
    """How many tokens the server reads in a prompt; None where it does not say."""
    try:
        reply = server.post(path, {"model": facts.model, **prompt, "max_tokens": 1}, unready_only=True)
    except (RefusedError, UnreachableError) as exc:
        if refusable and isinstance(exc, RefusedError):
            raise
        raise server.explain(exc) from exc
    return read_reply(reply, 0.0).prompt_tokens


def _other_tokens(server: Server, mine: int, read: int | None) -> BackendError:
    counted = "does not say how many tokens it reads" if read is None else f"reads {read} tokens"
    return BackendError(
        f"The server {server.url} {counted} in a text that the card's tokenizer cuts into {mine} others.",
        fix='Name the tokenizer of the very model that the server runs, or leave [tokenizer] out and use api = "chat".',
    )
