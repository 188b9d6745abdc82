"""The families that have golden scores, and their cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import leval
import longbench
import longbench_pro
import longbench_v2
import lveval
from case import GOLDEN, Case

KINDS = ("records", "aggregates")

FAMILIES: dict[str, dict[str, Callable[[], Iterator[Case]]]] = {
    module.__name__: {"records": module.records, "aggregates": module.aggregates}
    for module in (longbench, longbench_v2, longbench_pro, lveval, leval)
}

Key = tuple[str, str, str, str]
"""(family, task, metric, "records" or "aggregates")"""


@cache
def cases() -> dict[Key, list[Case]]:
    """Every comparison; {} where the golden scores are missing."""
    found: dict[Key, list[Case]] = {}
    if GOLDEN.is_dir():
        for family, kinds in FAMILIES.items():
            for kind, compare in kinds.items():
                for case in compare():
                    found.setdefault((family, case.task, case.metric, kind), []).append(case)
    return found
