"""``lbx tasks``, ``lbx plan``, ``lbx run`` and ``lbx score``."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from lbx.cli.options import (
    AsJson,
    BackendName,
    BundleDir,
    Chat,
    Iterations,
    Limit,
    MaxNewTokens,
    MaxPromptTokens,
    Model,
    Results,
    SamplingSource,
    Tasks,
)
from lbx.cli.output import RunProgress, note, stdout
from lbx.errors import InterruptedByUserError, LbxError

if TYPE_CHECKING:
    from lbx.backends import Backend, ModelCard
    from lbx.engine.runner import Outcome
    from lbx.engine.settings import RunSettings
    from lbx.engine.work import Work
    from lbx.layout import Bundle
    from lbx.records import Task
    from lbx.store import RunRow

_EXIT_SOME_FAILED = 3


def tasks(bundle: BundleDir, as_json: AsJson = False) -> None:
    """List what the bundle holds to run.

    Example: lbx tasks --bundle demo
    """
    from lbx.benchmarks import select
    from lbx.layout import Bundle
    from lbx.report import render
    from lbx.store import Table

    found = select(Bundle(bundle), ["all"])
    columns = ["task", "language", "samples", "metrics"]
    table = Table(columns, [(t.full_name, t.language, t.samples, ", ".join(t.metrics)) for t in found])
    if as_json:
        typer.echo(render.json_text(table))
    else:
        stdout().print(render.rich_table("", render.plain_columns(table)))


def plan(
    *,
    bundle: BundleDir,
    model: Model,
    task_names: Tasks,
    backend: BackendName = None,
    limit: Limit = None,
    iterations: Iterations = 1,
    max_prompt_tokens: MaxPromptTokens = None,
    max_new_tokens: MaxNewTokens = None,
    chat: Chat = True,
    as_json: AsJson = False,
) -> None:
    """Count what a run would read, without computing anything: tokens, shared prefixes, truncation.

    Example: lbx plan --bundle demo --model demo-hf --tasks needle
    """
    from lbx.engine.plan import TaskPlan
    from lbx.engine.plan import plan as make_plan
    from lbx.engine.settings import RunSettings
    from lbx.report import render
    from lbx.store import Table

    settings = RunSettings(
        iterations=iterations, max_prompt_tokens=max_prompt_tokens, max_new_tokens=max_new_tokens, chat=chat
    )
    loaded = _load(bundle, task_names, model, backend)
    try:
        plans = make_plan(_work(loaded, settings, limit))
    finally:
        loaded.backend.close()
    names = [field.name for field in dataclasses.fields(TaskPlan)]
    table = Table(names, [tuple(getattr(one, name) for name in names) for one in plans])
    if as_json:
        typer.echo(render.json_text(table))
        return
    totals = [sum(getattr(one, name) for one in plans) for name in names[1:-1]]
    shown = [tuple(f"{v:,}" if isinstance(v, int) else v for v in row) for row in table.rows]
    shown.append(("total", *(f"{v:,}" for v in totals), f"{max((p.longest for p in plans), default=0):,}"))
    stdout().print(render.rich_table("Tokens", render.plain_columns(Table(names, shown))))


def run(
    *,
    bundle: BundleDir,
    model: Model,
    task_names: Tasks,
    output: Annotated[Path, typer.Option("--output", "-o", help="The results file; made when missing.")],
    backend: BackendName = None,
    name: Annotated[
        str | None, typer.Option("--run", help="Name of the run; made from model and settings without.")
    ] = None,
    limit: Limit = None,
    iterations: Iterations = 1,
    max_prompt_tokens: MaxPromptTokens = None,
    max_new_tokens: MaxNewTokens = None,
    sampling: Annotated[
        SamplingSource,
        typer.Option("--sampling", help="The benchmark's own temperature, or the model card's sampling."),
    ] = SamplingSource.OFFICIAL,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of sampled answers.")] = 0,
    chat: Chat = True,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Ask samples again that failed in an earlier run.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask a model every sample and write answers and scores to one file. The same command again continues.

    Never touches the network. Exit code 3 means done, but some samples failed.

    Example: lbx run --bundle demo --model demo-hf --tasks needle -o results.duckdb
    """
    from lbx.engine.offline import block_network
    from lbx.engine.runner import Runner
    from lbx.engine.settings import RunSettings
    from lbx.records import Sampling
    from lbx.store import Store

    offline = block_network()
    Store.check(output)  # a model may take minutes to load: what can be refused is refused before
    loaded = _load(bundle, task_names, model, backend)
    settings = RunSettings(
        iterations=iterations,
        max_prompt_tokens=max_prompt_tokens,
        max_new_tokens=max_new_tokens,
        sampling=sampling.value,
        model_sampling=loaded.card.sampling or Sampling(),
        chat=chat,
        seed=seed,
    )
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with Store(output) as store, RunProgress() as progress:
            work = _work(loaded, settings, limit)
            row = _run_row(name, work, offline)
            work = dataclasses.replace(work, run_id=row.run_id)
            done = store.begin_run(row)
            if retry_failed and store.delete_failed(row.run_id):
                done = store.begin_run(row)
            note(f"{row.run_id}: {work.total:,} samples of {len(work.tasks)} tasks; {offline}")
            outcome = Runner(work, store, done, progress).run()
    except _TerminatedError:
        raise InterruptedByUserError(f"Terminated. Every answer so far is in {output}.", exit_code=143) from None
    except KeyboardInterrupt:
        raise InterruptedByUserError(f"Interrupted. Every answer so far is in {output}.") from None
    finally:
        loaded.backend.close()
    _finish(row.run_id, output, outcome, as_json=as_json)


