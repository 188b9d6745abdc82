"""Failures, reasoning and dialects of servers, by a scripted server on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lbx.backends import load, read_card
from lbx.backends.endpoint import http as endpoint_http
from lbx.backends.endpoint.options import EndpointOptions
from lbx.base.errors import BackendError, EndpointError, LbxError, PromptError
from lbx.base.records import Completion, Prompt, Request, SampleKey, Sampling, Truncation
from lbx.engine.batching import complete
from lbx.engine.prompter import Prompter
from tests.backends.endpoint_servers import DEMO, ROOT, Answer, ScriptedServer, closing_all

pytest.importorskip("transformers", reason="needs lbx[hf]")

MODELS = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}]}
USED: dict[str, Any] = {"prompt_tokens": 3, "completion_tokens": 2}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_http, "FIRST_DELAY_S", 0.01)


def said(text: str, finish: str = "stop", **more: object) -> Answer:
    return 200, {}, {"choices": [{"text": text, "finish_reason": finish}], "usage": USED} | more


def chatted(content: str | None, finish: str = "stop", *, usage: Any = USED, **message: object) -> Answer:
    choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return 200, {}, {"choices": [choice], "usage": usage}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """serve(answer of a POST, **options) -> (server, backend), chat without a tokenizer by default."""
    with closing_all() as things:

        def make(
            post: Callable[[Any, int], Answer], *, models: Any = MODELS, tokenizer: bool = False, **options: object
        ) -> Any:
            def answer(path: str, payload: Any, before: int) -> Answer:
                if payload is None:
                    return (200, {}, models) if path == "/v1/models" else (404, {}, {"detail": "Not Found"})
                if path == "/tokenize":
                    return 404, {}, {"detail": "Not Found"}
                return post(payload, before)

            things.append(ScriptedServer(answer))
            given = {"url": things[-1].url, "retries": 2, "timeout_s": 5, **options}
            lines = ['backend = "endpoint"', f'[tokenizer]\npath = "{DEMO / "hf"}"' if tokenizer else "", "[options]"]
            lines += [f"{name} = {value!r}".replace("'", '"') for name, value in given.items()]
            card = tmp_path / "served.toml"
            card.write_text("\n".join(lines))
            things.append(load(read_card(card)))
            return things[-2], things[-1]

        yield make


def request(name: str = "1", text: str = "abc", **changes: Any) -> Request:
    return Request(SampleKey("t", "t", name), tuple(map(ord, text)), **({"max_new_tokens": 8} | changes))


CHAT = "/v1/chat/completions"


FAILURES: list[tuple[int, Any, type[LbxError], str, int]] = [
    (429, {"error": {"message": "the GPU\nis on fire"}}, BackendError, "t/t/1.*429: the GPU is on fire.*pause_s", 3),
    (500, {"error": {"message": "the GPU\nis on fire"}}, BackendError, "t/t/1.*500: the GPU is on fire", 3),
    (
        503,
        {"error": {"message": "the GPU\nis on fire"}},
        BackendError,
        "t/t/1.*503: the GPU is.*loads its model",
        3,
    ),
    (400, {"error": {"message": "no such parameter"}}, BackendError, "t/t/1 .400: no such parameter", 1),
    (400, {"message": "the request exceeds the available context size"}, PromptError, "t/t/1.*400", 1),
    (400, {"error": "This model's maximum context length is 8192 tokens."}, PromptError, "t/t/1.*400", 1),
    (413, "<html>Request Entity Too Large</html>", PromptError, "t/t/1.*413", 1),
    (422, {"detail": [{"loc": ["body"], "msg": "bad"}]}, BackendError, "t/t/1.*bad", 1),
    (401, {"error": "bad key"}, EndpointError, "401: bad key.*api_key_env", 1),
    (403, "", EndpointError, "403.*api_key_env", 1),
    (404, {"error": {"message": "The model `m` does not exist."}}, EndpointError, "404.*does not exist.*url", 1),
    (301, "moved", EndpointError, r"redirects requests to http://127.0.0.1:\d+/elsewhere .301.*a login page", 1),
    (302, "moved", EndpointError, r"redirects requests to http://127.0.0.1:\d+/elsewhere .302.*a login page", 1),
    (307, "moved", EndpointError, r"redirects requests to http://127.0.0.1:\d+/elsewhere .307.*a login page", 1),
    (308, "moved", EndpointError, r"redirects requests to http://127.0.0.1:\d+/elsewhere .308.*a login page", 1),
    (402, {"error": "no credit left"}, EndpointError, "402: no credit left.*account", 1),
    (502, "<html>Bad Gateway</html>", BackendError, "502.*A proxy before the server got no valid answer", 3),
    (504, "", BackendError, "504.*proxy before the server.*raise its timeout", 3),
    (408, "", BackendError, "408.*raise its timeout", 3),
    (400, {"error": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'."}, BackendError, "a field", 1),
    (400, {"error": "max_tokens is too large: 5000."}, PromptError, "an answer of 8 tokens.*--max-new-tokens", 1),
    (501, "never", BackendError, "501: never", 1),
    # an error in a body with the status of success
    (200, {"error": "odd"}, BackendError, "t/t/1 .400: odd", 1),
    (200, {"error": {"code": 500, "message": "out of memory"}}, BackendError, "500: out of memory", 3),
    (200, {"error": {"code": 400, "message": "exceeds the context size"}}, PromptError, "400: exceeds", 1),
    (200, {"error": {"code": "bad", "message": "no such key"}, "choices": []}, BackendError, "400: no such key", 1),
    (200, {"object": "error", "message": "odd", "error": None, "code": 40303}, BackendError, "400: odd", 1),
    (200, {"error": {"code": 401, "message": "bad key"}}, EndpointError, "401: bad key", 1),
    # no answer in the body
    (200, "<html>a login page</html>", BackendError, "not JSON: '<html>a login page", 1),
    (200, '{"choices": [{"te', BackendError, "not JSON", 1),
    (200, 'data: {"choices": []}', BackendError, "streams its answers", 1),
    (200, [1], BackendError, "not a JSON object", 1),
    (200, {"choices": []}, BackendError, "no choices", 1),
    (200, {"choices": [{"index": 0}]}, BackendError, "not text", 1),
    (200, {"choices": [{"message": {"content": ["a"]}}]}, BackendError, "not text", 1),
    (200, chatted("half", "abort")[2], BackendError, "abort", 1),
    (200, chatted("", "content_filter")[2], BackendError, "content_filter.*filter withheld", 1),
    (200, chatted(None, "tool_calls", tool_calls=[])[2], BackendError, "tool_calls.*without tools", 1),
]
"""(status, body, error class, regular expression of what the error names, requests made)"""


@pytest.mark.parametrize(("status", "body", "error", "named", "requests"), FAILURES)
def test_failures_have_their_error_and_number_of_requests(
    serve: Any, status: int, body: Any, error: type[LbxError], named: str, requests: int
) -> None:
    server, backend = serve(lambda *_: (status, {"Location": "/elsewhere"}, body))
    with pytest.raises(error, match=named) as refused:
        complete(backend, request())
    assert len(server.posts(CHAT)) == requests
    assert ("timeout_s" in str(refused.value)) == ("timeout_s" in named)


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("https://user:secret@other:8443/v1/chat/completions?token=secret", 'set url = "https://other:8443/v1"'),
        ("//other/v2/chat/completions", 'set url = "http://other/v2"'),
        ("https://login.example/?next=secret", "redirects requests to https://login.example/ .*login page"),
        ("", "redirects requests .308.*login page"),
        ("http://[bad/v1", "redirects requests .308.*login page"),
    ],
)
def test_a_redirection_names_its_target_without_secrets(serve: Any, location: str, named: str) -> None:
    _, backend = serve(lambda *_: (308, {"Location": location}, ""))
    with pytest.raises(EndpointError, match=named) as refused:
        complete(backend, request())
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
def test_a_failure_that_passes_is_tried_again(serve: Any, status: int) -> None:
    server, backend = serve(lambda _, before: (status, {}, {"error": "busy"}) if before < 2 else chatted("yes"))
    assert complete(backend, request()).text == "yes"
    assert len(server.posts(CHAT)) == 3


@pytest.mark.parametrize(("status", "advice"), [(500, "Check its log"), (501, "Check its log"), (404, "ends in /v1")])
def test_a_server_in_trouble_is_no_wrong_address(status: int, advice: str) -> None:
    server = endpoint_http.Server(EndpointOptions(url="http://127.0.0.1:1/v1"))
    try:
        error = server.to_error(endpoint_http.RefusedError(status, "CUDA out of memory"))
    finally:
        server.close()
    assert "CUDA out of memory" in error.cause and advice in error.fix


def test_a_server_that_takes_a_system_message_need_not_answer_it(serve: Any) -> None:
    _, backend = serve(lambda *_: chatted("", "content_filter"))
    assert backend.takes_system()


def test_an_answer_beside_an_empty_error_is_an_answer(serve: Any) -> None:
    status, headers, body = chatted("yes")
    _, backend = serve(lambda *_: (status, headers, {**body, "error": None}))
    assert complete(backend, request()).text == "yes"


def test_a_server_that_fails_with_the_status_of_success_takes_no_system_message(serve: Any) -> None:
    _, backend = serve(lambda *_: (200, {}, {"error": {"code": 400, "message": "no system role"}}))
    assert not backend.takes_system()


def test_a_request_that_breaks_the_connection_fails_alone_until_it_happens_three_times_in_a_row(serve: Any) -> None:
    def answer(payload: Any, _: int) -> Answer:
        return (0, {}, "") if "poison" in payload["messages"][0]["content"] else chatted("fine")

    server, backend = serve(answer, retries=1)
    for times in (2, 3):
        for _ in range(times):
            with pytest.raises(BackendError, match="gave no answer to t/t/1"):
                complete(backend, request(text="poison"))
        if times == 2:
            assert complete(backend, request()).text == "fine"
    before = len(server.posts(CHAT))
    with pytest.raises(EndpointError, match=r"is running, but did not answer 3 requests in a row.*the same command"):
        complete(backend, request())
    assert len(server.posts(CHAT)) == before


def test_slow_requests_fail_alone_however_many_of_them_time_out_together(serve: Any) -> None:
    def slowly(payload: Any, _: int) -> Answer:
        if "slow" in payload["messages"][0]["content"]:
            time.sleep(2)
        return chatted("fine")

    _, backend = serve(slowly, timeout_s=0.5, concurrency=4)
    requests = [request(name=str(n), text=f"{'slow' if n < 4 else 'quick'} {n}") for n in range(12)]
    outcomes = dict(backend.generate_many(requests))
    assert {n for n, one in outcomes.items() if isinstance(one, BackendError)} == {0, 1, 2, 3}
    assert {one.text for one in outcomes.values() if isinstance(one, Completion)} == {"fine"}


def test_a_server_that_hangs_ends_the_run_after_some_requests_that_count_as_failed(serve: Any) -> None:
    """So that the run is not held up by the same requests when it goes on."""
    release = threading.Event()
    server, backend = serve(lambda *_: (release.wait(30), chatted("late"))[1], timeout_s=0.3, concurrency=2)
    outcomes = {}
    try:
        with pytest.raises(EndpointError, match="3 requests in a row"):
            for index, outcome in backend.generate_many([request(name=str(n), text=f"q{n}") for n in range(40)]):
                outcomes[index] = outcome
    finally:
        release.set()
    assert len(outcomes) >= 3
    assert all(isinstance(one, BackendError) and "timeout_s" in str(one) for one in outcomes.values())
    assert len(server.posts(CHAT)) < 12


def test_a_server_that_is_too_slow_is_not_asked_twice(serve: Any) -> None:
    def slowly(*_: object) -> Answer:
        time.sleep(1)
        return chatted("late")

    server, backend = serve(slowly, timeout_s=0.2)
    with pytest.raises(BackendError, match="timeout_s"):
        complete(backend, request())
    assert len(server.posts(CHAT)) == 1


def test_tls_where_there_is_none(tmp_path: Path) -> None:
    with closing_all() as things:
        things.append(ScriptedServer(lambda *_: (200, {}, MODELS)))
        card = tmp_path / "tls.toml"
        url = things[0].url.replace("http:", "https:")
        card.write_text(f'backend = "endpoint"\n[options]\nurl = "{url}"\nretries = 0\ntimeout_s = 5\n')
        with pytest.raises(EndpointError, match=r"(?i)does not answer .*(ssl|tls)"):
            load(read_card(card))


def test_how_long_a_server_asks_to_wait() -> None:
    import httpx2

    def delay(text: str) -> float:
        return endpoint_http._asked_delay(httpx2.Response(429, headers={"Retry-After": text} if text else {}))

    assert delay("7") == 7
    assert delay("100000") == endpoint_http.MAX_ASKED_DELAY_S
    assert delay("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert delay("Wed, 21 Oct 2099 07:28:00 GMT") == endpoint_http.MAX_ASKED_DELAY_S
    assert delay("soon") == delay("") == delay("Wed, 21 Oct 2099 07:28:00 +99999999999999") == 0


def test_reasoning_apart_and_inside_the_text(serve: Any) -> None:
    answers = {
        "apart": chatted("\n\n(B)", reasoning_content="three ships\n"),
        "newer": chatted("(B)", reasoning="three ships"),
        "inside": chatted("<think>three ships</think>\n(B)"),
        "unclosed": chatted(None, "length", reasoning_content="three ships and"),
    }
    _, backend = serve(lambda payload, _: answers[payload["messages"][0]["content"]])
    for name in ("apart", "newer", "inside"):
        found = complete(backend, request(text=name))
        assert (found.text, found.reasoning, found.reasoning_closed) == ("(B)", "three ships", True)
    found = complete(backend, request(text="unclosed"))
    assert (found.text, found.reasoning, found.reasoning_closed, found.finish_reason) == (
        "", "three ships and", False, "length",
    )  # fmt: skip


def test_reasoning_and_answer_share_one_budget(serve: Any) -> None:
    server, backend = serve(lambda *_: chatted("x"))
    complete(backend, request(thinking_tokens=100))
    assert server.posts(CHAT)[0]["max_tokens"] == 108
    assert backend.info.settings["reasoning_budget"] == "one with the answer's"


def test_a_stop_string_inside_the_reasoning_ends_nothing(serve: Any) -> None:
    whole = "<think>one\ntwo</think>\nyes\nno"

    def answer(payload: Any, _: int) -> Answer:
        return chatted(whole.partition("\n")[0] if payload.get("stop") else whole)

    server, backend = serve(answer)
    found = complete(backend, request(stop=("\n",)))
    assert (found.text, found.reasoning, found.stop_in_reasoning, found.finish_reason) == (
        "yes",
        "one\ntwo",
        True,
        "stop",
    )
    assert [payload.get("stop") for payload in server.posts(CHAT)] == [["\n"], None]


def test_no_stop_string_among_the_first_tokens(serve: Any) -> None:
    server, backend = serve(lambda *_: chatted("\nyes\nno"))
    assert complete(backend, request(stop=("\n",), min_new_tokens=1)).text == "\nyes"
    assert "stop" not in server.posts(CHAT)[0]
    assert server.posts(CHAT)[0]["min_tokens"] == 1


def test_the_text_of_a_stop_token_ends_the_answer_behind_its_first_words(serve: Any) -> None:
    server, backend = serve(lambda *_: chatted("\n\nyes\nno"))
    found = complete(backend, request(stop_tokens=("\n",), min_new_tokens=1))
    assert (found.text, found.finish_reason) == ("\n\nyes", "stop")
    assert "stop" not in server.posts(CHAT)[0]


@pytest.mark.parametrize("takes", [True, False])
def test_a_system_message_travels_apart_where_the_server_takes_one(serve: Any, takes: bool) -> None:
    def post(payload: Any, _: int) -> Answer:
        if not takes and payload["messages"][0]["role"] == "system":
            return 400, {}, {"error": "System role not supported"}
        return chatted("yes")

    server, backend = serve(post)
    prompter = Prompter(
        backend.tokenizer, context_window=backend.info.context_window, sends_system=backend.takes_system
    )
    plain = Prompt("Read: ", "abc", " Question?", 8, Truncation.DOCUMENT_END)
    for prompt in (plain, replace(plain, system="Choose. "), replace(plain, system="Choose. ")):
        request = prompter.request(SampleKey("t", "t", "1"), prompt, Sampling())
        assert request.system_place == (None if prompt is plain else "message" if takes else "text")
        assert complete(backend, request).text == "yes"
    user = {"role": "user", "content": "Read: abc Question?"}
    apart = [{"role": "system", "content": "Choose. "}, user]
    before = [{"role": "user", "content": "Choose. Read: abc Question?"}]
    first, tried, *last = [payload["messages"] for payload in server.posts(CHAT)]
    assert first == [user]
    assert tried[0]["role"] == "system"  # once, by a request of one token
    assert last == [apart if takes else before] * 2


def test_turns_travel_as_messages(serve: Any) -> None:
    server, backend = serve(lambda *_: chatted("yes"))
    prompter = Prompter(
        backend.tokenizer,
        context_window=backend.info.context_window,
        sends_system=backend.takes_system,
        sends_turns=backend.info.wraps_prompts,
    )
    prompt = Prompt("Read: ", "abc", " First?", 8, Truncation.DOCUMENT_END, system="S. ", turns=("One.", "Second?"))
    assert complete(backend, prompter.request(SampleKey("t", "t", "1"), prompt, Sampling())).text == "yes"
    assert [(one["role"], one["content"]) for one in server.posts(CHAT)[-1]["messages"]] == [
        ("system", "S. "), ("user", "Read: abc First?"), ("assistant", "One."), ("user", "Second?"),
    ]  # fmt: skip


SAMPLED = Sampling(temperature=0.6, top_p=0.95, seed=3)


@pytest.mark.parametrize(
    ("owner", "greedy", "sampled"),
    [
        ("vllm", {"repetition_penalty": 1.0}, {"repetition_penalty": 1.0, "top_k": -1, "min_p": 0.0}),
        ("sglang", {"repetition_penalty": 1.0}, {"repetition_penalty": 1.0, "top_k": -1, "min_p": 0.0}),
        (
            "llamacpp",
            {"repeat_penalty": 1.0},
            {
                "repeat_penalty": 1.0, "top_k": 0, "min_p": 0.0,
                "samplers": ["temperature", "top_k", "top_p", "min_p"],
            },
        ),
        ("somebody", {}, {}),
    ],
)  # fmt: skip
def test_each_server_is_told_in_its_own_words(serve: Any, owner: str, greedy: Any, sampled: Any) -> None:
    server, backend = serve(lambda *_: chatted("x"), models={"data": [{"id": "m", "owned_by": owner}]})
    complete(backend, request())
    complete(backend, request(sampling=SAMPLED))
    base = {"model": "m", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 8}
    first, second = server.posts(CHAT)
    assert first == {**base, "temperature": 0.0, **greedy}
    seed = second.pop("seed")
    assert second == {**base, "temperature": 0.6, "top_p": 0.95, **sampled}
    assert 0 <= seed < 2**31
    complete(backend, request(name="2", sampling=SAMPLED))
    assert server.posts(CHAT)[2]["seed"] != seed


def demo_tokenizer() -> Any:
    from lbx.backends.cards import Chat
    from lbx.backends.tokenizer_loading import open_tokenizer

    return open_tokenizer(DEMO / "hf", Chat(), own_template=True, debug=False)[0]


def tokens_of(text: str) -> int:
    return len(demo_tokenizer().encode(text, special=True))


@pytest.mark.parametrize("adds_bos", [True, False])
@pytest.mark.parametrize("takes_ids", [True, False])
def test_prompts_arrive_as_the_tokens_that_lbx_counted(serve: Any, adds_bos: bool, takes_ids: bool) -> None:
    def answer(payload: Any, _: int) -> Answer:
        prompt = payload["prompt"]
        if isinstance(prompt, list):
            if not takes_ids:
                return 500, {}, {"error": "validation"}
            return said(" 4821", usage={"prompt_tokens": len(prompt), "completion_tokens": 2})
        return said(" 4821", usage={"prompt_tokens": tokens_of(prompt) + adds_bos, "completion_tokens": 2})

    server, backend = serve(answer, tokenizer=True)
    assert backend.info.context_window == 8192, "as the server says"
    tokenizer = backend.tokenizer
    text = "The code </s> is" if takes_ids else "The code is"
    ids = (tokenizer.bos_id, *tokenizer.encode(text, special=False))
    found = complete(backend, Request(SampleKey("t", "t", "1"), ids, 8))
    assert (found.text, found.prompt_tokens) == (" 4821", len(ids))
    sent = server.posts()[-1]["prompt"]
    if takes_ids:
        assert sent == list(ids)
    else:
        assert sent == ("" if adds_bos else "<s>") + text
        assert len([p for p in server.posts() if isinstance(p["prompt"], list)]) == 1, "asked once whether it takes ids"


def test_a_chat_server_that_reads_control_tokens_as_text_gets_them(serve: Any) -> None:
    def answer(payload: Any, _: int) -> Answer:
        status, headers, body = chatted("yes")
        text = payload["messages"][-1]["content"]
        count = len(spelled.encode(text, special=False)) + 7
        return status, headers, {**body, "usage": {"prompt_tokens": count, "completion_tokens": 1}}

    spelled = demo_tokenizer()
    server, backend = serve(answer, tokenizer=True, api="chat")
    ids = tuple(spelled.encode("The code </s> is", special=False))
    assert complete(backend, Request(SampleKey("t", "t", "1"), ids, 8)).text == "yes"
    assert server.posts(CHAT)[-1]["messages"][-1]["content"] == "The code </s> is"


def test_a_server_that_cuts_prompts_is_found_out(serve: Any) -> None:
    def answer(payload: Any, _: int) -> Answer:
        prompt = payload["prompt"]
        count = len(prompt) if isinstance(prompt, list) else tokens_of(prompt)
        return said("x", usage={"prompt_tokens": min(count, 200), "completion_tokens": 1})

    _, backend = serve(answer, tokenizer=True)
    with pytest.raises(BackendError, match="read 200 tokens, but the prompt of t/t/1 has 300"):
        complete(backend, Request(SampleKey("t", "t", "1"), (5,) * 300, 8))


PROSE = (
    "The harbour of Kelm froze in the winter, and the grey ship stayed until spring, when the ice broke and "
    "sailors from three northern towns came to help its captain. "
)
LONG = PROSE * 20


@pytest.mark.parametrize(
    ("text", "count", "cut"),
    [
        (LONG, 100, True),
        (LONG, len(LONG) // 5, False),
        (LONG, len(LONG) // 11, False),
        ("北" + "の港は冬に凍り、灰色の船は春まで留まった。" * 200, 100, True),
        (" " * 100_000 + "Why?", 800, False),
        ("=" * 100_000 + "Why?", 800, False),
        ("=-" * 50_000 + "Why?", 800, False),
        ("\n\t" * 50_000 + "Why?", 800, False),
        ("a" * 100_000 + "Why?", 800, False),
        ("_" * 100_000 + LONG, 800, False),
        ("abc", 1, False),
        (LONG, 0, False),
    ],
)  # fmt: skip
def test_a_count_that_no_tokenizer_makes_is_refused(serve: Any, text: str, count: int, cut: bool) -> None:
    _, backend = serve(lambda *_: chatted("x", usage={"prompt_tokens": count, "completion_tokens": 1}))
    if cut:
        with pytest.raises(BackendError, match=r"read 100 tokens, but the prompt of t/t/1 has at least .*num_ctx"):
            complete(backend, request(text=text))
    else:
        assert complete(backend, request(text=text)).prompt_tokens == (count or None)


TRIMS, KEEPS = (lambda text: text.strip()), (lambda text: text)


@pytest.mark.parametrize(
    ("template", "text", "system", "limit", "cut"),
    [
        (KEEPS, LONG, "", 9999, False),
        (KEEPS, LONG, "", 600, True),
        (KEEPS, LONG, "Be brief.", 600, True),
        (KEEPS, LONG, "Be brief.", 9999, False),
        (TRIMS, "\n" * 50 + LONG + " " * 50, "", 9999, False),
        (TRIMS, "\n" * 50 + LONG + " " * 50, "", 600, True),
    ],
)
def test_a_chat_server_that_cuts_prompts_is_found_out_by_the_tokenizer(
    serve: Any, template: Callable[[str], str], text: str, system: str, limit: int, cut: bool
) -> None:
    def answer(payload: Any, _: int) -> Answer:
        contents = [message["content"] for message in payload["messages"]]
        count = 7 + sum(len(tokenizer.encode(template(content), special=False)) + 5 for content in contents)
        return chatted("x", usage={"prompt_tokens": min(count, limit), "completion_tokens": 1})

    tokenizer = demo_tokenizer()
    _, backend = serve(answer, tokenizer=True, api="chat")
    ids = tuple(tokenizer.encode(system + text, special=False))
    assert len(ids) > 640
    asked = Request(SampleKey("t", "t", "1"), ids, 8, system=system)
    if cut:
        with pytest.raises(BackendError, match="read 600 tokens, but the prompt of t/t/1 has at least"):
            complete(backend, asked)
    else:
        assert complete(backend, asked).text == "x"


def test_a_server_without_counts_is_not_said_to_have_another_tokenizer(serve: Any) -> None:
    with pytest.raises(BackendError, match=r"reports no token counts.*usage\.prompt_tokens"):
        serve(lambda *_: said("x", usage=None), tokenizer=True)


def test_an_answer_names_its_model(serve: Any) -> None:
    status, headers, body = chatted("x")
    _, backend = serve(lambda *_: (status, headers, {**body, "model": "m-2026"}))
    assert complete(backend, request()).served_model == "m-2026"


def test_what_llama_server_says_about_itself(tmp_path: Path) -> None:
    def answer(path: str, payload: Any, _: int) -> Answer:
        if path == "/v1/models":
            return 200, {}, {"data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx_train": 999}}]}
        if path == "/props":
            return 200, {}, {"build_info": "b8681-abc", "default_generation_settings": {"n_ctx": 2048}}
        if path == "/tokenize":
            return 200, {}, {"tokens": [1, 2, 3]}
        timings = {"cache_n": 2, "prompt_ms": 1500, "predicted_ms": 250.5}
        return said("x", timings=timings)

    with closing_all() as things:
        things.append(ScriptedServer(answer))
        card = tmp_path / "llama.toml"
        head = f'backend = "endpoint"\n[options]\nurl = "{things[0].url}"\n'
        card.write_text(head)
        things.append(load(read_card(card)))
        assert things[1].info.version == "llama-server b8681-abc"
        assert things[1].info.hardware["server_window"] == 2048
        found = complete(things[1], request())
        assert (found.cached_tokens, found.prefill_s, found.decode_s) == (2, 1.5, 0.2505)
        card.write_text(f'{head}[tokenizer]\npath = "{DEMO / "hf"}"\n')
        with pytest.raises(BackendError, match="Use the tokenizer of the model"):
            load(read_card(card))


def test_the_window_of_the_card_may_not_be_beyond_the_servers(serve: Any, tmp_path: Path) -> None:
    def answer(payload: Any, _: int) -> Answer:
        prompt = payload["prompt"]
        count = len(prompt) if isinstance(prompt, list) else tokens_of(prompt)
        return said("x", usage={"prompt_tokens": count, "completion_tokens": 1})

    server, _ = serve(answer, tokenizer=True)
    card = tmp_path / "served.toml"
    card.write_text("context_window = 9000\n" + card.read_text())
    with pytest.raises(BackendError, match="a context window of 8192 tokens; a context window of 9000"):
        load(read_card(card))
    assert server.posts()


def test_many_keep_to_their_indices_and_failures_stay_their_own(serve: Any) -> None:
    def answer(payload: Any, _: int) -> Answer:
        text = payload["messages"][0]["content"]
        return (400, {}, {"error": "no"}) if text == "q3" else chatted(f"answer to {text}")

    _, backend = serve(answer, concurrency=3)
    found = dict(backend.generate_many([request(name=str(n), text=f"q{n}") for n in range(8)]))
    assert sorted(found) == list(range(8))
    assert isinstance(found.pop(3), BackendError)
    assert {n: one.text for n, one in found.items()} == {n: f"answer to q{n}" for n in found}
    assert list(backend.generate_many([])) == []


def test_a_server_that_refuses_the_key_halfway_stops_all(serve: Any) -> None:
    server, backend = serve(lambda _, before: chatted("x") if before < 4 else (401, {}, "no"), concurrency=2)
    found: list[int] = []
    with pytest.raises(EndpointError, match="refuses the key"):
        for index, outcome in backend.generate_many([request(name=str(n), text=f"q{n}") for n in range(50)]):
            assert isinstance(outcome, Completion)
            found.append(index)
    assert 1 <= len(found) <= 4
    assert len(server.posts(CHAT)) < 10


INTERRUPTED = """
import signal, sys
from pathlib import Path
from lbx.backends import load, read_card
from lbx.base.records import Request, SampleKey
backend = load(read_card(Path(sys.argv[1])))
requests = [Request(SampleKey("t", "t", str(n)), tuple(map(ord, f"q{n}")), 8) for n in range(9)]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
try:
    for index, outcome in backend.generate_many(requests):
        if sys.argv[2] == "missed":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # another thread gets it: no wait is cut short
        print(index, outcome.text, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
finally:
    backend.close()
"""


@pytest.mark.parametrize("wait", ["cut short", "missed"])
def test_ctrl_c_waits_for_nobody(wait: str, tmp_path: Path) -> None:
    """Not even where the signal comes just before Python begins to wait, and so does not cut the wait short."""

    def answer(path: str, payload: Any, before: int) -> Answer:
        if payload is None:
            return 200, {}, MODELS
        if before:
            time.sleep(3600)
        return chatted("first")

    with closing_all() as things:
        things.append(ScriptedServer(answer))
        card = tmp_path / "slow.toml"
        card.write_text(f'backend = "endpoint"\n[options]\nurl = "{things[0].url}"\nconcurrency = 3\n')
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, str(card), wait],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ.copy(),
        )  # fmt: skip
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            assert first.endswith("first\n"), first
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=60)  # an hour, if it waited
        finally:
            process.kill()
            process.communicate()
        assert (rest, errors, process.returncode) == ("interrupted\n", "", 0)


def test_the_address_a_run_may_reach() -> None:

    assert EndpointOptions(url="http://node7:8080/v1").address == ("node7", 8080)
    assert EndpointOptions(url="https://[::1]/v1").address == ("::1", 443)
