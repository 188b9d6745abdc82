"""The names that runs get of themselves: a run is continued by its name, so what is in it must never move."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Lbx

from lbx.running.preparing import generated_names
from lbx.store import RunRow, Store

CARD = """
name = "oracle"
backend = "scripted"
context_window = 4096

[weights]
path = "{answers}"

[sampling]
temperature = 0.6
top_p = 0.95
"""
GOLDEN = {
    "": ("oracle-scripted-1c608408", "oracle-scripted-90a7f04e"),
    "--seed 3": ("oracle-scripted-bafd8f9d", "oracle-scripted-725fd124"),
    "--sampling model": ("oracle-scripted-41691e3a", "oracle-scripted-e1e76bde"),
    "--no-chat --max-new-tokens 9 --max-prompt-tokens 100": ("oracle-scripted-8e0b956d", "oracle-scripted-5a05eb56"),
    "--iterations 2 --no-batching": ("oracle-scripted-86c17536", "oracle-scripted-5373bc1f"),
    "--thinking-tokens 16": ("oracle-scripted-52daad5a", "oracle-scripted-894b5e6b"),
    "--both-kinds": (
        "oracle-scripted-2cb7dc2d oracle-scripted-02fffbe7",
        "oracle-scripted-3ba8f9ce oracle-scripted-2cddab60",
    ),
}
"""{options: names of today, and of an lbx that told weights by the first and last MiB}."""


@pytest.mark.parametrize("options", GOLDEN)
def test_a_runs_name_is_the_one_it_always_had(
    options: str, lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path
) -> None:
    card = tmp_path / "oracle.toml"
    card.write_text(CARD.format(answers=answers))
    asked = ("-b", bundle, "-m", card, "-t", "needle", "--limit", "1", "--no-plan", "--json", *options.split())
    done = lbx("run", *asked, "-o", tmp_path / "results.duckdb")
    assert done.returncode in (0, 3), done.stderr  # 3: some options leave this model nothing to say
    told = json.loads(done.stdout)
    names = [one["run_id"] for one in (told if isinstance(told, list) else [told])]
    today, earlier = (text.split() for text in GOLDEN[options])
    assert names == today
    with Store(tmp_path / "results.duckdb", read_only=True) as store:
        query = "SELECT model, backend, bundle_digest, settings, hardware FROM runs WHERE run_id = ?"
        rows = [store.query(query, [name]).rows[0] for name in names]
    for (model, backend, digest, settings, hardware), name in zip(rows, earlier, strict=True):
        row = RunRow("", model, backend, "", {}, digest, json.loads(settings), json.loads(hardware), "")
        assert generated_names(row, judges=False).earlier == name
