"""Base class of the schedulers that run shards as an array of jobs, with a dependent job that merges them.

The scripts of a shard's job and of the merge job are made from templates that a site can replace. A template is a shell
script with placeholders ``@{name}``. Bash's own ``${name}`` is unchanged. Placeholders in ``PLACEHOLDERS`` stand for
values of a run; a scheduler gives the others (``Scheduler.placeholder_values``).

A job starts lbx as the installed program, or in a container.
"""

from __future__ import annotations

import math
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from lbx.base.errors import LbxError, UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.base.processes import CompletedProcess, TimeoutExpired, find_tool, run_tool
from lbx.base.resources import CPU_COUNT
from lbx.cluster.folder import RunFolder
from lbx.running.forecast.shards import ShardPlan

PLACEHOLDERS: Mapping[str, str] = {
    "directives": "the scheduler's options, e.g. the #SBATCH lines",
    "modules": "`module load` lines",
    "lbx": "the command that starts lbx, including its container",
    "run": "the arguments of `lbx run`, except the shard, the results file and the scratch folder",
    "folder": "the run's folder",
    "scratch": "a folder on the node's own disk",
    "requeues": "maximum number of requeues of a shard",
}

WAIT = """\
run=$!
while :; do
    heard=
    wait "$run"
    code=$?
    [ "$heard" ] || break  # otherwise a signal interrupted `wait`, and the run continues
done"""
"""End of the run that was started last, in every scheduler's script; signals are handled by the lines above it."""

ARRAY = """\
#!/bin/bash
@{directives}
#
# One shard of a run of lbx, written by `lbx submit`. It writes to the node's own disk; lbx copies every commit to the
# run's folder. An interrupted shard is requeued and continues from there. Exit codes: 0 done, 3 done but some samples
# failed, 2 bad usage, other: see the log.
@{shard}
folder=@{folder}@{output}
@{modules}
export PYTHONSAFEPATH=1  # keeps files in the working folder from being imported as Python modules
results=$folder/shards/$(printf %04d "$shard").duckdb
scratch=@{scratch}
mkdir -p "$scratch" || exit 1

@{signals}
limit= heard=
trap 'limit=near; heard=yes; kill -TERM "$run"' USR1
trap 'heard=yes; kill -TERM "$run"' @{endings}

@{start}@{lbx} run @{run} --output "$results" \\
    --shard-plan "$folder/shards.json" --shard "$shard" --scratch "$scratch" &
@{wait}

case $code in
    0 | 2 | 3) exit "$code" ;;
    143) [ "$limit" ] || exit "$code" ;;
esac
if [ "@{restarts}" -lt @{requeues} ]; then
    echo "lbx: shard $shard ended with $code; it is requeued and continues from $results" >&2
    @{requeue}
fi
exit "$code"
"""

MERGE = """\
#!/bin/bash
@{directives}
#
# Merges all shards into one results file; written by `lbx submit`. Other rows of that file are kept. Exit code 3:
# samples are missing or have failed; the log names them.
folder=@{folder}@{merge_output}
@{modules}
export PYTHONSAFEPATH=1
@{resubmission}exec @{lbx} merge "$folder" --output "$folder/results.duckdb" --update
"""

_PLACEHOLDER = re.compile(r"@\{(\w*)\}")


