"""The folder that ``lbx submit`` writes and everything later reads.

DIR/run.json             what is asked of which model: each shard is `lbx run --spec run.json --shard N`
DIR/answers-0.duckdb     what a judge judges: a copy
DIR/shards.json          which samples each shard asks
DIR/job.sh merge.sh      what was given to Slurm; kubernetes.json instead for Kubernetes
DIR/job.json             how many shards, and the ids that Slurm gave
DIR/shards/0000.duckdb   one results file a shard, complete copies only; 0000.duckdb.log how far it is
DIR/logs/0000.out        what the shard's job said; merge.out
DIR/results.duckdb       all shards as one run, when the merge job is over
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.base.outputs import write_whole
from lbx.forecast.shards import ShardPlan, read_shards


@dataclass(frozen=True, slots=True)
class Submitted:
    """What was submitted where.

    Attributes:
        kind: "slurm" or "kubernetes".
        array_id, merge_id: Slurm's; "" where nothing was submitted.
    """

    kind: str
    array_id: str = ""
    merge_id: str = ""


class RunFolder:
    """Names of what lies in the folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.spec_file = root / "run.json"
        self.plan_file = root / "shards.json"
        self.shards = root / "shards"
        self.logs = root / "logs"
        self.results = root / "results.duckdb"
        self._job = root / "job.json"

    def make(self) -> None:
        """Make it, empty.

        Raises:
            UsageError: it holds another run already, or cannot be written.
        """
        if self.plan_file.exists():
            raise UsageError(
                f"{self.root} holds a run already.", fix="Name another folder with -o, or remove this one."
            )
        try:
            for folder in (self.shards, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise UsageError(f"{self.root} cannot be made: {exc.strerror or exc}.") from exc

    def plan(self) -> ShardPlan:
        """Raises UsageError where there is none."""
        if not self.plan_file.is_file():
            raise UsageError(
                f"{self.root} is not a folder of `lbx submit`: it has no {self.plan_file.name}.",
                fix="Name the folder that was given to `lbx submit ... -o DIR`.",
            )
        return read_shards(self.plan_file)

    def shard(self, number: int) -> Path:
        """A shard's results file."""
        return self.shards / f"{number:04d}.duckdb"

    def results_files(self) -> list[Path]:
        """The results files in it, of the shards or merged."""
        return [path for path in (self.results, *sorted(self.shards.glob("*.duckdb"))) if path.is_file()]

    def log(self, number: int) -> Path:
        """Where the run of a shard says how far it is."""
        return self.shards / f"{number:04d}.duckdb.log"

    def output(self, number: int) -> Path:
        """What the shard's job said."""
        return self.logs / f"{number:04d}.out"

    def remember(self, submitted: Submitted) -> None:
        write_whole(self._job, json.dumps(asdict(submitted)) + "\n")

    def submitted(self) -> Submitted | None:
        """None where nothing was."""
        try:
            return Submitted(**json.loads(read_input(self._job, SMALL)))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
