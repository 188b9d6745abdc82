"""Export of judgements in the format of the official judge's script."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

from lbx.base.commands import as_command
from lbx.base.errors import StoreError, UsageError
from lbx.base.layout import Bundle
from lbx.benchmarks.base.benchmark import row_count
from lbx.benchmarks.base.predictions import file_part
from lbx.benchmarks.base.rubric import Rubric
from lbx.benchmarks.base.sources import fill_format
from lbx.benchmarks.judge import NAME
from lbx.benchmarks.registry import official_judge, official_rubric
from lbx.exchange.exporting import ExportSummary, incomplete_import_error, stored_files, write_files
from lbx.exchange.prediction_files import find_format
from lbx.store import Store
from lbx.store.runs import check_runs

_KEY_COLUMNS = ("benchmark", "task", "sample_id", "run_id", "iteration", "against_run_id", "against_iteration")
_ANSWER = ", ".join(
    f"CASE WHEN {side}.run_id IS NOT NULL AND sha256(coalesce({side}.output, '')) = a.meta->>'{side}_sha256' "
    f"THEN coalesce({side}.output, '') END AS {side}_text"
    for side in ("answer", "against")
)
# Current judgements sort last, so that they replace judgements of answers that have changed since.
_ROUNDS = f"""
    SELECT j.*, a.question, a."references", {_ANSWER}
    FROM judgements j JOIN samples a ON (a.benchmark, a.task, a.sample_id) = ('{NAME}', j.rubric, j.round_id)
    LEFT JOIN generations answer ON (answer.run_id, answer.benchmark, answer.task, answer.sample_id, answer.iteration)
        = (j.run_id, j.benchmark, j.task, j.sample_id, j.iteration)
    LEFT JOIN generations against
        ON (against.run_id, against.benchmark, against.task, against.sample_id, against.iteration)
        = (j.against_run_id, j.benchmark, j.task, j.sample_id, j.against_iteration)
    WHERE j.judge_id = ? AND j.judge_iteration = 0 ORDER BY j.current, a.position
