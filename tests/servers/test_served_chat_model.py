"""vLLM with a real chat model in float32, against transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.command_line import Lbx
from tests.servers.served_requests import read_answers
from tests.servers.server_processes import needs, needs_time, start_vllm

WHAT = (
    "-t",
    "leval/tpo,leval/quality",
    "--documents",
    1,
    "--context-window",
    4096,
    "--max-new-tokens",
    16,
    "--no-plan",
)


@needs("vllm")
@needs_time
def test_answers_are_those_of_transformers(
    smollm2: Callable[[str], Path], families: Path, card: Callable[..., Path], lbx: Lbx, tmp_path: Path
) -> None:
    folder = smollm2("hf")
    own = tmp_path / "own.toml"
    own.write_text(
        f'name = "own"\nbackend = "hf"\n[weights]\npath = "{folder}"\n[options]\ndtype = "float32"\ndevice = "cpu"\n'
    )
    server = start_vllm(folder, tmp_path / "vllm.log", "--max-model-len", 4096)
    try:
        lbx.ok("run", "-b", families, "-m", card(server.url, folder), *WHAT, "-o", tmp_path / "served.duckdb")
    finally:
        server.close()
    lbx.ok("run", "-b", families, "-m", own, *WHAT, "-o", tmp_path / "own.duckdb")
    answers = read_answers(tmp_path / "own.duckdb")
    assert len(answers) > 10
    assert read_answers(tmp_path / "served.duckdb") == answers
