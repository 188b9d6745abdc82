"""Pages of `lbx browse`, which show a results file: a list of answers, single answers, and the runs' progress.

Each page opens the file for reading and closes it, so that writers are not blocked and pages show new answers.

- the list of answers: filtered, sorted, 50 at a time
- an answer, and all answers to a question, with documents and rebuilt prompts in a pane
- the progress of each run

``ResultsSource`` opens the file, labels the runs, and reports a version that changes with the contents.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from lbx.base.bundle_folder import Bundle
from lbx.base.database import database_files
from lbx.base.errors import LbxError
from lbx.base.records import sha256_text
from lbx.base.units import format_duration
from lbx.benchmarks.base.benchmark import needs_model
from lbx.benchmarks.registry import BENCHMARKS
from lbx.report.format.labels import headline, labels, progress
from lbx.results import Store
from lbx.results.file.sessions import progress_of_runs
from lbx.results.file.snapshots import has_writer
from lbx.results.file.texts import removal_notice
from lbx.results.read.runs import RunState, run_names, run_states
from lbx.results.read.stored_answers import (
    LISTED,
    SORTS,
    AnswerFilter,
    AnswerKey,
    AnswerOrder,
    StoredAnswer,
    answer_of,
    answers_to,
    count_answers,
    find_answer_position,
    find_opinions,
    list_page,
    opinion_words,
)
from lbx.results.scoring.score_columns import runs_by_id
from lbx.web.documents import Documents, SearchableDocument
from lbx.web.pages import page, parse_number, score_text


class ResultsSource:
    """Results file that pages show.

    Args:
        runs, tasks: runs and tasks to show, or () for all.
    """

    def __init__(self, path: Path, runs: Sequence[str] = (), tasks: Sequence[str] = ()) -> None:
        self.path, self.runs, self.tasks = path, runs, tasks

    @contextmanager
    def connect(self, request: Request) -> Iterator[tuple[Store, dict[str, Any]]]:
        """Open the file, or a snapshot of a file that is being written, with the values that all pages show."""
        version = self.version()  # first: a commit during the reading makes the page out of date
        root, site_root = request.scope["root_path"], request.scope.get("app_root_path", "")
        place = root.removeprefix(site_root) if site_root else ""  # prefix of a file among several files
        with Store(self.path, allow_writer=True) as store:
            yield (
                store,
                {
                    "root": root,
                    "path": place,
                    "files": f"{site_root}/" if place else "",
                    "told": "",
                    "snapshot": f"The file {store.snapshot.describe_state()}."
                    if store.snapshot
                    else removal_notice(store),
                    "is_live": store.snapshot is not None,
                    "version": version,
                    "file": headline(self.path.name, progress(store, self.runs)),
                    "has_document": request.headers.get("lbx-document"),
                    "document": None,
                },
            )

    def version(self) -> str:
        """Compute a name of the file's state, which changes with each commit and at the end of the writing process.

        No database is opened.
        """
        states = []
        for part in database_files(self.path):
            with suppress(FileNotFoundError):  # a checkpoint may remove a log at any time
                status = part.stat()
                states.append((part.name, status.st_mtime_ns, status.st_size))
        return sha256_text(f"{states} {has_writer(self.path)}")[:16]


def run_labels(store: Store) -> dict[str, str]:
    """Return {run: label}, also for judges."""
    return labels(runs_by_id(store).values())


def answer_link(key: AnswerKey, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """Build the link to an answer, with more parameters, such as those of the list with the answer."""
    iteration = {"iteration": str(key.iteration)} if key.iteration else {}
    return f"/answer?{urlencode({'run': key.run_id, **_question(key), **iteration, **more})}"


def question_link(key: AnswerKey, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """Build the link to all answers to the question of an answer."""
    return f"/question?{urlencode({**_question(key), **more})}"


def _question(key: AnswerKey) -> dict[str, str]:
    return {"benchmark": key.benchmark, "task": key.task, "sample": key.sample_id}


_MOST_PROMPTS = 16
_HASH_REMARKS = {
    True: "This is the prompt that was answered: the hashes match.",
    False: "This is NOT the prompt that was answered: the hashes differ.",
    None: "The results file has no hash to compare it with.",
}

PromptBuilder = Callable[[StoredAnswer], Sequence[Mapping[str, Any]]]
"""Rebuilds an answer's prompts: ``text``, ``prompt_sha256``, ``error`` of each step. Raises LbxError."""


