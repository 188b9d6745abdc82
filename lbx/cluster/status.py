"""How far a submitted run is, from what its shards have committed in the shared folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lbx.base.errors import LbxError
from lbx.base.inputs import open_input
from lbx.cluster import slurm
from lbx.cluster.folder import RunFolder
from lbx.forecast.shards import ShardPlan
from lbx.store.snapshots import read_committed

_GOING = {"RUNNING": "running", "COMPLETING": "running", "PENDING": "waiting", "REQUEUED": "waiting"}


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard.

    Attributes:
        state: "done"; "running" or "waiting" as Slurm says; "failed": not done, and Slurm has nothing of it any more;
            "begun" or "missing": the same where Slurm cannot be asked, with and without any answer.
        answered, failed: that its file holds.
        expected: how many answers it is to give.
        said: its run's last line in the log.
    """

    shard: int
    state: str
    answered: int
    failed: int
    expected: int
    said: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def status(folder: RunFolder) -> list[ShardStatus]:
    """Look at every shard.

    Raises:
        UsageError: the folder is none of ``lbx submit``.
    """
    plan = folder.plan()
    submitted = folder.submitted()
    known = slurm.states(submitted.array_id) if submitted and submitted.array_id else None
    return [_shard(folder, plan, number, known) for number in range(len(plan.shards))]


def _shard(folder: RunFolder, plan: ShardPlan, number: int, known: dict[int, str] | None) -> ShardStatus:
    answered, failed = _counts(folder.shard(number), plan)
    expected = plan.expected(number)
    line = _last_line(folder.log(number))
    if answered + failed >= expected:
        state = "done"
    elif known is None:
        state = "begun" if answered or failed or line else "missing"
    elif number in known:
        state = _GOING.get(known[number], known[number].lower())
    else:
        state = "failed" if answered or failed or line or folder.output(number).exists() else "missing"
    return ShardStatus(number, state, answered, failed, expected, line)


def _counts(path: Path, plan: ShardPlan) -> tuple[int, int]:
    """Numbers of answers and failures that a shard has committed; its file may be open for writing."""
    if not path.is_file():
        return 0, 0
    counts = (
        "SELECT count(*) FILTER (WHERE error IS NULL), count(*) FILTER (WHERE error IS NOT NULL) "
        "FROM generations WHERE run_id IN (SELECT unnest(?::VARCHAR[]))"
    )
    try:
        ((answered, failed),) = read_committed(path, counts, [list(plan.runs)])
    except (OSError, LbxError):
        return 0, 0  # it has just been made
    return answered, failed


def _last_line(path: Path) -> str:
    try:
        with open_input(path) as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
