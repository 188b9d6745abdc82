"""Commands ``lbx import``, ``lbx export`` and ``lbx score``."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.units import format_count
from lbx.benchmarks.registry import BENCHMARKS, EXPORT_FORMATS, official_judge
from lbx.cli.exchange_options import ExportOptions, ImportOptions, ScoreOptions
from lbx.cli.output import answer, answer_json, note, notes
from lbx.cli.progress import RunBar
from lbx.cli.table_output import show_sheets
from lbx.exchange.exporting import export as export_runs
from lbx.exchange.exporting import write_files
from lbx.exchange.importing import parse_predictions, write_predictions
from lbx.exchange.prediction_files import OPINION_FORMATS
from lbx.exchange.tools.tool_export import export_for_tool
from lbx.opinions import rating_files
from lbx.opinions.answer_files import export_judge_answers
from lbx.opinions.judgement_files import export_judgements, read_judgements, write_judgements
from lbx.opinions.rating_pages import RATING_FORMAT, read_pages
from lbx.options.option import parse_key_values
from lbx.report.query import ReportQuery
from lbx.report.rows.harness import HARNESS, summaries
from lbx.results import Store
from lbx.results.file.texts import removal_notice, require_texts
from lbx.results.read.runs import DONE, only_run, resolve_runs, state_words, states_of_runs
from lbx.results.scoring.aggregation import recompute_completed_samples
from lbx.results.whole.bundle_rules import score_by_bundle
from lbx.results.whole.run_changes import score, score_with


def score_outputs(options: ScoreOptions) -> None:
    if options.threads and not options.embedding:
        raise UsageError("--threads needs an embedding model.", fix="Pass one with --embedding.")
    if options.output is not None:
        _score_by_bundle(options, options.output)
        return
    with RunBar() as bar:
        scored = score(
            options.results,
            runs=options.runs,
            embedding=options.embedding,
            bundle=options.bundle,
            processes=options.processes,
            threads=options.threads,
            listener=bar,
        )
    if options.as_json:
        answer_json(json.dumps({"scored": scored}))
    else:
        answer(f"{scored:,} outputs scored in {options.results}")


def _score_by_bundle(options: ScoreOptions, output: Path) -> None:
    """Score a file's answers by the rules of a bundle, and write them to a new file."""
    bundle = Bundle(options.bundle) if options.bundle else None
    with RunBar() as bar:
        scores = score_by_bundle(
            options.results,
            output,
            bundle,
            runs=options.runs,
            embedding=options.embedding,
            processes=options.processes,
            listener=bar,
        )
    if options.as_json:
        answer_json(json.dumps(scores.to_json()))
        return
    answer(f"{scores.score_count:,} outputs scored in {output} by the rules of {options.bundle}")
    for changes in scores.tasks:
        note(f"{changes.describe_changes()}.")


def import_files(options: ImportOptions) -> None:
    output, file_format = options.output, options.file_format
    if options.strip_reasoning and file_format in OPINION_FORMATS:
        raise UsageError(f"--strip-reasoning applies to answers, and {file_format} has none.", fix="Leave it out.")
    if file_format == RATING_FORMAT:
        import_ratings(options)
        return
    Store.check(output)
    opened = Bundle(options.bundle) if options.bundle else None
    # Checked before the results file is opened, so that invalid predictions do not create a file.
    metadata = parse_key_values("--metadata", options.metadata)
    if file_format == official_judge.JUDGEMENT_FORMAT:
        _import_judge(options, opened, metadata)
        return
    understood = parse_predictions(
        file_format,
        options.path,
        model=options.model_name or "",
        run_id=options.name,
        bundle=opened,
        e=options.e,
        metadata=metadata,
        strip_reasoning=options.strip_reasoning,
    )
    with Store(output) as store:
        done = write_predictions(store, understood)
        _score_import(store, done.run_id, options.processes)
        compared = HARNESS.read(store, ReportQuery(runs=[done.run_id]))
    if options.as_json:
        tasks_of_harness = {"harness": compared.dicts()} if compared.rows else {}
        answer_json(json.dumps({"results": str(output), **dataclasses.asdict(done), **tasks_of_harness}))
        return
    failed = f", {done.failed:,} of them errors" if done.failed else ""
    failed += f", {done.unmatched:,} of them not in the bundle" if done.unmatched else ""
    rows = sum(done.counts.values())
    tasks = format_count(len(done.counts), "task")
    answer(f"{done.run_id}: {format_count(rows, 'row')} of {tasks}{failed}; results in {output}")
    if compared.rows:
        show_sheets(HARNESS.sheets(compared))
    notes(done.notes)
    if done.ignored:
        note(f"Not predictions, and not imported: {', '.join(done.ignored)}")


def _import_judge(options: ImportOptions, bundle: Bundle | None, metadata: Mapping[str, str]) -> None:
    output = options.output
    read = read_judgements(
        options.path, model=options.model_name, run_id=options.name, bundle=bundle, metadata=metadata
    )
    with Store(output) as store:
        done = write_judgements(store, read)
        for run in done:
            _score_import(store, run.run_id, 1)
    if options.as_json:
        answer_json(json.dumps({"results": str(output), "runs": [dataclasses.asdict(run) for run in done]}))
        return
    for run in done:
        failed = f", {run.failed:,} of them errors" if run.failed else ""
        rounds = format_count(run.rounds, "round")
        answer(f"{run.run_id}: {rounds} about {' and '.join(run.compared_runs)}{failed}; results in {output}")
        for line in run.numbers:
            answer(line)
        notes(run.notes)


