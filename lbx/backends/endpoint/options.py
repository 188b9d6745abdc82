"""Options of models on an OpenAI-compatible server."""

import json
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from lbx.backends.options import (
    DOCUMENT_PREFIX,
    QUERY_PREFIX,
    SERVER_MODEL,
    URL,
    ApiKeyEnv,
    BackendOptions,
    Retries,
    TimeoutS,
)
from lbx.base.errors import UsageError
from lbx.options.option import CardOption

APIS = ("", "completions", "chat")
MOST_PAUSE_S = 3600
SERVERS = ("auto", "llama-server", "llama-cpp-python", "vllm", "sglang", "other")
RESERVED_PARAMETERS = (
    "model", "prompt", "messages", "chat_template_kwargs", "max_tokens", "max_completion_tokens", "min_tokens", "stop",
    "temperature", "top_p", "top_k", "min_p", "samplers", "seed", "repeat_penalty", "repetition_penalty",
    "stream", "n", "best_of", "echo",
)  # fmt: skip
"""Fields that ``extra_body`` must not contain: lbx sends them itself, or could not read the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions(BackendOptions):
    """Options of a model on an OpenAI-compatible server."""

    url: Annotated[
        str,
        URL.with_help(
            'the API\'s address, e.g. "http://127.0.0.1:8080/v1"; it must not contain a password. "" for a server '
            "that `lbx run --serve` starts."
        ),
    ] = ""
    model: Annotated[
        str,
        SERVER_MODEL,
    ] = ""
    api: Annotated[
        str,
        CardOption(
            '"completions" (lbx applies the chat template and truncates prompts; needs the card\'s [tokenizer]) or '
            '"chat" (the server applies its own template); "" means completions with a tokenizer, else chat.',
            choices=APIS,
        ),
    ] = ""
    server: Annotated[
        str,
        CardOption(
            "the server's software, which determines the sampling parameters that lbx sends beyond OpenAI's: \"auto\" "
            'detects it; behind a proxy, set "llama-server", "llama-cpp-python", "vllm", "sglang" or "other".',
            choices=SERVERS,
        ),
    ] = "auto"
    api_key_env: ApiKeyEnv = ""
    timeout_s: TimeoutS = 1800.0
    retries: Retries = 5
    concurrency: Annotated[
        int,
        CardOption("maximum concurrent requests; requests on the same document are sent close together.", minimum=1),
    ] = 4
    pause_s: Annotated[
        float,
        CardOption(
            "minimum seconds between the starts of two requests, retries included, for servers with a rate limit."
        ),
    ] = 0.0
    extra_body: Annotated[
        dict[str, Any],
        CardOption("a table of further fields for every request; part of the run's identity, and in results files."),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.url:
            _check_url(self.url)
        BackendOptions.__post_init__(self)
        if not self.timeout_s > 0:
            raise UsageError(f"timeout_s must be more than 0 seconds, not {self.timeout_s}.")
        if not 0 <= self.pause_s <= MOST_PAUSE_S:
            raise UsageError(f"pause_s must be 0 to {MOST_PAUSE_S} seconds, not {self.pause_s}.")
        _check_extra_body(self.extra_body)

    @property
    def base_url(self) -> str:
        """Url of the card without a final slash.

        Raises:
            UsageError: the card contains no url.
        """
        if not self.url:
            raise UsageError(
                "The model card has no url of a server.",
                fix="Set url under [options] in the card, or start the server with `lbx run --serve COMMAND`.",
            )
        return self.url.rstrip("/")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server, the only address that a run may reach. Raises UsageError like ``base_url``."""
        parts = urlsplit(self.base_url)
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEmbeddingOptions(BackendOptions):
    """Options of embedding models on an OpenAI-compatible server (``/v1/embeddings``)."""

    url: Annotated[str, URL] = ""
    model: Annotated[
        str,
        SERVER_MODEL.with_help(
            'its name on the server; "" if the server has only one. Vectors are stored under the card\'s name and '
            "this one: if the server loads other weights under the same name, rename the card."
        ),
    ] = ""
    api_key_env: ApiKeyEnv = ""
    timeout_s: TimeoutS = 300.0
    retries: Retries = 5
    batch_texts: Annotated[int, CardOption("texts in one request.", minimum=1)] = 32
    max_characters: Annotated[
        int,
        CardOption(
            "maximum characters of a text; lbx truncates longer ones at the end. 0 sends complete texts, and most "
            "servers reject one that is too long for the model."
        ),
    ] = 0
    dimensions: Annotated[
        int,
        CardOption("requested length of the vectors, for models that support several; 0 means the model's default."),
    ] = 0
    query_prefix: Annotated[str, QUERY_PREFIX] = ""
    document_prefix: Annotated[str, DOCUMENT_PREFIX] = ""

    def __post_init__(self) -> None:
        _check_url(self.url)
        _ = self.connection  # checks its values
        BackendOptions.__post_init__(self)

    @property
    def connection(self) -> EndpointOptions:
        """Options of the connection, as for a text-generating model."""
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
