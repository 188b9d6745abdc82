"""Options of the commands that run on many machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from lbx.cli.options import SessionOptions
from lbx.cli.spec_options import SpecOptions
from lbx.options.common import CPUS, GPUS, HISTORY, MEASURE_SPEED, MEMORY, OUTPUT, SCRATCH, AsJson
from lbx.options.option import Argument, Option


@dataclass(frozen=True, kw_only=True)
class SubmitOptions(SessionOptions, SpecOptions):
    """Options of every kind of cluster."""

    BRIEF: ClassVar[Sequence[str]] = (
        "bundle",
        "model",
        "tasks",
        "spec_file",
        "output",
        "at_once",
        "dry_run",
    )

    output: Annotated[Path, OUTPUT.with_help("A new folder shared by all machines.", metavar="DIR")]
    shards: Annotated[
        int | None,
        Option("Number of shards; default: chosen from the predicted time.", "N"),
    ] = None
    job_name: Annotated[str | None, Option("The job's name; default: the run's.", "NAME")] = None
    at_once: Annotated[int, Option("At most N shards at a time; 0: all.", "N")] = 0
    measure_speed: Annotated[bool, MEASURE_SPEED] = True
    history: Annotated[
        Path | None,
        HISTORY.with_help("A results file of this model on such nodes, whose sessions replace the measurement."),
    ] = None
    tokens: Annotated[
        bool,
        Option("Count with the model's tokenizer, or guess and load no model here.", names=("--tokens/--characters",)),
    ] = True
    dry_run: Annotated[bool, Option("Print the jobs without submitting them.")] = False


@dataclass(frozen=True, kw_only=True)
class SubmitArrayOptions(SubmitOptions):
    """Options of every scheduler with arrays of jobs. A queue is Slurm's partition."""

    SCHEDULER: ClassVar[str]
    BRIEF: ClassVar[Sequence[str]] = (*SubmitOptions.BRIEF, "queue", "time", "gpus", "cpus", "mem")

    queue: Annotated[str, Option("Queue, Slurm's partition, to run in.", "NAME")] = ""
    time: Annotated[
        str,
        Option("Time limit of a shard, as the scheduler writes it; default: predicted.", "LIMIT"),
    ] = ""
    gpus: Annotated[str, GPUS.with_help("GPUs of a shard, as the scheduler has them.")] = ""
    cpus: Annotated[int, CPUS.with_help("CPUs and threads of a shard.")] = 0
    mem: Annotated[str, MEMORY.with_help("Memory of a shard, as 64G.")] = ""
    merge_queue: Annotated[
        str,
        Option("Queue of the merge job; default: that of shards without GPUs, else the site's default.", "NAME"),
    ] = ""
    module: Annotated[tuple[str, ...], Option("Module to load. Can be repeated.", "NAME")] = ()
    container: Annotated[str, Option("A .sif file, or an image.", "IMAGE")] = ""
    runtime: Annotated[str, Option("Container runtime: apptainer or podman; default: none.", "NAME")] = "none"
    bind: Annotated[
        tuple[Path, ...],
        Option("Another path that the container may read. Can be repeated.", "PATH"),
    ] = ()
    scratch: Annotated[
        str,
        SCRATCH.with_help("A folder on each node's own disk; the node's shell expands it."),
    ] = "${TMPDIR:-/tmp}"
    requeues: Annotated[
        int,
        Option("Maximum number of times that a shard is requeued after it was cut off.", "N"),
    ] = 10
    extra_options: Annotated[
        tuple[str, ...],
        Option(
            "Another option of sbatch, qsub or bsub, e.g. --account=x or '-P x'. Can be repeated.",
            "OPTION",
            ("--job-option",),
        ),
    ] = ()
    nodes: Annotated[
        int,
        Option("Nodes of a shard, for a server that --serve starts with srun (Slurm).", "N", minimum=1),
    ] = 1
    job_template: Annotated[
        Path | None, Option("Your site's own job script, with lbx's marks.", "FILE", ("--template",))
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class SubmitSlurmOptions(SubmitArrayOptions):
    """Options of `lbx run` have the same meaning here. Needs --bundle, --model and --tasks, or --spec.

    Example: lbx submit slurm --bundle long --model my-model.toml --tasks leval --gpus 1 --at-once 16 -o runs/leval
    """

    SCHEDULER: ClassVar[str] = "slurm"


@dataclass(frozen=True, kw_only=True)
class SubmitPbsOptions(SubmitArrayOptions):
    """Options of `lbx run` have the same meaning here. Needs --bundle, --model and --tasks, or --spec.

    Example: lbx submit pbs --bundle long --model my-model.toml --tasks leval --gpus 1 --at-once 16 -o runs/leval
    """

    SCHEDULER: ClassVar[str] = "pbs"


@dataclass(frozen=True, kw_only=True)
class SubmitLsfOptions(SubmitArrayOptions):
    """Options of `lbx run` have the same meaning here. Needs --bundle, --model and --tasks, or --spec.

    Example: lbx submit lsf --bundle long --model my-model.toml --tasks leval --gpus 1 --at-once 16 -o runs/leval
    """

    SCHEDULER: ClassVar[str] = "lsf"


@dataclass(frozen=True, kw_only=True)
class SubmitKubernetesOptions(SubmitOptions):
    """Options of `lbx run` have the same meaning here. Pass --bundle as a path on this machine, and --model as a name
    or path inside the image.

    Example: lbx submit kubernetes --dry-run --bundle long --model my-model --tasks leval -o runs/leval
    --image registry.local/lbx:1 --run-claim runs --bundle-claim long
    """

    BRIEF: ClassVar[Sequence[str]] = (*SubmitOptions.BRIEF, "image", "run_claim", "bundle_claim", "gpus", "cpus", "mem")

    image: Annotated[str, Option("Image with lbx in it.", "IMAGE")]
    run_claim: Annotated[str, Option("Volume claim with root DIR.", "NAME")]
    bundle_claim: Annotated[str, Option("Volume claim with the bundle as root.", "NAME")]
    namespace: Annotated[str, Option("Namespace to run in.", "NAME")] = ""
    gpus: Annotated[int, GPUS.with_help("GPUs of a shard.")] = 0
    cpus: Annotated[str, CPUS.with_help("CPUs and threads of a shard: 4, 2500m.")] = ""
    mem: Annotated[str, MEMORY.with_help("Memory of a shard, as 64Gi.")] = ""
    retries: Annotated[int, Option("Maximum number of failures of a shard.", "N")] = 10


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """Example: lbx status runs/leval"""

    folder: Annotated[Path, Argument("The folder written by `lbx submit`.", "DIR")]
    as_json: AsJson = False
