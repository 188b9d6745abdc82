"""Every score that the official code gave on the golden records, and every number that it added up from them."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.registry import BENCHMARKS
from lbx.statistics.estimates import interval
from tests.golden.case import SHARED, SOURCES, Case
from tests.golden.families import FAMILIES, KINDS, cases
from tests.golden.table import report

SHARED_IS_HERE = pytest.param(
    "shared",
    marks=pytest.mark.skipif(not SHARED.is_dir(), reason="needs the golden scores in ../shared, which are not here"),
)
each_source = pytest.mark.parametrize("source", ["travels", SHARED_IS_HERE])


@each_source
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_official_numbers(source: str, family: str, kind: str) -> None:
    found = cases(source, family, kind)
    wrong = [f"{task} {metric} {case.name}: {case.got!r}, officially {case.wanted!r}"
             for (task, metric), each in found.items() for case in each if not case.equal]  # fmt: skip
    assert not wrong, f"{len(wrong)} of {sum(map(len, found.values()))} differ\n" + "\n".join(wrong[:10])
    assert found
    if (family, kind) == ("longbench", "aggregates"):
        assert any(task.endswith("_e") for task, _ in found)
    if (family, kind) == ("longbench", "records"):
        assert meets_the_recursion_limit(found)


@each_source
@pytest.mark.parametrize("family", FAMILIES)
def test_every_number_is_the_mean_of_what_its_interval_is_made_of(
    source: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is added up on the way to the official numbers."""
    kind, wrong, held = type(BENCHMARKS[family]), [], 0

    def holding(name: str) -> Any:
        plain = getattr(kind, name)

        def call(self: Benchmark, *given: Any) -> Any:
            nonlocal held
            found = plain(self, *given)
            for one in found:
                held += 1
                if one.estimate is None or abs(interval(one.estimate).value - one.score) > 1e-12:
                    wrong.append(one)
            return found

        return call

    for name in ("aggregate", "groups"):
        monkeypatch.setattr(kind, name, holding(name))
    cases(source, family, "aggregates")
    assert held and not wrong


def meets_the_recursion_limit(found: dict[tuple[str, str], list[Case]]) -> bool:
    """Some answers are deep enough to score 0 officially, so that the limit is part of what is compared."""
    scores: dict[str, dict[str, float | str | None]] = {}
    for (_, metric), each in found.items():
        for case in each:
            scores.setdefault(case.name, {})[metric] = case.got
    return any(each.get("rouge_l") == 0 and each.get("rouge_l_unlimited") for each in scores.values())


@each_source
def test_every_golden_file_is_compared(source: str) -> None:
    """A file of golden records or aggregates that no case is made from fails; so does one of an unknown family."""
    folders = {path.name for path in SOURCES[source].iterdir() if path.is_dir() and path.name in FAMILIES}
    names = {path.name.removesuffix(".gz") for path in SOURCES[source].iterdir() if path.suffix in (".gz", ".json")}
    there = {(name.removesuffix(".jsonl"), "records") for name in names if name.endswith(".jsonl")}
    there |= {(folder, kind) for folder in folders for kind in KINDS}
    for name in names:
        if name.endswith("_aggregate.json"):
            family = name.removesuffix("_aggregate.json")
            there.add(("longbench" if family == "longbench_e" else family, "aggregates"))
    assert there == {(family, kind) for family in FAMILIES for kind in KINDS}


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


def test_the_table() -> None:
    """Every number once; anything that differs is named and makes the exit status 1."""
    right, wrong = Case("b", "t", "m", "one", 0.5, 0.5 + 1e-12, 1e-9), Case("b", "t", "m", "two", None, 0.25)
    for found, status in (([right], 0), ([right, wrong], 1)):
        console = Console(file=io.StringIO(), width=120)
        compared = {("s", "b", "t", "m", "records"): found, ("s", "b", "t", "x", "aggregates"): [right]}
        assert report(console, compared) == status
        told = console.file.getvalue()  # type: ignore[attr-defined]
        assert f"{len(found) + 1} numbers compared, {status} differ." in told
        assert ("b/t m two: None, officially 0.25" in told) == bool(status)
        assert ("different" in told) == bool(status)
