"""What a benchmark is stands in its folder: machinery names none, and asks the family."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lbx
from lbx.benchmarks.registry import BENCHMARKS, official_judge
from lbx.opinions.judge_spec import OFFICIAL

ROOMS = ("cluster", "engine", "exchange", "opinions", "options", "report", "results", "running", "statistics", "web")
NAMES = re.compile(
    r"l-?eval|longbench|lv-?eval|needle|mrcr|graph-?walks|babi-?long|infinite-?bench|fastchat|mt.?bench", re.IGNORECASE
)
NEEDLES = "the report needles, of any benchmark that says how deep one stands"
ALLOWED = {
    "exchange/annotation": "datasets in L-Eval's form, and the pages of its own tool",
    "exchange/tools": "tasks that other evaluation harnesses ask, by their names there",
    "opinions/rating_files.py": "the files of L-Eval's rating page",
    "opinions/rating_pages.py": "the files of L-Eval's rating page",
    "engine/template_process.py": "jinja2's drop_needle",
    "report/reports.py": NEEDLES,
    "report/rows/needles.py": NEEDLES,
    "report/page/run_sections.py": NEEDLES,
    "opinions/judge_spec.py": "the options of `lbx judge`: help and the rubric's default",
    "running/parity.py": "a needle's document as the text that two models read",
    "options/run_spec.py": "the options of a run: their help",
    "options/asking.py": "the options of a run: their help",
    "options/task_selection.py": "names that --tasks takes, as examples",
    "options/common.py": "the options of commands: their help",
}
ROOT = Path(lbx.__file__).parent


@pytest.mark.parametrize("room", ROOMS)
def test_machinery_names_no_benchmark(room: str) -> None:
    named = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in (".py", ".html", ".js", ".css") and not _is_allowed(path)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if NAMES.search(line)
    ]
    assert named == []


def _is_allowed(path: Path) -> bool:
    return any(path.is_relative_to(ROOT / place) for place in ALLOWED)


@pytest.mark.parametrize("place", ALLOWED)
def test_what_is_allowed_is_needed(place: str) -> None:
    files = [ROOT / place] if (ROOT / place).is_file() else (ROOT / place).glob("*.py")
    assert any(NAMES.search(file.read_text("utf-8")) for file in files)


@pytest.mark.parametrize("place", [place for place, why in ALLOWED.items() if why == NEEDLES])
def test_the_report_needles_is_all_that_is_named_there(place: str) -> None:
    named = NAMES.findall((ROOT / place).read_text("utf-8"))
    assert named and {name.casefold() for name in named} == {"needle"}


def test_the_judge_that_is_official_is_a_benchmarks() -> None:
    assert official_judge.BENCHMARK == OFFICIAL and OFFICIAL in BENCHMARKS
