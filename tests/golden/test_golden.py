"""Every score that the official code gave on the golden records, and every number that it added up from them."""

from __future__ import annotations

import io

import pytest
from case import GOLDEN, Case
from families import FAMILIES, KINDS, Key, cases
from rich.console import Console
from table import report

needs_golden = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="needs the golden scores in ../shared/golden/open, which are not here"
)


def keys() -> list[Key]:
    """What there is to compare; one empty entry, which is skipped, where the golden scores are missing."""
    return list(cases()) or [("none", "", "", "")]


@needs_golden
@pytest.mark.parametrize("key", keys(), ids="/".join)
def test_equal_to_the_official_number(key: Key) -> None:
    wrong = [case for case in cases()[key] if not case.equal]
    told = "\n".join(f"{case.name}: {case.got!r}, officially {case.wanted!r}" for case in wrong[:10])
    assert not wrong, f"{len(wrong)} of {len(cases()[key])} differ\n{told}"


@needs_golden
def test_every_golden_file_is_compared() -> None:
    """A file of golden records or aggregates that no case is made from fails; so does one of an unknown family."""
    there = {(path.name.removesuffix(".jsonl.gz"), "records") for path in GOLDEN.glob("*.jsonl.gz")}
    for path in GOLDEN.glob("*_aggregate.json"):
        family = path.name.removesuffix("_aggregate.json")
        there.add(("longbench" if family == "longbench_e" else family, "aggregates"))
    compared = {(family, kind) for family, _, _, kind in cases()}
    assert there == compared
    if (GOLDEN / "longbench_e_aggregate.json").is_file():
        assert any(family == "longbench" and task.endswith("_e") for family, task, _, _ in cases())
    assert {family for family, _ in there} <= FAMILIES.keys()
    assert {kind for _, kind in there} == set(KINDS)


@pytest.mark.parametrize(
    ("got", "wanted", "tolerance", "equal"),
    [
        (0.5, 0.5, 0.0, True),
        (0.5, 0.5 + 1e-10, 1e-9, True),
        (0.5, 0.5 + 1e-10, 0.0, False),
        (None, 0.0, 1.0, False),
        ("A", "B", 1.0, False),
        (None, None, 0.0, True),
        (float("nan"), 0.5, 1.0, False),
    ],
)
def test_what_counts_as_equal(got: float | str | None, wanted: float | None, tolerance: float, equal: bool) -> None:
    assert Case("b", "t", "m", "n", got, wanted, tolerance).equal == equal


@needs_golden
def test_the_recursion_limit_is_met() -> None:
    """Some answers are deep enough to score 0 officially, so that the limit is part of what is compared."""
    scores: dict[str, dict[str, float | str | None]] = {}
    for (family, _, metric, kind), found in cases().items():
        if family == "longbench" and kind == "records" and metric.startswith("rouge_l"):
            for case in found:
                scores.setdefault(case.name, {})[metric] = case.got
    assert any(found.get("rouge_l") == 0 and found.get("rouge_l_unlimited") for found in scores.values())


def test_the_table() -> None:
    """Every number once; anything that differs is named and makes the exit status 1."""
    right, wrong = Case("b", "t", "m", "one", 0.5, 0.5 + 1e-12, 1e-9), Case("b", "t", "m", "two", None, 0.25)
    for found, status in (([right], 0), ([right, wrong], 1)):
        console = Console(file=io.StringIO(), width=120)
        compared = {("b", "t", "m", "records"): found, ("b", "t", "x", "aggregates"): [right]}
        assert report(console, compared) == status
        told = console.file.getvalue()
        assert f"{len(found) + 1} numbers compared, {status} differ." in told
        assert ("b/t m two: None, officially 0.25" in told) == bool(status)
        assert ("different" in told) == bool(status)
