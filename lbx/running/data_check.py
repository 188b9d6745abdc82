"""Comparison of a run's samples with a results file, before a model is loaded."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from lbx.running.resolved import ResolvedRun
from lbx.store import Store
from lbx.store.same_samples import refuse_other_samples


def check_samples(run: ResolvedRun, results: Path, shown_as: Path | None = None) -> None:
    """Read every sample of a run, and compare it with a results file if there is one.

    Args:
        shown_as: the name of the file in the message.

    Raises:
        ConflictError: the file holds another revision of some samples.
        BundleError: a data file is damaged.
    """
    samples = run.sample_rows()
    if not results.is_file() or not results.stat().st_size:
        deque(samples, maxlen=0)
        return
    with Store(results, read_only=True) as store:
        refuse_other_samples(store, samples, shown_as or results)
