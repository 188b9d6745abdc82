"""What ``lbx submit`` does."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from lbx.base.commands import as_command
from lbx.base.errors import LbxError, UsageError
from lbx.base.outputs import write_whole
from lbx.base.processes import find_tool, python_command
from lbx.cli.output import RunBar, answer, answer_json, answer_text, note
from lbx.cluster import kubernetes, slurm
from lbx.cluster.folder import RunFolder, Submitted
from lbx.cluster.launch import Launch, Runtime, expanded_by_bash
from lbx.planning.shards import ShardPlan
from lbx.running.sharding import Counting, deal
from lbx.running.spec import RunSpec


def submit_to_slurm(
    *,
    spec: RunSpec,
    output: Path,
    shards: int,
    job_name: str,
    partition: str,
    time: str,
    gpus: str,
    cpus: int,
    mem: str,
    at_once: int,
    module: list[str] | None,
    container: str,
    runtime: str,
    bind: list[Path] | None,
    scratch: str,
    copy_every: float,
    requeues: int,
    sbatch_option: list[str] | None,
    template: Path | None,
    calibrate: bool,
    like: Path | None,
    tokens: bool,
    verify_batching: int,
    retry_failed: bool,
    retry_empty: bool,
    count_first: bool,
    hash_bundle: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """See ``lbx submit slurm``."""
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


def write_for_kubernetes(
    *,
    spec: RunSpec,
    output: Path,
    shards: int,
    image: str,
    run_claim: str,
    bundle_claim: str,
    job_name: str,
    namespace: str,
    gpus: int,
    cpus: str,
    mem: str,
    at_once: int,
    retries: int,
    copy_every: float,
    calibrate: bool,
    like: Path | None,
    tokens: bool,
    verify_batching: int,
    retry_failed: bool,
    retry_empty: bool,
    count_first: bool,
    hash_bundle: bool,
    dry_run: bool,
) -> None:
    """See ``lbx submit kubernetes``."""
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
