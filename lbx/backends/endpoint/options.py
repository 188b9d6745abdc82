"""Options of models behind an OpenAI-compatible server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from lbx.backends.options import BackendOptions, check_at_least, check_choice
from lbx.base.errors import UsageError

APIS = ("", "completions", "chat")
MOST_PAUSE_S = 3600
SERVERS = ("auto", "llama-server", "llama-cpp-python", "vllm", "sglang", "other")
RESERVED_PARAMETERS = (
    "model", "prompt", "messages", "chat_template_kwargs", "max_tokens", "max_completion_tokens", "min_tokens", "stop",
    "temperature", "top_p", "top_k", "min_p", "samplers", "seed", "repeat_penalty", "repetition_penalty",
    "stream", "n", "best_of", "echo",
)  # fmt: skip
"""Fields that ``extra_body`` may not have: lbx sends them itself, or could not read the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions(BackendOptions):
    """Options of a model behind an OpenAI-compatible server.

    Attributes:
        url: the API's address, e.g. "http://127.0.0.1:8080/v1"; it must not contain a password. "" for a server that
            ``lbx run --serve`` starts.
        model: its name on the server; "" if the server has only one. If the server loads other weights under the same
            name, rename the card: lbx cannot detect the change.
        api: "completions" (lbx applies the chat template and truncates prompts; needs the card's [tokenizer]) or "chat"
            (the server applies its own template); "" means completions with a tokenizer, else chat.
        server: the server's software, which determines the sampling parameters that lbx sends beyond OpenAI's: "auto"
            detects it; behind a proxy, set "llama-server", "llama-cpp-python", "vllm", "sglang" or "other".
        api_key_env: name of the environment variable with the API key; "" sends no key.
        timeout_s: maximum seconds for one answer, including its time in the server's queue.
        retries: further attempts after 408, 409, 429, 5xx and broken connections, with growing pauses.
        concurrency: maximum concurrent requests; requests on the same document are sent close together.
        pause_s: minimum seconds between the starts of two requests, retries included, for servers with a rate limit.
        extra_body: a table of further fields for every request; part of the run's identity, and in results files.
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
        if self.url:
            _check_url(self.url)
        check_choice(self, APIS, "api")
        check_choice(self, SERVERS, "server")
        if not self.timeout_s > 0:
            raise UsageError(f"timeout_s must be more than 0 seconds, not {self.timeout_s}.")
        check_at_least(self, 0, "retries")
        check_at_least(self, 1, "concurrency")
        if not 0 <= self.pause_s <= MOST_PAUSE_S:
            raise UsageError(f"pause_s must be 0 to {MOST_PAUSE_S} seconds, not {self.pause_s}.")
        _check_extra_body(self.extra_body)

    @property
    def base_url(self) -> str:
        """The url without a slash at its end.

        Raises:
            UsageError: the card has none.
        """
        if not self.url:
            raise UsageError(
                "The model card has no url of a server.",
                fix="Set url under [options] in the card, or start the server with `lbx run --serve COMMAND`.",
            )
        return self.url.rstrip("/")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port: all that a run may reach over the network. Raises UsageError like ``base_url``."""
        parts = urlsplit(self.base_url)
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEmbeddingOptions(BackendOptions):
    """Options of embedding models behind an OpenAI-compatible server (``/v1/embeddings``).

    Attributes:
        url: the API's address, e.g. "http://127.0.0.1:8080/v1"; it must not contain a password.
        model: its name on the server; "" if the server has only one. Vectors are stored under the card's name and this
            one: if the server loads other weights under the same name, rename the card.
        api_key_env: name of the environment variable with the API key; "" sends no key.
        timeout_s: maximum seconds for one answer, including its time in the server's queue.
        retries: further attempts after 408, 409, 429, 5xx and broken connections, with growing pauses.
        batch_texts: texts in one request.
        max_characters: maximum characters of a text; lbx truncates longer ones at the end. 0 sends complete texts, and
            most servers reject one that is too long for the model.
        dimensions: requested length of the vectors, for models that support several; 0 means the model's default.
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
        _check_url(self.url)
        _ = self.connection  # checks its values
        check_at_least(self, 1, "batch_texts")
        check_at_least(self, 0, "max_characters", "dimensions")

    @property
    def connection(self) -> EndpointOptions:
        """Options of the connection, in the form for text-generating models."""
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
        parts.port  # noqa: B018  # raises ValueError if it is not a number
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if parts.username or parts.password:
        raise UsageError(
            "url contains a user name or password, which cards and results would pass on.",
            fix="Put the key into an environment variable, and set api_key_env to the variable's name.",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(
            f"url = {url!r} is not the address of a server.", fix='Write it like url = "http://127.0.0.1:8080/v1".'
        )


def _check_extra_body(table: dict[str, Any]) -> None:
    if reserved := [name for name in table if name in RESERVED_PARAMETERS]:
        raise UsageError(
            f"extra_body contains {', '.join(reserved)}, which lbx sets itself.",
            fix="Remove it. Set sampling and lengths with options of the run or under [sampling], and variables of the "
            "template with kwargs under [chat].",
        )
    try:
        json.dumps(table, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise UsageError(f"extra_body cannot be sent as JSON: {exc}.", fix="Write dates as strings.") from exc