def score(results: Results, as_json: AsJson = False) -> None:
    """Score stored outputs again with this lbx's metrics; older metric versions stay beside the new one.

    Example: lbx score results.duckdb
    """
    from lbx.benchmarks import BENCHMARKS
    from lbx.engine.scoring import rescore
    from lbx.store import Store

    if not results.is_file() or not results.stat().st_size:  # opening it for writing would make it one
        raise LbxError(f"There is no results file at {results}.", fix="It is what `lbx run -o FILE` writes.")
    with Store(results) as store:
        scored = rescore(store, BENCHMARKS)
    typer.echo(json.dumps({"scored": scored}) if as_json else f"{scored:,} outputs scored in {results}")


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM, which cluster schedulers send before they kill: the run ends as for Ctrl-C."""


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _TerminatedError


@dataclasses.dataclass(frozen=True, slots=True)
class _Loaded:
    bundle: Bundle
    tasks: list[Task]
    card: ModelCard
    backend: Backend


def _load(folder: Path, task_names: list[str], model: str, backend: str | None) -> _Loaded:
    """Bundle, tasks, model: in this order, because the first two cost nothing to refuse."""
    from lbx.backends import load, resolve_model
    from lbx.benchmarks import select
    from lbx.layout import Bundle

    bundle = Bundle(folder)
    tasks = select(bundle, [part.strip() for name in task_names for part in name.split(",") if part.strip()])
    card = resolve_model(model, backend=backend, bundle=bundle)
    return _Loaded(bundle, tasks, card, load(card, bundle=bundle, debug=bool(os.environ.get("LBX_DEBUG"))))


def _work(loaded: _Loaded, settings: RunSettings, limit: int | None) -> Work:
    """Everything but the run's name, which needs the settings first."""
    from lbx.benchmarks import BENCHMARKS
    from lbx.engine.work import Work
    from lbx.prompts import ChatTemplate, Prompter

    tokenizer = loaded.backend.tokenizer
    source = loaded.card.chat.choose(tokenizer.chat_template) if settings.chat else None
    template = (
        ChatTemplate(
            source,
            bos_token=tokenizer.bos_token,
            eos_token=tokenizer.eos_token,
            kwargs=loaded.card.chat.kwargs,
        )
        if source
        else None
    )
    prompter = Prompter(
        tokenizer,
        context_window=loaded.backend.info.context_window,
        template=template,
        max_prompt_tokens=settings.max_prompt_tokens,
        max_new_tokens=settings.max_new_tokens,
    )
    return Work(
        run_id="",
        bundle=loaded.bundle,
        tasks=loaded.tasks,
        benchmarks=BENCHMARKS,
        backend=loaded.backend,
        prompter=prompter,
        settings=settings,
        limit=limit,
    )


def _run_row(name: str | None, work: Work, offline: str) -> RunRow:
    """The run's row. Tasks and limit are no part of its identity, so a run can be extended to more of them."""
    from lbx import __version__
    from lbx.records import canonical_json, sha256_text
    from lbx.store import RunRow

    info = work.backend.info
    settings = {**work.settings.to_json(), "context_window": info.context_window}
    settings |= {f"backend.{name}": value for name, value in info.settings.items()}
    digest = work.bundle.digest
    identity = sha256_text(canonical_json([info.model, info.name, digest, settings]))[:8]
    return RunRow(
        run_id=name or f"{info.model}-{info.name}-{identity}",
        model=info.model,
        backend=info.name,
        backend_version=info.version,
        benchmark_versions={b: work.benchmarks[b].metric_version for b in {t.benchmark for t in work.tasks}},
        bundle_digest=digest,
        settings=settings,
        hardware={**info.hardware, "network": offline},
        lbx_version=__version__,
    )


def _finish(run_id: str, output: Path, outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"run_id": run_id, "results": str(output), **dataclasses.asdict(outcome)}))
    else:
        found = f", {outcome.found:,} found done" if outcome.found else ""
        typer.echo(f"{run_id}: {outcome.answered:,} answered, {outcome.failed:,} failed{found}; results in {output}")
    if outcome.failures:
        note(f"Why they failed: lbx report {output} failures")
        raise typer.Exit(_EXIT_SOME_FAILED)
