"""The names that runs get of themselves: a run is continued by its name, so what is in it must never move."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import Lbx, fails

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
    "": "oracle-scripted-1c608408",
    "--seed 3": "oracle-scripted-bafd8f9d",
    "--sampling model": "oracle-scripted-41691e3a",
    "--no-chat --max-new-tokens 9 --max-prompt-tokens 100": "oracle-scripted-8e0b956d",
    "--iterations 2 --no-batching": "oracle-scripted-86c17536",
    "--thinking-tokens 16": "oracle-scripted-52daad5a",
    "--both-kinds": "oracle-scripted-2cb7dc2d oracle-scripted-02fffbe7",
}
"""{options: names of the runs}."""


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
    assert names == GOLDEN[options].split()


def test_another_model_under_a_runs_name_is_named_without_its_backends_options(
    lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"*": "1"}')
    asked = ("-b", bundle, "-t", "needle/single_en", "--limit", 1, "--name", "mine", "-o", tmp_path / "r.duckdb")
    lbx.ok("run", *asked, "-m", other)
    done = lbx("run", *asked, "-m", answers)
    fails(done, 1, f"has different settings: model was 'other' and is now '{answers.stem}'. Pass another name")
