"""A small bundle of needles, and a card without a url."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import Lbx

NEEDLE = """
lengths = [64]
depths = [0.0, 1.0]
samples_per_cell = 2
languages = ["en"]
"""

RECIPE = """
name = "small"

[[source]]
kind = "path"
path = "needle.toml"
to = "needle/needle.toml"
"""


@pytest.fixture(scope="session")
def lbx() -> Lbx:
    return Lbx()


@pytest.fixture(scope="session")
def bundle(lbx: Lbx, once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """12 samples of 3 tasks."""

    def make(folder: Path) -> None:
        (folder / "needle.toml").write_text(NEEDLE)
        (folder / "small.toml").write_text(RECIPE)
        lbx.unpacked(folder / "small.toml", folder)

    return once("serving", make) / "bundle"


@pytest.fixture
def card(tmp_path: Path) -> Path:
    path = tmp_path / "served.toml"
    path.write_text('backend = "endpoint"\n[options]\nconcurrency = 1\n')
    return path
