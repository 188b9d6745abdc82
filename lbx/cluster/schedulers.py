"""Schedulers of ``lbx submit``: Slurm, PBS and LSF.

PBS is PBS Professional and OpenPBS, by OpenPBS' sources and manual pages; LSF is IBM Spectrum LSF 10.1, by its
documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from lbx.base.errors import UsageError
from lbx.cluster.folder import RunFolder
from lbx.cluster.scheduler import COUNTED_REQUEUES, NO_VALUE, OWN_OUTPUT, JobOptions, Scheduler, call_tool, parse_job_id


class Slurm(Scheduler):
    """Slurm, with a time limit that is announced by a signal and jobs that requeue themselves."""

    name: ClassVar[str] = "slurm"
    title: ClassVar[str] = "Slurm"
    directive: ClassVar[str] = "#SBATCH"
    tool: ClassVar[str] = "sbatch"
    option_example: ClassVar[str] = "--account=physics"
    has_nodes: ClassVar[bool] = True
    resource_option: ClassVar[str] = (
        "--(gpu|gres|tres|mem|cpu|core|socket|thread|node|ntasks|exclusive|constraint|distribution|hint)|-[cCFGNnwxmB]"
    )
    states: ClassVar[Mapping[str, str]] = {
        "RUNNING": "running", "COMPLETING": "running", "PENDING": "waiting", "REQUEUED": "waiting"
    }  # fmt: skip

    def job_name(self, run: str) -> str:
        return NO_VALUE.sub("-", run)

    def placeholder_values(self, options: JobOptions) -> Mapping[str, str]:
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
        return [
            *(f"--{option}={value}" for option, value in values.items() if value),
            "--requeue",
            *options.extra_options,
        ]

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
    """Quote a log's path for sbatch, which splits options at blanks and replaces percent signs."""
    logs = str(folder.logs)
    if re.search(r'["\\]', logs) or not logs.isprintable():
        raise UsageError(
            f"The name of the folder {str(folder.root)!r} has a quote, a backslash or a control character, which "
            "sbatch would misread.",
            fix="Choose another folder with -o.",
        )
    return f'"{logs.replace("%", "%%")}/{name}"'


_GRACE_S = 120

_RESUBMISSION = """\
# Only operators of PBS may requeue a job: interrupted shards continue in another array, with another merge job.
PATH=$PATH:$PBS_O_PATH  # has qsub
again=("$folder"/shards/*.again)
if [ -e "${again[0]}" ]; then
    shards=$(cat "${again[@]}" | paste -sd:)
    last=$((${#again[@]} - 1))
    [ "$last" -gt 0 ] && range=0-$last || range=0-1:2  # PBS refuses 0-0
    if array=$(qsub -v "LBX_SHARDS=$shards" -J "$range%s" "$folder/job.sh"); then
        rm "${again[@]}"
        merge=$(qsub -W "depend=afterany:$array" "$folder/merge.sh")
        printf '{"kind": "pbs", "array_id": "%%s", "merge_id": "%%s", "shards": [%%s]}\\n' \\
            "$array" "$merge" "${shards//:/, }" >"$folder/job.json"
        [ "$merge" ] && exit
        echo "lbx: merge the shards by hand when job $array has ended: no merge job was submitted" >&2
    else
        echo "lbx: interrupted shards were not submitted again; on a login node, submit them with:" \\
            "bash $(printf %%q "$folder/merge.sh")" >&2
    fi
fi
"""


