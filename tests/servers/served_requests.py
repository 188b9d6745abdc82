"""Requests and answers of the backends in these tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from lbx.base.records import Completion, Prompt, Request, SampleKey, Sampling, Truncation
from lbx.engine.batching import complete
from lbx.engine.chat_template import ChatTemplate
from lbx.engine.prompter import Prompter

Answers = dict[tuple[Any, ...], tuple[Any, ...]]


def make_request(backend: Any, text: str, *, kwargs: Mapping[str, object] | None = None, **changes: Any) -> Request:
    """A request for a greedy answer to a user's message, in the template if lbx applies it."""
    source = backend.tokenizer.chat_template
    template = ChatTemplate(source, bos_token="<s>", kwargs=kwargs) if source else None
    prompter = Prompter(backend.tokenizer, context_window=backend.info.context_window, template=template)
    request = prompter.request(SampleKey("t", "t", "1"), Prompt("", text, "", 40, Truncation.REFUSE), Sampling())
    return dataclasses.replace(request, **changes)


def ask(backend: Any, text: str, *, kwargs: Mapping[str, object] | None = None, **changes: Any) -> Completion:
    return complete(backend, make_request(backend, text, kwargs=kwargs, **changes))


def ask_documents(backend: Any, documents: Sequence[str], questions: int) -> dict[tuple[int, int], Completion]:
    """Ask questions about documents, in an order that mixes the documents: (document, question) -> answer."""
    places = [(number, question) for question in range(questions) for number in range(len(documents))]
    requests = [
        make_request(backend, f"{documents[number]} Question {question}: which ship?", max_new_tokens=4)
        for number, question in places
    ]
    requests = [
        dataclasses.replace(request, key=request.key._replace(sample_id=str(place)))
        for place, request in enumerate(requests)
    ]
    completions = {}
    for index, outcome in backend.generate_many(requests):
        assert isinstance(outcome, Completion), outcome
        completions[places[index]] = outcome
    return completions


def read_answers(results: Any) -> Answers:
    """(task, sample, iteration) -> (output, reasoning, prompt tokens, error) of a results file with one run."""
    with duckdb.connect(str(results), read_only=True) as file:
        rows = file.execute(
            "SELECT task, sample_id, iteration, output, reasoning, prompt_tokens, error FROM generations"
        ).fetchall()
    return {tuple(row[:3]): tuple(row[3:]) for row in rows}
