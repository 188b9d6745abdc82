"""What a benchmark is stands in its folder: machinery names none, and asks the family."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lbx
from lbx.benchmarks import BENCHMARKS, official_judges
from lbx.running.judge_spec import OFFICIAL

ROOMS = ("exchange", "inference", "judging", "prompting", "running", "web")
NAMES = re.compile(r"l-?eval|longbench|lv-?eval|needle|fastchat|mt.?bench", re.IGNORECASE)
ALLOWED = {
    "prompting/template_process.py": "jinja2's drop_needle",
    "running/judge_spec.py": "the options of `lbx judge`: help and the rubric's default",
    "running/spec.py": "the options of a run: their help",
}
ROOT = Path(lbx.__file__).parent


@pytest.mark.parametrize("room", ROOMS)
def test_machinery_names_no_benchmark(room: str) -> None:
    named = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in (".py", ".html", ".js", ".css") and str(path.relative_to(ROOT)) not in ALLOWED
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if NAMES.search(line)
    ]
    assert named == []


def test_the_judge_that_is_official_is_a_benchmarks() -> None:
    judge = official_judges()[OFFICIAL]
    assert judge.benchmark == OFFICIAL and BENCHMARKS[OFFICIAL].judge is judge
