"""The endpoint backend against a real server: llama-cpp-python's, on loopback, with the demo model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lbx.backends import load, read_card, resolve_model
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BackendError, EndpointError, PromptError, UsageError
from lbx.base.records import Prompt, Request, SampleKey, Sampling, Truncation
from lbx.benchmarks.needle import KINDS, Needle, NeedleSettings, make_sample
from lbx.engine.batching import complete
from lbx.engine.prompter import Prompter
from tests.backends.endpoint_servers import DEMO, LlamaServer, closing_all, export_demo, free_port

for library in ("llama_cpp", "torch", "gguf", "uvicorn", "fastapi", "sse_starlette", "starlette_context"):
    pytest.importorskip(library, reason="needs lbx[llama,hf,dev]")

GREEDY = Sampling()


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_demo(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def server(gguf: Path) -> Iterator[LlamaServer]:
    running = LlamaServer(gguf, gguf.parent / "server.log")
    yield running
    running.close()


@pytest.fixture
def connect(tmp_path: Path, gguf: Path) -> Iterator[Callable[..., Any]]:
    """connect(url, tokenizer=..., chat=..., **options) -> the backend; tokenizer None leaves it out."""
    with closing_all() as opened:

        def make(url: str, *, tokenizer: Path | None = gguf, head: str = "", **options: object) -> Any:
            lines = ['backend = "endpoint"', head]
            if tokenizer is not None:
                lines += ["" if "context_window" in head else "context_window = 4096"]
                lines += ["[tokenizer]", f'path = "{tokenizer}"']
            given = {"url": url, "retries": 1, **options}
            lines += ["[options]", *(f"{k} = {v!r}".replace("'", '"') for k, v in given.items())]
            card = tmp_path / f"served{len(opened)}.toml"
            card.write_text("\n".join(lines))
            opened.append(load(read_card(card)))
            return opened[-1]

        yield make


@pytest.fixture(scope="module")
def needle_requests(gguf: Path) -> list[Request]:
    """60 needle samples as tokens: each kind and language, 64 to 512 words."""
    backend = load(resolve_model(str(gguf)))
    prompter = Prompter(backend.tokenizer, context_window=4096)
    bundle = Bundle.__new__(Bundle)  # the needle benchmark's own prompt needs nothing of it
    requests = []
    for kind in KINDS:
        for language in ("en", "zh"):
            for number in range(10):
                length = (64, 128, 256, 512)[number % 4]
                sample = make_sample(NeedleSettings(), kind, language, length=length, depth=number / 9, index=number)
                prompt = Needle().prompt(bundle, sample)
                requests.append(prompter.request(sample.key, prompt, GREEDY))
    backend.close()
    assert len(requests) == 60
    return requests


@pytest.fixture(scope="module")
def wanted(gguf: Path, needle_requests: list[Request], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the backend in this process answers."""
    card = tmp_path_factory.mktemp("card") / "demo.toml"
    options = '[options]\ncache_type_k = "f32"\ncache_type_v = "f32"\nthreads = 1\n'
    card.write_text(f'backend = "llamacpp"\n[weights]\npath = "{gguf}"\n{options}')
    backend = load(read_card(card))
    answers = [complete(backend, request).text for request in needle_requests]
    backend.close()
    return answers


def request(tokenizer: Any, text: str, **changes: Any) -> Request:
    prompt = Prompt("", text, "", 8, Truncation.REFUSE, chat=False)
    made = Prompter(tokenizer, context_window=4096).request(SampleKey("t", "t", text[:9]), prompt, GREEDY)
    return dataclasses.replace(made, **changes)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_greedy_answers_are_those_of_the_backend_in_this_process(
    server: LlamaServer, connect: Any, needle_requests: list[Request], wanted: list[str], concurrency: int
) -> None:
    backend = connect(server.url, concurrency=concurrency)
    said = dict(backend.generate_many(needle_requests))
    assert sorted(said) == list(range(60)), "each once"
    assert [said[index].text for index in range(60)] == wanted
    assert [said[index].prompt_tokens for index in range(60)] == [len(r.token_ids) for r in needle_requests]
    assert sum(bool(re.search(r"\d", text)) for text in wanted) > 50, "they say something"