class BrowsingTexts:
    """Documents and rebuilt prompts that the page shows next to the answers.

    Args:
        read_document: returns a document by hash, or None if it is unknown.
        make_prompts: rebuilds an answer's prompts, or None if that is not possible.
    """

    def __init__(self, read_document: Callable[[str], str | None], make_prompts: PromptBuilder | None) -> None:
        self._make_prompts = make_prompts
        self._prompts: OrderedDict[str, str] = OrderedDict()
        self.documents = Documents(lambda key: self._prompts.get(key) or read_document(key))

    def document(self, key: str | None) -> SearchableDocument | None:
        return self.documents.get(key or "")

    def rebuild_prompt(self, answer: StoredAnswer) -> tuple[str, str]:
        """Rebuild an answer's prompt. Returns the document's key and a remark on the hash, or "" and an error."""
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
        while len(self._prompts) > _MOST_PROMPTS:
            self._prompts.popitem(last=False)
        sent = answer.values["prompt_sha256"]
        return key, _HASH_REMARKS[prompts[0].get("prompt_sha256") == sent if sent else None]


def bundle_document(source: ResultsSource, bundle: Bundle, key: str) -> str | None:
    """Read a document in a bundle by hash. Returns None if the hash is not in the results file."""
    with Store(source.path, allow_writer=True) as store:
        names = store.query(
            "SELECT benchmark, task, min(sample_id) FROM samples WHERE context_sha256 = ? GROUP BY ALL", [key]
        ).rows
    for benchmark, task, _ in names:
        family = BENCHMARKS[benchmark]
        if needs_model(family):  # its documents are in the prompts, which are made with the run's model
            continue
        if any(candidate.name == task for candidate in family.tasks(bundle, [task])):
            for sample in family.samples(bundle, task):
                if sha256_text(sample.context) == key:
                    return sample.context
    return None


PAGE_SIZE = 50
"""Answers per page of the list."""
PREFIX = "list-"
"""Prefix of a list's parameters in the URLs of other pages."""
_FILTERS = ("run", "task", "mark", "least", "most", "q", "judges")
_LONGEST_ID = 20
_COLUMNS = {
    "score": "score",
    "run": "run",
    "sample": "task, sample",
    "question": "question",
    "answer": "answer",
    "reference": "reference",
    "tokens": "tokens",
    "marks": "marks",
}
"""{key of ``SORTS``: heading}"""
_LARGEST_FIRST = ("score", "tokens", "marks")


@dataclass(frozen=True)
class ListQuery:
    """Filters and order of a list, as in the URL.

    Attributes:
        values: parameters in the URL: filters, and "sort", the name of an order, with "-" before a descending order.
    """

    values: Mapping[str, str]

    @classmethod
    def parse(cls, parameters: Mapping[str, str], prefix: str = "") -> ListQuery:
        """Parse the parameters of a list, which begin with ``prefix``. Unknown parameters are ignored."""
        names = (*_FILTERS, "sort")
        return cls({name: value for name in names if (value := parameters.get(prefix + name, "").strip())})

    @property
    def prefixed(self) -> dict[str, str]:
        """Parameters for the URL of another page, with ``PREFIX``."""
        return {PREFIX + name: value for name, value in self.values.items()}

    def link(self, **changes: object) -> str:
        """Build the link to the list, with changed or additional parameters."""
        values = {name: value for name, value in {**self.values, **changes}.items() if value != ""}
        return f"/?{urlencode(values)}" if values else "/"

    def filter(self, source: ResultsSource) -> AnswerFilter:
        values = self.values
        mark = values.get("mark", "")
        return AnswerFilter(
            runs=[values["run"]] if "run" in values else list(source.runs),
            tasks=[values["task"]] if "task" in values else list(source.tasks),
            mark=mark if mark in (*LISTED, "any") else "",
            at_least=_parse_percent(values.get("least", "")),
            at_most=_parse_percent(values.get("most", "")),
            text=values.get("q", ""),
            with_judges=bool({"run", "task", "judges"} & values.keys() or source.runs or source.tasks),
        )

    def order(self, labels: Mapping[str, str]) -> AnswerOrder:
        """Build the order of the list. Runs are sorted by label."""
        name = self.values.get("sort", "")
        runs = sorted(labels, key=lambda run: labels[run])
        return AnswerOrder(name.removeprefix("-"), name.startswith("-"), runs)

    def heads(self) -> list[dict[str, str]]:
        """Build column heads: label, link that sorts by the column or reverses the order, and ``aria-sort``."""
        current = self.values.get("sort", "")
        heads = []
        for name in SORTS:
            first = f"-{name}" if name in _LARGEST_FIRST else name
            other = name if name in _LARGEST_FIRST else f"-{name}"
            is_current = current.removeprefix("-") == name
            direction = "" if not is_current else "descending" if current.startswith("-") else "ascending"
            sort = other if current == first else first
            heads.append({"name": name, "label": _COLUMNS[name], "link": self.link(sort=sort), "sort": direction})
        return heads