def read_template(path: Path) -> str:
    """Read a site's own template.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        return read_input(path, SMALL).decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"Cannot read the template {path}: {exc}.", fix="Give a text file in UTF-8.") from exc


def fill_in(template: str, values: Mapping[str, str], location: str) -> str:
    """Replace the placeholders of a template by values.

    Raises:
        UsageError: the template contains an unknown placeholder.
    """
    unknown = sorted(set(_PLACEHOLDER.findall(template)) - set(values))
    if unknown:
        raise UsageError(
            f"{location} has the unknown mark @{{{unknown[0]}}}.",
            fix=f"Available marks: {', '.join(f'@{{{name}}}' for name in PLACEHOLDERS)}.",
        )
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


class Runtime(StrEnum):
    NONE = "none"
    APPTAINER = "apptainer"
    PODMAN = "podman"


@dataclass(frozen=True, slots=True)
class Launch:
    """Words that start lbx in a job script: the program, or a container.

    Attributes:
        lbx: program to run without a container.
        image: container image, or "" for none.
        read, write: files and folders of the host, mounted in the container at the same paths.
        scratch: another writable mount, quoted for bash, which expands variables on the node.
        gpu: whether the container sees the GPUs.
        cpu_count: CPUs of a job, for a container that does not see Slurm's variables; 0 sets no number.

    Raises:
        UsageError: an image without a runtime, or a runtime without an image; a path that cannot be mounted.
    """

    lbx: str = "lbx"
    runtime: Runtime = Runtime.NONE
    image: str = ""
    read_paths: Sequence[Path] = field(default_factory=tuple)
    write_paths: Sequence[Path] = field(default_factory=tuple)
    scratch: str = ""
    gpu: bool = False
    cpu_count: int = 0

    def __post_init__(self) -> None:
        if bool(self.image) != (self.runtime is not Runtime.NONE):
            raise UsageError(
                "--container and --runtime require each other.",
                fix="Pass the image with --container, and apptainer or podman with --runtime.",
            )

    @property
    def command(self) -> str:
        """Beginning of a command line for bash, to be followed by lbx's arguments."""
        if self.runtime is Runtime.NONE:
            return self.lbx
        mounts = [f"{_quote_mount_path(path)}:{_quote_mount_path(path)}:ro" for path in self.read_paths]
        mounts += [f"{_quote_mount_path(path)}:{_quote_mount_path(path)}" for path in self.write_paths]
        mounts += [f"{self.scratch}:{self.scratch}"] if self.scratch else []
        cpus = [f"--env {CPU_COUNT}={self.cpu_count}"] if self.cpu_count else []
        if self.runtime is Runtime.APPTAINER:
            gpu = ["--nv"] if self.gpu else []
            binds = [part for mount in mounts for part in ("--bind", mount)]
            options = [*gpu, *cpus, *binds, shlex.quote(self.image)]
            return " ".join(["apptainer exec --containall --cleanenv", *options, "lbx"])
        gpu = ["--device nvidia.com/gpu=all"] if self.gpu else []
        binds = [part for mount in mounts for part in ("--volume", mount)]
        # Without --user, keep-id keeps the image's user, who may not write the run's folder. --read-only mounts a tmpfs
        # on /tmp; a second tmpfs would collide with a scratch folder that is /tmp.
        user = '--userns keep-id --user "$(id -u):$(id -g)"'
        options = [*gpu, *cpus, *binds, shlex.quote(self.image)]
        return " ".join([f"podman run --rm --network none --read-only {user}", *options])


def _quote_mount_path(path: Path) -> str:
    """Quote a mounted path for bash. Refuses characters that podman and apptainer would read as mount syntax."""
    if "," in str(path) or ":" in str(path) or not str(path).isprintable():
        raise UsageError(
            f"{str(path)!r} cannot be mounted in a container: it has a comma, a colon or a control character.",
            fix="Rename the folder.",
        )
    return shlex.quote(str(path))


def quote_for_bash(text: str) -> str:
    """Put a folder into double quotes, in which bash expands variables (``${TMPDIR:-/tmp}``) but runs no command.

    Raises:
        UsageError: the text contains a quote, a backslash, a command substitution or a control character.
    """
    if re.search(r'["`\\]|\$\(', text) or not text.isprintable():
        raise UsageError(
            f"--scratch {text!r} has a quote, a backslash or a command; only a folder and variables are allowed.",
            fix="For example: --scratch '${TMPDIR:-/tmp}' or --scratch /local.",
        )
    return f'"{text}"'


NO_VALUE = re.compile(r"[\s\"'\\]+")
"""Characters that a value of ``JobOptions`` must not contain."""
_LEAST_S, _FACTOR, _STEP_S = 600.0, 1.5, 300.0
_MERGE_MINUTES, _MERGE_MEMORY = 60, "4G"
_TOOL_TIMEOUT_S = 60

OWN_OUTPUT: Mapping[str, str] = {
    "output": '\nexec >>"$folder/logs/$(printf %04d "$shard").out" 2>&1 || exec >>"$HOME/lbx-jobs.out" 2>&1',
    "merge_output": '\nexec >>"$folder/logs/merge.out" 2>&1 || exec >>"$HOME/lbx-jobs.out" 2>&1',
}
"""Placeholders for a scheduler that would store a job's output only at its end, or replace it after a requeue.

A job on a node that does not see the folder writes to the home folder.
"""

COUNTED_REQUEUES: Mapping[str, str] = {"restarts": '$(cat "$results.requeues" 2>/dev/null | wc -c)'}
"""Placeholder for a scheduler that does not count requeues: a file contains one character for each."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of each shard's job. Empty values select the site's defaults.

    Attributes:
        queue: queue or partition.
        time: time limit in the scheduler's format.
        at_once: number of shards that run in parallel, or 0 for all.
        extra_options: further options for the scheduler, such as "--account=x".
        nodes: number of nodes of each shard; lbx itself runs on the first.
        merge_queue: queue or partition of the merge job.

    Raises:
        UsageError: a value would break out of its line.
    """

    name: str
    queue: str = ""
    time: str = ""
    gpus: str = ""
    cpus: int = 0
    mem: str = ""
    at_once: int = 0
    modules: Sequence[str] = ()
    extra_options: Sequence[str] = ()
    nodes: int = 1
    merge_queue: str = ""

    def __post_init__(self) -> None:
        for value in (self.name, self.queue, self.time, self.gpus, self.mem, self.merge_queue):
            if NO_VALUE.search(value):
                raise UsageError(
                    f"{value!r} has a blank, a quote or a backslash, which this option does not allow.",
                    fix="Pass it without them.",
                )
        for module in self.modules:
            if not module.isprintable():
                raise UsageError(
                    f"--module {module!r} has a line break or a control character.", fix="Pass one module each time."
                )