def test_one_request_at_a_time_and_the_tokenizer_of_a_folder(
    server: LlamaServer, connect: Any, needle_requests: list[Request], wanted: list[str]
) -> None:
    backend = connect(server.url, tokenizer=DEMO / "hf")
    assert complete(backend, needle_requests[0]).text == wanted[0]
    text = Prompter(backend.tokenizer, context_window=4096)
    prompt = Prompt("", "The boat", "", 8, Truncation.REFUSE, chat=False)
    assert (
        text.request(SampleKey("t", "t", "1"), prompt, GREEDY).token_ids
        == request(connect(server.url).tokenizer, "The boat").token_ids
    )


def test_what_is_known_of_the_server(server: LlamaServer, connect: Any) -> None:
    info = connect(server.url).info
    assert (info.name, info.context_window) == ("endpoint", 4096)
    assert re.fullmatch(r"llama-cpp-python \d+\.\d+\.\d+", info.version)
    assert info.settings["model"] == "demo"
    assert info.settings["prompts"] == "text", "this server takes no token ids"
    assert info.hardware["url"] == server.url
    assert "url" not in info.settings, "another node is the same run"


def test_a_bos_is_read_once(server: LlamaServer, connect: Any) -> None:
    backend = connect(server.url)
    asked = request(backend.tokenizer, "The code of the lion is 4821.")
    assert asked.token_ids[:1] == (backend.tokenizer.bos_id,)
    assert complete(backend, asked).prompt_tokens == len(asked.token_ids)


def test_a_document_that_spells_a_control_token_is_refused_where_only_text_is_taken(
    server: LlamaServer, connect: Any
) -> None:
    backend = connect(server.url)
    with pytest.raises(BackendError, match="contains the text of a control token"):
        complete(backend, request(backend.tokenizer, "The boat </s> sank."))


def test_budget_and_stop_strings(
    server: LlamaServer, connect: Any, needle_requests: list[Request], wanted: list[str]
) -> None:
    backend = connect(server.url)
    short = complete(backend, dataclasses.replace(needle_requests[0], max_new_tokens=1))
    assert (short.finish_reason, short.output_tokens) == ("length", 1)
    assert wanted[0].startswith(short.text)
    stop = next(character for character in wanted[0] if character.strip())
    stopped = complete(backend, dataclasses.replace(needle_requests[0], stop=(stop,), min_new_tokens=1))
    assert stop in wanted[0]
    assert stopped.text.count(stop) <= 1
    assert complete(backend, dataclasses.replace(needle_requests[0], stop=("\ue000",))).text == wanted[0]


def test_sampled_answers_can_be_repeated(server: LlamaServer, connect: Any, needle_requests: list[Request]) -> None:
    backend = connect(server.url)
    hot = dataclasses.replace(needle_requests[0], sampling=Sampling(temperature=3.0), max_new_tokens=20)
    first = complete(backend, hot).text
    assert complete(backend, hot).text == first
    others = {
        complete(backend, dataclasses.replace(hot, key=hot.key._replace(iteration=number))).text for number in (1, 2, 3)
    }
    assert others - {first}, "another iteration is another answer"


def test_what_the_server_cannot_hold_is_the_samples_failure(server: LlamaServer, connect: Any) -> None:
    with_tokens = connect(server.url, head="context_window = 20000")
    long = request(with_tokens.tokenizer, "The boat")
    long = dataclasses.replace(long, token_ids=long.token_ids + long.token_ids[1:] * 1200)
    with pytest.raises(PromptError, match=r"do not fit the server's context window .*maximum context length is 4096"):
        complete(with_tokens, long)
    chat = connect(server.url, tokenizer=None)
    with pytest.raises(PromptError, match="do not fit"):
        complete(chat, dataclasses.replace(long, token_ids=tuple(map(ord, "The boat sank. " * 3000))))


def test_chat_without_a_tokenizer(server: LlamaServer, connect: Any) -> None:
    backend = connect(server.url, tokenizer=None)
    assert backend.info.settings["api"] == "chat"
    assert backend.info.settings["tokenizer"] is None
    asked = Prompter(backend.tokenizer, context_window=backend.info.context_window).request(
        SampleKey("t", "t", "1"), Prompt("", "三条船 </s>", "?", 8, Truncation.MIDDLE), GREEDY
    )
    assert "".join(map(chr, asked.token_ids)) == "三条船 </s>?"
    said = complete(backend, asked)
    assert said.prompt_tokens is not None
    assert said.prompt_tokens > 5, "the server's own count, its template included"
    assert 0 < said.output_tokens <= 8


