"""Answers of a results file: single answers with all stored data about them, and filtered, sorted lists for pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from lbx.base.errors import UsageError
from lbx.base.marks import ANSWER_MARKS, MARKS_BY_SEVERITY, QUESTION_CHANGED, Mark
from lbx.base.records import JUDGE, SampleKey
from lbx.results.file.store import Store
from lbx.results.rows import EARLIER, Table

_JSON = ("references", "meta", "steps", "verdicts")
ANSWER = "run_id, benchmark, task, sample_id, iteration"
_MARK_NAMES = ", ".join(f"CASE WHEN {mark.answer_test_sql('g')} THEN '{mark.name}' END" for mark in ANSWER_MARKS)
# Imported failures may have no row in samples: their files have the question's name but no content.
FROM = "FROM generations g LEFT JOIN samples s USING (benchmark, task, sample_id)"
COLUMNS = (
    "g.*, coalesce(s.question, '') AS question, coalesce(s.\"references\", '[]') AS \"references\", s.language, "
    "s.length, s.length_unit, coalesce(s.meta, '{}') AS meta, s.context_sha256, "
    f"list_filter([{_MARK_NAMES}], lambda mark: mark IS NOT NULL) AS marked"
)
SCORE = f"LEFT JOIN (SELECT {ANSWER}, score FROM scores WHERE headline) c USING ({ANSWER})"
PERCENT = "round(c.score * 10000) / 100"
"""Headline score of an answer in percent, as on the report page."""
ORDER = "run_id, benchmark, task, position, sample_id, iteration"


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A stored answer with its sample and scores.

    Attributes:
        values: columns of ``generations``, and the sample's question, references, language, length, length_unit, meta
            and context_sha256.
        scores: rows of ``scores``: metric, metric_version, score, extracted, headline, error, partial.
        mark_names: names of the marks (``lbx.base.marks``) of the answer.
        subject: row of ``rounds``, if a judge gave the answer.
    """

    key: SampleKey
    values: Mapping[str, Any]
    scores: Sequence[Mapping[str, Any]]
    mark_names: Sequence[str]
    subject: Mapping[str, Any] | None = None

    @property
    def run_id(self) -> str:
        return str(self.values["run_id"])

    @property
    def headline(self) -> Mapping[str, Any] | None:
        """Row of the headline score, or None without a score."""
        return next((score for score in self.scores if score["headline"]), None)

    @property
    def choices(self) -> dict[str, str]:
        """{letter: text} of a multiple-choice question, or {} for other questions."""
        return _choices(self.values["meta"])

    @property
    def earlier_questions(self) -> list[str]:
        """Earlier texts, with choices, of a question that has changed since the answer. The oldest is first."""
        meta = self.values["meta"] if self.values["error_type"] == QUESTION_CHANGED else None
        contents = meta.get(EARLIER) if isinstance(meta, dict) else None
        return [
            "\n".join(
                [str(content.get("question", "")), *(f"{key}. {text}" for key, text in _choices(content).items())]
            )
            for content in (contents if isinstance(contents, list) else ())
            if isinstance(content, dict)
        ]

    @property
    def marks(self) -> list[str]:
        """Descriptions of possible problems with the answer's score."""
        cut = self.values.get("tokens_cut") or "some"
        texts = {mark.name: mark.answer_text.format(tokens_cut=cut) for mark in MARKS_BY_SEVERITY if mark.answer_text}
        return [words for name, words in texts.items() if name in self.mark_names]


def _choices(content: Any) -> dict[str, str]:
    choices = content.get("choices") if isinstance(content, dict) else None
    return {str(letter): str(text) for letter, text in choices.items()} if isinstance(choices, dict) else {}


def mark_condition(mark: Mark) -> str:
    """Build the SQL condition that an answer ``g``, or the headline score of ``g``, bears a mark."""
    if not mark.tests_score:
        return mark.answer_test_sql("g")
    same = " AND ".join(f"c.{name} = g.{name}" for name in ANSWER.split(", "))
    return f"EXISTS (FROM scores c WHERE c.headline AND {mark.answer_test_sql('c')} AND {same})"


