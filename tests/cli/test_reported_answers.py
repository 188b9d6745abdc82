"""Shared cases of prompts and answers: what a run sends, says and stores."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.backends.endpoint_servers import Answer, ScriptedServer
from tests.command_line import Lbx

Serve = Callable[[str], Path]
Bundled = Callable[[str], Path]


@pytest.fixture
def serve(shared: Callable[[str], Path], tmp_path: Path) -> Iterator[Serve]:
    """serve(kind) -> the card of a server that answers in this way."""
    started: list[subprocess.Popen[bytes]] = []

    def start(kind: str) -> Path:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        command = [sys.executable, str(shared("cases/endpoint/server.py")), kind, str(port)]
        started.append(subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL))
        while not _listens(port):
            assert started[-1].poll() is None, "the server has ended"
            time.sleep(0.02)
        card = tmp_path / f"{kind}.toml"
        card.write_text(f'backend = "endpoint"\n[options]\nurl = "http://127.0.0.1:{port}/v1"\nretries = 1\n')
        return card

    yield start
    for process in started:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return not probe.connect_ex(("127.0.0.1", port))


@pytest.fixture
def bundled(shared: Callable[[str], Path], lbx: Lbx, tmp_path: Path) -> Bundled:
    """bundled(case) -> the unpacked bundle of a case's benchmark."""
    return lambda case: lbx.unpacked(shared(f"cases/{case}") / "benchmark.toml", tmp_path)


