"""What ``lbx import``, ``lbx export`` and ``lbx metadata`` do."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.benchmarks import judge_forms, official_judges, rating_forms
from lbx.cli.output import RunBar, answer, answer_json, note, notes
from lbx.cli.rating_files import export_ratings, import_ratings
from lbx.exchange import export as export_runs
from lbx.exchange import (
    export_judged,
    export_judgements,
    understand,
    understand_judgements,
    write_judgements,
    write_predictions,
)
from lbx.planning.option import key_values
from lbx.running.rescoring import score_with
from lbx.store import Store, is_results_file
from lbx.store.runs import metadata as held
from lbx.store.runs import set_metadata


def import_files(
    *,
    file_format: str,
    path: Path,
    output: Path,
    model: str | None,
    name: str | None,
    e: bool,
    bundle: Path | None,
    set_id: str | None,
    rater: str | None,
    metadata: list[str] | None,
    workers: int,
    as_json: bool,
) -> None:
    """See ``lbx import``."""
    if form := rating_forms().get(file_format):
        import_ratings(form, path, output, rater=rater, set_id=set_id, bundle=bundle, as_json=as_json)
        return
    Store.check(output)
    opened = Bundle(bundle) if bundle else None
    # Before the results file is opened, so that none is made for predictions that cannot be taken.
    told = key_values("--metadata", metadata or ())
    if file_format in judge_forms():
        _import_judge(file_format, path, output, model=model, name=name, bundle=opened, metadata=told, as_json=as_json)
        return
    understood = understand(file_format, path, model=model or "", run_id=name, bundle=opened, e=e, metadata=told)
    with Store(output) as store:
        done = write_predictions(store, understood)
        _score_import(store, done.run_id, workers)
    if as_json:
        answer_json(json.dumps({"results": str(output), **dataclasses.asdict(done)}))
        return
    failed = f", {done.failed:,} of them errors" if done.failed else ""
    failed += f", {done.unmatched:,} of them not in the bundle" if done.unmatched else ""
    rows = sum(done.counts.values())
    tasks = f"{len(done.counts)} task{'s' if len(done.counts) > 1 else ''}"
    answer(f"{done.run_id}: {rows:,} rows of {tasks}{failed}; results in {output}")
    notes(done.notes)
    if done.ignored:
        note(f"Not predictions, and left alone: {', '.join(done.ignored)}")


def _import_judge(
    form: str,
    path: Path,
    output: Path,
    *,
    model: str | None,
    name: str | None,
    bundle: Bundle | None,
    metadata: Mapping[str, str],
    as_json: bool,
) -> None:
    """Raises UsageError, BundleError, StoreError: see ``lbx.exchange.write_judgements``."""
    read = understand_judgements(form, path, model=model, run_id=name, bundle=bundle, metadata=metadata)
    with Store(output) as store:
        done = write_judgements(store, read)
        for run in done:
            _score_import(store, run.run_id, 1)
    if as_json:
        answer_json(json.dumps({"results": str(output), "runs": [dataclasses.asdict(run) for run in done]}))
        return
    for run in done:
        failed = f", {run.failed:,} of them errors" if run.failed else ""
        answer(f"{run.run_id}: {run.rounds:,} rounds about {' and '.join(run.compared)}{failed}; results in {output}")
        for line in run.numbers:
            answer(line)
        notes(run.notes)


def _score_import(store: Store, run_id: str, workers: int) -> None:
    """Score a run that was just imported, and close it."""
    status = "interrupted"
    try:
        with RunBar() as bar:
            score_with(store, None, run_ids=[run_id], workers=workers, listener=bar)
        status = "done"
    finally:
        store.finish_run(run_id, status)


def export_files(
    *,
    file_format: str,
    results: Path,
    runs: list[str] | None,
    output: Path,
    set_id: str | None,
    rater: str | None,
    bundle: Path | None,
    documents: Path | None,
    official: bool,
    judged: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """See ``lbx export``."""
    if form := rating_forms().get(file_format):
        export_ratings(
            form,
            results,
            output,
            set_id=set_id,
            rater=rater,
            bundle=bundle,
            documents=documents,
            force=force,
            as_json=as_json,
        )
        return
    judgements = file_format in judge_forms()
    if not runs:
        listed = as_command("lbx", "sql", results, "SELECT run_id, model FROM runs")
        raise UsageError("No run is named.", fix="Name it with --run.", command=listed)
    if official and judgements:
        raise UsageError("--results is for answers: judgements bring their numbers along.", fix="Leave it out.")
    if judged and (file_format not in official_judges() or official or not bundle):
        whose = " or ".join(official_judges())
        raise UsageError(f"--judged is for {whose}, needs --bundle, and goes without --results.", fix="See --help.")
    with Store(results, read_only=True) as store:
        if judgements:
            opened = Bundle(bundle) if bundle else None
            done = export_judgements(store, file_format, runs, output, bundle=opened, force=force)
        elif judged and bundle:
            done = export_judged(store, judged, runs, Bundle(bundle), output, force=force)
        else:
            done = export_runs(store, file_format, runs, output, results=official, force=force)
        lacking = [text for run in runs for text in _lacking(store, run, file_format)]
    for text in lacking:
        note(text)
    if as_json:
        answer_json(json.dumps(dataclasses.asdict(done), default=str))
        return
    left_out = "".join(f"; left out: {count:,} {why}" for why, count in done.left_out.items())
    files = f"{len(done.files)} file{'s' if len(done.files) > 1 else ''}"
    said = f"{files} made of {done.rows:,} answers" if official else f"{done.rows:,} rows in {files}"
    answer(f"{said} in {output}{left_out}")


def _lacking(store: Store, run: str, benchmark: str) -> Iterator[str]:
    """What a reader of a run's files must know: that it has no end yet, or not every sample."""
    ((status,),) = store.query("SELECT status FROM runs WHERE run_id = ?", [run]).rows
    if status != "done":
        yield f"The run {run} is {status}: its files may lack rows."
    parts = store.query(
        "SELECT task, samples, bundle_samples FROM coverage WHERE run_id = ? AND benchmark = ? "
        "AND samples < bundle_samples ORDER BY ALL",
        [run, benchmark],
    ).rows
    if parts:
        told = ", ".join(f"{task} ({samples:,} of {every:,} samples)" for task, samples, every in parts)
        yield f"The run {run} answered only a part of {told}; the official scorer takes every file to be complete."


def record_metadata(*, results: Path, said: list[str] | None, run: str, as_json: bool) -> None:
    """See ``lbx metadata``."""
    changes = key_values("lbx metadata", said or ())
    only_read = not changes or not is_results_file(results)  # opening what is none for writing would make it one
    with Store(results, read_only=only_read) as store:
        told = set_metadata(store, run, changes) if changes else held(store, run)
    if as_json:
        answer_json(json.dumps(told, ensure_ascii=False))
    else:
        for line in [f"{key}={value}" for key, value in told.items()] or [f"Nothing is recorded about {run}."]:
            answer(line)
