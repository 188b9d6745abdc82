"""Folder of a submitted run: ``lbx submit`` writes it, and the shards, ``lbx status`` and ``lbx merge`` read it.

DIR/run.json             run specification: each shard is `lbx run --spec run.json --shard N`
DIR/answers-0.duckdb     copy of the answers that a judge judges
DIR/shards.json          samples of each shard
DIR/job.sh merge.sh      scripts given to the scheduler; kubernetes.json instead for Kubernetes
DIR/job.json             kind of the job, and its ids; under PBS, merge.sh writes a new file for each later array
DIR/shards/0000.duckdb   results file of a shard, complete copies only; 0000.duckdb.log has its progress
DIR/shards/0000.duckdb.requeues   one character for each requeue under PBS and LSF; 0000.duckdb.again asks merge.sh for
                         another one
DIR/logs/0000.out        output of the shard's job; merge.out
DIR/results.duckdb       all shards as one run, after the merge job
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.base.outputs import write_file
from lbx.running.forecast.shards import ShardPlan, read_shards


@dataclass(frozen=True, slots=True)
class Submission:
    """Submitted job, as stored in job.json.

    Attributes:
        kind: name of the scheduler, or "kubernetes".
        array_id, merge_id: the scheduler's job ids, or "" if not submitted by lbx.
        shards: shards of the array by their number in it, or empty for all.

    Raises:
        TypeError: a value has the wrong type, or an id could be an option.
    """

    kind: str
    array_id: str = ""
    merge_id: str = ""
    shards: Sequence[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shards", tuple(self.shards))
        if not isinstance(self.kind, str) or not all(isinstance(number, int) for number in self.shards):
            raise TypeError
        if not re.fullmatch(r"(\d[\w.\[\]-]*)?", self.array_id, re.ASCII):
            raise TypeError


class RunFolder:
    """Paths in the folder of a submitted run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.spec_file = root / "run.json"
        self.plan_file = root / "shards.json"
        self.shards = root / "shards"
        self.logs = root / "logs"
        self.results = root / "results.duckdb"
        self._job = root / "job.json"

    def create(self) -> None:
        """Create the folder and its subfolders.

        Raises:
            UsageError: the folder already contains a run, or cannot be written.
        """
        if self.plan_file.exists():
            raise UsageError(
                f"{self.root} already contains a run.", fix="Choose another folder with -o, or remove this one."
            )
        try:
            for folder in (self.shards, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise UsageError(
                f"Cannot create {self.root}: {exc.strerror or exc}.", fix="Choose another folder with -o."
            ) from exc

    def plan(self) -> ShardPlan:
        """Read the shard plan.

        Raises:
            UsageError: the folder contains no shard plan.
        """
        if not self.plan_file.is_file():
            raise UsageError(
                f"{self.root} was not created by `lbx submit`: it has no {self.plan_file.name}.",
                fix="Give the folder passed to `lbx submit ... -o DIR`.",
            )
        return read_shards(self.plan_file)

    def shard(self, number: int) -> Path:
        """Path of a shard's results file."""
        return self.shards / f"{number:04d}.duckdb"

    def results_files(self) -> list[Path]:
        """Existing results files: the merged file, then those of the shards."""
        return [path for path in (self.results, *sorted(self.shards.glob("*.duckdb"))) if path.is_file()]

    def log(self, number: int) -> Path:
        """Path of the progress log of a shard's run."""
        return self.shards / f"{number:04d}.duckdb.log"

    def output(self, number: int) -> Path:
        """Path of the output of a shard's job."""
        return self.logs / f"{number:04d}.out"

    def is_waiting(self, number: int) -> bool:
        """Whether an interrupted shard waits for the merge job to submit it again."""
        return Path(f"{self.shard(number)}.again").exists()

    def save_submission(self, submission: Submission) -> None:
        write_file(self._job, json.dumps(asdict(submission)) + "\n")

    def submission(self) -> Submission | None:
        """Submitted job, or None if job.json is missing or cannot be read."""
        try:
            return Submission(**json.loads(read_input(self._job, SMALL)))
        except (OSError, ValueError, TypeError, RecursionError):
            return None