LISTED: Mapping[str, Mark] = {mark.label: mark for mark in MARKS_BY_SEVERITY}
"""{label: mark}, by which answers are listed and filtered."""


@dataclass(frozen=True, slots=True)
class AnswerFilter:
    """Filter for answers of a file.

    Attributes:
        runs, tasks: allowed values, or () for all. A task is "benchmark/task".
        patterns: patterns of "benchmark/task/sample_id", at least one of which must match; see ``task_patterns``.
        mark: required mark from ``LISTED``, or "any" for any of these marks, or "" for all answers.
        at_least, at_most: bounds of the headline score in percent, rounded to two decimals, or None for all answers.
        text: text that question, output or reasoning must contain, ignoring case.
        with_judges: whether to include the answers of judges.
    """

    runs: Sequence[str] = ()
    tasks: Sequence[str] = ()
    patterns: Sequence[str] = ()
    mark: str = ""
    at_least: float | None = None
    at_most: float | None = None
    text: str = ""
    with_judges: bool = True

    def condition(self, *, scores: bool = False) -> tuple[str, list[object]]:
        """Build the SQL that follows SELECT, with answers ``g`` and samples ``s``, and the SQL's parameters.

        Args:
            scores: whether to include headline scores ``c`` even if the filter does not use scores.
        """
        marks = [mark_condition(mark) for name, mark in LISTED.items() if self.mark in (name, "any")]
        texts = ("s.question", "g.output", "g.reasoning")
        rules: dict[str, tuple[bool, Sequence[object]]] = {
            "list_contains(?, g.run_id)": (bool(self.runs), [list(self.runs)]),
            "list_contains(?, g.benchmark || '/' || g.task)": (bool(self.tasks), [list(self.tasks)]),
            pattern_condition("g", "?"): (bool(self.patterns), [list(self.patterns)]),
            f"({' OR '.join(marks)})": (bool(marks), []),
            f"{PERCENT} >= ?": (self.at_least is not None, [self.at_least]),
            f"{PERCENT} <= ?": (self.at_most is not None, [self.at_most]),
            f"g.benchmark <> '{JUDGE}'": (not self.with_judges, []),
            f"({' OR '.join(f'contains(lower({name}), lower(?))' for name in texts)})": (
                bool(self.text),
                [self.text] * len(texts),
            ),
        }
        rules_used = {rule: values for rule, (applies, values) in rules.items() if applies}
        score = SCORE if scores or self.at_least is not None or self.at_most is not None else ""
        return (
            f"{FROM} {score} WHERE {' AND '.join(rules_used) or 'true'}",
            [value for values in rules_used.values() for value in values],
        )


def task_patterns(tasks: Sequence[str]) -> tuple[str, ...]:
    """Convert values of --tasks, which may contain * and ?, to patterns of "benchmark/task/sample_id"."""
    names = [name for text in tasks for part in text.split(",") if (name := part.strip())]
    return tuple(pattern for name in names for pattern in (("*",) if name == "all" else (name, f"{name}/*")))


def pattern_condition(answer: str, parameter: str) -> str:
    """Build the SQL condition that a row of an answer matches one of the patterns in a parameter."""
    key = f"{answer}.benchmark || '/' || {answer}.task || '/' || {answer}.sample_id"
    return f"len(list_filter({parameter}::VARCHAR[], lambda p: ({key}) GLOB p)) > 0"


def resolve_tasks(store: Store, names: Sequence[str]) -> list[str]:
    """Resolve names to the file's tasks, "benchmark/task". A name without a benchmark matches tasks of all benchmarks.

    Raises:
        UsageError: a name matches no task.
    """
    rows = store.query("SELECT DISTINCT benchmark, task FROM generations WHERE benchmark <> 'judge' ORDER BY ALL").rows
    tasks_in_file = {f"{benchmark}/{task}": task for benchmark, task in rows}
    meant: dict[str, None] = {}
    for name in (part.strip() for text in names for part in text.split(",")):
        tasks = [key for key, task in tasks_in_file.items() if name == task or _matches_any(key, task_patterns([name]))]
        if not tasks:
            raise UsageError(f"There is no task {name!r} in {store.path}.", fix=f"It has: {', '.join(tasks_in_file)}.")
        meant |= dict.fromkeys(tasks)
    return list(meant)


