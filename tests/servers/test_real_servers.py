"""vLLM's CPU build and llama.cpp's server, each against lbx's own backend with the same weights in float32."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lbx.backends import load, read_card
from lbx.base.errors import BackendError, PromptError, UsageError
from lbx.base.records import Completion
from tests.backends.endpoint_servers import closing_all
from tests.command_line import Lbx
from tests.servers.served_model import REASONED, WINDOW
from tests.servers.served_requests import ask, ask_documents, make_request, read_answers
from tests.servers.server_processes import needs

TASKS = "leval/tpo,longbench/trec,longbench/trec_e,longbench_v2,longbench_pro/t3.1,lveval/factrecall_en_16k"
SIZE = ("--limit", 2, "--context-window", 2048, "--max-new-tokens", 12, "--sampling", "model", "--no-thinking")
GREEDY = "[sampling]\ntemperature = 0.0\n"


@dataclass(frozen=True)
class RealServer:
    """A running server, and its counterpart in lbx.

    Attributes:
        own: card of lbx's backend.
        block: the server shares prefixes in multiples of this number of tokens.
    """

    kind: str
    url: str
    tokenizer: Path
    own: Path
    block: int


@pytest.fixture(scope="module", params=[pytest.param(name, marks=needs(name)) for name in ("vllm", "llama-server")])
def server(request: pytest.FixtureRequest, served: tuple[Path, Path], tmp_path_factory: Any) -> RealServer:
    folder, gguf = served
    own = tmp_path_factory.mktemp("own") / "tiny.toml"
    if request.param == "vllm":
        url = request.getfixturevalue("vllm_url")
        text = f'backend = "hf"\n[weights]\npath = "{folder}"\n[options]\ndtype = "float32"\ndevice = "cpu"\n'
        kind = RealServer("vllm", url, folder, own, 128)
    else:
        url = request.getfixturevalue("llama_server").url
        text = (
            f'backend = "llamacpp"\n[weights]\npath = "{gguf}"\n[options]\ncache_type_k = "f32"\ncache_type_v = "f32"\n'
        )
        kind = RealServer("llama-server", url, gguf, own, 1)
    own.write_text('name = "own"\n' + text + "threads = 1\n" + GREEDY)
    return kind


@pytest.fixture
def connect(card: Callable[..., Path]) -> Iterator[Callable[..., Any]]:
    """connect(url, tokenizer, chat="", **options) -> the backend; closed at the end."""
    with closing_all() as opened:

        def make(*arguments: Any, **options: Any) -> Any:
            opened.append(load(read_card(card(*arguments, **options))))
            return opened[-1]

        yield make


def test_the_five_benchmarks_have_the_answers_of_lbx_s_own_backend(
    server: RealServer, families: Path, card: Callable[..., Path], lbx: Lbx, tmp_path: Path
) -> None:
    what = ("run", "-b", families, "-t", TASKS, *SIZE)
    lbx.ok(*what, "-m", server.own, "--no-plan", "-o", tmp_path / "own.duckdb")
    own = read_answers(tmp_path / "own.duckdb")
    assert len({answer[0] for answer in own.values()}) > 10
    for api in ("completions", "chat"):
        chat = "kwargs = { enable_thinking = false }" if api == "chat" else ""  # --no-thinking is for lbx's templates
        model = card(server.url, server.tokenizer, api=api, chat=chat)
        done = lbx.ok(*what, "-m", model, "-o", tmp_path / f"{api}.duckdb")
        assert "Time: unknown, because a server's speed is not measured" in done.stderr
        answers = read_answers(tmp_path / f"{api}.duckdb")
        assert answers.keys() == own.keys()
        assert {answer[3] for answer in answers.values()} == {None}
        # LongBench sends few-shot prompts without a template, and L-Eval removes 250 words at a time.
        compared = [key for key in own if api == "completions" or key[0] in ("t3.1", "factrecall_en_16k")]
        assert len(compared) in (len(own), 8)
        assert [answers[key] for key in compared] == [own[key] for key in compared]


def test_reasoning_is_split_off_by_the_server_or_by_lbx(server: RealServer, connect: Callable[..., Any]) -> None:
    backend = load(read_card(server.own))
    own = ask(backend, REASONED, thinking_tokens=20)
    assert own.reasoning
    assert own.reasoning_closed
    backend.close()
    for api, tokenizer in (("completions", server.tokenizer), ("chat", server.tokenizer), ("chat", None)):
        answer = ask(connect(server.url, tokenizer, api=api), REASONED, thinking_tokens=20)
        assert (answer.reasoning, answer.reasoning_closed) == (own.reasoning, True)
        # One budget: tokens that reasoning leaves over are the answer's.
        assert answer.text.startswith(own.text)
        short = ask(connect(server.url, tokenizer, api=api), REASONED, max_new_tokens=4)
        assert (short.text, short.reasoning_closed, short.finish_reason) == ("", False, "length")
        assert own.reasoning.startswith(str(short.reasoning))


def test_variables_of_the_template_reach_the_server(server: RealServer, connect: Callable[..., Any]) -> None:
    off = {"enable_thinking": False}
    chat = connect(server.url, server.tokenizer, api="chat", chat="kwargs = { enable_thinking = false }")
    own = ask(connect(server.url, server.tokenizer), REASONED, kwargs=off)
    answer = ask(chat, REASONED)
    assert answer.reasoning is None
    assert answer.text == own.text
    assert answer.prompt_tokens == own.prompt_tokens


def test_a_prompt_fills_the_window(server: RealServer, connect: Callable[..., Any]) -> None:
    """Also with variables of the template that make it longer than the server's default."""
    for api, chat in (("completions", ""), ("chat", ""), ("chat", "kwargs = { enable_thinking = false }")):
        backend = connect(server.url, server.tokenizer, api=api, chat=chat)
        request = make_request(backend, "The ship left.", max_new_tokens=4)
        filler = backend.tokenizer.encode(" ship", special=False)
        room = backend.info.context_window - 4 - len(request.token_ids)
        fills = replace(request, token_ids=(*request.token_ids[:-1], *filler * room, request.token_ids[-1]))
        exceeds = replace(fills, token_ids=(*fills.token_ids[:-1], *filler, fills.token_ids[-1]))
        outcomes = dict(backend.generate_many([fills, exceeds]))
        assert isinstance(outcomes[0], Completion), outcomes[0]
        spare = 0 if api == "completions" else 1 + len(backend.tokenizer.encode("<|system|><|end|>", special=True))
        assert outcomes[0].prompt_tokens == WINDOW - 4 - spare, "room for a system message, and BOS counted twice"
        assert isinstance(outcomes[1], PromptError)