def answer_list(source: ResultsSource, request: Request) -> Response:
    """Respond with the list of answers."""
    query = ListQuery.parse(request.query_params)
    choice = query.filter(source)
    first = max(1, parse_number(request.query_params.get("from", ""), 1))
    with source.connect(request) as (store, values):
        labels = run_labels(store)
        count = count_answers(store, choice)
        rows = list_page(store, choice, query.order(labels), PAGE_SIZE, skip=first - 1).dicts()
        runs, tasks = source.runs or run_names(store), source.tasks
        if not tasks:
            sql = "SELECT DISTINCT benchmark || '/' || task FROM generations ORDER BY ALL"
            tasks = [name for (name,) in store.query(sql).rows]
        ((has_judges,),) = store.query("SELECT count(*) > 0 FROM judges").rows
    return page(
        "answers.html",
        **values,
        found=count,
        first=first,
        step=PAGE_SIZE,
        heads=query.heads(),
        rows=[_row(row, labels, query) for row in rows],
        before=query.link(**{"from": max(1, first - PAGE_SIZE)}) if first > 1 else "",
        after=query.link(**{"from": first + PAGE_SIZE}) if first + PAGE_SIZE <= count else "",
        has_judges=has_judges,
        asked={name: query.values.get(name, "") for name in (*_FILTERS, "sort")},
        choices={
            "run": [(run, labels[run]) for run in sorted(runs, key=lambda run: labels[run])],
            "task": [(task, task) for task in tasks],
            "mark": [(mark, mark) for mark in (*LISTED, "any")],
        },
    )


def _row(row: Mapping[str, Any], labels: Mapping[str, str], query: ListQuery) -> dict[str, Any]:
    key = AnswerKey(*(row[name] for name in AnswerKey._fields))
    more = (row["reference_count"] or 0) - 1
    return {
        "link": answer_link(key, query.prefixed),
        "run": labels.get(key.run_id, key.run_id),
        "sample": str(key.sample._replace(sample_id=_cut_middle(key.sample_id))),
        "name": str(key.sample),
        "score": score_text(row["score"]),
        "question": first_line(row["question"]),
        "answer": first_line(row["answer"]),
        "reference": first_line(row["reference"]) + (f" (+{more})" if more > 0 else ""),
        "tokens": row["output_tokens"],
        "marks": row["marks"],
    }


def first_line(text: str | None) -> str:
    """Return the first line with visible text of a text, or ""."""
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "")


def _cut_middle(text: str) -> str:
    """Shorten a long name, such as a hash, in the middle."""
    return text if len(text) <= _LONGEST_ID else f"{text[: _LONGEST_ID // 2]}…{text[-_LONGEST_ID // 2 + 1 :]}"


def _parse_percent(text: str) -> float | None:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        return None