def _matches_any(key: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in globs)


def list_answers(store: Store, choice: AnswerFilter, limit: int, *, skip: int = 0) -> Table:
    """List answers in the data's order: run, sample, headline score, tokens, possible problems."""
    sql, parameters = choice.condition()
    marks = ", ".join(f"CASE WHEN {mark_condition(mark)} THEN '{name}' END" for name, mark in LISTED.items())
    return store.query(
        f"""
        WITH page AS (
            SELECT g.*, s.position, concat_ws(', ', {marks}) AS marks {sql}
            ORDER BY {ORDER} LIMIT ? OFFSET ?
        )
        SELECT run_id, benchmark || '/' || task || '/' || sample_id
                   || CASE WHEN iteration > 0 THEN '#' || iteration ELSE '' END AS sample,
               c.score, prompt_tokens, output_tokens, marks
        FROM page {SCORE} ORDER BY {ORDER}
        """,
        [*parameters, limit, skip],
    )


def count_answers(store: Store, choice: AnswerFilter) -> int:
    """Count the answers that pass a filter."""
    sql, parameters = choice.condition()
    return int(store.query(f"SELECT count(*) {sql}", parameters).rows[0][0])


def find_opinions(store: Store, answer: StoredAnswer) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Find the judgements and the ratings of an answer, single or compared with another answer.

    Returns rows of ``judgements``, and rows of ``ratings`` with the kind of their set. In all rows, ``is_subject`` is
    false if the verdict is from the other answer's perspective.
    """
    key, run = answer.key, answer.run_id
    sides = [run, key.iteration, key.benchmark, key.task, key.sample_id, run, key.iteration, run, key.iteration]
    judged = store.query(
        """
        SELECT judge_id, rubric, CASE WHEN is_subject THEN against_run_id ELSE run_id END AS other, answer_first,
               verdict, rating, state, output, reasoning, error, is_subject
        FROM (SELECT *, (run_id, iteration) = (?, ?) AS is_subject FROM judgements
              WHERE (benchmark, task, sample_id) = (?, ?, ?)
                AND ((run_id, iteration) = (?, ?) OR (against_run_id, against_iteration) = (?, ?)))
        ORDER BY judge_id, other, answer_first DESC
        """,
        sides,
    ).dicts()
    rated = store.query(
        """
        SELECT set_id, rater, CASE WHEN is_subject THEN against_run_id ELSE run_id END AS other, verdict, score,
               comment, is_subject
        FROM (SELECT l.*, (l.run_id, l.iteration) = (?, ?) AS is_subject
              FROM ratings l JOIN rating_items i USING (set_id, item)
              WHERE (i.benchmark, i.task, i.sample_id) = (?, ?, ?)
                AND ((l.run_id, l.iteration) = (?, ?) OR (l.against_run_id, l.against_iteration) = (?, ?))
              QUALIFY row_number() OVER (PARTITION BY set_id, item, rater, l.run_id, l.iteration, against_run_id,
                                         against_iteration ORDER BY revision DESC) = 1)
        WHERE score IS NOT NULL OR verdict IS NOT NULL OR comment <> ''
        ORDER BY set_id, rater, other
        """,
        sides,
    ).dicts()
    return judged, rated


def opinion_words(opinion: Mapping[str, Any]) -> str:
    """Describe the verdict in a row of ``find_opinions``, as "better" or "4". Returns "" without a verdict."""
    number = opinion.get("rating", opinion.get("score"))
    if opinion["verdict"] is None:
        return "" if number is None else f"{number:g}"
    won = {"answer": "better", "against": "worse"}
    lost = {"answer": "worse", "against": "better"}
    words = won if opinion["is_subject"] else lost
    return words.get(opinion["verdict"], str(opinion["verdict"]).replace("_", " "))


def find_answers(store: Store, name: str, runs: Sequence[str]) -> list[StoredAnswer]:
    """Find the answers of all runs to a sample.

    Args:
        name: "benchmark/task/sample_id" or "task/sample_id", optionally with "#iteration", or a sample id that only
            one task contains.
        runs: allowed runs, or () for all.

    Raises:
        UsageError: no answer matches, or several tasks contain a sample of that name.
    """
    sample = "g.task || '/' || g.sample_id"
    rows = store.query(
        f"""
        SELECT {COLUMNS} {FROM}
        WHERE (len(?) = 0 OR list_contains(?, g.run_id)) AND ? IN (
            g.sample_id, {sample}, g.benchmark || '/' || {sample}, {sample} || '#' || g.iteration,
            g.benchmark || '/' || {sample} || '#' || g.iteration)
        ORDER BY {ANSWER}
        """,
        [list(runs), list(runs), name],
    ).dicts()
    names = sorted({f"{row['benchmark']}/{row['task']}/{row['sample_id']}" for row in rows})
    if not rows:
        raise UsageError(
            f"{store.path} contains no answer to a sample {name}.", fix="`lbx show FILE` lists its answers."
        )
    if len(names) > 1:
        raise UsageError(f"Several tasks have a sample {name}.", fix=f"Give one of these: {', '.join(names)}.")
    return [as_answer(store, row) for row in rows]


def as_answer(store: Store, row: dict[str, Any]) -> StoredAnswer:
    key = SampleKey(row["benchmark"], row["task"], row["sample_id"], row["iteration"])
    scores = store.query(
        "SELECT metric, metric_version, score, extracted, headline, error, partial, loose FROM scores "
        "WHERE run_id = ? AND benchmark = ? AND task = ? AND sample_id = ? AND iteration = ? "
        "ORDER BY headline DESC, metric",
        [row["run_id"], *key],
    ).dicts()
    rounds: Sequence[dict[str, Any]] = ()
    if key.benchmark == JUDGE:
        rounds = store.query("FROM rounds WHERE (rubric, round_id) = (?, ?)", [key.task, key.sample_id]).dicts()
    marked = row.pop("marked")
    return StoredAnswer(key, _parse_json(row), scores, marked, *map(_parse_json, rounds))


def _parse_json(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json.loads(value) if name in _JSON and value is not None else value for name, value in row.items()}


_CUT = 200
"""Number of characters of a text that a list shows, and by which a list is sorted."""
_KEY = "{'run_id': g.run_id, 'benchmark': benchmark, 'task': task, 'sample_id': sample_id, 'iteration': g.iteration}"
_REFERENCE = """s."references"->>'$[0]'"""
_MARKS = ", ".join(f"CASE WHEN {mark_condition(mark)} THEN '{name}' END" for name, mark in LISTED.items())

SORTS: Mapping[str, str] = {
    "score": "c.score",
    "run": "list_position(?, g.run_id)",
    "sample": "row(benchmark, task, s.position, sample_id)",
    "question": f"left(s.question, {_CUT})",
    "answer": f"left(g.output, {_CUT})",
    "reference": f"left({_REFERENCE}, {_CUT})",
    "tokens": "g.output_tokens",
    "marks": f"nullif(len(list_filter([{_MARKS}], lambda mark: mark IS NOT NULL)), 0)",
}
"""{name of an order: SQL expression of answers ``g``, samples ``s`` and headline scores ``c``}"""


class AnswerKey(NamedTuple):
    """Identity of an answer in a results file."""

    run_id: str
    benchmark: str
    task: str
    sample_id: str
    iteration: int = 0

    @property
    def sample(self) -> SampleKey:
        """Identity of the answer within its run."""
        return SampleKey(*self[1:])


@dataclass(frozen=True, slots=True)
class AnswerOrder:
    """Order of a list of answers. Answers with equal values are in the data's order, and missing values come last.

    Attributes:
        name: key of ``SORTS``, or "" for the data's order.
        runs: all runs, in the order of a list sorted by "run".
    """

    name: str = ""
    descending: bool = False
    runs: Sequence[str] = ()

    def value(self) -> tuple[str, list[object]]:
        """Return the SQL of the value by which answers are sorted, and the SQL's parameters."""
        return SORTS.get(self.name, "NULL"), [list(self.runs)] if self.name == "run" else []

    def clause(self) -> str:
        """Build the SQL after ORDER BY, for rows with the result of ``value`` as ``sort_value``."""
        return f"sort_value {'DESC' if self.descending else 'ASC'} NULLS LAST, {ORDER}"


