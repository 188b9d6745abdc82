"""What ``lbx run`` does where it is one of many: its shard of the samples, and a disk of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lbx.cli.output import note
from lbx.errors import UsageError

if TYPE_CHECKING:
    from lbx.engine.selection import Selection
    from lbx.layout import Bundle

_MINUTE = 60.0


def shard_of(bundle: Bundle, task_names: Sequence[str], plan: Path | None, number: int | None) -> Selection:
    """The samples of a shard; all where none is named.

    Raises:
        UsageError: the plan is missing, has no such shard, or was made for another bundle or other tasks.
    """
    from lbx.cli.run_setup import choose_tasks
    from lbx.engine.planning.shards import read_shards
    from lbx.engine.selection import EVERYTHING
    from lbx.engine.settings import RunSettings

    if (plan is None) != (number is None):
        raise UsageError("--shards and --shard go together: the plan, and which of its shards to run.")
    if plan is None or number is None:
        return EVERYTHING
    shards = read_shards(plan)
    if number >= len(shards.shards):
        raise UsageError(f"{plan} has {len(shards.shards)} shards, counted from 0; there is no shard {number}.")
    shards.check(bundle.digest, [task.full_name for task in choose_tasks(bundle, task_names, RunSettings())])
    return shards.shards[number].selection


def written_beside_copies(output: Path, scratch: Path, minutes: float) -> Path:
    """Where to write instead of ``output``; another process copies it there (see ``lbx.cluster.keeping``)."""
    from lbx.cluster.keeping import run_beside_copies

    return run_beside_copies(output.absolute(), scratch, minutes * _MINUTE, note)
