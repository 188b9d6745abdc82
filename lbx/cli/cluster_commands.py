"""``lbx submit``, ``lbx status`` and ``lbx merge``: one run on many machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import AsJson, CountFirst, HashBundle, RetryEmpty, RetryFailed, VerifyBatching
from lbx.cli.spec_options import takes_spec
from lbx.cli.stopping import stoppable
from lbx.running.spec import RunSpec

submit = typer.Typer(
    name="submit",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Run on many machines: plan shards of equal cost, and give them to Slurm or Kubernetes.",
)

Folder = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="The run's folder, new, where all machines see it.")
]
Shards = Annotated[int, typer.Option("--shards", metavar="N", min=1, help="Number of shards, each a job of its own.")]
Calibrate = Annotated[
    bool,
    typer.Option(
        "--calibrate/--no-calibrate",
        help="Compute here for a few seconds to predict how long shards take on nodes like this one.",
    ),
]
Like = Annotated[
    Path | None,
    typer.Option("--like", metavar="RESULTS", help="Predict from a results file of this model on such nodes instead."),
]
CountTokens = Annotated[
    bool,
    typer.Option("--tokens/--characters", help="Count with the model's tokenizer, or guess and load no model here."),
]
AtOnce = Annotated[int, typer.Option("--at-once", metavar="N", min=0, help="At most N shards at a time; 0: all.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be submitted, and submit nothing.")]
CopyEvery = Annotated[
    float,
    typer.Option("--copy-every", metavar="MINUTES", min=0, help="Minutes between copies of a running shard's file."),
]


@submit.command("slurm")
@stoppable
@takes_spec
def submit_slurm(
    *,
    spec: RunSpec,
    output: Folder,
    shards: Shards,
    job_name: Annotated[str, typer.Option("--name", metavar="NAME", help="The job's name.")] = "lbx",
    partition: Annotated[str, typer.Option("--partition", metavar="NAME", help="Partition to run in.")] = "",
    time: Annotated[
        str,
        typer.Option("--time", metavar="LIMIT", help="Time limit of a shard, as Slurm writes it; default: predicted."),
    ] = "",
    gpus: Annotated[str, typer.Option("--gpus", metavar="N", help="GPUs of a shard: 1, or a100:1.")] = "",
    cpus: Annotated[int, typer.Option("--cpus", metavar="N", min=0, help="Cores of a shard.")] = 0,
    mem: Annotated[str, typer.Option("--mem", metavar="SIZE", help="Memory of a shard, as 64G.")] = "",
    at_once: AtOnce = 0,
    module: Annotated[
        list[str] | None, typer.Option("--module", metavar="NAME", help="Module to load. Can be repeated.")
    ] = None,
    container: Annotated[str, typer.Option("--container", metavar="IMAGE", help="A .sif file, or an image.")] = "",
    runtime: Annotated[
        str, typer.Option("--runtime", metavar="NAME", help="What runs the image: apptainer or podman; default: none.")
    ] = "none",
    bind: Annotated[
        list[Path] | None,
        typer.Option("--bind", metavar="PATH", help="Another path that the container may read. Can be repeated."),
    ] = None,
    scratch: Annotated[
        str, typer.Option("--scratch", metavar="DIR", help="A node's own disk; the node's shell expands it.")
    ] = "${TMPDIR:-/tmp}",
    copy_every: CopyEvery = 10.0,
    requeues: Annotated[
        int, typer.Option("--requeues", metavar="N", min=0, help="How often a shard that was cut off may be requeued.")
    ] = 10,
    sbatch_option: Annotated[
        list[str] | None,
        typer.Option(
            "--sbatch-option", metavar="OPTION", help="Another option of sbatch, e.g. --account=x. Can be repeated."
        ),
    ] = None,
    template: Annotated[
        Path | None, typer.Option("--template", metavar="FILE", help="The site's own script with lbx's marks.")
    ] = None,
    calibrate: Calibrate = True,
    like: Like = None,
    tokens: CountTokens = True,
    verify_batching: VerifyBatching = 0,
    retry_failed: RetryFailed = False,
    retry_empty: RetryEmpty = False,
    count_first: CountFirst = True,
    hash_bundle: HashBundle = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Submit a run as a Slurm array of shards, and a job behind it that merges them.

    Options of `lbx run` mean what they mean there. Needs --bundle, --model and --tasks, or --spec.

    Example: lbx submit slurm --bundle long --model my-model.toml --tasks leval --gpus 1 --shards 8 -o runs/leval
    """
    from lbx.cli.submitting import submit_to_slurm

    submit_to_slurm(
        spec=spec,
        output=output,
        shards=shards,
        job_name=job_name,
        partition=partition,
        time=time,
        gpus=gpus,
        cpus=cpus,
        mem=mem,
        at_once=at_once,
        module=module,
        container=container,
        runtime=runtime,
        bind=bind,
        scratch=scratch,
        copy_every=copy_every,
        requeues=requeues,
        sbatch_option=sbatch_option,
        template=template,
        calibrate=calibrate,
        like=like,
        tokens=tokens,
        verify_batching=verify_batching,
        retry_failed=retry_failed,
        retry_empty=retry_empty,
        count_first=count_first,
        hash_bundle=hash_bundle,
        dry_run=dry_run,
        as_json=as_json,
    )


