"""Commands ``lbx show``, ``lbx browse`` and ``lbx prompts``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import LbxError, UsageError
from lbx.base.outputs import open_output
from lbx.base.units import format_count
from lbx.cli.measure_options import PromptsOptions
from lbx.cli.output import answer_json, answer_text, note
from lbx.cli.read_options import BrowseOptions, ShowOptions
from lbx.cli.table_output import show_table
from lbx.cli.web_pages import import_web, open_site
from lbx.opinions.judge_spec import spec_of
from lbx.report.format import render
from lbx.report.format.labels import headline, labels, progress
from lbx.report.format.sheets import plain_columns
from lbx.report.format.table_cells import BYTES_NOTE, SCRIPTED
from lbx.results import Store, Table
from lbx.results.file.sessions import newest_spec, progress_of_runs
from lbx.results.file.texts import removal_notice, require_texts
from lbx.results.read.runs import resolve_runs
from lbx.results.read.stored_answers import (
    LISTED,
    AnswerFilter,
    StoredAnswer,
    count_answers,
    find_answers,
    find_opinions,
    list_answers,
    opinion_words,
    resolve_tasks,
    task_patterns,
)
from lbx.results.scoring.reading import log_snapshot
from lbx.results.scoring.score_columns import runs_by_id
from lbx.running.sent_prompts import SentPrompt, rebuild_sent_prompts
from lbx.running.sent_prompts import prompts as sent_prompts

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from lbx.web.browsing import BrowsingPages
    from lbx.web.several import SeveralPages

_MAX_CHARS = 2000
"""Number of characters of a text that are shown without --full, half from each end."""
_WRONG = "wrong"
"""Value of --mark for answers with a score of 0, which is no mark."""


def show_prompts(options: PromptsOptions) -> None:
    spec, output = options.spec, options.output
    prompts = sent_prompts(spec, first=output is None and spec.choice.is_unlimited)
    if output is not None:
        note(f"{_write(output, prompts):,} prompts in {output}")
        return
    answer_text("\n".join(_prompt_lines(sent, full=options.full)) + "\n\n" for sent in prompts)


def _write(path: Path, prompts: Iterator[SentPrompt]) -> int:
    """Write prompts to a new file atomically, or to a device or pipe, and return the number of prompts."""
    if path.is_file() or path.is_dir():
        raise UsageError(f"{path} already exists.", fix="Choose another name, or remove the file.")
    with open_output(path) as file:
        return sum(bool(file.write(json.dumps(sent.to_json()).encode() + b"\n")) for sent in prompts)


def _prompt_lines(prompt: SentPrompt, *, full: bool) -> Iterator[str]:
    yield f"== {prompt.key}" + (f", step {prompt.step + 1}" if prompt.step else "")
    if prompt.prepared_prompt is None:
        yield f"cannot be sent: {prompt.error}"
        return
    request, sampling = prompt.prepared_prompt.request, prompt.prepared_prompt.request.sampling
    cut = f", {request.tokens_cut:,} of {request.original_tokens:,} cut" if request.truncated else ""
    shared = f"{prompt.shared_tokens:,} shared with the previous prompt"
    yield f"{prompt.counted_in:<10}{len(request.token_ids):,}{cut}; {shared}"
    reasoning = f", {request.thinking_tokens:,} for reasoning" if request.thinking_tokens else ""
    least = f", at least {request.min_new_tokens}" if request.min_new_tokens else ""
    yield f"answer    at most {request.max_new_tokens:,} {prompt.counted_in}{reasoning}{least}"
    stops = [repr(stop) for stop in request.stop] + [f"the token {stop!r}" for stop in request.stop_tokens]
    yield f"stops at  {', '.join(['end of sequence', *stops])}"
    parameters = f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}, top_k {sampling.top_k}"
    yield f"sampling  {parameters}, min_p {sampling.min_p:g}" if sampling.temperature else "sampling  greedy"
    if request.system_place:
        yield f"system    {_SYSTEM[request.system_place]}"
    yield f"source    {prompt.prompt.source}"
    yield f"sha256    {request.prompt_sha256}"
    cut_note = f"\n[... {request.tokens_cut:,} tokens are cut here ...]\n"
    yield "text"
    yield _framed_text(prompt.prepared_prompt.text, full=full, cut_at=prompt.prepared_prompt.cut_at, cut_note=cut_note)


_SYSTEM = {"message": "a separate message", "text": "at the beginning of the text"}


def _framed_text(text: str, *, full: bool, cut_at: int | None = None, cut_note: str = "") -> str:
    """Frame a text by lines, and shorten the middle of a long text, but not the text around a cut."""
    parts = [text] if cut_at is None else [text[:cut_at], text[cut_at:]]
    return "\n".join(["---", cut_note.join(part if full else _ends(part) for part in parts), "---"])


def _ends(text: str) -> str:
    half = _MAX_CHARS // 2
    if len(text) <= _MAX_CHARS:
        return text
    return f"{text[:half]}\n[... {len(text) - _MAX_CHARS:,} characters, see --full ...]\n{text[-half:]}"


def show_answers(options: ShowOptions) -> None:
    as_json = options.as_json
    with Store(options.results, allow_writer=True) as store:
        log_snapshot(store)
        _note_removal(store)
        runs = resolve_runs(store, options.runs)
        progress_note = progress(store, runs)
        if options.sample is None:
            if options.mark not in ("", "any", _WRONG, *LISTED):
                marks = ", ".join(("any", _WRONG, *LISTED))
                raise UsageError(f"There is no mark {options.mark!r}.", fix=f"Marks: {marks}.")
            is_wrong = options.mark == _WRONG
            choice = AnswerFilter(
                runs,
                patterns=task_patterns(options.tasks),
                mark="" if is_wrong else options.mark,
                at_most=0.0 if is_wrong else None,
            )
            table, total = list_answers(store, choice, options.rows), count_answers(store, choice)
            if as_json:
                answer_json(render.json_pieces(table.columns, table.rows))
            elif not table.rows:
                note(f"{options.results} contains no answer that matches --run, --tasks and --mark.")
            else:
                rows = [tuple(f"{v:.4f}" if isinstance(v, float) else v for v in row) for row in table.rows]
                show_table(headline("Answers", progress_note), plain_columns(Table(table.columns, rows)))
                if _scripted_runs(store) & {row[0] for row in table.rows}:
                    note(BYTES_NOTE)
            if len(table.rows) < total:
                note(f"{len(table.rows):,} of {format_count(total, 'answer')}; --rows N shows more.")
            return
        answers = find_answers(store, options.sample, runs)
        run_progress = progress_of_runs(store)
        verdicts = [find_opinions(store, answer) for answer in answers]
        names = labels(runs_by_id(store).values())
        scripted = _scripted_runs(store)
    records = [
        _answer_record(answer, options) | {"judgements": judged, "ratings": rated}
        for answer, (judged, rated) in zip(answers, verdicts, strict=True)
    ]
    if as_json:
        answer_json(json.dumps(records, ensure_ascii=False, default=str))
        return
    for answer, record in zip(answers, records, strict=True):
        counted_in = "bytes" if answer.run_id in scripted else "tokens"
        head = ", ".join(filter(None, (f"== {answer.key}, run {answer.run_id}", run_progress.get(answer.run_id))))
        answer_text("\n".join([head, *_answer_lines(answer, record, names, counted_in, full=options.full)]) + "\n\n")


def _scripted_runs(store: Store) -> set[str]:
    return {run for run, row in runs_by_id(store).items() if row["backend"] == SCRIPTED}


def _note_removal(store: Store) -> None:
    """Note that texts were removed from a file. Raises StoreError if the file contains no answers."""
    require_texts(store, "Answers cannot be shown.", answers_suffice=True)
    if notice := removal_notice(store):
        note(notice)


def _answer_record(answer: StoredAnswer, options: ShowOptions) -> dict[str, Any]:
    row = {**answer.values, "marks": answer.marks, "scores": list(answer.scores)}
    row |= {"subject": answer.subject} if answer.subject else {}
    if options.prompt:
        prompts = rebuild_prompts(options.results, answer, options.bundle, options.model)
        row["prompts"] = [sent.to_json() for sent in prompts]
        rebuilt, sent = row["prompts"][0].get("prompt_sha256"), answer.values["prompt_sha256"]
        row["prompt_is_the_same"] = rebuilt == sent if sent else None
    return row


def rebuild_prompts(
    results: Path, answer: StoredAnswer, bundle: Path | None, model: str | None
) -> Sequence[SentPrompt]:
    """Rebuild an answer's prompts from the bundle and the model's tokenizer.

    Raises:
        LbxError: the bundle or the model no longer exists.
    """
    spec = spec_of(newest_spec(results, answer.run_id), str(results))
    sources = replace(spec, bundle=str(bundle or spec.bundle), model=model or spec.model)
    try:
        outputs = [step["output"] for step in answer.values.get("steps") or ()]
        return rebuild_sent_prompts(sources, answer.run_id, answer.key, outputs, results)
    except LbxError as error:
        error.cause = f"The prompt cannot be rebuilt: {error.cause}"
        error.fix = error.fix or "Pass the current locations of bundle and model: --bundle DIR, --model MODEL."
        raise


def _answer_lines(
    answer: StoredAnswer, fields: dict[str, Any], names: Mapping[str, str], counted_in: str, *, full: bool
) -> Iterator[str]:
    row = answer.values
    if judged := answer.subject:
        question = "/".join(judged[name] for name in ("benchmark", "task", "sample_id"))
        runs = [judged[name] for name in ("run_id", "against_run_id") if judged[name]]
        yield f"judged    {question}, {' against '.join(runs)}"
    choices = [("choice", f"{letter}. {text}") for letter, text in answer.choices.items()]
    references = [("reference", str(reference)) for reference in row["references"]]
    earlier = [("earlier", text) for text in answer.earlier_questions]
    for name, text in (("question", row["question"]), *choices, *references, *earlier):
        yield f"{name:<10}{text if full else _ends(text)}"
    if isinstance(row["meta"], dict) and (expression := row["meta"].get("extract")):
        yield f"extract   {expression}"
    for step in row.get("steps") or ():
        yield from _text("earlier answer", step.get("output"), full=full)
    yield from _text("reasoning", row.get("reasoning"), full=full)
    yield from _text("output", row["output"], full=full)
    if row["error"]:
        yield f"error     {row['error']}"
    for score in answer.scores:
        notes = [str(score[name]) for name in ("error", "partial") if score[name]]
        notes += ["loose match"] if score["loose"] else []
        taken = f", extracted {score['extracted']!r}" if score["extracted"] else ", no answer extracted"
        extracted = "" if score["extracted"] is None else taken
        yield (
            f"score     {score['metric']} {score['score']:.4f}{extracted}{''.join(f' ({remark})' for remark in notes)}"
        )
    for mark in answer.marks:
        yield f"mark      {mark}"
    for opinion in (*fields["judgements"], *fields["ratings"]):
        yield _opinion_line(opinion, names, full=full)
    counted = [f"{row[name]:,} {label}" for name, label in _COUNTS.items() if row[name] is not None]
    yield f"{counted_in:<10}{', '.join(counted) or 'unknown'}"
    yield f"prompt    {row['prompt_sha256'] or 'unknown'}, from {row['prompt_source'] or 'elsewhere'}"
    if "prompts" in fields:
        yield from _rebuilt_lines(fields, full=full)


def _opinion_line(opinion: Mapping[str, Any], names: Mapping[str, str], *, full: bool) -> str:
    judge = opinion.get("judge_id")
    who = f"judge     {names.get(judge, judge)}" if judge else f"rater     {opinion['rater']} ({opinion['set_id']})"
    words = opinion_words(opinion) or opinion.get("state") or "no verdict"
    opponent = f", compared with {names.get(opinion['other'], opinion['other'])}" if opinion["other"] else ""
    order = opinion.get("answer_first")
    position = "" if order is None else f", shown {'first' if order == opinion['is_subject'] else 'second'}"
    text = opinion.get("output") or opinion.get("error") or opinion.get("comment")
    return f"{who}: {words}{opponent}{position}" + (f": {text if full else _ends(text)}" if text else "")


_HASH_RESULTS = {
    True: "identical to the prompt of this answer",
    False: "NOT identical to the prompt of this answer",
    None: "not compared: no stored hash",
}


_COUNTS = {"prompt_tokens": "in the prompt", "cached_tokens": "of them cached", "output_tokens": "generated"}


def _text(name: str, text: str | None, *, full: bool) -> Iterator[str]:
    if text is not None:
        yield name
        yield _framed_text(text, full=full)


def _rebuilt_lines(fields: dict[str, Any], *, full: bool) -> Iterator[str]:
    yield f"rebuilt   {_HASH_RESULTS[fields['prompt_is_the_same']]}"
    for prompt in fields["prompts"]:
        cut_note = f"\n[... {prompt.get('tokens_cut', 0):,} tokens are cut here ...]\n"
        yield f"step {prompt['step'] + 1}"
        yield _framed_text(
            prompt.get("text") or str(prompt["error"]), full=full, cut_at=prompt.get("cut_at"), cut_note=cut_note
        )


def browse(options: BrowseOptions) -> None:
    pages_of: type[BrowsingPages] = import_web("web.browsing:BrowsingPages")
    several_of: type[SeveralPages] = import_web("web.several:SeveralPages")
    opened = Bundle(options.bundle) if options.bundle else None

    def routes_of(results: Path, runs: Sequence[str] = (), tasks: Sequence[str] = ()) -> list[BaseRoute]:
        def prompts(answer: StoredAnswer) -> Sequence[Mapping[str, Any]]:
            return [sent.to_json() for sent in rebuild_prompts(results, answer, options.bundle, options.model)]

        return pages_of(results, bundle=opened, prompts=prompts, runs=runs, tasks=tasks).routes

    if len(options.results) == 1 and not options.results[0].is_dir():
        (results,) = options.results
        with Store(results, allow_writer=True) as store:
            log_snapshot(store)
            _note_removal(store)
            routes = routes_of(results, resolve_runs(store, options.runs), resolve_tasks(store, options.tasks))
    elif options.runs or options.tasks:
        raise UsageError("--run and --tasks select answers of one results file.", fix="Name one file, or omit them.")
    else:
        routes = several_of(options.results, routes_of).routes
        find_results: Callable[[Sequence[Path]], Mapping[str, Path]] = import_web("web.several:results_in")
        if not find_results(options.results):
            raise UsageError(
                f"No file below {', '.join(map(str, options.results))} ends with .duckdb.",
                fix="Name a results file, or a folder that has some. `lbx run -o FILE` writes one.",
            )
    if opened is None:
        note("Without --bundle, the pages show no documents.")
    open_site(routes, ["you"], options)