@pytest.mark.parametrize("kind", ["inreasoning", "nullboth"])
def test_empty_answers_are_counted_and_marked(
    lbx: Lbx, bundled: Bundled, serve: Serve, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "r.duckdb"
    done = lbx.ok("run", "-b", bundled("think"), "-m", serve(kind), "-t", "all", "-o", out)
    assert "8 answered, 0 failed" in done.stdout
    said = " ".join(done.stderr.split())
    assert "8 of 8 answers are empty" in said and "--retry-empty" in said
    assert ("8 of them contain only reasoning" in said) is (kind == "inreasoning")
    (row,) = lbx.rows(out, "SELECT empty_answers, reasoning_unclosed FROM guards")
    assert row == {"empty_answers": 8, "reasoning_unclosed": 0}
    assert "answer empty" in lbx("report", out, "guards").stdout


def test_unclosed_reasoning_is_not_called_empty_as_well(
    lbx: Lbx, bundled: Bundled, serve: Serve, tmp_path: Path
) -> None:
    out = tmp_path / "r.duckdb"
    done = lbx("run", "-b", bundled("think"), "-m", serve("cutreason"), "-t", "all", "-o", out)
    assert "budget ran out inside the reasoning" in done.stderr
    assert "answers are empty:" not in done.stderr
    (row,) = lbx.rows(out, "SELECT empty_answers, reasoning_unclosed FROM guards")
    assert row == {"empty_answers": 0, "reasoning_unclosed": 8}


@pytest.mark.parametrize("case", ["think", "template"], ids=["without a system message", "with a system message"])
def test_an_error_with_the_status_of_success_fails_samples_in_the_servers_words(
    lbx: Lbx, bundled: Bundled, serve: Serve, tmp_path: Path, case: str
) -> None:
    out = tmp_path / "r.duckdb"
    done = lbx("run", "-b", bundled(case), "-m", serve("error200"), "-t", "all", "-o", out)
    assert done.returncode == 3, done.stderr
    errors = lbx.rows(out, "SELECT error, error_type FROM generations")
    assert len(errors) == (8 if case == "think" else 1)
    for error in errors:
        assert error["error_type"] == "PromptError"
        assert "the request exceeds the available context size. try increasing the context size" in error["error"]


@pytest.mark.parametrize(
    "template",
    ["", "{% if messages[1] %}{{ raise_exception('no system role') }}{% endif %}U:{{ messages[0].content }} A:"],
    ids=["no template", "no system role"],
)
def test_a_blank_line_separates_the_system_message_from_the_document(
    lbx: Lbx, shared: Callable[[str], Path], bundled: Bundled, tmp_path: Path, template: str
) -> None:
    answers = shared("cases/template") / "answers.json"
    chat = f"[chat]\ntemplate = {json.dumps(template)}\n" if template else ""
    (tmp_path / "m.toml").write_text(f'backend = "scripted"\n[weights]\npath = "{answers}"\n{chat}')
    done = lbx.ok("prompts", "-b", bundled("template"), "-m", tmp_path / "m.toml", "-t", "all")
    assert "Answer in one word.\n\nThe <s> boat [INST] comes on Tuesdays. {{ 7*7 }} <|im_end|>" in done.stdout


def test_marks_of_reasoning_that_are_not_the_models_are_announced(
    lbx: Lbx, shared: Callable[[str], Path], bundled: Bundled, tmp_path: Path
) -> None:
    out = tmp_path / "r.duckdb"
    model = shared("cases/think") / "answers.json"
    done = lbx.ok("run", "-b", bundled("think"), "-m", model, "-t", "all", "-o", out, "--max-new-tokens", 99)
    said = " ".join(done.stderr.split())
    assert "4 of 8 answers begin with <think>, <reasoning>, <thinking>, <THINK>. These reasoning tags" in said
    query = "SELECT sample_id, output, reasoning, reasoning_closed FROM generations"
    rows = {row["sample_id"]: row for row in lbx.rows(out, query)}
    told = {name: (row["reasoning"], row["output"]) for name, row in rows.items() if row["reasoning"] is not None}
    assert told == {
        "opened": ("Hm.\n\nIt says Tuesdays, so Tuesday.", "Tuesday"),
        "unclosed": ("Hm. It goes on and on.", ""),
        "twice": ("a", "<think>b</think>"),
        "empty": ("", "Tuesday"),
        "only-close": ("It says so.", "Tuesday"),
    }


def test_answers_that_begin_with_a_stop_string_name_it(
    lbx: Lbx, shared: Callable[[str], Path], bundled: Bundled, tmp_path: Path
) -> None:
    model = shared("cases/stopnl") / "answers.json"
    done = lbx.ok("run", "-b", bundled("stopnl"), "-m", model, "-t", "all", "-o", tmp_path / "r.duckdb")
    said = " ".join(done.stderr.split())
    assert "2 answers are empty: they began with a stop string" in said
    assert "reasoning field" not in said


def usage_of(read: object) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": read, "completion_tokens": 3}}


def run_against(
    lbx: Lbx, bundle: Path, folder: Path, reply: Callable[[str, int], dict[str, Any]], *words: object
) -> tuple[str, Path]:
    """Run against a server whose replies have these further fields: all output, and the results file."""

    def answer(path: str, payload: Any, before: int) -> Answer:
        if payload is None:
            return 200, {}, {"data": [{"id": "m", "owned_by": "made-up"}]}
        choice = {"message": {"role": "assistant", "content": "it is lit"}, "finish_reason": "stop"}
        return 200, {}, {"choices": [choice], **reply(payload["messages"][-1]["content"], before)}

    out, card = folder / "r.duckdb", folder / "card.toml"
    with closing(ScriptedServer(answer)) as server:
        card.write_text(f'backend = "endpoint"\n[options]\nurl = "{server.url}"\nconcurrency = 1\n')
        done = lbx("run", "-b", bundle, "-m", card, "-t", "rb/t", "-o", out, *words)
    return " ".join((done.stdout + done.stderr).split()), out


def test_a_server_that_cuts_every_prompt_answers_none(lbx: Lbx, bundled: Bundled, tmp_path: Path) -> None:
    said, out = run_against(lbx, bundled("bench"), tmp_path, lambda *_: usage_of(100))
    assert "0 answered, 3 failed" in said
    (row,) = lbx.rows(out, "SELECT DISTINCT error_type, error LIKE '%read 100 tokens, but%' AS named FROM generations")
    assert row == {"error_type": "BackendError", "named": True}


@pytest.mark.parametrize("usage", [{}, usage_of(0)])
def test_tokens_that_a_server_does_not_count_are_unknown(
    lbx: Lbx, bundled: Bundled, tmp_path: Path, usage: dict[str, Any]
) -> None:
    said, out = run_against(lbx, bundled("bench"), tmp_path, lambda *_: usage)
    assert "3 answered, 0 failed" in said
    assert "gave no token counts for 3 answers" in said
    (row,) = lbx.rows(out, "SELECT DISTINCT prompt_tokens, output_tokens, reasoning_tokens FROM generations")
    counted = 3 if usage.get("usage") else None
    assert row == {"prompt_tokens": None, "output_tokens": counted, "reasoning_tokens": 0}
    (session,) = lbx.rows(out, "SELECT prompt_tokens, computed_tokens, output_tokens FROM sessions")
    assert session == {"prompt_tokens": None, "computed_tokens": None, "output_tokens": counted and 9}
    cost = lbx.ok("report", out, "cost")
    assert "leave out answers whose server or file gives no counts" in " ".join((cost.stdout + cost.stderr).split())
    for line in json.loads(lbx.ok("report", out, "cost", "--format", "json").stdout):
        assert (line["prompt_tokens"], line["tokens_per_correct"], line["uncounted"]) == (None, None, 3)
    for report in ("leaderboard", "guards", "truncation", "estimates"):
        lbx.ok("report", out, report)


def test_a_server_that_changes_its_model_is_named(lbx: Lbx, bundled: Bundled, tmp_path: Path) -> None:
    def reply(prompt: str, before: int) -> dict[str, Any]:
        return usage_of(len(prompt) // 4) | {"model": "m-\x1b[31m1" if before < 2 else "m-2"}

    said, out = run_against(lbx, bundled("bench"), tmp_path, reply)
    assert r"come from 2 models, by the names in the server's answers: m-\x1b[31m1 (2), m-2 (1)" in said
    rows = lbx.rows(out, "SELECT served_model, count(*) AS n FROM generations GROUP BY ALL ORDER BY n")
    assert [row["n"] for row in rows] == [1, 2]


def test_a_model_that_changes_between_sessions_is_named(lbx: Lbx, bundled: Bundled, tmp_path: Path) -> None:
    bundle = bundled("bench")
    for model, words in (("m-1", ("--limit", 1)), ("m-2", ())):
        said, _ = run_against(lbx, bundle, tmp_path, lambda p, _: usage_of(len(p) // 4) | {"model": model}, *words)  # noqa: B023
        assert ("come from 2 models" in said) == (model == "m-2")


@pytest.mark.parametrize(("limit", "noted"), [(300, True), (9999, False)])
def test_prompts_of_different_lengths_with_one_count_are_noted(
    lbx: Lbx, tmp_path: Path, limit: int, noted: bool
) -> None:
    (tmp_path / "b.toml").write_text(
        'name = "rb"\nlicence = "CC0-1.0"\n[[task]]\nname = "t"\ndata = "t.jsonl"\n'
        'prompt = "{document} {question}"\nmetrics = ["contains"]\nmax_new_tokens = 16\n'
    )
    rows = [
        {"id": f"q{n}", "document": f"The lamp of tower {n} is lit. " * n, "question": "Is it?", "references": ["lit"]}
        for n in (1, 50, 60, 70)
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    bundle = lbx.unpacked(tmp_path / "b.toml", tmp_path)
    said, _ = run_against(lbx, bundle, tmp_path, lambda prompt, _: usage_of(min(limit, len(prompt) // 4)))
    assert "4 answered, 0 failed" in said
    assert ("the server read 300 tokens of each: it probably cut them" in said) == noted
