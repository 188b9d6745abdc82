"""Probe of a server when a model is loaded: software, settings, and how prompts must be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lbx.backends.cards import ModelCard
from lbx.backends.endpoint.answers import count_of, read_reply, table_of
from lbx.backends.endpoint.http import RefusedError, Server, UnreachableError
from lbx.backends.endpoint.options import EndpointOptions
from lbx.backends.endpoint.tokenizer import CHARACTERS
from lbx.backends.weights import fingerprint
from lbx.base.errors import BackendError, UsageError
from lbx.base.tables import suggest_names
from lbx.engine.model import BackendInfo
from lbx.engine.prompter import Tokenizer

_CONTROL_NOTE = (
    "The server tokenizes documents itself, and most servers read the text of a control token in a document as that "
    "token. Add [tokenizer] to the card to prevent this."
)
_OWNERS = {"llamacpp": "llama-server", "vllm": "vllm", "sglang": "sglang"}


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts about a server: software, model and context window.

    Attributes:
        kind: one of ``SERVERS``, never "auto".
        version: version of the software, or "" if unknown.
        model: name of the model on the server.
        window: tokens that prompt and answer share, or 0 if unknown.
    """

    kind: str
    version: str
    model: str
    window: int


def read_facts(server: Server, card: ModelCard, options: EndpointOptions) -> ServerFacts:
    """Read the facts about a server from its lists of models and settings.

    Raises:
        UsageError: the server does not offer the card's model, or offers several models and the card names none.
        EndpointError: the server does not answer, or refuses the key.
    """
    try:
        models = _models(server.get("/models"))
        model = _choose(models, card, options)
        kind, title = _kind(server, models, options)
        entry = models.get(model, {})
        if kind == "llama-server":
            props = table_of(server.get("/props", root=True))
            window = count_of(table_of(props.get("default_generation_settings")).get("n_ctx"))
            return ServerFacts(kind, str(props.get("build_info", "")), model, window or 0)
        return ServerFacts(kind, _version(server, kind, title), model, count_of(entry.get("max_model_len")) or 0)
    except (RefusedError, UnreachableError) as exc:
        raise server.to_error(exc) from exc


def _models(listing: Any) -> dict[str, Mapping[str, Any]]:
    """Return {name: description} of the models that a server lists."""
    data = table_of(listing).get("data")
    entries = [table_of(entry) for entry in data] if isinstance(data, list) else []
    return {str(entry["id"]): entry for entry in entries if entry.get("id")}


def _choose(models: Mapping[str, Any], card: ModelCard, options: EndpointOptions) -> str:
    if options.model:
        # Some servers accept any name and use the model that they have.
        if models and options.model not in models:
            raise UsageError(
                f"The card {card.name} names the model {options.model!r}, but the server {options.url} lacks it.",
                fix=suggest_names(options.model, models),
            )
        return options.model
    if len(models) != 1:
        count = f"{len(models)} models" if models else "no list of models"
        raise UsageError(
            f"The card {card.name} does not name a model, and the server {options.url} has {count}.",
            fix=f"Set model under [options]. {suggest_names('', models)}".rstrip(),
        )
    return next(iter(models))


def _kind(server: Server, models: Mapping[str, Mapping[str, Any]], options: EndpointOptions) -> tuple[str, str]:
    """Determine the server's software, and the version if the same request returned it, or ""."""
    owners = {str(entry.get("owned_by", "")) for entry in models.values()}
    kind = options.server
    if kind == "auto":
        kind = next((_OWNERS[owner] for owner in sorted(owners) if owner in _OWNERS), "other")
    if kind == "llama-cpp-python" or (kind == "other" and options.server == "auto" and owners == {"me"}):
        info = table_of(table_of(server.get("/openapi.json", root=True)).get("info"))
        if kind == "llama-cpp-python" or "llama.cpp Python" in str(info.get("title", "")):
            return "llama-cpp-python", str(info.get("version", ""))
    return kind, ""


def _version(server: Server, kind: str, default: str) -> str:
    paths = {"vllm": ("/version",), "sglang": ("/server_info", "/get_server_info")}.get(kind, ())
    for path in paths:
        version = table_of(server.get(path, root=True)).get("version")
        if version:
            return str(version)
    return default


# Words, digits, two scripts and a symbol: two tokenizers rarely produce the same number of tokens for all of it.
_PROBE = (
    "Twenty-three boats (No. 70481) left Ångström harbour at 5:06; 三条船在清晨离开了港口。 def f(x): return x**2  ⛵"
)

_SYSTEM = "Be brief."
_WITH_SYSTEM = ({"role": "system", "content": _SYSTEM}, {"role": "user", "content": _PROBE})

_TOKENIZERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama-server": ("/tokenize", "content", {"add_special": False, "parse_special": False}),
    "llama-cpp-python": ("/extras/tokenize", "input", {}),
    "vllm": ("/tokenize", "prompt", {"add_special_tokens": False}),
    "sglang": ("/tokenize", "prompt", {"add_special_tokens": False}),
}
"""Tokenizer interfaces of servers: path from the root, name of the text's field, further fields."""


@dataclass(frozen=True, slots=True)
class PromptTransport:
    """How prompts are sent to a server so that they arrive unchanged.

    Attributes:
        api: "completions" or "chat".
        ids: whether token ids are sent instead of text.
        adds_bos: whether the server puts a BOS before a text.
        overhead: number of tokens that the server's own template adds, including those for a system message.
        least_overhead: number of tokens that the template adds without a system message, if smaller.
        reads_controls: whether the server turns the text of a control token into the token.
    """

    api: str
    ids: bool = False
    adds_bos: bool = False
    overhead: int = 0
    least_overhead: int = 0
    reads_controls: bool = True

    @property
    def path(self) -> str:
        return "/completions" if self.api == "completions" else "/chat/completions"


def probe_transport(
    server: Server,
    facts: ServerFacts,
    api: str,
    tokenizer: Tokenizer | None,
    template_fields: Mapping[str, Any] = MappingProxyType({}),
) -> PromptTransport:
    """Find out how prompts arrive unchanged at a server, by a few requests for one new token.

    Args:
        template_fields: variables for the server's chat template, as fields of a request.

    Raises:
        BackendError: the server makes or counts other tokens than the tokenizer.
        EndpointError: the server does not answer, or refuses every request.
    """
    if tokenizer is None:
        return PromptTransport(api)
    bare = tokenizer.encode(_PROBE, special=False)
    _check_same_tokens(server, facts, bare)
    if api == "chat":
        read = _read_message(server, facts, _PROBE, template_fields)
        if read is None or read < len(bare):
            raise _token_mismatch(server, len(bare), read)
        overhead = read - len(bare)
        spelled = _PROBE + (tokenizer.eos_token or next(iter(tokenizer.control_tokens), "")) + _PROBE
        as_text = overhead + len(tokenizer.encode(spelled, special=False))
        reads_controls = _read_message(server, facts, spelled, template_fields) != as_text
        system_tokens = len(tokenizer.encode(_SYSTEM, special=False))
        both = _read_with_system(server, facts, template_fields)
        with_system = both - len(bare) - system_tokens if both else overhead
        return PromptTransport(
            api,
            overhead=max(overhead, with_system),
            least_overhead=max(0, min(overhead, with_system)),
            reads_controls=reads_controls,
        )
    read = _read_tokens(server, facts, "/completions", {"prompt": _PROBE})
    if read not in (len(bare), len(bare) + (tokenizer.bos_id is not None)):
        raise _token_mismatch(server, len(bare), read)
    adds_bos = read == len(bare) + 1
    ids = [tokenizer.bos_id, *bare] if tokenizer.bos_id is not None else bare
    try:
        takes_ids = _read_tokens(server, facts, "/completions", {"prompt": ids}, refusable=True) == len(ids)
    except RefusedError:
        takes_ids = False
    return PromptTransport(api, ids=takes_ids, adds_bos=adds_bos and not takes_ids)


def takes_system(server: Server, facts: ServerFacts) -> bool:
    """Whether a server's chat template accepts system messages, found out by a request for one new token."""
    try:
        server.post(
            "/chat/completions", {"model": facts.model, "messages": _WITH_SYSTEM, "max_tokens": 1}, unready_only=True
        )
    except RefusedError:
        return False
    except UnreachableError as exc:
        raise server.to_error(exc) from exc
    return True


def _check_same_tokens(server: Server, facts: ServerFacts, bare: Sequence[int]) -> None:
    """Compare the tokens of the probe with the server's, if the server offers a tokenizer interface."""
    if facts.kind not in _TOKENIZERS:
        return
    path, name, extra = _TOKENIZERS[facts.kind]
    try:
        payload = {"model": facts.model, name: _PROBE, **extra}
        tokens = server.post(path, payload, root=True, unready_only=True).get("tokens")
    except RefusedError:
        return
    except UnreachableError as exc:
        raise server.to_error(exc) from exc
    if isinstance(tokens, list) and tokens != bare and tokens[1:] != bare:  # the first may be a BOS
        raise _token_mismatch(server, len(bare), len(tokens))


def _read_message(server: Server, facts: ServerFacts, text: str, template_fields: Mapping[str, Any]) -> int | None:
    """Number of tokens that a server reads in a user's message, including the template's."""
    messages = [{"role": "user", "content": text}]
    return _read_tokens(server, facts, "/chat/completions", {"messages": messages, **template_fields})


