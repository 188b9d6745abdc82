"""What worker processes are asked to call: functions travel by the name of their module."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lbx.base.errors import UsageError
from lbx.running.jobs import Work


def names_of(works: Sequence[Work]) -> list[str]:
    return [work.run_id for work in works]


def loaded(_works: Sequence[Work]) -> list[str]:
    return sorted(sys.modules)


def boom(_works: Sequence[Work]) -> None:
    raise UsageError("no such thing")