@dataclass(frozen=True, slots=True)
class AnswerPosition:
    """Position of an answer in a list.

    Attributes:
        number: position, from 1.
        total: number of answers in the list.
        previous, next: neighbours, or None at the ends of the list.
    """

    number: int
    total: int
    previous: AnswerKey | None
    next: AnswerKey | None


def list_page(store: Store, choice: AnswerFilter, order: AnswerOrder, limit: int, *, skip: int = 0) -> Table:
    """List answers: key, score, tokens, the beginnings of question, answer and first reference, and marks."""
    sql, parameters = choice.condition(scores=True)
    value, more = order.value()
    start = f"left({{}}, {_CUT})"
    return store.query(
        f"""
        WITH page AS MATERIALIZED (
            SELECT g.rowid AS number, {value} AS sort_value {sql} ORDER BY {order.clause()} LIMIT ? OFFSET ?
        )
        SELECT g.run_id, benchmark, task, sample_id, g.iteration, c.score, g.output_tokens,
               {start.format("coalesce(s.question, '')")} AS question, {start.format("g.output")} AS answer,
               {start.format(_REFERENCE)} AS reference, json_array_length(s."references") AS reference_count,
               concat_ws(', ', {_MARKS}) AS marks
        FROM page JOIN generations g ON g.rowid = page.number LEFT JOIN samples s USING (benchmark, task, sample_id)
            {SCORE} ORDER BY {order.clause()}
        """,
        [*more, *parameters, limit, skip],
    )


