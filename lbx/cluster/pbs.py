"""PBS: PBS Professional and OpenPBS, by OpenPBS' sources and manual pages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from lbx.cluster.folder import RunFolder
from lbx.cluster.scheduler import COUNTED_REQUEUES, OWN_OUTPUT, JobOptions, Scheduler, call_tool, parse_job_id

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
    more_example: ClassVar[str] = "-P physics"
    resource_option: ClassVar[str] = "-l"
    announces_limit: ClassVar[bool] = False
    states: ClassVar[Mapping[str, str]] = {
        "B": "running", "E": "running", "R": "running", "H": "held", "Q": "waiting", "S": "suspended", "T": "waiting",
        "U": "suspended", "W": "waiting",
    }  # fmt: skip
    over_states: ClassVar[frozenset[str]] = frozenset("FX")

    def marks(self, options: JobOptions) -> Mapping[str, str]:
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
        return ["-S /bin/bash", f"-N {options.name}", "-j oe", "-o /dev/null", "-r y", *own, *extra, *options.more]

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
