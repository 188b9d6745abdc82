"""The spec of a run that a results file holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lbx.base.errors import UsageError
from lbx.base.inputs import is_results_file
from lbx.running.judge_spec import read_spec, spec_of
from lbx.spec.run_spec import RunSpec
from lbx.store.runs import named_in
from lbx.store.sessions import newest_spec

_FIX = "To name a new run, give --name."


def read_any_spec(file: Path, run: str | None) -> RunSpec:
    """A spec from its own file, or that of a results file's run.

    Raises:
        UsageError: it is neither, or ``run`` is given for a spec's own file.
    """
    if not is_results_file(file):
        if run:
            raise UsageError(f"--run {run} names a run of a results file, and {file} is none.", fix=_FIX)
        return read_spec(file)
    names = named_in(file, [run]) if run else ()
    spec = spec_of(newest_spec(file, *(names or [None])), str(file))
    return replace(spec, name=names[0]) if names else spec
