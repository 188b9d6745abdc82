"""Slurm array of shards and a dependent merge job, from templates that a site can replace.

A template is a shell script with marks ``@{name}``, listed in ``PLACEHOLDERS``. Bash's own ``${name}`` is unchanged.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lbx.base.errors import LbxError, UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.base.processes import CompletedProcess, TimeoutExpired, find_tool, run_tool
from lbx.cluster.folder import RunFolder
from lbx.cluster.launch import Launch
from lbx.forecast.shards import ShardPlan

PLACEHOLDERS: Mapping[str, str] = {
    "directives": "the #SBATCH lines",
    "modules": "`module load` lines",
    "lbx": "the command that starts lbx, including its container",
    "run": "the arguments of `lbx run`, except the shard, the results file and the scratch folder",
    "folder": "the run's folder",
    "scratch": "a folder on the node's own disk",
    "requeues": "maximum number of requeues of a shard",
}

ARRAY = """\
#!/bin/bash
@{directives}
#
# One shard of a run of lbx, written by `lbx submit slurm`. It writes to the node's own disk; lbx copies every commit to
# the run's folder. An interrupted shard is requeued and continues from there. Exit codes: 0 done, 3 done but some
# samples failed, 2 bad usage, other: see the log.
@{modules}
export PYTHONSAFEPATH=1  # keeps files in the working folder from being imported as Python modules
shard=$SLURM_ARRAY_TASK_ID
folder=@{folder}
results=$folder/shards/$(printf %04d "$shard").duckdb
scratch=@{scratch}
mkdir -p "$scratch" || exit 1

# Slurm sends USR1 two minutes before the time limit: save and requeue. It sends TERM when the job is cancelled or
# preempted: save, and let Slurm decide about a requeue.
limit= heard=
trap 'limit=near; heard=yes; kill -TERM "$run"' USR1
trap 'heard=yes; kill -TERM "$run"' TERM

@{lbx} run @{run} --output "$results" \\
    --shards "$folder/shards.json" --shard "$shard" --scratch "$scratch" &
run=$!
while :; do
    heard=
    wait "$run"
    code=$?
    [ "$heard" ] || break  # otherwise a signal interrupted `wait`, and the run continues
done

case $code in
    0 | 2 | 3) exit "$code" ;;
    143) [ "$limit" ] || exit "$code" ;;
esac
if [ "${SLURM_RESTART_COUNT:-0}" -lt @{requeues} ]; then
    echo "lbx: shard $shard ended with $code; it is requeued and continues from $results" >&2
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$shard" && sleep 30  # meanwhile Slurm ends this script
fi
exit "$code"
"""

MERGE = """\
#!/bin/bash
@{directives}
#
# Merges all shards into one results file; written by `lbx submit slurm`. Other rows of that file are kept. Exit code 3:
# samples are missing or have failed; the log names them.
@{modules}
export PYTHONSAFEPATH=1
folder=@{folder}
exec @{lbx} merge "$folder" --output "$folder/results.duckdb" --force
"""

_PLACEHOLDER = re.compile(r"@\{(\w*)\}")
_NO_VALUE = re.compile(r"[\s\"'\\]+")
_LEAST_S, _FACTOR, _STEP_S = 600.0, 1.5, 300.0


def job_name(run: str) -> str:
    """Turn a run's name into a job's name, with '-' for characters that Slurm options do not allow."""
    return _NO_VALUE.sub("-", run)


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """Slurm options of each shard; empty values use the site's defaults.

    Attributes:
        time: time limit in Slurm's format.
        at_once: number of shards that run in parallel; 0 for all.
        more: further #SBATCH options, such as "--account=x".

    Raises:
        UsageError: a value would break out of its line.
    """

    name: str
    partition: str = ""
    time: str = ""
    gpus: str = ""
    cpus: int = 0
    mem: str = ""
    at_once: int = 0
    modules: Sequence[str] = ()
    more: Sequence[str] = ()

    def __post_init__(self) -> None:
        for value in (self.name, self.partition, self.time, self.gpus, self.mem):
            if _NO_VALUE.search(value):
                raise UsageError(f"{value!r} has a blank, a quote or a backslash, which this option does not allow.")
        for module in self.modules:
            if not module.isprintable():
                raise UsageError(f"--module {module!r} has a line break or a control character.")
        for option in self.more:
            if not option.startswith("-"):
                raise UsageError(
                    f"--sbatch-option {option!r} is not an option of sbatch.", fix="For example: --account=physics."
                )

    def array(self, folder: RunFolder, shards: int) -> str:
        """#SBATCH lines of the array."""
        at_once = f"%{self.at_once}" if self.at_once else ""
        return self._directives(
            self.name,
            _log_path(folder, "%4a.out"),
            {
                "array": f"0-{shards - 1}{at_once}",
                "signal": "B:USR1@120",
                "time": self.time,
                "gpus": self.gpus,
                "cpus-per-task": str(self.cpus or ""),
            },
        )

    def merge(self, folder: RunFolder) -> str:
        """#SBATCH lines of the merge job: no GPU, one core, and the site's options for every job."""
        return self._directives(f"{self.name}-merge", _log_path(folder, "merge.out"), {})

    def _directives(self, name: str, output: str, extra_options: Mapping[str, str]) -> str:
        """Format all #SBATCH lines; refuse values that would break a line into two."""
        options = {"job-name": name, "output": output, "open-mode": "append", "nodes": "1", "ntasks": "1"}
        options |= {"partition": self.partition, "mem": self.mem, **extra_options}
        lines = [f"--{option}={value}" for option, value in options.items() if value]
        lines += ["--requeue", *self.more]
        for line in lines:
            if not line.isprintable():
                raise UsageError(
                    f"{line!r} has a line break or a control character, which a Slurm option does not allow."
                )
        return "\n".join(f"#SBATCH {line}" for line in lines)


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


