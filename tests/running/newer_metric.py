"""Versions of LongBench that are to come: in a module of their own, since scoring processes import them."""

from __future__ import annotations

import dataclasses
import time

from lbx.base.records import Sample, Score
from lbx.benchmarks.longbench.benchmark import LongBench


class Newer(LongBench):
    """Scores half of what it used to."""

    metric_version = LongBench.metric_version + 1

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        scores = super().score(sample, output, similarity=similarity)
        return [dataclasses.replace(score, score=score.score / 2) for score in scores]


class Longer(LongBench):
    """The same version with another headline."""

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        return [Score("length", min(1.0, len(output) / 100)), *super().score(sample, output, similarity=similarity)]


class Slow(LongBench):
    """Takes its time for one task, so that it can be interrupted there."""

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        if sample.task == "2wikimqa":
            time.sleep(0.02)
        return super().score(sample, output, similarity=similarity)
