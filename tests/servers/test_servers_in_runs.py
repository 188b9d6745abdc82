"""`lbx run --serve` with real servers."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import Lbx
from tests.servers.served_requests import read_answers
from tests.servers.server_processes import (
    QUIET,
    VLLM_ENVIRONMENT,
    llama_server_command,
    needs,
    needs_time,
    vllm_command,
)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("llama-server", marks=needs("llama-server")),
        pytest.param("vllm", marks=[needs("vllm"), needs_time]),
    ],
)
def test_a_run_starts_its_server(
    kind: str,
    served: tuple[Path, Path],
    families: Path,
    card: Callable[..., Path],
    lbx: Lbx,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (QUIET | (VLLM_ENVIRONMENT if kind == "vllm" else {})).items():
        monkeypatch.setenv(name, value)
    folder, gguf = served
    model = folder if kind == "vllm" else gguf
    command = vllm_command(model, "{port}") if kind == "vllm" else llama_server_command(model, "{port}")
    what = ("run", "-b", families, "-m", card("", model), "-t", "lveval/factrecall_en_16k", "--limit", 3, "--no-plan")
    results = tmp_path / "results.duckdb"
    lbx.ok(*what, "--serve", shlex.join(map(str, command)), "-o", results)
    answers = read_answers(results)
    assert len(answers) == 3
    assert {answer[3] for answer in answers.values()} == {None}
    (settings,) = lbx.rows(results, "SELECT settings::VARCHAR AS text FROM runs")
    assert kind.removesuffix("-server") in settings["text"]
    assert Path(f"{results}.server.log").stat().st_size
