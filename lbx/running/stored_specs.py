"""The spec of a run that a results file holds."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from lbx.base.inputs import is_results_file
from lbx.running.judge_spec import read_spec, spec_of
from lbx.spec.run_spec import RunSpec
from lbx.store.runs import named_in
from lbx.store.sessions import newest_spec

log = logging.getLogger("lbx")


def say_new_name(run: str) -> None:
    """Of a new run that is named by --run, the option's older meaning."""
    log.info(f"This new run is named {run!r}. --run is for stored runs: name new ones with --name.")


def read_any_spec(file: Path, run: str | None) -> RunSpec:
    """A spec from its own file, or that of a results file's run.

    Raises:
        UsageError: it is neither.
    """
    if not is_results_file(file):
        if run:
            say_new_name(run)
        return replace(read_spec(file), name=run) if run else read_spec(file)
    names = named_in(file, [run]) if run else ()
    spec = spec_of(newest_spec(file, *(names or [None])), str(file))
    return replace(spec, name=names[0]) if names else spec
