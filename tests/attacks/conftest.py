"""Attacks on the real command line, one test each. ``just attack`` runs them all and prints what became of them.

A test that passes has held. It says how through ``verdict``: "refused" (the attack was seen and answered with a
message) or "survived" (it did no harm, and what was asked for was done). A test that fails is an attack that got
through.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jail import Jail

HELD = ("refused", "survived")
_PROPERTY = "attack"


@pytest.fixture
def verdict(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """verdict("refused") at the end of an attack."""

    def say(word: str) -> None:
        assert word in HELD
        record_property(_PROPERTY, word)

    return say


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table: attacks tried, refused, survived and got through, by the file that holds them."""
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, ()):
            place = Path(report.nodeid.split("::")[0])
            if place.parent.name == "attacks":
                said = dict(getattr(report, "user_properties", ())).get(_PROPERTY, "survived")
                word = str(said) if outcome == "passed" else "got through"
                counts.setdefault(place.stem.removeprefix("test_"), Counter())[word] += 1
    if not counts:
        return
    words = (*HELD, "got through")
    terminalreporter.section("attacks")
    terminalreporter.write_line(f"{'against':<20}{'tried':>8}" + "".join(f"{word:>13}" for word in words))
    total = sum(counts.values(), Counter())
    for name, row in [*sorted(counts.items()), ("all", total)]:
        terminalreporter.write_line(f"{name:<20}{row.total():>8}" + "".join(f"{row[word]:>13}" for word in words))


@pytest.fixture(scope="session")
def jail() -> Iterator[Jail]:
    """Commands in processes with limits, watched."""
    with Jail() as jail:
        yield jail


NEEDLE = """
lengths = [64]
depths = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
samples_per_cell = 44
languages = ["en"]
"""


@pytest.fixture(scope="session")
def small(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """An unpacked bundle of 264 needles, more than one process scores, and a table of their answers beside it."""
    return once("attacks", _make_small)


def _make_small(folder: Path) -> None:
    from attack_parts import main

    from lbx.base.layout import Bundle
    from lbx.benchmarks import BENCHMARKS

    (folder / "needle").mkdir()
    (folder / "needle/needle.toml").write_text(NEEDLE)
    (folder / "small.toml").write_text('name = "small"\n[[source]]\nkind = "path"\npath = "needle"\nto = "needle"\n')
    for command in (
        ("bundle", folder / "small.toml", "-o", folder),
        ("unpack", folder / "small.tar", "--allow-unsigned", "--to", folder / "bundle"),
    ):
        assert main(*command).code == 0
    bundle = Bundle(folder / "bundle")
    lines = [
        json.dumps({"key": str(sample.key), "text": " ".join(sample.references)})
        for sample in BENCHMARKS["needle"].samples(bundle, "single_en")
    ]
    (folder / "oracle.jsonl").write_text("\n".join(lines))


@pytest.fixture
def own(small: Path, tmp_path: Path) -> Path:
    """A copy of the unpacked bundle, times and all, to be spoilt."""
    return Path(shutil.copytree(small / "bundle", tmp_path / "bundle"))