def find_answer_position(
    store: Store, choice: AnswerFilter, order: AnswerOrder, key: AnswerKey
) -> AnswerPosition | None:
    """Find the position of an answer in a list. Returns None if the list does not contain the answer."""
    sql, parameters = choice.condition(scores=True)
    value, more = order.value()
    rows = store.query(
        f"""
        SELECT number, total, previous, next FROM (
            SELECT key, row_number() OVER place AS number, count(*) OVER () AS total, lag(key) OVER place AS previous,
                   lead(key) OVER place AS next
            FROM (SELECT {_KEY} AS key, {value} AS sort_value, {ORDER} {sql})
            WINDOW place AS (ORDER BY {order.clause()})
        ) WHERE key = {{'run_id': ?, 'benchmark': ?, 'task': ?, 'sample_id': ?, 'iteration': ?}}
        """,
        [*more, *parameters, *key],
    ).rows
    if not rows:
        return None
    number, total, *neighbours = rows[0]
    previous, following = (AnswerKey(**neighbour) if neighbour else None for neighbour in neighbours)
    return AnswerPosition(number, total, previous, following)


def answer_of(store: Store, key: AnswerKey) -> StoredAnswer | None:
    """Read an answer by key. Returns None if the file does not contain the answer."""
    rows = store.query(
        f"SELECT {COLUMNS} {FROM} WHERE (g.run_id, g.benchmark, g.task, g.sample_id, g.iteration) = (?, ?, ?, ?, ?)",
        list(key),
    ).dicts()
    return as_answer(store, rows[0]) if rows else None


def answers_to(store: Store, benchmark: str, task: str, sample_id: str, runs: Sequence[str] = ()) -> list[StoredAnswer]:
    """List all answers to a question, of these runs or of all runs, by run and iteration."""
    rows = store.query(
        f"""
        SELECT {COLUMNS} {FROM} WHERE (g.benchmark, g.task, g.sample_id) = (?, ?, ?)
              AND (len(?) = 0 OR list_contains(?, g.run_id))
        ORDER BY {ANSWER}
        """,
        [benchmark, task, sample_id, list(runs), list(runs)],
    ).dicts()
    return [as_answer(store, row) for row in rows]