class Scheduler(ABC):
    """Batch scheduler with arrays of jobs and dependent jobs.

    Attributes:
        name: name in ``lbx submit NAME``.
        title: name in messages.
        directive: start of a line of options in a script.
        tool: program that submits a script.
        formats: {field of ``JobOptions``: (regular expression of its values, example)}; other fields are not checked.
        option_example: an option of the tool.
        resource_option: regular expression of the tool's options that request resources.
        has_nodes: whether a job can have several nodes, on which a server is started.
        announces_limit: whether a job receives a signal before its time limit, even if lbx does not know the limit.
        states: {word in the scheduler's answer: state in ``lbx status``}; other words are shown in lower case.
        over_states: words for jobs that have ended.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    directive: ClassVar[str]
    tool: ClassVar[str]
    formats: ClassVar[Mapping[str, tuple[str, str]]] = {}
    option_example: ClassVar[str]
    resource_option: ClassVar[str]
    has_nodes: ClassVar[bool] = False
    announces_limit: ClassVar[bool] = True
    states: ClassVar[Mapping[str, str]]
    over_states: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def placeholder_values(self, options: JobOptions) -> Mapping[str, str]:
        """Values of the scheduler's own placeholders in the scripts ``ARRAY`` and ``MERGE``.

        signals: comment on the signals of a job.
        endings: signals that end a job.
        shard: command that sets the shard's number.
        output, merge_output: commands that redirect the output, if the options cannot.
        start: words before the command that starts lbx.
        restarts: number of requeues so far.
        requeue: command that requeues the shard.
        resubmission: commands of the merge job that let interrupted shards continue, if they cannot requeue themselves.
        """

    @abstractmethod
    def array_options(self, options: JobOptions, folder: RunFolder, shards: int) -> Sequence[str]:
        """Options of the array's job, for the lines of directives in the script."""

    @abstractmethod
    def merge_options(self, options: JobOptions, folder: RunFolder) -> Sequence[str]:
        """Options of the merge job, for the lines of directives. ``options`` come from ``merge_job``."""

    @abstractmethod
    def format_time(self, minutes: int) -> str:
        """Format a time limit for the scheduler."""

    @abstractmethod
    def submit(self, script: Path, *, after_job: str = "") -> str:
        """Submit a script and return the job's id.

        Args:
            after_job: id of a job that must end first, successfully or not: the merge must also collect the other
                answers and list the missing samples if a shard fails.

        Raises:
            LbxError: the scheduler is not installed, or refuses the script.
        """

    @abstractmethod
    def unfinished_jobs(self, array_id: str) -> Mapping[int, str] | None:
        """Return {number in the array: the scheduler's word for the state} of unfinished shards, or None if unknown.

        Raises:
            LbxError: the scheduler cannot be asked.
        """

    def merge_job(self, options: JobOptions) -> JobOptions:
        """Options of the merge job, which needs no GPU: the shards' options without those that request resources."""
        more = [option for option in options.extra_options if not re.match(self.resource_option, option)]
        has_gpus = bool(options.gpus) or any(
            re.search("gpu|gres", option, re.IGNORECASE) for option in options.extra_options
        )
        return replace(
            options,
            name=f"{options.name}-merge",
            queue=options.merge_queue or ("" if has_gpus else options.queue),
            time=self.format_time(_MERGE_MINUTES),
            gpus="",
            cpus=1,
            mem=_MERGE_MEMORY,
            nodes=1,
            extra_options=more,
        )

    def job_name(self, run: str) -> str:
        """Job name for a run, with '-' for characters that options do not allow."""
        return re.sub(r"[^A-Za-z0-9_.+-]+", "-", run)[:100].strip("-.") or "lbx"

    def check(self, options: JobOptions) -> None:
        """Raise UsageError for a value that the scheduler would refuse or misread."""
        if options.nodes > 1 and not self.has_nodes:
            raise UsageError(
                f"--nodes {options.nodes} is for Slurm, whose srun starts a server on several nodes.",
                fix=f"Remove --nodes: a job of {self.title} has one node.",
            )
        for name, (pattern, example) in self.formats.items():
            value, option = getattr(options, name), "--job-name" if name == "name" else f"--{name.replace('_', '-')}"
            if value and not re.fullmatch(pattern, value, re.ASCII):
                raise UsageError(
                    f"{option} {value!r} is not in the format of {self.title}.", fix=f"For example: {option} {example}."
                )
        for option in options.extra_options:
            if not option.startswith("-"):
                raise UsageError(
                    f"--job-option {option!r} is not an option of {self.tool}.",
                    fix=f"For example: {self.option_example}.",
                )

    def shard_states(self, array_id: str) -> dict[int, str] | None:
        """Return {shard: state} of unfinished shards, or None if the scheduler cannot be asked."""
        try:
            jobs = self.unfinished_jobs(array_id)
        except LbxError:
            return None
        if jobs is None:
            return None
        return {
            number: self.states.get(word, word.lower()) for number, word in jobs.items() if word not in self.over_states
        }

    def require_tool(self) -> None:
        """Raise LbxError if the scheduler is not installed, before minutes of token counting."""
        if not find_tool(self.tool):
            raise _not_installed_error(self.tool)

    def time_limit(self, plan: ShardPlan) -> str:
        """Time limit that suffices for the most expensive shard, formatted, or "" if the plan's unit is not seconds."""
        if plan.unit != "s":
            return ""
        return self.format_time(limit_minutes(max(shard.cost for shard in plan.shards)))


