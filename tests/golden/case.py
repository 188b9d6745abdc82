"""One comparison of lbx with what the original scoring code gave."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SHARED = Path(__file__).parents[2].parent / "shared" / "golden" / "open"
OURS = Path(__file__).parent / "records"
SOURCES = {"travels": OURS, "shared": SHARED}
"""Where golden records lie: those that travel with the code, and those on real texts beside it, where there are any."""

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


_caches: list[Callable[[], None]] = []
_folder = OURS


def cached(function: Callable[..., Any]) -> Any:
    """``functools.cache``, as long as the records come from the same folder."""
    kept = cache(function)
    _caches.append(kept.cache_clear)
    return kept


def read_from(folder: Path) -> None:
    """Where the golden records are taken from, from now on."""
    global _folder  # noqa: PLW0603
    if folder == _folder:
        return
    _folder = folder
    for clear in _caches:
        clear()


def beside_real_data() -> bool:
    """Whether the records are those of ../shared, which has published predictions, too."""
    return _folder == SHARED


@cached
def golden_records(name: str) -> tuple[Record, ...]:
    """Every record of a family's file of golden records, in the file's order."""
    return tuple(map(json.loads, filter(None, _text(f"{name}.jsonl").split("\n"))))


@cached
def golden_aggregates(name: str) -> dict[str, Any]:
    """A family's file of golden aggregates."""
    return golden_file(f"{name}_aggregate.json")


def golden_file(name: str) -> dict[str, Any]:
    """A JSON file of golden numbers."""
    loaded: dict[str, Any] = json.loads(_text(name))
    return loaded


def _text(name: str) -> str:
    packed = _folder / f"{name}.gz"
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else (_folder / name).read_bytes()
    return content.decode("utf-8")
