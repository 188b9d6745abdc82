"""Shared cases of prompts and answers: what a run sends, says and stores."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Lbx

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
    assert "answers empty" in lbx("report", out, "guards").stdout


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