@dataclass(frozen=True, slots=True)
class ArrayJob:
    """Scripts of a submitted run: the array of shards, and the merge job.

    Attributes:
        run: arguments of ``lbx run``.
        scratch: folder on the node, quoted for bash, which expands variables there.
        template: site-specific template of the array's script, or None for ``ARRAY``.
    """

    scheduler: Scheduler
    folder: RunFolder
    shards: int
    options: JobOptions
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
        text = read_template(self.template) if self.template else ARRAY
        options = self.scheduler.array_options(self.options, self.folder, self.shards)
        return self._fill_in(text, options, f"The template {self.template}")

    def merge_script(self) -> str:
        options = self.scheduler.merge_options(self.scheduler.merge_job(self.options), self.folder)
        return self._fill_in(MERGE, options, "The template")

    def _fill_in(self, template: str, options: Sequence[str], location: str) -> str:
        for option in options:
            if not option.isprintable():
                raise UsageError(
                    f"{option!r} has a line break or a control character, which a {self.scheduler.title} option does "
                    "not allow.",
                    fix="Remove it.",
                )
        values = {
            "directives": "\n".join(f"{self.scheduler.directive} {option}" for option in options),
            "modules": "\n".join(f"module load {shlex.quote(name)}" for name in self.options.modules),
            "lbx": self.launch.command,
            "run": shlex.join(self.run),
            "folder": shlex.quote(str(self.folder.root)),
            "scratch": self.scratch,
            "requeues": str(self.requeues),
            "wait": WAIT,
        }
        return fill_in(template, {**self.scheduler.placeholder_values(self.options), **values}, location)


def limit_minutes(seconds: float) -> int:
    """Compute a time limit from predicted seconds: 1.5 times as long, plus ten minutes to load the model.

    The limit may be too short: a shard that does not finish is requeued and resumes.
    """
    return math.ceil((seconds * _FACTOR + _LEAST_S) / _STEP_S) * int(_STEP_S) // 60


def call_tool(program: str, *arguments: str, script: Path | None = None) -> CompletedProcess[str]:
    """Call a program of a scheduler, with a script as its standard input, in a session that Ctrl-C does not reach.

    Raises:
        LbxError: the program is not installed, or does not answer.
    """
    text = read_input(script, SMALL).decode("utf-8") if script else None
    try:
        return run_tool(
            [program, *arguments], capture_output=True, text=True, errors="replace", check=False, input=text,
            timeout=_TOOL_TIMEOUT_S, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError as exc:
        raise _not_installed_error(program) from exc
    except TimeoutExpired as exc:
        raise LbxError(
            f"{program} did not answer within a minute.", fix="Check that the cluster is up, and try again."
        ) from exc


def parse_job_id(done: CompletedProcess[str], pattern: str) -> str:
    """Return the job id that a program printed after it submitted a script.

    Raises:
        LbxError: the program failed, or printed no id.
    """
    program = Path(done.args[0]).name
    if done.returncode:
        raise LbxError(
            f"{program} failed: {' '.join(done.stderr.split()) or done.returncode}.",
            fix="Change the options that it names; --dry-run prints the script.",
        )
    match = re.search(pattern, done.stdout, re.ASCII)
    if not match:
        raise LbxError(
            f"{program} printed {done.stdout.strip()!r} instead of a job id.",
            fix="Look for the job in the queue before you submit again.",
        )
    return match[1]


def _not_installed_error(program: str) -> LbxError:
    return LbxError(
        f"{program} is not installed on this machine.",
        fix="Submit from a login node of the cluster, or print the script with --dry-run.",
    )