class Pbs(Scheduler):
    """PBS, with jobs that only its operators can requeue and a time limit that is not announced.

    ``timeout`` ends lbx before the time limit. The merge job submits interrupted shards again.
    """

    name: ClassVar[str] = "pbs"
    title: ClassVar[str] = "PBS"
    directive: ClassVar[str] = "#PBS"
    tool: ClassVar[str] = "qsub"
    formats: ClassVar[Mapping[str, tuple[str, str]]] = {
        "name": (r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,199}", "long-1"),
        "queue": (r"[\w.@-]+", "gpu"),
        "merge_queue": (r"[\w.@-]+", "batch"),
        "time": (r"(\d{1,6}:)?(\d{1,6}:)?\d{1,9}", "04:00:00"),
        "gpus": (r"\d{1,4}(:\w+=[\w.+-]+)*", "1:gpu_type=a100"),
        "mem": (r"\d{1,15}[KMGTkmgt][Bb]?", "64G"),
    }
    option_example: ClassVar[str] = "-P physics"
    resource_option: ClassVar[str] = "-l"
    announces_limit: ClassVar[bool] = False
    states: ClassVar[Mapping[str, str]] = {
        "B": "running", "E": "running", "R": "running", "H": "held", "Q": "waiting", "S": "suspended", "T": "waiting",
        "U": "suspended", "W": "waiting",
    }  # fmt: skip
    over_states: ClassVar[frozenset[str]] = frozenset("FX")

    def placeholder_values(self, options: JobOptions) -> Mapping[str, str]:
        return {
            **OWN_OUTPUT,
            **COUNTED_REQUEUES,
            "signals": """\
# PBS does not announce the time limit: `timeout` ends lbx two minutes earlier, and the shard continues in a later job.
# PBS sends TERM when the job is deleted, preempted or over its limit: save, and let PBS decide about a requeue.""",
            "endings": "TERM",
            "shard": """\
shards=(${LBX_SHARDS//:/ })  # numbers of interrupted shards, in an array submitted by merge.sh
shard=${shards[PBS_ARRAY_INDEX]:-$PBS_ARRAY_INDEX}""",
            "start": f"timeout --foreground {_seconds_to_run(options.time)} " if options.time else "",
            "requeue": 'printf . >>"$results.requeues" && echo "$shard" >"$results.again"  # merge.sh submits it again',
            "resubmission": _RESUBMISSION % _at_once(options),
        }

    def array_options(self, options: JobOptions, folder: RunFolder, shards: int) -> Sequence[str]:
        indices = f"0-{shards - 1}" if shards > 1 else "0-1:2"  # PBS refuses 0-0
        return self._options(options, [f"-J {indices}{_at_once(options)}"])

    def merge_options(self, options: JobOptions, folder: RunFolder) -> Sequence[str]:
        return self._options(options, [])

    def _options(self, options: JobOptions, extra: Sequence[str]) -> Sequence[str]:
        chunk = [f"ncpus={options.cpus}"] if options.cpus else []
        chunk += [f"ngpus={options.gpus}"] if options.gpus else []
        chunk += [f"mem={options.mem.lower().removesuffix('b')}b"] if options.mem else []
        own = [f"-q {options.queue}"] if options.queue else []
        own += [f"-l select=1:{':'.join(chunk)}"] if chunk else []
        own += [f"-l walltime={options.time}"] if options.time else []
        return [
            "-S /bin/bash",
            f"-N {options.name}",
            "-j oe",
            "-o /dev/null",
            "-r y",
            *own,
            *extra,
            *options.extra_options,
        ]

    def format_time(self, minutes: int) -> str:
        return f"{minutes // 60:02d}:{minutes % 60:02d}:00"

    def submit(self, script: Path, *, after_job: str = "") -> str:
        waiting = ["-W", f"depend=afterany:{after_job}"] if after_job else []
        return parse_job_id(call_tool("qsub", *waiting, str(script)), r"^(\d+(?:\[\])?[\w.-]*)\s*$")

    def unfinished_jobs(self, array_id: str) -> Mapping[int, str] | None:
        done = call_tool("qstat", "-t", array_id)
        if done.returncode:
            return {} if "has finished" in done.stderr or "Unknown Job Id" in done.stderr else None
        rows = (line.split() for line in done.stdout.splitlines())
        jobs = ((re.match(r"\d+\[(\d{1,9})\]", row[0], re.ASCII), row[-2]) for row in rows if len(row) > 4)
        return {int(match[1]): word for match, word in jobs if match}


def _at_once(options: JobOptions) -> str:
    return f"%{options.at_once}" if options.at_once else ""