def test_failures_name_their_cause(server: RealServer, connect: Callable[..., Any], served: Any) -> None:
    with pytest.raises(UsageError, match=r"names the model 'tinny', but the server .* lacks it.*tiny"):
        connect(server.url, server.tokenizer, model="tinny")
    with pytest.raises(UsageError, match=r'has api = "completions" but no \[tokenizer\]'):
        connect(server.url, None, api="completions")
    demo = Path(__file__).parents[2] / "models" / "demo" / "hf"
    with pytest.raises(BackendError, match="tokenizer does not match the server"):
        connect(server.url, demo)
    bare = connect(server.url, None)
    with pytest.raises(PromptError, match="do not fit the server's context window"):
        ask(bare, "The ship left. " * 3000)


def test_questions_reuse_their_documents(server: RealServer, connect: Callable[..., Any]) -> None:
    words = ["harbour", "ship", "fog", "bridge", "map", "river", "report", "page"]
    chance = random.Random(7)
    documents = [" ".join(chance.choices(words, k=300)) + "." for _ in range(3)]
    backend = connect(server.url, server.tokenizer, concurrency=4)
    answers = ask_documents(backend, documents, questions=3)
    for number, document in enumerate(documents):
        shared = len(backend.tokenizer.encode(document, special=False))
        cached = sorted(answers[number, question].cached_tokens for question in range(3))
        assert cached[0] < max(server.block, 9), "one question reads the document"
        assert all(shared - server.block < count for count in cached[1:]), (cached, shared)
