"""The families that have golden scores, and their cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import leval
import longbench
import longbench_pro
import longbench_v2
import lveval
from case import SOURCES, Case, read_from

KINDS = ("records", "aggregates")

FAMILIES: dict[str, dict[str, Callable[[], Iterator[Case]]]] = {
    module.__name__: {"records": module.records, "aggregates": module.aggregates}
    for module in (longbench, longbench_v2, longbench_pro, lveval, leval)
}

Key = tuple[str, str, str, str, str]
"""("travels" or "shared", family, task, metric, "records" or "aggregates")"""


@cache
def cases() -> dict[Key, list[Case]]:
    """Every comparison; without those of ../shared where that is missing."""
    found: dict[Key, list[Case]] = {}
    for source, folder in SOURCES.items():
        if folder.is_dir():
            read_from(folder)
            for family, kinds in FAMILIES.items():
                for kind, compare in kinds.items():
                    for case in compare():
                        found.setdefault((source, family, case.task, case.metric, kind), []).append(case)
    return found
