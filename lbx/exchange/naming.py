"""A format by the name of its benchmark."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from lbx.base.errors import UsageError
from lbx.benchmarks import BENCHMARKS, format_names
from lbx.benchmarks.base.predictions import PredictionFormat


def format_named(name: str, own: Collection[str] = ()) -> PredictionFormat:
    """The format of a benchmark's prediction files.

    Args:
        own: names of the benchmarks of one's own that can be meant.

    Raises:
        UsageError: there is none of this name.
    """
    names = [*format_names(), *own]
    form = BENCHMARKS[name].predictions if name in names else None
    if form:
        return form
    near = get_close_matches(name, names, n=1)
    raise UsageError(
        f"There is no prediction format {name!r}.",
        fix=f"Did you mean {near[0]}?" if near else f"Known are {', '.join(names)}.",
    )
