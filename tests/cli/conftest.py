"""A small real bundle, made by the command line itself, and a model whose answers are written down."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.benchmarks.registry import BENCHMARKS
from tests.command_line import Lbx

Once = Callable[[str, Callable[[Path], object]], Path]

NEEDLE = """
lengths = [64, 128]
depths = [0.0, 1.0]
samples_per_cell = 2
languages = ["en", "zh"]
"""

RECIPE = """
name = "small"

[[source]]
kind = "path"
path = "needle"
to = "needle"
allow = ["notes.py"]
"""


@pytest.fixture(scope="session")
def lbx() -> Lbx:
    return Lbx()


@pytest.fixture(scope="session")
def made(lbx: Lbx, once: Once) -> Path:
    """out/small.tar, and what it unpacks to in bundle/."""

    def make(folder: Path) -> None:
        (folder / "needle").mkdir()
        (folder / "needle" / "needle.toml").write_text(NEEDLE)
        (folder / "needle" / "notes.py").write_text("# unsafe by its name, and let through\n")
        (folder / "small.toml").write_text(RECIPE)
        lbx.unpacked(folder / "small.toml", folder)

    return once("cli", make)


@pytest.fixture(scope="session")
def archive(made: Path) -> Path:
    return made / "out" / "small.tar"


@pytest.fixture(scope="session")
def bundle(made: Path) -> Path:
    return made / "bundle"


@pytest.fixture(scope="session")
def answers(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that finds every needle in English and none in Chinese."""
    needle, unpacked = BENCHMARKS["needle"], Bundle(bundle)
    lines = [
        {"key": str(sample.key), "text": " ".join(sample.references) if sample.language == "en" else "?"}
        for task in needle.tasks(unpacked)
        for sample in needle.samples(unpacked, task.name)
    ]
    path = tmp_path_factory.mktemp("answers") / "oracle.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path
