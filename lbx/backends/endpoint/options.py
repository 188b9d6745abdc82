"""Options of models behind an OpenAI-compatible server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from lbx.backends.options import BackendOptions, at_least, one_of
from lbx.base.errors import UsageError

APIS = ("", "completions", "chat")
MOST_PAUSE_S = 3600
SERVERS = ("auto", "llama-server", "llama-cpp-python", "vllm", "sglang", "other")
OWN_PARAMETERS = (
    "model", "prompt", "messages", "chat_template_kwargs", "max_tokens", "max_completion_tokens", "min_tokens", "stop",
    "temperature", "top_p", "top_k", "min_p", "samplers", "seed", "repeat_penalty", "repetition_penalty",
    "stream", "n", "best_of", "echo",
)  # fmt: skip
"""Fields that ``extra_body`` may not have: lbx sends them itself, or could not read the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions(BackendOptions):
    """Options of a model behind an OpenAI-compatible server.

    Attributes:
        url: the API's address, e.g. "http://127.0.0.1:8080/v1"; never with a password in it.
        model: its name on the server; "" if the server has only one. Rename the card when the server gets other weights
            under an old name: the server does not tell.
        api: "completions" (lbx wraps and cuts the prompts; needs the card's [tokenizer]) or "chat" (the server wraps
            them in its own template); "" is completions if there is a tokenizer, else chat.
        server: "auto" detects the software; behind a proxy name it: "llama-server", "llama-cpp-python", "vllm",
            "sglang" or "other". It decides which sampling parameters beyond OpenAI's are sent.
        api_key_env: name of the environment variable that holds the key; "" sends none.
        timeout_s: seconds that the server may take for one answer, including its queue.
        retries: further attempts after 408, 409, 429, 5xx and broken connections, with growing pauses.
        concurrency: requests under way at once; those on one document follow each other.
        pause_s: least seconds between the starts of two requests, retries included, for servers that limit the rate.
        extra_body: a table of further fields for every request; part of the run's identity, and kept in results files.
    """

    url: str = ""
    model: str = ""
    api: str = ""
    server: str = "auto"
    api_key_env: str = ""
    timeout_s: float = 1800.0
    retries: int = 5
    concurrency: int = 4
    pause_s: float = 0.0
    extra_body: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_url(self.url)
        one_of(self, APIS, "api")
        one_of(self, SERVERS, "server")
        if not self.timeout_s > 0:
            raise UsageError(f"timeout_s = {self.timeout_s} is not a number of seconds above 0.")
        at_least(self, 0, "retries")
        at_least(self, 1, "concurrency")
        if not 0 <= self.pause_s <= MOST_PAUSE_S:
            raise UsageError(f"pause_s = {self.pause_s} is not a number of seconds from 0 to {MOST_PAUSE_S}.")
        _check_extra_body(self.extra_body)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port: all that a run may reach over the network."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEmbeddingOptions(BackendOptions):
    """Options of embedding models behind an OpenAI-compatible server (``/v1/embeddings``).

    Attributes:
        url: the API's address, e.g. "http://127.0.0.1:8080/v1"; never with a password in it.
        model: its name on the server; "" if the server has only one. Vectors are stored under the card's name and this
            one: rename the card when the server gets other weights under an old name.
        api_key_env: name of the environment variable that holds the key; "" sends none.
        timeout_s: seconds that the server may take for one answer, including its queue.
        retries: further attempts after 408, 409, 429, 5xx and broken connections, with growing pauses.
        batch_texts: texts in one request.
        max_characters: cut texts to this many characters, at their end; 0 sends them whole, and most servers refuse
            one that is too long for the model.
        dimensions: length of the vectors to ask for, if the model has a choice; 0 means its own.
        query_prefix: precedes a query in retrieval.
        document_prefix: precedes every other text.
    """

    url: str = ""
    model: str = ""
    api_key_env: str = ""
    timeout_s: float = 300.0
    retries: int = 5
    batch_texts: int = 32
    max_characters: int = 0
    dimensions: int = 0
    query_prefix: str = ""
    document_prefix: str = ""

    def __post_init__(self) -> None:
        _ = self.connection  # which is checked as it is made
        at_least(self, 1, "batch_texts")
        at_least(self, 0, "max_characters", "dimensions")

    @property
    def connection(self) -> EndpointOptions:
        """The same as of a model that writes text."""
        return EndpointOptions(
            url=self.url,
            model=self.model,
            api_key_env=self.api_key_env,
            timeout_s=self.timeout_s,
            retries=self.retries,
            concurrency=1,
        )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises where it is no number
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if parts.username or parts.password:
        raise UsageError(
            "url holds a user name or password, and cards and results get shared.",
            fix="Put the key into an environment variable, and its name into api_key_env.",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(
            f"url = {url!r} is not the address of a server.", fix='Write it like url = "http://127.0.0.1:8080/v1".'
        )


def _check_extra_body(table: dict[str, Any]) -> None:
    if own := [name for name in table if name in OWN_PARAMETERS]:
        raise UsageError(
            f"extra_body holds {', '.join(own)}, which lbx sets itself.",
            fix="Remove it: sampling and lengths are options of the run or stand under [sampling], variables of the "
            "template are kwargs under [chat].",
        )
    try:
        json.dumps(table, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise UsageError(f"extra_body cannot be sent as JSON: {exc}.", fix="Write dates as text.") from exc
