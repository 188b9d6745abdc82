"""Attacks on the real command line. ``just attack`` runs them all: a test that fails is an attack that got through."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacks.jail import Jail


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
    from lbx.base.bundle_folder import Bundle
    from lbx.benchmarks.registry import BENCHMARKS
    from tests.attacks.attack_parts import main

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
