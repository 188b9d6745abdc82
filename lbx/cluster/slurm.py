"""Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from lbx.base.errors import UsageError
from lbx.cluster.folder import RunFolder
from lbx.cluster.scheduler import NO_VALUE, JobOptions, Scheduler, call_tool, parse_job_id


class Slurm(Scheduler):
    """Slurm, with a time limit that is announced by a signal and jobs that requeue themselves."""

    name: ClassVar[str] = "slurm"
    title: ClassVar[str] = "Slurm"
    directive: ClassVar[str] = "#SBATCH"
    tool: ClassVar[str] = "sbatch"
    more_example: ClassVar[str] = "--account=physics"
    resource_option: ClassVar[str] = (
        "--(gpu|gres|tres|mem|cpu|core|socket|thread|node|ntasks|exclusive|constraint|distribution|hint)|-[cCFGNnwxmB]"
    )
    states: ClassVar[Mapping[str, str]] = {
        "RUNNING": "running", "COMPLETING": "running", "PENDING": "waiting", "REQUEUED": "waiting"
    }  # fmt: skip

    def job_name(self, run: str) -> str:
        return NO_VALUE.sub("-", run)

    def marks(self, options: JobOptions) -> Mapping[str, str]:
        return {
            "signals": """\
# Slurm sends USR1 two minutes before the time limit: save and requeue. It sends TERM when the job is cancelled or
# preempted: save, and let Slurm decide about a requeue.""",
            "endings": "TERM",
            "shard": "shard=$SLURM_ARRAY_TASK_ID",
            "output": "",
            "start": "",
            "restarts": "${SLURM_RESTART_COUNT:-0}",
            "requeue": 'scontrol requeue "${SLURM_ARRAY_JOB_ID}_$shard" && sleep 30'
            "  # meanwhile Slurm ends this script",
            "merge_output": "",
            "resubmission": "",
        }

    def array_options(self, options: JobOptions, folder: RunFolder, shards: int) -> Sequence[str]:
        at_once = f"%{options.at_once}" if options.at_once else ""
        return self._options(
            options,
            _log_path(folder, "%4a.out"),
            {
                "array": f"0-{shards - 1}{at_once}",
                "signal": "B:USR1@120",
                "gpus": options.gpus,
                "nodes": str(options.nodes),
                "ntasks": str(options.nodes),  # srun then starts a task on each node
                "ntasks-per-node": "1" if options.nodes > 1 else "",
            },
        )

    def merge_options(self, options: JobOptions, folder: RunFolder) -> Sequence[str]:
        return self._options(options, _log_path(folder, "merge.out"), {})

    def _options(self, options: JobOptions, output: str, extra_options: Mapping[str, str]) -> Sequence[str]:
        values = {"job-name": options.name, "output": output, "open-mode": "append", "nodes": "1", "ntasks": "1"}
        values |= {"partition": options.queue, "time": options.time, "cpus-per-task": str(options.cpus or "")}
        values |= {"mem": options.mem, **extra_options}
        return [*(f"--{option}={value}" for option, value in values.items() if value), "--requeue", *options.more]

    def format_time(self, minutes: int) -> str:
        days, rest = divmod(minutes, 24 * 60)
        hours, rest_minutes = divmod(rest, 60)
        return f"{days}-{hours:02d}:{rest_minutes:02d}:00" if days else f"{hours:02d}:{rest_minutes:02d}:00"

    def submit(self, script: Path, *, after_job: str = "") -> str:
        waiting = [f"--dependency=afterany:{after_job}"] if after_job else []
        return parse_job_id(call_tool("sbatch", "--parsable", *waiting, str(script)), r"^(\d+)")

    def unfinished_jobs(self, array_id: str) -> Mapping[int, str] | None:
        done = call_tool("squeue", "--noheader", "--array", f"--jobs={array_id}", "--format=%K %T")
        if done.returncode:
            # Slurm forgets a job some minutes after its end.
            return {} if "Invalid job id" in done.stderr else None
        return {int(number): word for number, word in re.findall(r"^(\d{1,9}) (\w+)", done.stdout, re.ASCII | re.M)}


def _log_path(folder: RunFolder, name: str) -> str:
    """Quote a log's path for sbatch, which splits at blanks and fills in percent signs."""
    logs = str(folder.logs)
    if re.search(r'["\\]', logs) or not logs.isprintable():
        raise UsageError(
            f"The name of the folder {str(folder.root)!r} has a quote, a backslash or a control character, which "
            "sbatch would misread.",
            fix="Choose another folder with -o.",
        )
    return f'"{logs.replace("%", "%%")}/{name}"'