@submit.command("kubernetes")
@stoppable
@takes_spec
def submit_kubernetes(
    *,
    spec: RunSpec,
    output: Folder,
    shards: Shards,
    image: Annotated[str, typer.Option("--image", metavar="IMAGE", help="The image with lbx in it.")],
    run_claim: Annotated[
        str, typer.Option("--run-claim", metavar="NAME", help="Volume claim whose root is DIR; all shards write to it.")
    ],
    bundle_claim: Annotated[
        str, typer.Option("--bundle-claim", metavar="NAME", help="Volume claim whose root is the bundle.")
    ],
    job_name: Annotated[str, typer.Option("--name", metavar="NAME", help="The job's name.")] = "lbx",
    namespace: Annotated[str, typer.Option("--namespace", metavar="NAME", help="Namespace to run in.")] = "",
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", min=0, help="GPUs of a shard.")] = 0,
    cpus: Annotated[str, typer.Option("--cpus", metavar="N", help="Cores of a shard.")] = "",
    mem: Annotated[str, typer.Option("--mem", metavar="SIZE", help="Memory of a shard, as 64Gi.")] = "",
    at_once: AtOnce = 0,
    retries: Annotated[int, typer.Option("--retries", metavar="N", min=0, help="How often a shard may fail.")] = 10,
    copy_every: CopyEvery = 10.0,
    calibrate: Calibrate = True,
    like: Like = None,
    tokens: CountTokens = True,
    verify_batching: VerifyBatching = 0,
    retry_failed: RetryFailed = False,
    retry_empty: RetryEmpty = False,
    count_first: CountFirst = True,
    hash_bundle: HashBundle = False,
    dry_run: DryRun = False,
) -> None:
    """Write a run as a Kubernetes Indexed Job. lbx does not submit it: kubectl does.

    Options of `lbx run` mean what they mean there; --bundle is the bundle here, a model is named as the image knows it.

    Example: lbx submit kubernetes --dry-run --bundle long --model my-model --tasks leval --shards 8 -o runs/leval
    --image registry.local/lbx:1 --run-claim runs --bundle-claim long
    """
    from lbx.cli.submitting import write_for_kubernetes

    write_for_kubernetes(
        spec=spec,
        output=output,
        shards=shards,
        image=image,
        run_claim=run_claim,
        bundle_claim=bundle_claim,
        job_name=job_name,
        namespace=namespace,
        gpus=gpus,
        cpus=cpus,
        mem=mem,
        at_once=at_once,
        retries=retries,
        copy_every=copy_every,
        calibrate=calibrate,
        like=like,
        tokens=tokens,
        verify_batching=verify_batching,
        retry_failed=retry_failed,
        retry_empty=retry_empty,
        count_first=count_first,
        hash_bundle=hash_bundle,
        dry_run=dry_run,
    )


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `lbx submit` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Show how far each shard of a submitted run is. Runs are not disturbed: only copies are opened.

    Example: lbx status runs/leval
    """
    from lbx.cli.merging import show_status

    show_status(folder=folder, as_json=as_json)


def merge(
    *,
    sources: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Results files, or the folder of `lbx submit`.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The new results file; a folder's own results.duckdb."),
    ] = None,
    shards: Annotated[
        Path | None, typer.Option("--shards", metavar="FILE", help="The shard plan, which says what there should be.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Merge into the output if it exists: what it alone holds stays.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Join results files: parts of one run become that run again, other runs stand side by side.

    Runs of one name with other settings or bundles are refused, and so are two different answers to one question; an
    answer takes the place of a failed or empty one. With --force again into the same file: nothing it holds is lost.
    Exit code 3: samples are missing or have failed.

    Example: lbx merge a.duckdb b.duckdb -o all.duckdb
    """
    from lbx.cli.merging import merge_files

    merge_files(sources=sources, output=output, shards=shards, force=force, as_json=as_json)
