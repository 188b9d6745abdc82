"""Log probabilities of a prompt's tokens from a server."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbx.backends.endpoint.http import HttpResponse, Server
from lbx.backends.endpoint.options import EndpointOptions
from lbx.backends.endpoint.probe import ServerFacts
from lbx.backends.endpoint.prompt_log_probs import TOP_TOKENS, compact_position, read_top_log_probs
from lbx.base.errors import BackendError, EndpointError
from lbx.engine.model import TopLogProbs
from tests.backends.endpoint_servers import Answer, ScriptedServer

TOKENS = [5, 7, 9]
FACTS = ServerFacts("vllm", "0.32.0", "m", 4096)


def entry(log_prob: float, rank: int) -> dict[str, Any]:
    return {"logprob": log_prob, "rank": rank, "decoded_token": "x"}


LIST = [None, {"8": entry(-0.5, 1), "7": entry(-3.0, 12)}, {"9": entry(-0.1, 1), "2": entry(-9999.0, 2)}]


def ask(answer: Answer, asked: list[Any] | None = None, facts: ServerFacts = FACTS) -> TopLogProbs:
    scripted = ScriptedServer(lambda path, payload, before: answer)
    server = Server(EndpointOptions(url=scripted.url, retries=0))
    try:
        return read_top_log_probs(server, facts, TOKENS)
    finally:
        if asked is not None:
            asked += scripted.posts()
        server.close()
        scripted.close()


def test_an_entry_belongs_to_the_position_before() -> None:
    asked: list[Any] = []
    found = ask((200, {}, {"choices": [{"text": "", "prompt_logprobs": LIST}]}), asked)
    (payload,) = asked
    assert payload == {"model": "m", "prompt": TOKENS, "max_tokens": 1, "prompt_logprobs": TOP_TOKENS}
    assert len(found) == 3
    assert found.top.tolist() == [8, 9, -1]
    assert found.next_log_probs[:2].tolist() == [-3.0, -0.1]
    assert math.isnan(found.next_log_probs[2])
    assert found.ids[:, :3].tolist() == [[8, 7, -1], [9, 2, -1], [-1, -1, -1]]
    assert found.log_probs[0, :3].tolist() == [-0.5, -3.0, -math.inf]
    assert np.isneginf(found.log_probs[2]).all()


@pytest.mark.parametrize(
    "choices",
    [
        None,
        [],
        [{"text": ""}],
        [{"prompt_logprobs": LIST[:2]}],
        [{"prompt_logprobs": [None, {"8": entry(-0.5, 1)}, LIST[2]]}],  # without the text's token
        [{"prompt_logprobs": [None, {"7": -0.5}, LIST[2]]}],
        [{"prompt_logprobs": [None, None, None]}],
        [{"prompt_logprobs": [None, {"7": entry(-0.5, 1) | {"rank": None}}, LIST[2]]}],
        [{"prompt_logprobs": [None, {"7": entry(-0.5, 1) | {"logprob": "-0.5"}}, LIST[2]]}],
        [{"prompt_logprobs": [None, {}, LIST[2]]}],
        [{"prompt_logprobs": [None, {"x": entry(-0.5, 1)}, LIST[2]]}],
        [{"prompt_logprobs": [None, {str(n): entry(-n, n) for n in range(1, 30)}, LIST[2]]}],
    ],
)
def test_answers_of_another_form_are_refused(choices: object) -> None:
    with pytest.raises(BackendError, match="no log probabilities of a prompt that lbx can read"):
        ask((200, {}, {"choices": choices}))


def test_refusals_say_what_to_do() -> None:
    with pytest.raises(BackendError, match=r"refused a text of 3 tokens.*too long") as refused:
        ask((400, {}, {"error": {"message": "too long", "code": 400}}))
    assert "--length" in str(refused.value.fix)
    with pytest.raises(EndpointError):
        ask((401, {}, {"error": "no key"}))
    with pytest.raises(EndpointError):
        ask((0, {}, ""))


@pytest.mark.parametrize("kind", ["llama-server", "llama-cpp-python", "sglang", "other"])
def test_servers_without_them_are_not_asked(kind: str) -> None:
    asked: list[Any] = []
    with pytest.raises(BackendError, match=f"{kind}.*does not return the probabilities of a prompt's tokens"):
        ask((500, {}, ""), asked, replace(FACTS, kind=kind))
    assert not asked


def test_an_answer_takes_little_more_memory_than_its_text() -> None:
    positions = [{str(10 * at + n): entry(-n, n) for n in range(1, 12)} for at in range(2000)]
    content = json.dumps({"choices": [{"prompt_logprobs": [None, *positions]}]}).encode()
    answer = HttpResponse(200, {}, content)

    def peak(read: Callable[[], object]) -> int:
        tracemalloc.start()
        read()
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    assert peak(lambda: answer.json(compact_position)) < 3 * len(content)
    assert peak(answer.json) > 4 * len(content)
