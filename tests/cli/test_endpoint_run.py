"""``lbx run`` on a real server: same answers as in this process, and a killed server loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lbx.backends import read_card
from lbx.base.errors import UsageError
from lbx.options.run_spec import RunSettings
from lbx.running.models import load_model, make_prompter
from tests.backends.endpoint_servers import DEMO, LlamaServer, closing_all, export_demo, free_port
from tests.command_line import Lbx, fails

for library in ("llama_cpp", "gguf", "torch", "uvicorn", "fastapi", "sse_starlette", "starlette_context"):
    pytest.importorskip(library, reason="needs lbx[llama,hf,dev]")


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_demo(tmp_path_factory.mktemp("demo"))


@pytest.fixture
def servers() -> Iterator[list[LlamaServer]]:
    with closing_all() as things:
        yield things


def make_card(folder: Path, url: str, tokenizer: Path | None) -> Path:
    card = folder / "served.toml"
    place = f'context_window = 4096\n[tokenizer]\npath = "{tokenizer}"\n' if tokenizer else ""
    card.write_text(f'backend = "endpoint"\n{place}[options]\nurl = "{url}"\nretries = 1\n')
    return card


def rows(lbx: Lbx, path: Path, query: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = lbx.rows(path, query)
    return found


def test_a_run_over_http_is_the_run_in_this_process(
    lbx: Lbx, bundle: Path, gguf: Path, servers: list[LlamaServer], tmp_path: Path
) -> None:
    port, results = free_port(), tmp_path / "results.duckdb"
    card = make_card(tmp_path, f"http://127.0.0.1:{port}/v1", gguf)
    command = ("run", "--bundle", bundle, "--tasks", "needle", "-o", results)
    fails(lbx(*command, "--model", card), 1, "does not answer", "then run the same command again")
    servers.append(LlamaServer(gguf, tmp_path / "server.log", port))
    local = tmp_path / "local.toml"
    options = '[options]\ncache_type_k = "f32"\ncache_type_v = "f32"\nthreads = 1\n'
    local.write_text(f'backend = "llamacpp"\n[weights]\npath = "{gguf}"\n{options}')
    for model in (card, local):
        lbx.ok(*command, "--model", model)
    sets = rows(
        lbx, results,
        "SELECT backend, count(*) AS n, count(DISTINCT output) AS outputs, sum(prompt_tokens) AS tokens, "
        "string_agg(task || sample_id || output, '|' ORDER BY task, sample_id) AS all_of_it "
        "FROM generations JOIN runs USING (run_id) GROUP BY backend ORDER BY backend",
    )  # fmt: skip
    assert [row["backend"] for row in sets] == ["endpoint", "llamacpp"]
    assert sets[0]["n"] == sets[1]["n"] == 48
    assert sets[0]["tokens"] == sets[1]["tokens"]
    assert sets[0]["all_of_it"] == sets[1]["all_of_it"]
    (network,) = rows(lbx, results, "SELECT hardware ->> 'network' AS said FROM runs WHERE backend = 'endpoint'")
    assert f"but to the model server 127.0.0.1:{port}" in str(network["said"])


def test_without_a_tokenizer_nothing_can_be_cut(
    lbx: Lbx, bundle: Path, gguf: Path, servers: list[LlamaServer], tmp_path: Path
) -> None:
    servers.append(LlamaServer(gguf, tmp_path / "server.log"))
    card, results = make_card(tmp_path, servers[0].url, None), tmp_path / "results.duckdb"
    command = ("run", "--bundle", bundle, "--model", card, "--tasks", "needle/single_en", "-o", results, "--limit", 2)
    fails(lbx(*command, "--max-prompt-tokens", 50), 2, "--max-prompt-tokens", "[tokenizer]")
    model = read_card(card)
    backend = load_model(model, None)
    with pytest.raises(UsageError, match="its server puts every prompt into the model's own chat template"):
        make_prompter(model, backend, RunSettings(template="meta-llama3"))
    backend.close()
    fails(lbx(*command, "--reasoning-effort", "low"), 2, "does not reach the model", "kwargs under [chat]")
    done = lbx.ok(*command, "--no-thinking")
    assert "its server applies the chat template" in " ".join(done.stderr.split())


def test_a_card_of_another_model_is_refused(
    lbx: Lbx, bundle: Path, gguf: Path, servers: list[LlamaServer], tmp_path: Path
) -> None:
    servers.append(LlamaServer(gguf, tmp_path / "server.log"))
    card = make_card(tmp_path, servers[0].url, DEMO / "hf")
    card.write_text(card.read_text() + 'model = "other"\n')
    fails(
        lbx("plan", "--bundle", bundle, "--model", card, "--tasks", "needle/single_en"),
        2, "names the model 'other'", "Available: demo",
    )  # fmt: skip
