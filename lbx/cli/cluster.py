"""Commands ``lbx submit``, ``lbx status`` and ``lbx merge``."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path

import typer

from lbx.base.commands import as_command
from lbx.base.errors import LbxError, UsageError
from lbx.base.outputs import write_whole
from lbx.base.processes import find_tool, python_command
from lbx.cli.cluster_options import Status, Submit, SubmitKubernetes, SubmitSlurm
from lbx.cli.exchange_options import Merge
from lbx.cli.output import RunBar, answer, answer_json, answer_text, note
from lbx.cli.tables import show_table
from lbx.cluster import kubernetes, slurm
from lbx.cluster.folder import RunFolder, Submitted
from lbx.cluster.launch import Launch, Runtime, expanded_by_bash
from lbx.cluster.merge import Merged, shard_statuses
from lbx.cluster.merge import merge as join
from lbx.forecast.shards import ShardPlan, read_shards
from lbx.report.sheets import plain_columns
from lbx.running.sharding import Counting, deal, with_threads
from lbx.spec.run_spec import RunSpec
from lbx.store import Table

_EXIT_GAPS = 3
_MOST_NAMED = 5


def submit_to_slurm(options: SubmitSlurm) -> None:
    named = _named(options, options.spec.settled())
    wanted = slurm.SlurmOptions(
        options.job_name or slurm.job_name(named.name or ""),
        options.partition,
        options.time,
        options.gpus,
        options.cpus,
        options.mem,
        options.at_once,
        options.module,
        options.sbatch_option,
    )
    if not options.dry_run:
        slurm.check_present()
    folder, spec, plan = _planned(options, with_threads(named, options.cpus))
    job = slurm.SlurmJob(
        folder,
        len(plan.shards),
        slurm.with_time(wanted, plan),
        _launch(spec, folder, options),
        ["--spec", str(folder.spec_file), *_flags(options)],
        expanded_by_bash(options.scratch),
        options.copy_every,
        options.requeues,
        options.template,
    )
    array, merge = job.array_script(), job.merge_script()
    if options.dry_run:
        _show_scripts({"job.sh": array, "merge.sh": merge}, spec, plan, as_json=options.as_json)
        return
    folder.make()
    spec.carried(folder.root, str(folder.root)).write(folder.spec_file)
    plan.write(folder.plan_file)
    for file, text in (("job.sh", array), ("merge.sh", merge)):
        write_whole(folder.root / file, text)
    try:
        array_id = slurm.submit(folder.root / "job.sh")
    except LbxError:
        folder.plan_file.unlink()  # so that the same command can be repeated
        raise
    folder.remember(Submitted("slurm", array_id))
    merge_id = slurm.submit(folder.root / "merge.sh", after=array_id)
    folder.remember(Submitted("slurm", array_id, merge_id))
    if options.as_json:
        submission = {"folder": str(folder.root), "array": array_id, "merge": merge_id}
        answer_json(json.dumps(submission | {"shards": len(plan.shards), "runs": plan.runs}))
        return
    answer(f"Submitted {len(plan.shards)} shards as job {array_id}, and the merge as job {merge_id}; {folder.root}")
    note(f"Follow them with: {as_command('lbx', 'status', folder.root)}")


def write_for_kubernetes(options: SubmitKubernetes) -> None:
    named = _named(options, options.spec)
    wanted = kubernetes.KubernetesOptions(
        options.job_name or kubernetes.job_name(named.name or ""),
        options.image,
        options.run_claim,
        options.bundle_claim,
        options.namespace,
        options.cpus,
        options.mem,
        options.gpus,
        options.at_once,
        options.retries,
        options.copy_every,
    )
    folder, spec, plan = _planned(options, with_threads(named, wanted.cpu_count))
    run = ["--spec", f"{kubernetes.FOLDER}/{folder.spec_file.name}", *_flags(options)]
    text = json.dumps(kubernetes.manifest(wanted, len(plan.shards), run), indent=2, ensure_ascii=False)
    if options.dry_run:
        answer_json(text)
        note("No job was submitted and no file written. lbx has not been tested on a Kubernetes cluster.")
        return
    folder.make()
    spec = spec.carried(folder.root, kubernetes.FOLDER)
    dataclasses.replace(spec, bundle=kubernetes.BUNDLE).write(folder.spec_file)
    plan.write(folder.plan_file)
    file = folder.root / "kubernetes.json"
    write_whole(file, text + "\n")
    folder.remember(Submitted("kubernetes"))
    answer(f"Planned {len(plan.shards)} shards in {folder.root}; no job was submitted")
    note(
        f"Next: {as_command('kubectl', 'apply', '-f', file)}; at the end: "
        f"{as_command('lbx', 'merge', folder.root)}. lbx has not been tested on a Kubernetes cluster."
    )


def _named(options: Submit, spec: RunSpec) -> RunSpec:
    """Name a spec after its folder, unless it has a name."""
    return dataclasses.replace(spec, name=spec.name or options.output.absolute().name or "run")


def _planned(options: Submit, named: RunSpec) -> tuple[RunFolder, RunSpec, ShardPlan]:
    folder = RunFolder(options.output.absolute())
    if folder.plan_file.exists() and not options.dry_run:
        folder.make()  # raises UsageError for a folder with a run, before minutes of token counting
    counting = Counting(options.calibrate, options.like, options.tokens)
    with RunBar() as bar:
        plan = deal(named, options.shards, counting, bar, folder.results_files())
    costs = [shard.cost for shard in plan.shards]
    note(
        f"{sum(shard.size for shard in plan.shards):,} samples in {len(costs)} shards of {min(costs):,.0f} to "
        f"{max(costs):,.0f} {plan.unit}, by {plan.basis}"
    )
    return folder, named, plan


def _flags(options: Submit) -> list[str]:
    """Options for each shard's command line that are not part of the run's spec."""
    flags = {
        "--retry-failed": options.retry_failed,
        "--retry-empty": options.retry_empty,
        "--no-plan": not options.plan,
        "--hash-bundle": options.hash_bundle,
    }
    return [flag for flag, wanted in flags.items() if wanted]


def _launch(spec: RunSpec, folder: RunFolder, options: SubmitSlurm) -> Launch:
    try:
        chosen = Runtime(options.runtime)
    except ValueError as exc:
        raise UsageError(f"--runtime must be one of {', '.join(Runtime)}, not {options.runtime}.") from exc
    models = [Path(name) for name in (spec.model, spec.retriever, spec.embedding) if name and Path(name).is_absolute()]
    read = [Path(spec.bundle), *(path.resolve() for path in options.bind), *(model.parent for model in models)]
    read = list(dict.fromkeys([*read, *(path.resolve().parent for path in models)]))  # podman refuses duplicate mounts
    scratch = expanded_by_bash(options.scratch)
    return Launch(
        _this_program(), chosen, options.container, read, [folder.root], scratch, bool(options.gpus), options.cpus
    )


def _this_program() -> str:
    """Command line of this lbx, for a machine with the same file system."""
    called = find_tool(sys.argv[0])
    if called and Path(called).name == "lbx":
        return shlex.quote(str(Path(called).absolute()))
    return shlex.join(python_command("-m", "lbx"))


def _show_scripts(scripts: dict[str, str], spec: RunSpec, plan: ShardPlan, *, as_json: bool) -> None:
    if as_json:
        document = {"scripts": scripts, "spec": spec.to_json(), "plan": plan.to_json()}
        answer_json(json.dumps(document, ensure_ascii=False))
        return
    for name, text in {**scripts, "run.json": json.dumps(spec.to_json(), ensure_ascii=False, indent=1)}.items():
        answer_text(f"# {name}\n{text}\n")
    note("No job was submitted and no file written.")


def show_status(options: Status) -> None:
    folder = options.folder
    shards = shard_statuses(RunFolder(folder))
    if options.as_json:
        answer_json(json.dumps([shard.to_json() for shard in shards], ensure_ascii=False))
        return
    columns = ["shard", "state", "answered", "failed", "of", "last message"]
    rows = [
        (str(one.shard), one.state, f"{one.answered:,}", f"{one.failed:,}", f"{one.expected:,}", one.said)
        for one in shards
    ]
    show_table("", plain_columns(Table(columns, rows)))
    states = {state: sum(one.state == state for one in shards) for state in dict.fromkeys(one.state for one in shards)}
    answers = sum(one.answered + one.failed for one in shards)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    answer(f"{counts}; {answers:,} of {sum(one.expected for one in shards):,} answers are in {folder}")


def merge_files(options: Merge) -> None:
    sources, output = options.sources, options.output
    plan = read_shards(options.shards) if options.shards else None
    if len(sources) == 1 and sources[0].is_dir():
        folder = RunFolder(sources[0])
        plan = plan or folder.plan()
        files = [path for number in range(len(plan.shards)) if (path := folder.shard(number)).is_file()]
        output = output or folder.results
        if not files:
            raise UsageError(
                f"No shard of {folder.root} has written a results file yet.",
                command=as_command("lbx", "status", folder.root),
            )
    else:
        files = [*sources]
    if output is None:
        raise UsageError("No output file given.", fix="Pass the new results file with -o.")
    merged = join(files, output, plan, force=options.force)
    _tell(merged, as_json=options.as_json)
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
        named = ", ".join(map(str, gap.missing[:_MOST_NAMED]))
        more = (
            f" and {len(gap.missing) - _MOST_NAMED:,} more (--json lists all)" if len(gap.missing) > _MOST_NAMED else ""
        )
        note(f"Shard {gap.shard} of {gap.run} lacks {named}{more}")
