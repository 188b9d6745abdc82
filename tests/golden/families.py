"""The families that have golden scores, and their cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.golden import babilong, helmet, infinitebench, leval, longbench, longbench_pro, longbench_v2, lveval
from tests.golden.case import SOURCES, Case, read_from

KINDS = ("records", "aggregates")

FAMILIES: dict[str, dict[str, Callable[[], Iterator[Case]]]] = {
    module.__name__.rpartition(".")[2]: {"records": module.records, "aggregates": module.aggregates}
    for module in (longbench, longbench_v2, longbench_pro, lveval, leval, helmet, infinitebench, babilong)
}
SHARED_ONLY = ("helmet",)
"""Families whose golden records do not travel with the code."""

Key = tuple[str, str, str, str, str]
"""("travels" or "shared", family, task, metric, "records" or "aggregates")"""


def cases(source: str, family: str, kind: str) -> dict[tuple[str, str], list[Case]]:
    """A family's comparisons with one source's records or aggregates: {(task, metric): each}."""
    read_from(SOURCES[source])
    found: dict[tuple[str, str], list[Case]] = {}
    for case in FAMILIES[family][kind]():
        found.setdefault((case.task, case.metric), []).append(case)
    return found


def all_cases() -> dict[Key, list[Case]]:
    """Every comparison; without those of ../shared where that is missing."""
    return {
        (source, family, task, metric, kind): found
        for source, folder in SOURCES.items()
        if folder.is_dir()
        for family in FAMILIES
        if source == "shared" or family not in SHARED_ONLY
        for kind in KINDS
        for (task, metric), found in cases(source, family, kind).items()
    }
