"""Pages of `lbx browse` with one answer, and with all answers to one question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lbx.store.answers import AnswerKey, StoredAnswer, answer_of, answers_to, find_place, opinion_words, opinions
from lbx.store.sessions import progress_of_runs
from lbx.web.answer_list import PAGE_SIZE, PREFIX, ListQuery
from lbx.web.browsing_texts import BrowsingTexts
from lbx.web.pages import page, parse_number
from lbx.web.results_source import ResultsSource, answer_link, question_link, run_labels


def answer_page(source: ResultsSource, texts: BrowsingTexts, request: Request) -> Response:
    """Respond with an answer, named by its run, sample and iteration, and its place in the list of the URL."""
    key = _answer_key(request)
    query = ListQuery.parse(request.query_params, PREFIX)
    with source.connect(request) as (store, values):
        labels = run_labels(store)
        answer = answer_of(store, key)
        if answer is None:
            others = answers_to(store, key.benchmark, key.task, key.sample_id, source.runs)
            return _missing_page(values, key, query, labels, has_question=bool(others))
        place = find_place(store, query.filter(source), query.order(labels), key)
        going_on = progress_of_runs(store).get(key.run_id, "")
        judged, rated = opinions(store, answer)
    shows_prompt = request.query_params.get("show") == "prompt"
    prompt_key, remark = texts.rebuild_prompt(answer) if shows_prompt else ("", "")
    neighbours = (place.previous, place.next) if place else (None, None)
    before, after = ("" if other is None else answer_link(other, query.prefixed) for other in neighbours)
    values["document"] = texts.document(prompt_key or answer.values["context_sha256"])
    return page(
        "answer.html",
        **values,
        answer=answer,
        row=answer.values,
        label=labels.get(key.run_id, key.run_id),
        labels=labels,
        going_on=going_on,
        judged=[{**opinion, "verdict_words": opinion_words(opinion)} for opinion in judged],
        rated=[{**opinion, "verdict_words": opinion_words(opinion)} for opinion in rated],
        place=place,
        back=query.link(**_page_of(place.number)) if place else query.link(),
        before=before,
        after=after,
        other=answer_link(key, {**query.prefixed, **({} if shows_prompt else {"show": "prompt"})}),
        question=question_link(key, query.prefixed),
        link=answer_link(key),
        shows_prompt=shows_prompt,
        remark=remark,
    )


def question_page(source: ResultsSource, texts: BrowsingTexts, request: Request) -> Response:
    """Respond with the answers of all runs to a question, best first, to compare with one of them."""
    key = _answer_key(request)
    query = ListQuery.parse(request.query_params, PREFIX)
    with source.connect(request) as (store, values):
        labels = run_labels(store)
        answers = answers_to(store, key.benchmark, key.task, key.sample_id, source.runs)
    if not answers:
        return _missing_page(values, key, query, labels, has_question=False)
    base = request.query_params.get("against", "")
    columns = sorted((_column(answer, labels, query) for answer in answers), key=lambda column: column["order"])
    first = answers[0]
    values["document"] = texts.document(first.values["context_sha256"])
    return page(
        "question.html",
        **values,
        sample=str(key.sample),
        answer=first,
        columns=columns,
        base=next((column for column in columns if column["name"] == base), None),
        back=query.link(),
        fields={"benchmark": key.benchmark, "task": key.task, "sample": key.sample_id, **query.prefixed},
        link=question_link(key),
    )


def _answer_key(request: Request) -> AnswerKey:
    parameters = request.query_params
    run, benchmark, task, sample = (parameters.get(name, "") for name in ("run", "benchmark", "task", "sample"))
    return AnswerKey(run, benchmark, task, sample, parse_number(parameters.get("iteration", "")))


def _column(answer: StoredAnswer, labels: Mapping[str, str], query: ListQuery) -> dict[str, Any]:
    key = AnswerKey(answer.run_id, *answer.key[:3], answer.key.iteration)
    label = labels.get(answer.run_id, answer.run_id) + (f" #{key.iteration}" if key.iteration else "")
    headline = answer.headline
    return {
        "name": f"{key.iteration}.{key.run_id}",
        "label": label,
        "link": answer_link(key, query.prefixed),
        "output": answer.values["output"] or "",
        "error": answer.values["error"],
        "headline": headline,
        "marks": answer.marks,
        "order": (headline is None, -headline["score"] if headline else 0, label),
    }


def _page_of(number: int) -> dict[str, int]:
    first = (number - 1) // PAGE_SIZE * PAGE_SIZE + 1
    return {"from": first} if first > 1 else {}


def _missing_page(
    values: Mapping[str, Any], key: AnswerKey, query: ListQuery, labels: Mapping[str, str], *, has_question: bool
) -> Response:
    """Explain which part of a link the file does not contain."""
    names: Sequence[tuple[str, str]] = [
        ("run", labels.get(key.run_id, key.run_id)),
        ("task", f"{key.benchmark}/{key.task}" if key.benchmark or key.task else ""),
        ("sample", key.sample_id),
        ("iteration", str(key.iteration) if key.iteration else ""),
    ]
    return page(
        "missing.html",
        status=404,
        **values,
        names=[(name, text) for name, text in names if text],
        back=query.link(),
        question=question_link(key, query.prefixed) if has_question else "",
    )
