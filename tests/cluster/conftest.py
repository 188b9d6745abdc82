"""A small bundle of needles, a model that finds some of them, and lbx."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.benchmarks.registry import BENCHMARKS
from tests.cluster import real_slurm
from tests.command_line import Lbx

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
path = "needle.toml"
to = "needle/needle.toml"
"""


@pytest.fixture(scope="session")
def lbx() -> Lbx:
    return Lbx()


@pytest.fixture(scope="module")
def slurm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_slurm.Slurm]:
    """A Slurm of one node; ``parametrize("slurm", [4], indirect=True)`` starts another number of nodes."""
    with real_slurm.running(tmp_path_factory.mktemp("slurm"), getattr(request, "param", 1)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def bundle(lbx: Lbx, once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """48 samples of 6 tasks."""

    def make(folder: Path) -> None:
        (folder / "needle.toml").write_text(NEEDLE)
        (folder / "small.toml").write_text(RECIPE)
        lbx.unpacked(folder / "small.toml", folder)

    return once("cluster", make) / "bundle"


@pytest.fixture(scope="session")
def answers(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[float], Path]:
    """answers(delay in seconds) -> a table that knows English needles, and takes its time."""
    needle, opened = BENCHMARKS["needle"], Bundle(bundle)
    folder = tmp_path_factory.mktemp("answers")

    def table(delay_s: float = 0.0) -> Path:
        lines = [
            {
                "key": str(sample.key),
                "text": " ".join(sample.references) if sample.language == "en" else f"no {sample.sample_id}",
                "delay_s": delay_s,
            }
            for task in needle.tasks(opened)
            for sample in needle.samples(opened, task.name)
        ]
        path = folder / f"oracle-{delay_s}.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)))
        return path

    return table