def _seconds_to_run(time: str) -> int:
    """Convert a time limit, [[hours:]minutes:]seconds, to the seconds before lbx must save."""
    limit_s = 0
    for part in time.split(":"):
        limit_s = limit_s * 60 + int(part)
    return max(limit_s - _GRACE_S, limit_s // 2, 1)


_REQUEUE_CODE = 75


class Lsf(Scheduler):
    """LSF, with a time limit that is announced by a signal and jobs that are requeued by their exit code."""

    name: ClassVar[str] = "lsf"
    title: ClassVar[str] = "LSF"
    directive: ClassVar[str] = "#BSUB"
    tool: ClassVar[str] = "bsub"
    formats: ClassVar[Mapping[str, tuple[str, str]]] = {
        "name": (r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,199}", "long-1"),
        "queue": (r"[\w.-]+", "gpu"),
        "merge_queue": (r"[\w.-]+", "normal"),
        "time": (r"(\d{1,6}:)?\d{1,6}", "4:00"),
        "gpus": (r"\d{1,4}(:\w+=[\w.,/-]+)*", "1:gmodel=NVIDIAA100"),
        "mem": (r"\d{1,15}[KMGTkmgt][Bb]?", "64G"),
    }
    option_example: ClassVar[str] = "-P physics"
    resource_option: ClassVar[str] = "-(gpu|n|R|M|m|x|W)\\b"
    states: ClassVar[Mapping[str, str]] = {
        "PEND": "waiting", "PSUSP": "held", "RUN": "running", "SSUSP": "suspended", "USUSP": "suspended",
        "WAIT": "waiting",
    }  # fmt: skip
    over_states: ClassVar[frozenset[str]] = frozenset({"DONE", "EXIT"})

    def placeholder_values(self, options: JobOptions) -> Mapping[str, str]:
        return {
            **OWN_OUTPUT,
            **COUNTED_REQUEUES,
            "signals": """\
# LSF sends USR1 to all processes of the job two minutes before the time limit: lbx ignores it, and this script lets
# it save and requeues the shard. LSF sends INT, then TERM, when the job is killed: save.""",
            "endings": "INT TERM",
            "shard": "shard=$((LSB_JOBINDEX - 1))",
            "start": """bash -c 'trap "" USR1; exec "$@"' bash """,
            "requeue": f'printf . >>"$results.requeues" && exit {_REQUEUE_CODE}  # the code of -Q',
            "resubmission": "",
        }

    def array_options(self, options: JobOptions, folder: RunFolder, shards: int) -> Sequence[str]:
        at_once = f"%{options.at_once}" if options.at_once else ""
        requeue = [f"-Q {_REQUEUE_CODE}", "-wa USR1", "-wt 2"]
        return self._options(options, f"{options.name}[1-{shards}]{at_once}", requeue)

    def merge_options(self, options: JobOptions, folder: RunFolder) -> Sequence[str]:
        return self._options(options, options.name, [])

    def _options(self, options: JobOptions, name: str, extra: Sequence[str]) -> Sequence[str]:
        own = [f"-q {options.queue}"] if options.queue else []
        # Without /host, a site's setting may multiply the memory by the number of CPUs.
        own += [f'-R "rusage[mem={options.mem.upper()}/host]"'] if options.mem else []
        own += [f"-n {options.cpus}", '-R "span[hosts=1]"'] if options.cpus else []
        own += [f'-gpu "num={options.gpus}"'] if options.gpus else []
        own += [f"-W {options.time}"] if options.time else []
        return [f'-J "{name}"', "-o /dev/null", "-r", *own, *extra, *options.extra_options]

    def format_time(self, minutes: int) -> str:
        return f"{minutes // 60}:{minutes % 60:02d}"

    def submit(self, script: Path, *, after_job: str = "") -> str:
        waiting = ["-w", f"ended({after_job})"] if after_job else []
        return parse_job_id(call_tool("bsub", *waiting, script=script), r"^Job <(\d+)>")

    def unfinished_jobs(self, array_id: str) -> Mapping[int, str] | None:
        done = call_tool("bjobs", "-noheader", "-o", "jobindex stat", array_id)
        if "is not found" in done.stderr or "No unfinished job" in done.stderr:
            return {}
        if done.returncode:
            return None
        return {int(n) - 1: word for n, word in re.findall(r"^ *(\d{1,9}) +(\w+)", done.stdout, re.ASCII | re.M)}


SCHEDULERS: Mapping[str, Scheduler] = {scheduler.name: scheduler for scheduler in (Slurm(), Pbs(), Lsf())}
