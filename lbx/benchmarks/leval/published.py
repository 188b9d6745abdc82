"""What is published of L-Eval."""

from __future__ import annotations

from pathlib import Path

from lbx.benchmarks.base.published import PublishedFigures

PUBLISHED = PublishedFigures(Path(__file__).with_suffix(".csv"))
