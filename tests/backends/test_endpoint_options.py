"""What a card sends to a server beside lbx's own words, and how often it asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from lbx.backends import load, read_card
from lbx.backends.endpoint import http as endpoint_http
from lbx.backends.endpoint.http import Server, UnreachableError
from lbx.backends.endpoint.options import EndpointOptions
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import complete
from tests.backends.endpoint_servers import DEMO, Answer, ScriptedServer, closing_all

MODELS = {"object": "list", "data": [{"id": "m", "object": "model"}]}


def chatted(path: str, payload: Any, before: int) -> Answer:
    if payload is None:
        return (200, {}, MODELS) if path == "/v1/models" else (404, {}, {})
    choice = {"message": {"role": "assistant", "content": "seven"}, "finish_reason": "stop"}
    return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    made = ScriptedServer(chatted)
    yield made
    made.close()


def test_extra_body_goes_with_every_request_and_into_the_runs_identity(server: ScriptedServer, tmp_path: Path) -> None:
    card = tmp_path / "served.toml"
    plain = f'backend = "endpoint"\n[options]\nurl = "{server.url}"\n'
    card.write_text(plain + "[options.extra_body]\nprovider = { order = ['x'] }\nlogit_bias = { 5 = -100 }\n")
    backend = load(read_card(card))
    assert complete(backend, Request(SampleKey("b", "t", "1"), (97,), 8)).text == "seven"
    extra = {"provider": {"order": ["x"]}, "logit_bias": {"5": -100}}
    sent = server.posts("/v1/chat/completions")
    assert sent
    for payload in sent:
        assert {name: payload[name] for name in extra} == extra
    assert sent[-1]["max_tokens"] == 8
    assert backend.info.settings["extra_body"] == extra
    backend.close()
    card.write_text(plain)
    bare = load(read_card(card))
    assert "extra_body" not in bare.info.settings
    bare.close()


def test_the_window_leaves_room_for_the_template_s_variables_and_a_system_message(tmp_path: Path) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(DEMO / "hf" / "tokenizer.json"))

    def answer(path: str, payload: Any, before: int) -> Answer:
        status, headers, body = chatted(path, payload, before)
        if status == 200 and payload is not None and "messages" in payload:
            words = [len(tokenizer.encode(m["content"], add_special_tokens=False)) for m in payload["messages"]]
            count = sum(words) + 5 * len(words) + 4 * ("chat_template_kwargs" in payload)
            body = {**body, "usage": {"prompt_tokens": count, "completion_tokens": 1}}
        return status, headers, body

    with closing_all() as things:
        things.append(ScriptedServer(answer))
        card = tmp_path / "served.toml"
        card.write_text(
            'backend = "endpoint"\ncontext_window = 1000\n[chat]\nkwargs = { enable_thinking = false }\n'
            f'[tokenizer]\npath = "{DEMO / "hf"}"\n[options]\nurl = "{things[0].url}"\napi = "chat"\n'
        )
        things.append(load(read_card(card)))
        assert things[1].info.context_window == 1000 - 5 * 2 - 4


def test_requests_begin_one_pause_after_the_other(monkeypatch: pytest.MonkeyPatch, server: ScriptedServer) -> None:
    """Whether they came at once or late; the clock is the test's own, and moves where somebody waits."""
    clock = [100.0]
    waits: list[float] = []
    asking = Server(EndpointOptions(url=server.url, pause_s=1.5))

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        clock[0] += seconds
        return False

    monkeypatch.setattr(endpoint_http.time, "monotonic", lambda: clock[0])  # type: ignore[attr-defined]
    monkeypatch.setattr(asking._stopping, "wait", wait)
    for late in (0.0, 0.5, 4.0, 0.0):
        clock[0] += late
        asking.post("/chat/completions", {"messages": []})
    assert waits == [1.0, 1.5], "the second waits for what is left, the third for nothing, the fourth for all of it"
    monkeypatch.setattr(asking._stopping, "wait", lambda _: True)
    with pytest.raises(UnreachableError, match="the run has ended"):
        asking.post("/chat/completions", {"messages": []})
    asking.close()


def test_a_pause_is_no_part_of_the_runs_identity(server: ScriptedServer, tmp_path: Path) -> None:
    card = tmp_path / "served.toml"
    settings = []
    for pause in (0, 0.01):
        card.write_text(f'backend = "endpoint"\n[options]\nurl = "{server.url}"\npause_s = {pause}\n')
        backend = load(read_card(card))
        settings.append(backend.info.settings)
        backend.close()
    assert settings[0] == settings[1]
