"""``lbx submit``, ``lbx status`` and ``lbx merge``: one run on many machines."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbx.base.commands import as_command
from lbx.base.errors import LbxError, UsageError
from lbx.base.outputs import write_whole
from lbx.base.processes import find_tool, python_command
from lbx.cli.options import AsJson, CountFirst, HashBundle, RetryEmpty, RetryFailed, VerifyBatching
from lbx.cli.output import RunBar, answer, answer_json, answer_text, note, show_table
from lbx.cli.spec_options import takes_spec
from lbx.cli.stopping import stoppable
from lbx.running.spec import RunSpec

if TYPE_CHECKING:
    from lbx.cluster.folder import RunFolder
    from lbx.cluster.launch import Launch
    from lbx.cluster.merge import Merged
    from lbx.planning.shards import ShardPlan
    from lbx.running.sharding import Counting

_EXIT_GAPS = 3
_NAMED = 5

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
    from lbx.cluster import slurm
    from lbx.cluster.folder import Submitted
    from lbx.cluster.launch import expanded_by_bash
    from lbx.running.sharding import Counting

    spec = spec.settled()
    options = slurm.SlurmOptions(
        job_name, partition, time, gpus, cpus, mem, at_once, tuple(module or ()), tuple(sbatch_option or ())
    )
    if not dry_run:
        slurm.check_present()
    folder, spec, plan = _planned(spec, output, shards, Counting(calibrate, like, tokens), dry_run=dry_run)
    again = {"retry_failed": retry_failed, "retry_empty": retry_empty}
    flags = _flags(verify_batching, **again, no_plan=not count_first, hash_bundle=hash_bundle)
    job = slurm.SlurmJob(
        folder,
        len(plan.shards),
        slurm.with_time(options, plan),
        _launch(spec, folder, runtime, container, bind=bind or (), scratch=scratch, gpu=bool(gpus)),
        ["--spec", str(folder.spec_file), *flags],
        expanded_by_bash(scratch),
        copy_every,
        requeues,
        template,
    )
    array, merge = job.array_script(), job.merge_script()
    if dry_run:
        _show_scripts({"job.sh": array, "merge.sh": merge}, spec, plan, as_json=as_json)
        return
    folder.make()
    spec.carried(folder.root, str(folder.root)).write(folder.spec_file)
    plan.write(folder.plan_file)
    for file, text in (("job.sh", array), ("merge.sh", merge)):
        write_whole(folder.root / file, text)
    try:
        array_id = slurm.submit(folder.root / "job.sh")
    except LbxError:
        folder.plan_file.unlink()  # so that the same command can be given again
        raise
    folder.remember(Submitted("slurm", array_id))
    merge_id = slurm.submit(folder.root / "merge.sh", after=array_id)
    folder.remember(Submitted("slurm", array_id, merge_id))
    if as_json:
        told = {"folder": str(folder.root), "array": array_id, "merge": merge_id}
        answer_json(json.dumps(told | {"shards": len(plan.shards), "runs": plan.runs}))
        return
    answer(f"{len(plan.shards)} shards are job {array_id}, the merge job is {merge_id}; {folder.root}")
    note(f"To follow them: {as_command('lbx', 'status', folder.root)}")


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
    from lbx.cluster import kubernetes
    from lbx.cluster.folder import Submitted
    from lbx.running.sharding import Counting

    options = kubernetes.KubernetesOptions(
        job_name, image, run_claim, bundle_claim, namespace, cpus, mem, gpus, at_once, retries, copy_every
    )
    folder, spec, plan = _planned(spec, output, shards, Counting(calibrate, like, tokens), dry_run=dry_run)
    again = {"retry_failed": retry_failed, "retry_empty": retry_empty}
    flags = _flags(verify_batching, **again, no_plan=not count_first, hash_bundle=hash_bundle)
    run = ["--spec", f"{kubernetes.FOLDER}/{folder.spec_file.name}", *flags]
    text = json.dumps(kubernetes.manifest(options, len(plan.shards), run), indent=2, ensure_ascii=False)
    if dry_run:
        answer_json(text)
        note("Nothing was submitted or written, and lbx has not seen this run on a Kubernetes cluster.")
        return
    folder.make()
    spec = spec.carried(folder.root, kubernetes.FOLDER)
    dataclasses.replace(spec, bundle=kubernetes.BUNDLE).write(folder.spec_file)
    plan.write(folder.plan_file)
    file = folder.root / "kubernetes.json"
    write_whole(file, text + "\n")
    folder.remember(Submitted("kubernetes"))
    answer(f"{len(plan.shards)} shards are planned in {folder.root}; nothing was submitted")
    note(
        f"Next: {as_command('kubectl', 'apply', '-f', file)}; at the end: {as_command('lbx', 'merge', folder.root)}. "
        "lbx has not seen this run on a cluster."
    )


def _planned(
    spec: RunSpec, output: Path, shards: int, how: Counting, *, dry_run: bool
) -> tuple[RunFolder, RunSpec, ShardPlan]:
    """The run's folder, the spec with a name, and the shards."""
    from lbx.cluster.folder import RunFolder
    from lbx.running.sharding import deal

    folder = RunFolder(output.absolute())
    if folder.plan_file.exists() and not dry_run:
        folder.make()  # says that it holds a run, before minutes of counting
    named = dataclasses.replace(spec, name=spec.name or folder.root.name or "run")
    with RunBar() as bar:
        plan = deal(named, shards, how, bar)
    costs = [shard.cost for shard in plan.shards]
    note(
        f"{sum(shard.size for shard in plan.shards):,} samples in {len(costs)} shards of {min(costs):,.0f} to "
        f"{max(costs):,.0f} {plan.unit}, by {plan.basis}"
    )
    return folder, named, plan


