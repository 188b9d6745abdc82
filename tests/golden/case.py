"""One comparison of lbx with what the original scoring code gave."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden" / "open"
EXACT = 1e-9

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """What lbx gives beside what the original code gave.

    Attributes:
        metric: as lbx names it.
        name: of the golden record, or of the aggregate, for the message of a failure.
        tolerance: the largest difference that counts as equal; 0 for numbers that were printed with fixed digits.
    """

    benchmark: str
    task: str
    metric: str
    name: str
    got: float | str | None
    wanted: float | str | None
    tolerance: float = 0.0

    @property
    def difference(self) -> float:
        """0 where both are equal; infinite where they cannot be compared as numbers."""
        if self.got == self.wanted:
            return 0.0
        if isinstance(self.got, float | int) and isinstance(self.wanted, float | int):
            return abs(self.got - self.wanted)
        return float("inf")

    @property
    def equal(self) -> bool:
        return self.difference <= self.tolerance


@cache
def golden_records(name: str) -> tuple[Record, ...]:
    """Every record of a family's file of golden records, in the file's order."""
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


@cache
def golden_aggregates(name: str) -> dict[str, Any]:
    """A family's file of golden aggregates."""
    loaded: dict[str, Any] = json.loads((GOLDEN / f"{name}_aggregate.json").read_text("utf-8"))
    return loaded
