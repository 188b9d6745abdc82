"""What is published of LongBench."""

from __future__ import annotations

from pathlib import Path

from lbx.benchmarks.base.published import PublishedFigures

PUBLISHED = PublishedFigures(Path(__file__).with_suffix(".csv"))
