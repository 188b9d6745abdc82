"""Commands ``lbx show``, ``lbx browse`` and ``lbx prompts``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.base.errors import LbxError, UsageError
from lbx.base.layout import Bundle
from lbx.base.outputs import whole_file
from lbx.benchmarks.judge import Judging
from lbx.cli.measure_options import Prompts
from lbx.cli.output import answer_json, answer_text, note
from lbx.cli.pages import of_web, open_site
from lbx.cli.read_options import Browse, Show
from lbx.cli.tables import show_table
from lbx.report import render
from lbx.report.labels import headline, labels, progress
from lbx.report.sheets import plain_columns
from lbx.running.judge_spec import spec_of
from lbx.running.sent_prompts import SentPrompt, rebuilt
from lbx.running.sent_prompts import prompts as sent_prompts
from lbx.scoring.reading import say_moment
from lbx.scoring.scored import named
from lbx.store import Store, Table
from lbx.store.answers import (
    LISTED,
    Choice,
    StoredAnswer,
    find_answers,
    list_answers,
    opinion_words,
    opinions,
    patterns,
    tasks_named,
)
from lbx.store.runs import runs_named
from lbx.store.sessions import newest_spec, progress_of_runs

if TYPE_CHECKING:
    from lbx.web.browsing import BrowsingPages

_SHOWN = 2000
"""Number of characters of a text shown without --full, half from each end."""


def show_prompts(options: Prompts) -> None:
    spec, output = options.spec, options.output
    prompts = sent_prompts(spec, first=output is None and spec.choice.everything)
    if output is not None:
        note(f"{_write(output, prompts):,} prompts in {output}")
        return
    for sent in prompts:
        answer_text("\n".join(_lines_of_prompt(sent, full=options.full)) + "\n\n")


def _write(path: Path, prompts: Iterator[SentPrompt]) -> int:
    """Write prompts to a new file atomically, and return their number."""
    if path.exists():
        raise UsageError(f"{path} already exists.", fix="Choose another name, or remove the file.")
    with whole_file(path) as file:
        return sum(bool(file.write(json.dumps(sent.to_json()).encode() + b"\n")) for sent in prompts)


def _lines_of_prompt(sent: SentPrompt, *, full: bool) -> Iterator[str]:
    yield f"== {sent.key}" + (f", step {sent.step + 1}" if sent.step else "")
    if sent.read is None:
        yield f"cannot be sent: {sent.error}"
        return
    request, sampling = sent.read.request, sent.read.request.sampling
    cut = f", {request.tokens_cut:,} of {request.original_tokens:,} cut" if request.truncated else ""
    yield f"tokens    {len(request.token_ids):,}{cut}; {sent.shared_tokens:,} shared with the previous prompt"
    reasoning = f", {request.thinking_tokens:,} for reasoning" if request.thinking_tokens else ""
    least = f", at least {request.min_new_tokens}" if request.min_new_tokens else ""
    yield f"answer    at most {request.max_new_tokens:,} tokens{reasoning}{least}"
    stops = [repr(stop) for stop in request.stop] + [f"the token {stop!r}" for stop in request.stop_tokens]
    yield f"stops at  {', '.join(['end of sequence', *stops])}"
    chosen = f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}, top_k {sampling.top_k}"
    yield f"sampling  {chosen}, min_p {sampling.min_p:g}" if sampling.temperature else "sampling  greedy"
    if request.system_place:
        yield f"system    {_SYSTEM[request.system_place]}"
    yield f"source    {sent.prompt.source}"
    yield f"sha256    {request.prompt_sha256}"
    mark = f"\n[... {request.tokens_cut:,} tokens are cut here ...]\n"
    yield "text"
    yield _shown(sent.read.text, full=full, cut_at=sent.read.cut_at, mark=mark)


_SYSTEM = {"message": "a separate message", "text": "at the beginning of the text"}


def _shown(text: str, *, full: bool, cut_at: int | None = None, mark: str = "") -> str:
    """Frame a text by lines and shorten the middle of long parts; the text on both sides of a cut is kept."""
    parts = [text] if cut_at is None else [text[:cut_at], text[cut_at:]]
    return "\n".join(["---", mark.join(part if full else _ends(part) for part in parts), "---"])


def _ends(text: str) -> str:
    half = _SHOWN // 2
    if len(text) <= _SHOWN:
        return text
    return f"{text[:half]}\n[... {len(text) - _SHOWN:,} characters, see --full ...]\n{text[-half:]}"


def show_answers(options: Show) -> None:
    as_json = options.as_json
    with Store(options.results, beside_writer=True) as store:
        say_moment(store)
        runs = runs_named(store, options.runs)
        how_far = progress(store, runs)
        if options.sample is None:
            if options.mark not in ("", "any", *LISTED):
                raise UsageError(f"There is no mark {options.mark!r}.", fix=f"Marks: any, {', '.join(LISTED)}.")
            choice = Choice(runs, patterns=patterns(options.tasks), mark=options.mark)
            table = list_answers(store, choice, options.rows)
            if as_json:
                answer_json(render.json_pieces(table.columns, table.rows))
            elif not table.rows:
                note(f"{options.results} contains no answer that matches --run, --tasks and --mark.")
            else:
                rows = [tuple(f"{v:.4f}" if isinstance(v, float) else v for v in row) for row in table.rows]
                show_table(headline("Answers", how_far), plain_columns(Table(table.columns, rows)))
            return
        answers = find_answers(store, options.sample, runs)
        going_on = progress_of_runs(store)
        verdicts = [opinions(store, answer) for answer in answers]
        names = labels(named(store).values())
    shown = [
        _told(answer, options) | {"judgements": judged, "ratings": rated}
        for answer, (judged, rated) in zip(answers, verdicts, strict=True)
    ]
    if as_json:
        answer_json(json.dumps(shown, ensure_ascii=False, default=str))
        return
    for answer, one in zip(answers, shown, strict=True):
        head = ", ".join(filter(None, (f"== {answer.key}, run {answer.run_id}", going_on.get(answer.run_id))))
        answer_text("\n".join([head, *_lines_of_answer(answer, one, names, full=options.full)]) + "\n\n")


def _told(answer: StoredAnswer, options: Show) -> dict[str, Any]:
    row = {**answer.values, "marks": answer.marks, "scores": list(answer.scores)}
    if options.prompt:
        prompts = rebuilt_prompts(options.results, answer, options.bundle, options.model)
        row["prompts"] = [sent.to_json() for sent in prompts]
        rebuilt, sent = row["prompts"][0].get("prompt_sha256"), answer.values["prompt_sha256"]
        row["prompt_is_the_same"] = rebuilt == sent if sent else None
    return row


def rebuilt_prompts(
    results: Path, answer: StoredAnswer, bundle: Path | None, model: str | None
) -> Sequence[SentPrompt]:
    """Rebuild an answer's prompts from the bundle and the model's tokenizer.

    Raises:
        LbxError: The bundle or the model no longer exists.
    """
    spec = spec_of(newest_spec(results, answer.run_id), str(results))
    sources = replace(spec, bundle=str(bundle or spec.bundle), model=model or spec.model)
    try:
        outputs = [step["output"] for step in answer.values.get("steps") or ()]
        return rebuilt(sources, answer.run_id, answer.key, outputs, results)
    except LbxError as error:
        error.cause = f"The prompt cannot be rebuilt: {error.cause}"
        error.fix = error.fix or "Pass the current locations of bundle and model: --bundle DIR, --model MODEL."
        raise


def _lines_of_answer(
    answer: StoredAnswer, fields: dict[str, Any], names: Mapping[str, str], *, full: bool
) -> Iterator[str]:
    row = answer.values
    if answer.key.benchmark == Judging.name:
        yield from _judged(row["meta"])
    choices = [("choice", f"{letter}. {text}") for letter, text in answer.choices.items()]
    references = [("reference", str(one)) for one in row["references"]]
    for name, text in (("question", row["question"]), *choices, *references):
        yield f"{name:<10}{text if full else _ends(text)}"
    if isinstance(row["meta"], dict) and (expression := row["meta"].get("extract")):
        yield f"extract   {expression}"
    for step in row.get("steps") or ():
        yield from _text("first answer", step.get("output"), full=full)
    yield from _text("reasoning", row.get("reasoning"), full=full)
    yield from _text("output", row["output"], full=full)
    if row["error"]:
        yield f"error     {row['error']}"
    for score in answer.scores:
        notes = [str(score[name]) for name in ("error", "partial") if score[name]]
        taken = f", extracted {score['extracted']!r}" if score["extracted"] else ", no answer extracted"
        extracted = "" if score["extracted"] is None else taken
        yield f"score     {score['metric']} {score['score']:.4f}{extracted}{''.join(f' ({one})' for one in notes)}"
    for mark in answer.marks:
        yield f"mark      {mark}"
    for one in (*fields["judgements"], *fields["ratings"]):
        yield _opinion(one, names, full=full)
    counted = [f"{row[name]:,} {label}" for name, label in _COUNTS.items() if row[name] is not None]
    yield f"tokens    {', '.join(counted) or 'unknown'}"
    yield f"prompt    {row['prompt_sha256'] or 'unknown'}, from {row['prompt_source'] or 'elsewhere'}"
    if "prompts" in fields:
        yield from _lines_of_rebuilt(fields, full=full)


def _opinion(one: Mapping[str, Any], names: Mapping[str, str], *, full: bool) -> str:
    judge = one.get("judge_id")
    who = f"judge     {names.get(judge, judge)}" if judge else f"rater     {one['rater']} ({one['set_id']})"
    words = opinion_words(one) or one.get("state") or "no verdict"
    beside = f", compared with {names.get(one['other'], one['other'])}" if one["other"] else ""
    order = one.get("answer_first")
    place = "" if order is None else f", shown {'first' if order == one['is_subject'] else 'second'}"
    text = one.get("output") or one.get("error") or one.get("comment")
    return f"{who}: {words}{beside}{place}" + (f": {text if full else _ends(text)}" if text else "")


def _judged(meta: Any) -> Iterator[str]:
    of_judge = meta if isinstance(meta, dict) else {}
    if of_judge.get("run_id") and of_judge.get("sample_id"):
        question = "/".join(str(of_judge.get(name)) for name in ("benchmark", "task", "sample_id"))
        runs = [str(of_judge[name]) for name in ("run_id", "against_run_id") if of_judge.get(name)]
        yield f"judged    {question}, {' against '.join(runs)}"


_SAME = {
    True: "identical to the prompt of this answer",
    False: "NOT identical to the prompt of this answer",
    None: "not compared: no stored hash",
}


_COUNTS = {"prompt_tokens": "in the prompt", "cached_tokens": "of them cached", "output_tokens": "generated"}


def _text(name: str, text: str | None, *, full: bool) -> Iterator[str]:
    if text is not None:
        yield name
        yield _shown(text, full=full)


def _lines_of_rebuilt(fields: dict[str, Any], *, full: bool) -> Iterator[str]:
    yield f"rebuilt   {_SAME[fields['prompt_is_the_same']]}"
    for one in fields["prompts"]:
        mark = f"\n[... {one.get('tokens_cut', 0):,} tokens are cut here ...]\n"
        yield f"step {one['step'] + 1}"
        yield _shown(one.get("text") or str(one["error"]), full=full, cut_at=one.get("cut_at"), mark=mark)


def browse(options: Browse) -> None:
    pages_of: type[BrowsingPages] = of_web("web.browsing:BrowsingPages")
    results = options.results
    with Store(results, beside_writer=True) as store:
        say_moment(store)
        runs, tasks = runs_named(store, options.runs), tasks_named(store, options.tasks)
    opened = Bundle(options.bundle) if options.bundle else None

    def prompts(answer: StoredAnswer) -> Sequence[Mapping[str, Any]]:
        return [sent.to_json() for sent in rebuilt_prompts(results, answer, options.bundle, options.model)]

    pages = pages_of(results, bundle=opened, prompts=prompts, runs=runs, tasks=tasks)
    if opened is None:
        note("Without --bundle, the pages show no documents.")
    open_site(pages.routes, ["you"], options)
