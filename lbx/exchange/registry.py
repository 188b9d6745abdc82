"""The formats by name."""

from __future__ import annotations

from difflib import get_close_matches

from lbx.errors import UsageError
from lbx.exchange.formats import Format
from lbx.exchange.leval import LEvalFormat
from lbx.exchange.longbench import LongBenchFormat
from lbx.exchange.longbench_pro import LongBenchProFormat
from lbx.exchange.longbench_v2 import LongBenchV2Format
from lbx.exchange.lveval import LVEvalFormat

FORMATS: dict[str, Format] = {
    "longbench": LongBenchFormat(),
    "longbench_v2": LongBenchV2Format(),
    "longbench_pro": LongBenchProFormat(),
    "lveval": LVEvalFormat(),
    "leval": LEvalFormat(),
}


def format_named(name: str) -> Format:
    """Raises UsageError where there is none of this name."""
    if name in FORMATS:
        return FORMATS[name]
    near = get_close_matches(name, FORMATS, n=1)
    raise UsageError(
        f"There is no prediction format {name!r}.",
        fix=f"Did you mean {near[0]}?" if near else f"Known are {', '.join(FORMATS)}.",
    )
