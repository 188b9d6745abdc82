"""Stop strings of a model's card: they end its answers on every backend, and are part of the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import Lbx

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"
SAID = "<think>a User: b</think>\nThe code is 7.\nUser: and?"


def card_of(folder: Path, backend: str, weights: Path, stop: list[str]) -> Path:
    card = folder / f"{backend}-{len(list(folder.glob('*.toml')))}.toml"
    lines = f"stop = {json.dumps(stop)}\n" if stop else ""
    card.write_text(f'name = "m"\nbackend = "{backend}"\n{lines}[weights]\npath = "{weights}"\n')
    return card


def answers_of(lbx: Lbx, bundle: Path, card: Path, out: Path, *more: object) -> list[dict[str, str]]:
    lbx.ok("run", "-b", bundle, "-m", card, "-t", "needle/single_en", "--limit", 2, "-o", out, *more)
    query = (
        "SELECT run_id, output, reasoning, finish_reason, output_tokens, settings->'stop' AS stop "
        "FROM generations JOIN runs USING (run_id) ORDER BY ALL"
    )
    rows: list[dict[str, str]] = lbx.rows(out, query)
    return rows


def test_answers_end_before_them_and_reasoning_does_not(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "said.jsonl").write_text(json.dumps({"*": SAID}))
    out, asked = tmp_path / "r.duckdb", ("--thinking-tokens", 200)
    for stop in ([], ["User:"], ["User:", "is"]):
        answers_of(lbx, bundle, card_of(tmp_path, "scripted", tmp_path / "said.jsonl", stop), out, *asked)
    rows = answers_of(lbx, bundle, card_of(tmp_path, "scripted", tmp_path / "said.jsonl", ["User:"]), out, *asked)
    assert {(str(row["stop"]), row["output"]) for row in rows} == {
        ("None", "The code is 7.\nUser: and?"),
        ('["User:"]', "The code is 7.\n"),
        ('["User:","is"]', "The code "),
    }
    assert {row["reasoning"] for row in rows} == {"a User: b"}
    assert len({row["run_id"] for row in rows}) == 3, "other stop strings are another run; the same are not"


@pytest.mark.parametrize("backend", ["hf", "llamacpp"])
def test_the_models_of_this_machine_heed_them(
    backend: str, lbx: Lbx, bundle: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("torch" if backend == "hf" else "llama_cpp", reason="needs lbx[llama,hf]")
    place = DEMO if backend == "hf" else request.getfixturevalue("demo_gguf")
    out = tmp_path / "r.duckdb"
    plain = answers_of(lbx, bundle, card_of(tmp_path, backend, place, []), out)
    word = str(plain[0]["output"]).strip()[2]
    rows = answers_of(lbx, bundle, card_of(tmp_path, backend, place, [word]), out)
    cut = {row["output"] for row in rows if row["stop"]}
    assert cut == {str(row["output"]).partition(word)[0] for row in plain}
    assert cut != {row["output"] for row in plain}


def test_prompts_show_them(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "said.jsonl").write_text(json.dumps({"*": SAID}))
    card = card_of(tmp_path, "scripted", tmp_path / "said.jsonl", ["\nUser:"])
    done = lbx("prompts", "-b", bundle, "-m", card, "-t", "needle/single_en")
    assert "stops at  end of sequence, '\\nUser:'" in done.stdout
