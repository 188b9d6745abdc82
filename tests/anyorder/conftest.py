"""One small bundle for all journeys, and a new folder for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from lbx.results import Store
from tests.anyorder.journey import Journey
from tests.anyorder.small_world import World, make_world, open_world

Once = Callable[[str, Callable[[Path], object]], Path]


def _make(folder: Path) -> None:
    make_world(folder)
    Store(folder / "empty.duckdb").close()


@pytest.fixture(scope="session")
def world(once: Once) -> World:
    return open_world(once("anyorder", _make))


@pytest.fixture
def new_journey(world: World, tmp_path: Path) -> Iterator[Callable[[], Journey]]:
    """new_journey() -> a journey in a folder of its own."""
    numbers = count()
    yield lambda: Journey(world, tmp_path / str(next(numbers)), world.folder / "empty.duckdb")


@pytest.fixture
def journey(new_journey: Callable[[], Journey]) -> Iterator[Journey]:
    made = new_journey()
    yield made
    made.end()
