"""Commands ``lbx submit``, ``lbx status`` and ``lbx merge``."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path

import typer

from lbx.backends.serving.command import PORT, ServerCommand, local_paths
from lbx.base.errors import LbxError, UsageError
from lbx.base.exit_codes import ExitCode
from lbx.base.outputs import write_file
from lbx.base.processes import defer_signals, find_tool, python_command
from lbx.base.units import format_count
from lbx.base.visible import as_command
from lbx.cli.cluster_options import (
    StatusOptions,
    SubmitArrayOptions,
    SubmitKubernetesOptions,
    SubmitOptions,
)
from lbx.cli.exchange_options import MergeOptions
from lbx.cli.output import answer, answer_json, answer_text, note
from lbx.cli.progress import RunBar
from lbx.cli.table_output import show_table
from lbx.cluster import kubernetes
from lbx.cluster.folder import RunFolder, Submission
from lbx.cluster.merge import MergeSummary, shard_statuses
from lbx.cluster.merge import merge as join
from lbx.cluster.scheduler import ArrayJob, JobOptions, Launch, Runtime, Scheduler, quote_for_bash
from lbx.cluster.schedulers import SCHEDULERS
from lbx.options.run_spec import RunSpec
from lbx.report.format.sheets import plain_columns
from lbx.results import Table
from lbx.running.forecast.shards import ShardPlan, read_shards
from lbx.running.sharding import CountingOptions, forecast_cpu_count, plan_shards, with_threads

_MAX_LISTED = 5


def submit_array(options: SubmitArrayOptions) -> None:
    scheduler = SCHEDULERS[options.SCHEDULER]
    named_spec = _with_name(options, options.spec.with_absolute_paths())
    job_options = JobOptions(
        options.job_name or scheduler.job_name(named_spec.name or ""),
        options.queue,
        options.time,
        options.gpus,
        options.cpus,
        options.mem,
        options.at_once,
        options.module,
        options.extra_options,
        options.nodes,
        options.merge_queue,
    )
    scheduler.check(job_options)
    _check_serve(named_spec, job_options.nodes)
    if not options.dry_run:
        scheduler.require_tool()
    folder, spec, plan = _plan_shards(options, with_threads(named_spec, options.cpus))
    if not (options.cpus or options.job_template) and (count := forecast_cpu_count(spec)):
        note(
            f"Without --cpus, each shard gets the site's default number of CPUs, often 1; the forecast counts on "
            f"{count}. Pass --cpus {count}, or fewer."
        )
    time = options.time or scheduler.time_limit(plan)
    if not time and not scheduler.announces_limit:
        note(
            f"{scheduler.title} does not announce the queue's own time limit: a shard that reaches it is not requeued. "
            "Pass --time, which lbx requeues in time."
        )
    job = ArrayJob(
        scheduler,
        folder,
        len(plan.shards),
        dataclasses.replace(job_options, time=time),
        _launch(spec, folder, options),
        ["--spec", str(folder.spec_file), *_flags(options)],
        quote_for_bash(options.scratch),
        options.requeues,
        options.job_template,
    )
    array, merge = job.array_script(), job.merge_script()
    if options.dry_run:
        _show_scripts({"job.sh": array, "merge.sh": merge}, spec, plan, as_json=options.as_json)
        return
    folder.create()
    spec.copy_inputs(folder.root, str(folder.root)).write(folder.spec_file)
    for file, text in (("job.sh", array), ("merge.sh", merge)):
        write_file(folder.root / file, text)
    with defer_signals():
        _submit(scheduler, folder, plan, as_json=options.as_json)


def _submit(scheduler: Scheduler, folder: RunFolder, plan: ShardPlan, *, as_json: bool) -> None:
    plan.write(folder.plan_file)
    try:
        array_id = scheduler.submit(folder.root / "job.sh")
    except (LbxError, OSError):
        folder.plan_file.unlink()  # so that the same command can be repeated
        raise
    folder.save_submission(Submission(scheduler.name, array_id))
    try:
        merge_id = scheduler.submit(folder.root / "merge.sh", after_job=array_id)
    except LbxError as error:
        raise LbxError(
            f"The shards run as job {array_id}, but the merge job was not submitted: {error.cause}",
            fix="Merge them by hand when they have ended. --merge-queue names the queue of a merge job.",
            command=as_command("lbx", "merge", folder.root),
        ) from error
    folder.save_submission(Submission(scheduler.name, array_id, merge_id))
    if as_json:
        submission = {"folder": str(folder.root), "array": array_id, "merge": merge_id}
        answer_json(json.dumps(submission | {"shards": len(plan.shards), "runs": plan.runs}))
        return
    answer(f"Submitted {len(plan.shards)} shards as job {array_id}, and the merge as job {merge_id}; {folder.root}")
    note(f"Follow them with: {as_command('lbx', 'status', folder.root)}")


def write_for_kubernetes(options: SubmitKubernetesOptions) -> None:
    named_spec = _with_name(options, options.spec)
    job_options = kubernetes.KubernetesOptions(
        options.job_name or kubernetes.job_name(named_spec.name or ""),
        options.image,
        options.run_claim,
        options.bundle_claim,
        options.namespace,
        options.cpus,
        options.mem,
        options.gpus,
        options.at_once,
        options.retries,
    )
    folder, spec, plan = _plan_shards(options, with_threads(named_spec, job_options.cpu_count))
    run = ["--spec", f"{kubernetes.FOLDER}/{folder.spec_file.name}", *_flags(options)]
    text = json.dumps(kubernetes.manifest(job_options, len(plan.shards), run), indent=2, ensure_ascii=False)
    if missing := [name for name, value in (("--cpus", options.cpus), ("--mem", options.mem)) if not value]:
        note(
            f"Without {' and '.join(missing)}, the pods request none: a quota may refuse them, and a full node evicts "
            "them first."
        )
    if options.dry_run:
        answer_json(text)
        note("No job was submitted and no file written. lbx has not been tested on a Kubernetes cluster.")
        return
    folder.create()
    spec = spec.copy_inputs(folder.root, kubernetes.FOLDER)
    dataclasses.replace(spec, bundle=kubernetes.BUNDLE).write(folder.spec_file)
    file = folder.root / "kubernetes.json"
    write_file(file, text + "\n")
    folder.save_submission(Submission("kubernetes"))
    plan.write(folder.plan_file)  # last: without it, the same command can be repeated
    answer(f"Planned {len(plan.shards)} shards in {folder.root}; no job was submitted")
    note(
        f"Next: {as_command('kubectl', 'apply', '-f', file)}; at the end: "
        f"{as_command('lbx', 'merge', folder.root)}. lbx has not been tested on a Kubernetes cluster."
    )


def _check_serve(spec: RunSpec, nodes: int) -> None:
    """Raise UsageError for nodes that no server uses, and for a port that two shards on a node would share."""
    if spec.serve is None:
        if nodes > 1:
            raise UsageError(
                f"--nodes {nodes} needs --serve: lbx runs on one node of each shard.",
                fix="Remove --nodes; --shards runs on as many nodes as there are shards.",
            )
    elif (port := ServerCommand.parse(spec.serve).port) is not None:
        raise UsageError(
            f"--serve has the port {port}, but two shards may run on one node.",
            fix=f"Write --port {PORT}: lbx then chooses a free one in each shard.",
        )


def _with_name(options: SubmitOptions, spec: RunSpec) -> RunSpec:
    """Name a spec without a name after the output folder."""
    return dataclasses.replace(spec, name=spec.name or options.output.absolute().name or "run")


def _plan_shards(options: SubmitOptions, spec: RunSpec) -> tuple[RunFolder, RunSpec, ShardPlan]:
    folder = RunFolder(options.output.absolute())
    if not str(folder.root).isprintable():
        raise UsageError(
            f"The path of the folder {str(folder.root)!r} has a line break or a control character.",
            fix="Choose another folder with -o.",
        )
    if folder.plan_file.exists() and not options.dry_run:
        folder.create()  # raises UsageError for a folder with a run, before minutes of token counting
    counting = CountingOptions(options.measure_speed, options.history, options.tokens)
    with RunBar() as bar:
        plan = plan_shards(spec, options.shards, counting, bar, folder.results_files(), at_once=options.at_once)
    costs = [shard.cost for shard in plan.shards]
    samples, shards = sum(shard.size for shard in plan.shards), format_count(len(costs), "shard")
    each = " to ".join(dict.fromkeys(f"{cost:,.0f}" for cost in (min(costs), max(costs))))
    note(f"{samples:,} samples in {shards} of {each} {plan.unit} each, by {plan.basis}")
    return folder, spec, plan


def _flags(options: SubmitOptions) -> list[str]:
    """Build the options of each shard's command line outside the run's spec."""
    flags = {
        "--retry-failed": options.retry_failed,
        "--retry-empty": options.retry_empty,
        "--no-plan": not options.plan,
        "--hash-bundle": options.hash_bundle,
    }
    return [flag for flag, is_set in flags.items() if is_set]


def _launch(spec: RunSpec, folder: RunFolder, options: SubmitArrayOptions) -> Launch:
    try:
        runtime = Runtime(options.runtime)
    except ValueError as exc:
        raise UsageError(f"--runtime must be one of {', '.join(Runtime)}, not {options.runtime}.") from exc
    models = [Path(name) for name in (spec.model, spec.retriever, spec.embedding) if name and Path(name).is_absolute()]
    if spec.serve:
        models += [path for _, _, path in local_paths(ServerCommand.parse(spec.serve))]
    readable_paths = [
        Path(spec.bundle),
        *(path.resolve() for path in options.bind),
        *(model.parent for model in models),
    ]
    readable_paths = list(
        dict.fromkeys([*readable_paths, *(path.resolve().parent for path in models)])
    )  # podman refuses duplicate mounts
    scratch = quote_for_bash(options.scratch)
    return Launch(
        _this_program(),
        runtime,
        options.container,
        readable_paths,
        [folder.root],
        scratch,
        bool(options.gpus),
        options.cpus,
    )


def _this_program() -> str:
    """Return the command line of this lbx, for a machine with the same file system."""
    executable = find_tool(sys.argv[0])
    if executable and Path(executable).name == "lbx":
        return shlex.quote(str(Path(executable).absolute()))
    return shlex.join(python_command("-m", "lbx"))


def _show_scripts(scripts: dict[str, str], spec: RunSpec, plan: ShardPlan, *, as_json: bool) -> None:
    if as_json:
        document = {"scripts": scripts, "spec": spec.to_json(), "plan": plan.to_json()}
        answer_json(json.dumps(document, ensure_ascii=False))
        return
    for name, text in {**scripts, "run.json": json.dumps(spec.to_json(), ensure_ascii=False, indent=1)}.items():
        answer_text(f"# {name}\n{text}\n")
    note("No job was submitted and no file written.")


def show_status(options: StatusOptions) -> None:
    folder = options.folder
    shards = shard_statuses(RunFolder(folder))
    if options.as_json:
        answer_json(json.dumps([shard.to_json() for shard in shards], ensure_ascii=False))
        return
    columns = ["shard", "state", "answered", "failed", "expected", "last message"]
    rows = [
        (
            str(status.shard),
            status.state,
            f"{status.answered:,}",
            f"{status.failed:,}",
            f"{status.expected:,}",
            status.last_log_line,
        )
        for status in shards
    ]
    show_table("", plain_columns(Table(columns, rows)))
    states = {
        state: sum(status.state == state for status in shards)
        for state in dict.fromkeys(status.state for status in shards)
    }
    answers = sum(status.answered + status.failed for status in shards)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    answer(f"{counts}; {answers:,} of {sum(status.expected for status in shards):,} answers are in {folder}")


def merge_files(options: MergeOptions) -> None:
    sources, output = options.sources, options.output
    plan = read_shards(options.shard_plan) if options.shard_plan else None
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
    merged = join(files, output, plan, update=options.update)
    _show_merge(merged, as_json=options.as_json)
    if merged.gaps or any(merged.failures.values()):
        raise typer.Exit(ExitCode.INCOMPLETE)


def _show_merge(summary: MergeSummary, *, as_json: bool) -> None:
    if as_json:
        answer_json(json.dumps(summary.to_json(), ensure_ascii=False))
    else:
        for run, files in summary.runs.items():
            failed = f", {summary.failures[run]:,} failed" if summary.failures.get(run) else ""
            answer(f"{run}: {f'from {files} file' + 's' * (files > 1) if files else 'kept'}{failed}")
        counts = [f"{summary.rows['generations']:,} answers"]
        if pairs := summary.rows["depth_pairs"]:
            counts.append(format_count(pairs, "comparison by position", "comparisons by position"))
        answer(f"{' and '.join(counts)} in {summary.output}")
    for text in summary.notes:
        note(text)
    for gap in summary.gaps:
        missing = ", ".join(map(str, gap.missing[:_MAX_LISTED]))
        more = (
            f" and {len(gap.missing) - _MAX_LISTED:,} more (--json lists all)" if len(gap.missing) > _MAX_LISTED else ""
        )
        note(f"Shard {gap.shard} of {gap.run} lacks {missing}{more}")
