"""A family is its folder and its entry in ``BENCHMARKS``: reports, page and export need nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def test_a_made_up_family_works_from_its_one_entry(tmp_path: Path) -> None:
    places = [str(TESTS.parent), str(TESTS), str(TESTS / "report")]
    made = subprocess.run(
        [sys.executable, TESTS / "made_up_family.py", tmp_path],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    found = json.loads(made.stdout)
    mine, other = found["board"]
    assert (mine[0], other[0]) == ("M", "Somebody*")
    assert [text.partition(" ")[0] for text in mine[2:5]] == ["75.0", "50.0", "62.5"]
    assert other[2:5] == ["50.00", "-", "-"]
    title, rows = found["paper"]
    assert title == "Colours: warm and cold ones"
    assert [row[0] for row in rows] == ["M", "Somebody*"] and rows[0][3].startswith("0.625")
    assert found["page"] == [True, True]
    assert found["files"] == ["cold.jsonl", "warm.jsonl"]