def _score_import(store: Store, run_id: str, processes: int | None) -> None:
    status = "interrupted"
    try:
        with RunBar() as bar:
            score_with(store, None, run_ids=[run_id], processes=processes, listener=bar)
        status = "done"
    finally:
        store.finish_run(run_id, status)


def export_files(options: ExportOptions) -> None:
    file_format, results, runs, output = options.file_format, options.results, options.runs, options.output
    judged, force = options.judged, options.force
    if file_format == RATING_FORMAT:
        export_ratings(options)
        return
    opened = Bundle(options.bundle) if options.bundle else None
    judgements = file_format == official_judge.JUDGEMENT_FORMAT
    if options.official and judgements:
        raise UsageError("--results applies to answers; judgements contain their own numbers.", fix="Leave it out.")
    if options.official and file_format in EXPORT_FORMATS:
        raise UsageError(f"--results applies to official scorers; {file_format} contains scores.", fix="Leave it out.")
    if judged and (file_format != official_judge.BENCHMARK or options.official or not opened):
        raise UsageError(
            f"--judged works only for {official_judge.BENCHMARK}, needs --bundle, and cannot be combined with "
            "--results.",
            fix="See --help.",
        )
    with Store(results, read_only=True) as store:
        if file_format not in EXPORT_FORMATS:
            require_texts(store, "An export needs answers and references.")
        runs = resolve_runs(store, runs) if runs else (only_run(store, judges=judgements),)
        if judgements:
            done = export_judgements(store, runs, output, bundle=opened, force=force)
        elif judged and opened:
            done = export_judge_answers(store, judged, runs, opened, output, force=force)
        elif file_format in EXPORT_FORMATS:
            done = export_for_tool(store, file_format, runs, output, force=force)
        else:
            done = export_runs(store, file_format, runs, output, results=options.official, force=force)
        lacking = [text for run in runs for text in _lacking(store, run, file_format)]
        if notice := removal_notice(store):
            lacking.append(f"{notice} The export contains numbers only.")
    for text in lacking:
        note(text)
    if options.as_json:
        answer_json(json.dumps(dataclasses.asdict(done), default=str))
        return
    left_out = "".join(f"; left out: {count:,} {why}" for why, count in done.left_out.items())
    files = format_count(len(done.files), "file")
    summary = (
        f"{files} for {format_count(done.rows, 'answer')}"
        if options.official or file_format in EXPORT_FORMATS
        else f"{format_count(done.rows, 'row')} in {files}"
    )
    answer(f"{summary} in {output}{left_out}")


def _lacking(store: Store, run: str, file_format: str) -> Iterator[str]:
    """List warnings for readers of a run's files: the run is unfinished, lacks samples, or a harness asked it."""
    yield from summaries(store, [run])
    if (state := states_of_runs(store)[run]) != DONE:
        yield f"The run {run} {state_words(state)}: its files may lack rows."
    parts = store.query(
        "SELECT task, samples, bundle_samples FROM coverage WHERE run_id = ? AND (benchmark = ? OR ?) "
        "AND samples < bundle_samples ORDER BY ALL",
        [run, file_format, file_format in EXPORT_FORMATS],
    ).rows
    if parts:
        missing = ", ".join(f"{task} ({samples:,} of {every:,} samples)" for task, samples, every in parts)
        official = "the official scorer assumes that every file is complete"
        yield (
            f"The run {run} answered only a part of {missing}; "
            f"{'the files state the counts' if file_format in EXPORT_FORMATS else official}."
        )


def import_ratings(options: ImportOptions) -> None:
    """Import files of L-Eval's rating page into a results file.

    Raises:
        UsageError: a file is malformed, or the rater's name is unknown.
        StoreError: the results file cannot be written, or contains other samples under the same names.
    """
    output = options.output
    Store.check(output)
    opened = Bundle(options.bundle) if options.bundle else None
    files = read_pages(options.path, options.rater)  # before the results file is created
    with Store(output) as store:
        require_texts(store, "Imported ratings have texts.")
        done = rating_files.import_ratings(store, files, bundle=opened, set_id=options.set_id)
        recompute_completed_samples(store, BENCHMARKS)
    if options.as_json:
        means = {key: mean if math.isfinite(mean) else None for key, mean in done.means.items()}
        answer_json(json.dumps({"results": str(output), **dataclasses.asdict(done), "means": means}))
        return
    ratings, questions = format_count(done.ratings, "rating"), format_count(done.questions, "question")
    answer(f"{done.set_id}: {ratings} by {done.rater} of {questions}, in {output}")
    for key, mean in done.means.items():
        answer(f"{key}: {mean}")
    notes(done.notes)


def export_ratings(options: ExportOptions) -> None:
    """Export a rater's ratings as files of L-Eval's rating page.

    Raises:
        UsageError: the set or the rater does not exist, a document is missing, or a file already exists.
    """
    opened = Bundle(options.bundle) if options.bundle else None
    with Store(options.results, read_only=True) as store:
        require_texts(store, "An export needs questions and answers.")
        files = rating_files.export_ratings(
            store, options.set_id, options.rater, bundle=opened, documents=options.documents_file
        )
    pieces = {name: [text] for name, text in files.items()}
    written = write_files(options.output, pieces, run_names=options.rater or "the rater", force=options.force)
    if options.as_json:
        answer_json(json.dumps({"files": [str(path) for path in written]}))
        return
    answer(f"{len(written)} files in {options.output}")
