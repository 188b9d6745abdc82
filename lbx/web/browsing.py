"""Pages of `lbx browse`: the answers of a results file, as a list and one by one.

Each page opens the file for reading and closes it: writers are not blocked, and pages show new answers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lbx.base.errors import LbxError
from lbx.base.layout import Bundle
from lbx.base.records import sha256_text
from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.base.benchmark import needs_model
from lbx.report.labels import headline, progress
from lbx.store import Store
from lbx.store.answers import (
    LISTED,
    AnswerFilter,
    StoredAnswer,
    answer_at,
    count_answers,
    list_answers,
    opinion_words,
    opinions,
)
from lbx.store.runs import run_names
from lbx.store.sessions import progress_of_runs
from lbx.web.documents import Documents
from lbx.web.pages import page, parse_number, refusal_page

PAGE_SIZE = 50
"""Answers per page of the list."""
_PROMPTS_KEPT = 16
_FILTERS = ("run", "task", "mark", "least", "below", "q")
_HASH_REMARKS = {
    True: "This is the prompt that was answered: the hashes match.",
    False: "This is NOT the prompt that was answered: the hashes differ.",
    None: "The results file has no hash to compare it with.",
}

PromptBuilder = Callable[[StoredAnswer], Sequence[Mapping[str, Any]]]
"""Rebuilds an answer's prompts: ``text``, ``prompt_sha256``, ``error`` of each step. Raises LbxError."""


