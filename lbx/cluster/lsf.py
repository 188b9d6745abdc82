"""IBM Spectrum LSF 10.1, by its documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from lbx.cluster.folder import RunFolder
from lbx.cluster.scheduler import COUNTED_REQUEUES, OWN_OUTPUT, JobOptions, Scheduler, call_tool, parse_job_id

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
    more_example: ClassVar[str] = "-P physics"
    resource_option: ClassVar[str] = "-(gpu|n|R|M|m|x|W)\\b"
    states: ClassVar[Mapping[str, str]] = {
        "PEND": "waiting", "PSUSP": "held", "RUN": "running", "SSUSP": "suspended", "USUSP": "suspended",
        "WAIT": "waiting",
    }  # fmt: skip
    over_states: ClassVar[frozenset[str]] = frozenset({"DONE", "EXIT"})

    def marks(self, options: JobOptions) -> Mapping[str, str]:
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
        return [f'-J "{name}"', "-o /dev/null", "-r", *own, *extra, *options.more]

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