def answer_page(source: ResultsSource, texts: BrowsingTexts, request: Request) -> Response:
    """Respond with the answer that the URL names by run, sample and iteration, and the position in the list."""
    key = _answer_key(request)
    query = ListQuery.parse(request.query_params, PREFIX)
    with source.connect(request) as (store, values):
        labels = run_labels(store)
        answer = answer_of(store, key)
        if answer is None:
            others = answers_to(store, key.benchmark, key.task, key.sample_id, source.runs)
            return _missing_page(values, key, query, labels, has_question=bool(others))
        place = find_answer_position(store, query.filter(source), query.order(labels), key)
        going_on = progress_of_runs(store).get(key.run_id, "")
        judged, rated = find_opinions(store, answer)
    shows_prompt = request.query_params.get("show") == "prompt"
    prompt_key, remark = texts.rebuild_prompt(answer) if shows_prompt else ("", "")
    neighbours = (place.previous, place.next) if place else (None, None)
    before, after = ("" if other is None else answer_link(other, query.prefixed) for other in neighbours)
    values["document"] = texts.document(prompt_key or answer.values["context_sha256"])
    first = (place.number - 1) // PAGE_SIZE * PAGE_SIZE + 1 if place else 1
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
        back=query.link(**({"from": first} if first > 1 else {})),
        before=before,
        after=after,
        other=answer_link(key, {**query.prefixed, **({} if shows_prompt else {"show": "prompt"})}),
        question=question_link(key, query.prefixed),
        link=values["path"] + answer_link(key),
        shows_prompt=shows_prompt,
        remark=remark,
    )


def question_page(source: ResultsSource, texts: BrowsingTexts, request: Request) -> Response:
    """Respond with the answers of all runs to a question, best first, for comparison."""
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
        link=values["path"] + question_link(key),
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


def _missing_page(
    values: Mapping[str, Any], key: AnswerKey, query: ListQuery, labels: Mapping[str, str], *, has_question: bool
) -> Response:
    """Respond with an explanation which name in a link the file does not contain."""
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


def progress_page(source: ResultsSource, request: Request) -> Response:
    """Respond with the state of each run."""
    with source.connect(request) as (store, values):
        labels = run_labels(store)
        states = run_states(store, source.runs)
    return page("progress.html", **values, rows=[_progress_row(state, labels) for state in states])


def _progress_row(state: RunState, labels: Mapping[str, str]) -> dict[str, Any]:
    run = ListQuery({"run": state.run_id})
    failure = state.last_failure
    # Answers per minute, or per hour if they are few, in words
    per_minute = state.per_minute
    if per_minute is None:
        pace = ""
    else:
        pace = f"{per_minute:,.3g} per minute" if per_minute >= 1 else f"{60 * per_minute:,.3g} per hour"
    return {
        "id": state.run_id,
        "label": labels.get(state.run_id, state.run_id),
        "state": state.state,
        "answers": state.answers,
        "total": state.total,
        "percent": None if not state.total else int(100 * state.answers / state.total),
        "failures": state.failures,
        "pace": pace,
        "left": "" if state.left_s is None else format_duration(state.left_s),
        "newest": f"{state.newest_at:%Y-%m-%d %H:%M:%S}" if state.newest_at else "",
        "error": first_line(state.last_error)[:300],
        "link": run.link(),
        "failed_link": run.link(mark="failed"),
        "error_link": answer_link(failure, {"list-run": state.run_id, "list-mark": "failed"}) if failure else "",
    }


class BrowsingPages:
    """Routes of a results file's pages.

    Args:
        bundle: bundle with the documents, or None to show no documents.
        prompts: rebuilds an answer's prompts, or None if that is not possible.
        runs, tasks: runs and tasks to show, or () for all.
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
        self._source, self._bundle = ResultsSource(results, runs, tasks), bundle
        self._texts = BrowsingTexts(self._document_text, prompts)

    @property
    def routes(self) -> list[BaseRoute]:
        source, texts = self._source, self._texts
        return [
            Route("/", partial(answer_list, source)),
            Route("/answer", partial(answer_page, source, texts)),
            Route("/question", partial(question_page, source, texts)),
            Route("/progress", partial(progress_page, source)),
            Route("/state", self._version_response),
            *texts.documents.routes,
        ]

    def _document_text(self, key: str) -> str | None:
        return bundle_document(self._source, self._bundle, key) if self._bundle else None

    def _version_response(self, _request: Request) -> Response:
        """Respond with the version of the file, for pages that refresh themselves."""
        return JSONResponse({"version": self._source.version()})
