"""What a server says about itself: its software, version, models and context window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lbx.backends.cards import ModelCard
from lbx.backends.endpoint.answers import count_of, table_of
from lbx.backends.endpoint.http import RefusedError, Server, UnreachableError
from lbx.backends.endpoint.options import EndpointOptions
from lbx.base.errors import UsageError
from lbx.base.tables import nearest

_OWNERS = {"llamacpp": "llama-server", "vllm": "vllm", "sglang": "sglang"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found out.

    Attributes:
        kind: one of ``SERVERS``, never "auto".
        version: "" where the server does not say.
        model: the name to ask for.
        window: the tokens that prompt and answer may take together, 0 where the server does not say.
    """

    kind: str
    version: str
    model: str
    window: int


def find_out(server: Server, card: ModelCard, options: EndpointOptions) -> Facts:
    """Ask the server.

    Raises:
        UsageError: it does not have the card's model, or has several and the card names none.
        EndpointError: it does not answer, or refuses the key.
    """
    try:
        models = _models(server.get("/models"))
        model = _choose(models, card, options)
        kind, title = _kind(server, models, options)
        entry = models.get(model, {})
        if kind == "llama-server":
            props = table_of(server.get("/props", root=True))
            window = count_of(table_of(props.get("default_generation_settings")).get("n_ctx"))
            return Facts(kind, str(props.get("build_info", "")), model, window or 0)
        return Facts(kind, _version(server, kind, title), model, count_of(entry.get("max_model_len")) or 0)
    except (RefusedError, UnreachableError) as exc:
        raise server.explain(exc) from exc


def _models(listed: Any) -> dict[str, Mapping[str, Any]]:
    """The models by their names; {} where the server lists none."""
    data = table_of(listed).get("data")
    entries = [table_of(entry) for entry in data] if isinstance(data, list) else []
    return {str(entry["id"]): entry for entry in entries if entry.get("id")}


def _choose(models: Mapping[str, Any], card: ModelCard, options: EndpointOptions) -> str:
    if options.model:
        # Some servers answer to any name, with whatever model they have.
        if models and options.model not in models:
            raise UsageError(
                f"The server {options.url} has no model {options.model!r}, which the card {card.name} names.",
                fix=nearest(options.model, models),
            )
        return options.model
    if len(models) != 1:
        count = len(models) or "no list of them"
        raise UsageError(
            f"The card {card.name} names no model, and the server {options.url} has {count}.",
            fix=f"Set model under [options]. {nearest('', models)}".rstrip(),
        )
    return next(iter(models))


def _kind(server: Server, models: Mapping[str, Mapping[str, Any]], options: EndpointOptions) -> tuple[str, str]:
    """The software, and its version where that came along."""
    owners = {str(entry.get("owned_by", "")) for entry in models.values()}
    kind = options.server
    if kind == "auto":
        kind = next((_OWNERS[owner] for owner in sorted(owners) if owner in _OWNERS), "other")
    if kind == "llama-cpp-python" or (kind == "other" and options.server == "auto" and owners == {"me"}):
        info = table_of(table_of(server.get("/openapi.json", root=True)).get("info"))
        if kind == "llama-cpp-python" or "llama.cpp Python" in str(info.get("title", "")):
            return "llama-cpp-python", str(info.get("version", ""))
    return kind, ""


def _version(server: Server, kind: str, known: str) -> str:
    places = {"vllm": ("/version",), "sglang": ("/server_info", "/get_server_info")}.get(kind, ())
    for place in places:
        version = table_of(server.get(place, root=True)).get("version")
        if version:
            return str(version)
    return known
