"""Options of the commands that run on many machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from lbx.cli.options import AsJson, SessionOptions
from lbx.cli.spec_options import SpecOptions


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

    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="A new folder shared by all machines.")]
    shards: Annotated[
        int | None,
        typer.Option("--shards", metavar="N", min=1, help="Number of shards; default: chosen from the predicted time."),
    ] = None
    job_name: Annotated[
        str | None, typer.Option("--job-name", metavar="NAME", help="The job's name; default: the run's.")
    ] = None
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", min=0, help="At most N shards at a time; 0: all.")
    ] = 0
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="Compute here for a few seconds to predict the duration of shards on nodes like this one.",
        ),
    ] = True
    like: Annotated[
        Path | None,
        typer.Option(
            "--like",
            metavar="RESULTS",
            help="Predict from a results file of this model on such nodes, instead of computing here.",
        ),
    ] = None
    tokens: Annotated[
        bool,
        typer.Option(
            "--tokens/--characters", help="Count with the model's tokenizer, or guess and load no model here."
        ),
    ] = True
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the jobs without submitting them.")] = False


@dataclass(frozen=True, kw_only=True)
class SubmitArrayOptions(SubmitOptions):
    """Options of every scheduler with arrays of jobs; a queue is Slurm's partition."""

    SCHEDULER: ClassVar[str]
    BRIEF: ClassVar[Sequence[str]] = (*SubmitOptions.BRIEF, "queue", "time", "gpus", "cpus", "mem")

    queue: Annotated[str, typer.Option("--queue", metavar="NAME", help="Queue, Slurm's partition, to run in.")] = ""
    time: Annotated[
        str,
        typer.Option(
            "--time", metavar="LIMIT", help="Time limit of a shard, as the scheduler writes it; default: predicted."
        ),
    ] = ""
    gpus: Annotated[str, typer.Option("--gpus", metavar="N", help="GPUs of a shard, as the scheduler has them.")] = ""
    cpus: Annotated[int, typer.Option("--cpus", metavar="N", min=0, help="CPUs and threads of a shard.")] = 0
    mem: Annotated[str, typer.Option("--mem", metavar="SIZE", help="Memory of a shard, as 64G.")] = ""
    merge_queue: Annotated[
        str,
        typer.Option(
            "--merge-queue",
            metavar="NAME",
            help="Queue of the merge job; default: that of shards without GPUs, else the site's default.",
        ),
    ] = ""
    module: Annotated[
        tuple[str, ...], typer.Option("--module", metavar="NAME", help="Module to load. Can be repeated.")
    ] = ()
    container: Annotated[str, typer.Option("--container", metavar="IMAGE", help="A .sif file, or an image.")] = ""
    runtime: Annotated[
        str, typer.Option("--runtime", metavar="NAME", help="Container runtime: apptainer or podman; default: none.")
    ] = "none"
    bind: Annotated[
        tuple[Path, ...],
        typer.Option("--bind", metavar="PATH", help="Another path that the container may read. Can be repeated."),
    ] = ()
    scratch: Annotated[
        str,
        typer.Option("--scratch", metavar="DIR", help="A folder on each node's own disk; the node's shell expands it."),
    ] = "${TMPDIR:-/tmp}"
    requeues: Annotated[
        int,
        typer.Option(
            "--requeues",
            metavar="N",
            min=0,
            help="Maximum number of times that a shard is requeued after it was cut off.",
        ),
    ] = 10
    more: Annotated[
        tuple[str, ...],
        typer.Option(
            "--job-option",
            metavar="OPTION",
            help="Another option of sbatch, qsub or bsub, e.g. --account=x or '-P x'. Can be repeated.",
        ),
    ] = ()
    nodes: Annotated[
        int,
        typer.Option(
            "--nodes", metavar="N", min=1, help="Nodes of a shard, for a server that --serve starts with srun (Slurm)."
        ),
    ] = 1
    job_template: Annotated[
        Path | None, typer.Option("--template", metavar="FILE", help="Your site's own job script, with lbx's marks.")
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

    image: Annotated[str, typer.Option("--image", metavar="IMAGE", help="Image with lbx in it.")]
    run_claim: Annotated[str, typer.Option("--run-claim", metavar="NAME", help="Volume claim with root DIR.")]
    bundle_claim: Annotated[
        str, typer.Option("--bundle-claim", metavar="NAME", help="Volume claim with the bundle as root.")
    ]
    namespace: Annotated[str, typer.Option("--namespace", metavar="NAME", help="Namespace to run in.")] = ""
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", min=0, help="GPUs of a shard.")] = 0
    cpus: Annotated[str, typer.Option("--cpus", metavar="N", help="CPUs and threads of a shard: 4, 2500m.")] = ""
    mem: Annotated[str, typer.Option("--mem", metavar="SIZE", help="Memory of a shard, as 64Gi.")] = ""
    retries: Annotated[
        int, typer.Option("--retries", metavar="N", min=0, help="Maximum number of failures of a shard.")
    ] = 10


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """Example: lbx status runs/leval"""

    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder written by `lbx submit`.")]
    as_json: AsJson = False