"""  # noqa: S608 (our own names)


def export_judgements(
    store: Store, runs: Sequence[str], directory: Path, *, bundle: Bundle | None = None, force: bool = False
) -> ExportSummary:
    """Write judges' runs as the official judge's files: a file's runs in sequence, imported ones byte for byte.

    Args:
        bundle: source of the prompt of a judge that lbx ran.

    Raises:
        UsageError: a run is unknown or of another benchmark, its prompts cannot be built, or a file already exists.
        BundleError: the bundle lacks the judge's prompt.
        StoreError: the judged answers are missing from the results file or have changed.
        LbxError: the disk is full or the folder cannot be written; no file has changed then.
    """
    files: dict[str, list[str]] = {}
    left_out: Counter[str] = Counter()
    rows = 0
    for run_id in dict.fromkeys(runs):
        check_runs(store, [run_id])
        (run,) = store.query("SELECT * FROM runs WHERE run_id = ?", [run_id]).dicts()
        settings = json.loads(run["settings"])
        if settings.get("imported") == official_judge.JUDGEMENT_FORMAT:
            name, lines = _imported_file(store, run_id, settings)
            new_files = {name: lines}
            rows += len(lines)
        elif "rubric" in settings and "imported" not in settings:
            pairs, missing = _pairs(store, run, _checked_rubric(run_id, settings, bundle))
            new_files = {
                name: [f"{line}\n" for line in (*(pair.line.raw for pair in some), *official_judge.number_lines(some))]
                for name, some in pairs.items()
            }
            rows += sum(map(len, pairs.values()))
            left_out["rounds without their other order"] += missing
        else:
            raise _not_a_judge_error(run_id)
        for name, lines in new_files.items():
            files.setdefault(name, []).extend(lines)
    return ExportSummary(write_files(directory, files, run_names=", ".join(runs), force=force), rows, dict(+left_out))


def _not_a_judge_error(run_id: str) -> UsageError:
    writes = as_command("lbx", "export", official_judge.BENCHMARK, "RESULTS", "--run", "RUN", "--judged", "METRIC")
    return UsageError(
        f"The run {run_id!r} is not a judge's run that can be exported as {official_judge.JUDGEMENT_FORMAT}.",
        fix=f"To export answers for a judge, run: `{writes}`.",
    )


def _imported_file(store: Store, run_id: str, settings: Mapping[str, Any]) -> tuple[str, list[str]]:
    counts = "SELECT count(*), count(source_row) FROM generations WHERE run_id = ? AND benchmark = ?"
    ((rounds, source_rows),) = store.query(counts, [run_id, NAME]).rows
    if "rubric" not in settings:
        raise _not_a_judge_error(run_id)
    files = stored_files(store, run_id, settings)
    if len(files) != 1 or source_rows != files[0].rows or rounds != 2 * source_rows:
        raise incomplete_import_error(store, run_id)
    rows = store.query(
        "SELECT source_row FROM generations WHERE run_id = ? AND source_row IS NOT NULL ORDER BY created_at", [run_id]
    ).rows
    return files[0].name, files[0].lines([text for (text,) in rows])


def _checked_rubric(run_id: str, settings: Mapping[str, Any], bundle: Bundle | None) -> Rubric:
    """Return the official rubric. Raises UsageError if the run used another rubric or a single order."""
    if bundle is None:
        raise UsageError(
            f"The run {run_id!r} was judged by lbx, and the file needs its prompts, which are not stored.",
            fix=f"Pass the bundle with {official_judge.TITLE}'s judge: --bundle DIR.",
        )
    rubric = official_rubric(bundle)
    if settings.get("rubric_sha256") != rubric.sha256 or settings.get("orders") != "both":
        raise UsageError(
            f"The run {run_id!r} did not judge in both orders with the rubric of {official_judge.TITLE}'s "
            "script in this bundle.",
            fix="Such a file contains only verdicts of that rubric; the view `judgements` has all verdicts.",
        )
    return rubric


def _pairs(
    store: Store, run: Mapping[str, Any], rubric: Rubric
) -> tuple[dict[str, list[official_judge.JudgedPair]], int]:
    """Return {file: its rows}, and the number of rounds that lack their reversed order."""
    rounds: dict[tuple[Any, ...], dict[bool, dict[str, Any]]] = {}
    for row in store.query(_ROUNDS, [run["run_id"]]).dicts():
        key = (*(row[name] for name in _KEY_COLUMNS), tuple(row["marks"]))
        if None in key:
            raise StoreError(
                f"{store.path} contains a round of {run['run_id']} that lbx did not write.",
                fix="Use the file as lbx wrote it.",
            )
        rounds.setdefault(key, {})[row["answer_first"] is not False] = row
    # A question with both marks is one round; it takes two rows if questions of both marks were judged.
    asked_marks = {marks[0] for *_, marks in rounds if len(marks) == 1}
    pairs: dict[str, list[official_judge.JudgedPair]] = {}
    complete = [(orders[True], orders[False]) for orders in rounds.values() if len(orders) == 2]
    names = _labels(store, {first[name] for first, _ in complete for name in ("run_id", "against_run_id")})
    for first, second in complete:
        judged, against = names[first["run_id"]], names[first["against_run_id"]]
        pair = _pair(store, rubric, run["model"], (judged, against), first=first, second=second)
        pairs.setdefault(f"{judged}.pred.judge.jsonl", []).extend([pair] * row_count(first["marks"], asked_marks))
    return pairs, len(rounds) - len(complete)


def _labels(store: Store, runs: set[str]) -> dict[str, str]:
    """Name of each run's model in the benchmark's files."""
    answers = find_format(official_judge.BENCHMARK)
    labels = {}
    for run_id, model, settings in store.query("SELECT run_id, model, settings FROM runs").rows:
        if run_id in runs:
            labels[run_id] = file_part(answers.label(model, json.loads(settings)))
    if missing := sorted(runs - labels.keys()):
        raise _no_answers_error(store, missing[0])
    twice = [label for label, times in Counter(labels.values()).items() if times > 1]
    return {run_id: file_part(run_id) if label in twice else label for run_id, label in labels.items()}


def _no_answers_error(store: Store, run_id: str) -> StoreError:
    return StoreError(
        f"{store.path} lacks the judged answers of {run_id}, which are part of the file's prompts.",
        fix="Merge the results file that contains them: lbx merge.",
    )


def _pair(
    store: Store,
    rubric: Rubric,
    judge: str,
    names: tuple[str, str],
    *,
    first: Mapping[str, Any],
    second: Mapping[str, Any],
) -> official_judge.JudgedPair:
    texts = first["answer_text"], first["against_text"]
    for run_id, text in zip((first["run_id"], first["against_run_id"]), texts, strict=True):
        if text is None:
            raise _no_answers_error(store, run_id)
    fields = {"question": first["question"], "reference": "\n".join(json.loads(first["references"])), "document": ""}
    prompt, swapped = (
        "".join(fill_format(rubric.user, {**fields, "a": a, "b": b}, document="document", source=rubric.source))
        for a, b in (texts, texts[::-1])
    )
    answers = [official_judge.NO_ANSWER if row["error"] is not None else row["output"] or "" for row in (first, second)]
    time = second["created_at"].replace(tzinfo=UTC).timestamp()
    return official_judge.make_pair(judge, names, (prompt, swapped), (answers[0], answers[1]), time)