def test_chat_with_a_tokenizer_leaves_room_for_the_servers_template(server: LlamaServer, connect: Any) -> None:
    backend = connect(server.url, api="chat")
    assert 4096 - 40 < backend.info.context_window < 4096
    assert backend.tokenizer.chat_template is None
    text = "The boat sank. " * 3000
    asked = Prompter(backend.tokenizer, context_window=backend.info.context_window).request(
        SampleKey("t", "t", "1"), Prompt("", text, "?", 8, Truncation.MIDDLE), GREEDY
    )
    assert asked.truncated
    said = complete(backend, asked)
    assert 4096 - 24 <= (said.prompt_tokens or 0) + 8 <= 4096, "full, but for the room of a system message"


def test_a_chat_server_that_reads_control_tokens_gets_no_document_that_spells_one(
    server: LlamaServer, connect: Any
) -> None:
    backend = connect(server.url, api="chat")
    with pytest.raises(BackendError, match=r"contains the text of a control token.*Use api = .completions."):
        complete(backend, request(backend.tokenizer, "The boat </s> sank."))
    assert complete(backend, request(backend.tokenizer, "The boat sank.")).prompt_tokens
    assert not backend.info.notes
    (note,) = connect(server.url, tokenizer=None).info.notes
    assert "control token" in note
    assert "[tokenizer]" in note


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "dema"}, UsageError, "names the model 'dema'.* Did you mean demo"),
        ({"url": "/nope"}, EndpointError, "404"),
        ({"head": ""}, None, ""),
    ],
)
def test_what_the_card_gets_wrong(server: LlamaServer, connect: Any, options: Any, error: Any, message: str) -> None:
    options = dict(options)
    url = server.url + options.pop("url", "")
    if error is None:
        assert connect(url, **options).info.settings["model"] == "demo"
        return
    with pytest.raises(error, match=message):
        connect(url, model=options.pop("model", "demo"), **options)


def test_the_tokenizer_of_another_model_is_refused(server: LlamaServer, connect: Any, tiny_hf: Path) -> None:
    with pytest.raises(BackendError, match=r"splits a test text into .* tokens, and the server reads"):
        connect(server.url, tokenizer=tiny_hf)


def test_no_server_at_all(connect: Any) -> None:
    with pytest.raises(EndpointError, match="does not answer") as caught:
        connect(f"http://127.0.0.1:{free_port()}/v1")
    assert "run the same command again to continue" in str(caught.value)


def test_a_server_that_wants_a_key(gguf: Path, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing_all() as things:
        things.append(LlamaServer(gguf, gguf.parent / "key.log", api_key="s3cret-key"))
        with pytest.raises(EndpointError, match=r"refuses the key.*api_key_env"):
            connect(things[0].url)
        with pytest.raises(UsageError, match=r"LBX_TEST_KEY, .* is not set"):
            connect(things[0].url, api_key_env="LBX_TEST_KEY")
        monkeypatch.setenv("LBX_TEST_KEY", "wrong-key")
        with pytest.raises(EndpointError, match="Check the key in the environment variable LBX_TEST_KEY") as caught:
            connect(things[0].url, api_key_env="LBX_TEST_KEY")
        assert "wrong-key" not in str(caught.value)
        monkeypatch.setenv("LBX_TEST_KEY", "s3cret-key")
        backend = connect(things[0].url, api_key_env="LBX_TEST_KEY")
        assert complete(backend, request(backend.tokenizer, "The boat")).output_tokens
        assert "s3cret-key" not in repr(backend.info)


def test_a_killed_server_stops_the_run_and_the_next_one_takes_up(
    gguf: Path, connect: Any, needle_requests: list[Request], wanted: list[str]
) -> None:
    with closing_all() as things:
        port = free_port()
        things.append(LlamaServer(gguf, gguf.parent / "killed.log", port))
        backend = connect(things[0].url)
        said: dict[int, str] = {}
        with pytest.raises(EndpointError, match=r"does not answer.*run the same command again to continue"):
            for index, outcome in backend.generate_many(needle_requests):
                assert not isinstance(outcome, Exception), outcome
                said[index] = outcome.text
                if len(said) == 5:
                    things[0].kill()
        assert 5 <= len(said) < 60
        assert all(text == wanted[index] for index, text in said.items())
        things.append(LlamaServer(gguf, gguf.parent / "again.log", port))
        rest = [index for index in range(60) if index not in said]
        for place, outcome in backend.generate_many([needle_requests[index] for index in rest]):
            said[rest[place]] = outcome.text
        assert [said[index] for index in range(60)] == wanted