def fill_in(template: str, values: Mapping[str, str], location: str) -> str:
    """Replace the marks of a template by values.

    Raises:
        UsageError: the template has an unknown mark.
    """
    unknown = sorted(set(_PLACEHOLDER.findall(template)) - set(values))
    if unknown:
        raise UsageError(
            f"{location} has the unknown mark @{{{unknown[0]}}}.",
            fix=f"Available marks: {', '.join(f'@{{{name}}}' for name in PLACEHOLDERS)}.",
        )
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """Content of the array's and the merge job's scripts.

    Attributes:
        run: arguments of ``lbx run``.
        scratch: folder, quoted for bash, which expands it on the node.
        template: site-specific template of the array's script; None for ``ARRAY``.
    """

    folder: RunFolder
    shards: int
    options: SlurmOptions
    launch: Launch
    run: Sequence[str]
    scratch: str
    requeues: int
    template: Path | None = None

    def array_script(self) -> str:
        """Fill in the script of the array.

        Raises:
            UsageError: the template cannot be read or filled in.
        """
        text = ARRAY
        if self.template:
            try:
                text = read_input(self.template, SMALL).decode("utf-8")
            except (OSError, UnicodeDecodeError) as exc:
                raise UsageError(f"Cannot read the template {self.template}: {exc}.") from exc
        values = self._values(self.options.array(self.folder, self.shards))
        return fill_in(text, values, f"The template {self.template}")

    def merge_script(self) -> str:
        return fill_in(MERGE, self._values(self.options.merge(self.folder)), "The template")

    def _values(self, directives: str) -> dict[str, str]:
        return {
            "directives": directives,
            "modules": "\n".join(f"module load {shlex.quote(name)}" for name in self.options.modules),
            "lbx": self.launch.command,
            "run": shlex.join(self.run),
            "folder": shlex.quote(str(self.folder.root)),
            "scratch": self.scratch,
            "requeues": str(self.requeues),
        }


def time_limit(seconds: float) -> str:
    """Compute a time limit from predicted seconds: 1.5 times as long, plus ten minutes to load the model.

    The limit may be too short: a shard that does not finish is requeued and resumes.
    """
    minutes = math.ceil((seconds * _FACTOR + _LEAST_S) / _STEP_S) * int(_STEP_S) // 60
    days, rest = divmod(minutes, 24 * 60)
    hours, rest_minutes = divmod(rest, 60)
    return f"{days}-{hours:02d}:{rest_minutes:02d}:00" if days else f"{hours:02d}:{rest_minutes:02d}:00"


def with_time(options: SlurmOptions, plan: ShardPlan) -> SlurmOptions:
    """Set a time limit for the most expensive shard, unless one is given or the plan's unit is not seconds."""
    if options.time or plan.unit != "s":
        return options
    return replace(options, time=time_limit(max(shard.cost for shard in plan.shards)))


def require_sbatch() -> None:
    """Raise LbxError if sbatch is not installed, before minutes of token counting."""
    if not find_tool("sbatch"):
        raise _not_installed_error("sbatch")


def _not_installed_error(program: str) -> LbxError:
    return LbxError(
        f"{program} is not installed on this machine.",
        fix="Submit from a login node of the cluster, or print the script with --dry-run.",
    )


def submit(script: Path, *, after_job: str = "") -> str:
    """Submit a script with sbatch and return the job's id.

    Args:
        after_job: id of a job that must end first, successfully or not.

    Raises:
        LbxError: sbatch is not installed, or refuses the script.
    """
    # Not afterok: if a shard fails, the merge must still collect the other answers and list the missing samples.
    waiting = [f"--dependency=afterany:{after_job}"] if after_job else []
    done = _call("sbatch", "--parsable", *waiting, str(script))
    if done.returncode:
        raise LbxError(f"sbatch failed: {' '.join(done.stderr.split()) or done.returncode}.")
    match = re.match(r"(\d+)", done.stdout)
    if not match:
        raise LbxError(f"sbatch printed {done.stdout.strip()!r} instead of a job id.")
    return match[1]


def shard_states(array_id: str) -> dict[int, str] | None:
    """Return {shard: Slurm state} of unfinished shards; None if Slurm cannot be asked."""
    try:
        done = _call("squeue", "--noheader", "--array", f"--jobs={array_id}", "--format=%K %T")
    except LbxError:
        return None
    if done.returncode:
        # Slurm forgets a job some minutes after its end.
        return {} if "Invalid job id" in done.stderr else None
    return {int(number): word for number, word in re.findall(r"^(\d+) (\w+)", done.stdout, re.MULTILINE)}


def _call(program: str, *arguments: str) -> CompletedProcess[str]:
    try:
        return run_tool([program, *arguments], capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError as exc:
        raise _not_installed_error(program) from exc
    except TimeoutExpired as exc:
        raise LbxError(
            f"{program} did not answer within a minute.", fix="Check that the cluster is up, and try again."
        ) from exc