def _flags(verify_batching: int, **given: bool) -> list[str]:
    """What is no part of the run, for each shard's command line."""
    verify = ["--verify-batching", str(verify_batching)] if verify_batching else []
    return [*(f"--{name.replace('_', '-')}" for name, wanted in given.items() if wanted), *verify]


def _launch(
    spec: RunSpec, folder: RunFolder, runtime: str, image: str, *, bind: Sequence[Path], scratch: str, gpu: bool
) -> Launch:
    from lbx.cluster.launch import Launch, Runtime, expanded_by_bash

    try:
        chosen = Runtime(runtime)
    except ValueError as exc:
        raise UsageError(f"--runtime {runtime} is none of {', '.join(Runtime)}.") from exc
    models = [Path(name) for name in (spec.model, spec.retriever, spec.embedding) if name and Path(name).is_absolute()]
    read = [Path(spec.bundle), *(path.resolve() for path in bind), *(model.parent for model in models)]
    read = list(dict.fromkeys([*read, *(path.resolve().parent for path in models)]))  # podman refuses one twice
    return Launch(_this_program(), chosen, image, read, [folder.root], expanded_by_bash(scratch), gpu)


def _this_program() -> str:
    """How this lbx is called, for a machine that sees the same files."""
    called = find_tool(sys.argv[0])
    if called and Path(called).name == "lbx":
        return shlex.quote(str(Path(called).absolute()))
    return shlex.join(python_command("-m", "lbx.cli"))


def _show_scripts(scripts: dict[str, str], spec: RunSpec, plan: ShardPlan, *, as_json: bool) -> None:
    if as_json:
        told = {"scripts": scripts, "spec": spec.to_json(), "plan": plan.to_json()}
        answer_json(json.dumps(told, ensure_ascii=False))
        return
    for name, text in {**scripts, "run.json": json.dumps(spec.to_json(), ensure_ascii=False, indent=1)}.items():
        answer_text(f"# {name}\n{text}\n")
    note("Nothing was submitted or written.")


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `lbx submit` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Show how far each shard of a submitted run is. Runs are not disturbed: only copies are opened.

    Example: lbx status runs/leval
    """
    from lbx.cluster.folder import RunFolder
    from lbx.cluster.status import status as look
    from lbx.report.cells import plain_columns
    from lbx.store import Table

    shards = look(RunFolder(folder))
    if as_json:
        answer_json(json.dumps([shard.to_json() for shard in shards], ensure_ascii=False))
        return
    columns = ["shard", "state", "answered", "failed", "of", "said last"]
    rows = [
        (str(one.shard), one.state, f"{one.answered:,}", f"{one.failed:,}", f"{one.expected:,}", one.said)
        for one in shards
    ]
    show_table("", plain_columns(Table(columns, rows)))
    states = {state: sum(one.state == state for one in shards) for state in dict.fromkeys(one.state for one in shards)}
    answers = sum(one.answered + one.failed for one in shards)
    said = ", ".join(f"{count} {state}" for state, count in states.items())
    answer(f"{said}; {answers:,} of {sum(one.expected for one in shards):,} answers are in {folder}")


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
    from lbx.cluster.folder import RunFolder
    from lbx.cluster.merge import merge as join
    from lbx.planning.shards import read_shards

    plan = read_shards(shards) if shards else None
    if len(sources) == 1 and sources[0].is_dir():
        folder = RunFolder(sources[0])
        plan = plan or folder.plan()
        files = [path for number in range(len(plan.shards)) if (path := folder.shard(number)).is_file()]
        output = output or folder.results
        if not files:
            raise UsageError(
                f"No shard of {folder.root} has written anything yet.", command=as_command("lbx", "status", folder.root)
            )
    else:
        files = sources
    if output is None:
        raise UsageError("No output file is named.", fix="Name the new results file with -o.")
    merged = join(files, output, plan, force=force)
    _tell(merged, as_json=as_json)
    if merged.gaps or any(merged.failures.values()):
        raise typer.Exit(_EXIT_GAPS)


def _tell(merged: Merged, *, as_json: bool) -> None:
    if as_json:
        answer_json(json.dumps(merged.to_json(), ensure_ascii=False))
    else:
        for run, files in merged.runs.items():
            failed = f", {merged.failures[run]:,} failed" if merged.failures.get(run) else ""
            answer(f"{run}: {f'from {files} file' + 's' * (files > 1) if files else 'kept'}{failed}")
        answer(f"{merged.rows['generations']:,} answers in {merged.output}")
    for text in merged.notes:
        note(text)
    for gap in merged.gaps:
        named = ", ".join(map(str, gap.missing[:_NAMED]))
        more = f" and {len(gap.missing) - _NAMED:,} more (--json names all)" if len(gap.missing) > _NAMED else ""
        note(f"Shard {gap.shard} of {gap.run} lacks {named}{more}")
