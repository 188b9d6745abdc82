"""Real servers that are killed in the middle of a run."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import Lbx
from tests.servers.served_requests import read_answers
from tests.servers.server_processes import ServerProcess, needs, needs_time, start_llama_server, start_vllm

_ANSWERS = 30
_KILLED_AFTER = 12


def _kill_after(server: ServerProcess, answers: int, run_ended: threading.Event) -> None:
    while len(re.findall("/v1/completions|stop processing", server.log.read_text(errors="replace"))) < answers:
        if run_ended.wait(0.02):
            return
    server.kill()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("llama-server", marks=needs("llama-server")),
        pytest.param("vllm", marks=[needs("vllm"), needs_time]),
    ],
)
def test_a_run_continues_after_its_server_was_killed(
    kind: str, served: tuple[Path, Path], families: Path, card: Callable[..., Path], lbx: Lbx, tmp_path: Path
) -> None:
    folder, gguf = served

    def start(log: str, port: int | None = None) -> ServerProcess:
        if kind == "vllm":
            return start_vllm(folder, tmp_path / log, port=port)
        return start_llama_server(gguf, tmp_path / log, "-lv", 5, port=port)  # logs the end of each answer

    server = start("first.log")
    model = card(server.url, folder if kind == "vllm" else gguf, retries=1, concurrency=1, pause_s=0.1)
    what = ("run", "-b", families, "-t", "lveval/factrecall_en_16k", "--limit", _ANSWERS, "--no-plan", "-m", model)
    run_ended = threading.Event()
    killer = threading.Thread(target=_kill_after, args=(server, _KILLED_AFTER, run_ended))
    killer.start()
    killed = lbx(*what, "-o", tmp_path / "results.duckdb")
    run_ended.set()
    killer.join()
    server.close()
    assert killed.returncode
    assert "does not answer" in killed.stderr
    assert "run the same command again to continue" in " ".join(killed.stderr.split())
    kept = read_answers(tmp_path / "results.duckdb")
    assert 0 < len(kept) < _ANSWERS
    assert {answer[3] for answer in kept.values()} == {None}
    again = start("again.log", server.port)
    try:
        lbx.ok(*what, "-o", tmp_path / "results.duckdb")
        lbx.ok(*what, "-o", tmp_path / "whole.duckdb")
    finally:
        again.close()
    answers = read_answers(tmp_path / "results.duckdb")
    assert len(answers) == _ANSWERS
    assert answers == read_answers(tmp_path / "whole.duckdb")
    assert kept.items() <= answers.items()