def _read_with_system(server: Server, facts: ServerFacts, template_fields: Mapping[str, Any]) -> int:
    """Number of tokens that a server reads in a system and a user's message, or 0 if it refuses system messages."""
    prompt = {"messages": _WITH_SYSTEM, **template_fields}
    try:
        return _read_tokens(server, facts, "/chat/completions", prompt, refusable=True) or 0
    except RefusedError:
        return 0


def _read_tokens(
    server: Server, facts: ServerFacts, path: str, prompt: Mapping[str, Any], *, refusable: bool = False
) -> int | None:
    """Number of tokens that a server reads in a prompt, or None if it reports no count."""
    try:
        reply = server.post(path, {"model": facts.model, **prompt, "max_tokens": 1}, unready_only=True)
    except (RefusedError, UnreachableError) as exc:
        if refusable and isinstance(exc, RefusedError):
            raise
        raise server.to_error(exc) from exc
    return read_reply(reply, 0.0).prompt_tokens


def _token_mismatch(server: Server, card_count: int, server_count: int | None) -> BackendError:
    if server_count is None:
        return BackendError(
            f"The server {server.url} reports no token counts, so lbx cannot check that it makes the same tokens as "
            "the card's tokenizer.",
            fix="Let the server, and any proxy before it, report usage.prompt_tokens, or remove [tokenizer] and set "
            'api = "chat".',
        )
    return BackendError(
        f"The card's tokenizer does not match the server {server.url}: it splits a test text into {card_count} "
        f"tokens, and the server reads {server_count}.",
        fix='Use the tokenizer of the model that the server runs, or remove [tokenizer] and set api = "chat".',
    )


def check_card(card: ModelCard, api: str, tokenizer: Path | None) -> None:
    """Raise UsageError for card settings that need a tokenizer, or that the server's template ignores."""
    if api == "completions" and tokenizer is None:
        raise UsageError(
            f'The card {card.name} has api = "completions" but no [tokenizer], which lbx needs to truncate prompts.',
            fix='Add [tokenizer] (path, bundle or repo), or set api = "chat".',
        )
    if tokenizer is None and card.context_window:
        raise UsageError(
            f"A context window in tokens needs a tokenizer to count them, but the card {card.name} has no [tokenizer].",
            fix="Add [tokenizer], or remove context_window and --context-window: the server then rejects prompts that "
            "do not fit.",
        )
    if api == "chat" and (card.chat.template is not None or not card.chat.enabled):
        raise UsageError(
            f'The card {card.name} changes the chat template, but with api = "chat" the server applies its own.',
            fix='Remove template, template_file and enabled under [chat], or use api = "completions".',
        )


def backend_info(
    card: ModelCard,
    options: EndpointOptions,
    facts: ServerFacts,
    transport: PromptTransport,
    *,
    tokenizer: Tokenizer,
    weights: Path | None,
) -> BackendInfo:
    window = CHARACTERS if weights is None else _window(card, options, facts) - transport.overhead
    settings = {
        "model": facts.model,
        "api": transport.api,
        "prompts": "token ids" if transport.ids else "text",
        "tokenizer": None if weights is None else fingerprint(weights),
        "chat": card.chat.settings(tokenizer.chat_template),
        "server": facts.kind,
        "reasoning_budget": "one with the answer's",
    } | ({"extra_body": options.extra_body} if options.extra_body else {})
    return BackendInfo(
        name="endpoint",
        version=f"{facts.kind} {facts.version}".strip(),
        model=card.name,
        context_window=window,
        settings=settings,
        # The url is not part of the run's identity: in a cluster the same server comes up on another node tomorrow.
        hardware={
            "url": options.base_url,
            "server_window": facts.window or None,
            "concurrency": options.concurrency,
        },
        counted_in="characters" if weights is None else "tokens",
        wraps_prompts=transport.api == "chat",
        notes=() if weights is not None else (_CONTROL_NOTE,),
    )


def _window(card: ModelCard, options: EndpointOptions, facts: ServerFacts) -> int:
    window = card.context_window or facts.window
    if not window:
        raise UsageError(
            f"The server {options.url} does not report the length of its context window.",
            fix="Pass the value that the server was started with as --context-window, or set context_window in the "
            f"card {card.name}.",
        )
    if facts.window and window > facts.window:
        raise BackendError(
            f"The server {options.url} runs with a context window of {facts.window} tokens; a context window of "
            f"{window} exceeds it.",
            fix="Lower --context-window, or context_window in the card, or start the server with a larger one.",
        )
    return window