class BrowsingPages:
    """Routes of a results file's pages.

    Args:
        bundle: Bundle with the documents; None shows no documents.
        prompts: Rebuilds an answer's prompts; None if that is not possible.
        runs, tasks: Runs and tasks to show; () for all.
    """

    def __init__(
        self,
        results: Path,
        *,
        bundle: Bundle | None = None,
        prompts: PromptBuilder | None = None,
        runs: Sequence[str] = (),
        tasks: Sequence[str] = (),
    ) -> None:
        self._results, self._bundle, self._make_prompts = results, bundle, prompts
        self._runs, self._tasks = runs, tasks
        self._prompts: OrderedDict[str, str] = OrderedDict()
        self._documents = Documents(self._document_text)

    @property
    def routes(self) -> list[BaseRoute]:
        return [Route("/", self._list), Route("/answer", self._answer), *self._documents.routes]

    def _store(self) -> Store:
        return Store(self._results, allow_writer=True)

    # Texts for the pane

    def _document_text(self, key: str) -> str | None:
        if key in self._prompts:
            return self._prompts[key]
        if self._bundle is None:
            return None
        with self._store() as store:
            names = store.query(
                "SELECT benchmark, task, min(sample_id) FROM samples WHERE context_sha256 = ? GROUP BY ALL", [key]
            ).rows
        for benchmark, task, _ in names:
            family = BENCHMARKS[benchmark]
            if needs_model(family):  # its documents are in the prompts, which are made with the run's model
                continue
            if any(candidate.name == task for candidate in family.tasks(self._bundle, [task])):
                for sample in family.samples(self._bundle, task):
                    if sha256_text(sample.context) == key:
                        return sample.context
        return None

    def _rebuild_prompt(self, answer: StoredAnswer) -> tuple[str, str]:
        """Return the prompt's key for the pane and a remark on its hash, or "" and the reason for a failure."""
        if self._make_prompts is None:
            return "", "Rebuilding a prompt needs the bundle. Pass --bundle DIR."
        try:
            prompts = self._make_prompts(answer)
        except LbxError as error:
            return "", str(error)
        steps = [str(prompt.get("text") or prompt["error"]) for prompt in prompts]
        text = steps[0] + "".join(f"\n\n[step {step}]\n{output}" for step, output in enumerate(steps[1:], 2))
        key = f"prompt-{sha256_text(text)[:24]}"
        self._prompts[key] = text
        while len(self._prompts) > _PROMPTS_KEPT:
            self._prompts.popitem(last=False)
        sent = answer.values["prompt_sha256"]
        return key, _HASH_REMARKS[prompts[0].get("prompt_sha256") == sent if sent else None]

    # The list

    def _choice(self, request: Request) -> AnswerFilter:
        query = request.query_params
        runs = [query["run"]] if query.get("run") else list(self._runs)
        tasks = [query["task"]] if query.get("task") else list(self._tasks)
        mark = query.get("mark", "")
        return AnswerFilter(
            runs=runs,
            tasks=tasks,
            mark=mark if mark in (*LISTED, "any") else "",
            at_least=_share(query.get("least", "")),
            below=_share(query.get("below", "")),
            text=query.get("q", "").strip(),
        )

    def _list(self, request: Request) -> Response:
        choice = self._choice(request)
        first = parse_number(request.query_params.get("from", "")) or 1
        with self._store() as store:
            run_progress = progress(store, self._runs)
            count = count_answers(store, choice)
            rows = list_answers(store, choice, PAGE_SIZE, skip=first - 1).dicts()
            runs = self._runs or run_names(store)
            tasks = self._tasks or [
                row[0]
                for row in store.query("SELECT DISTINCT benchmark || '/' || task FROM generations ORDER BY ALL").rows
            ]
        query = _filter_values(request)
        return page(
            "answers.html",
            root=request.scope["root_path"],
            told=f"The file {store.snapshot}." if store.snapshot else "",
            file=headline(self._results.name, run_progress),
            document=None,
            has_document=None,
            found=count,
            first=first,
            step=PAGE_SIZE,
            rows=[{**row, "link": _link("/answer", query, at=first + index)} for index, row in enumerate(rows)],
            before=_link("/", query, **{"from": max(1, first - PAGE_SIZE)}) if first > 1 else "",
            after=_link("/", query, **{"from": first + PAGE_SIZE}) if first + PAGE_SIZE <= count else "",
            asked={name: query.get(name, "") for name in _FILTERS},
            choices={"run": runs, "task": tasks, "mark": [*LISTED, "any"]},
        )

    # An answer

    def _answer(self, request: Request) -> Response:
        choice, query = self._choice(request), _filter_values(request)
        at = parse_number(request.query_params.get("at", "")) or 1
        with self._store() as store:
            going_on = progress_of_runs(store)
            count = count_answers(store, choice)
            answer = answer_at(store, choice, at - 1)
            judged, rated = opinions(store, answer) if answer else ([], [])
        if answer is None:
            return refusal_page("This answer does not exist.", f"The list has {count:,} answers.", status=404)
        shows_prompt = request.query_params.get("show") == "prompt"
        digest = answer.values["context_sha256"]
        key, compared = self._rebuild_prompt(answer) if shows_prompt else ("", "")
        document = self._documents.get(key or digest or "")
        return page(
            "answer.html",
            root=request.scope["root_path"],
            told=f"The file {store.snapshot}." if store.snapshot else "",
            going_on=going_on.get(answer.run_id, ""),
            answer=answer,
            row=answer.values,
            marks=answer.marks,
            judged=[{**opinion, "said": opinion_words(opinion)} for opinion in judged],
            rated=[{**opinion, "said": opinion_words(opinion)} for opinion in rated],
            at=at,
            found=count,
            back=_link("/", query, **{"from": (at - 1) // PAGE_SIZE * PAGE_SIZE + 1}),
            before=_link("/answer", query, at=at - 1) if at > 1 else "",
            after=_link("/answer", query, at=at + 1) if at < count else "",
            other=_link("/answer", query, at=at, **({} if shows_prompt else {"show": "prompt"})),
            shows_prompt=shows_prompt,
            compared=compared,
            document=document,
            has_document=request.headers.get("lbx-document"),
        )


def _filter_values(request: Request) -> dict[str, str]:
    return {name: value for name in _FILTERS if (value := request.query_params.get(name, "").strip())}


def _link(path: str, query: Mapping[str, str], **more: object) -> str:
    return f"{path}?{urlencode({**query, **more})}"


def _share(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
