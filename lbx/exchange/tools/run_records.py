"""A run's numbers and answers for files of other tools, and helpers that all these formats need."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lbx.base.records import replace_surrogates, sha256_text
from lbx.benchmarks.judge import NAME as JUDGE
from lbx.benchmarks.registry import BENCHMARKS
from lbx.results import Store
from lbx.results.file.texts import texts_of
from lbx.results.read.runs import check_runs, metadata_of, states_of_runs

CONFIDENCE = 0.95
TASK_PREFIX = "lbx-"
"""Beginning of the names of lbx's tasks in other tools."""
_LONGEST_NAME = 80

_TASKS = """
    SELECT g.benchmark, g.task, count(*) AS asked, count(*) - count(g.error) AS answered, count(g.error) AS failed,
           CASE WHEN count(truncated) > 0 THEN count(*) FILTER (WHERE truncated) END AS truncated,
           count(DISTINCT sample_id) AS samples_asked,
           count(DISTINCT sample_id) FILTER (WHERE g.error IS NULL) AS samples_answered,
           c.bundle_samples AS samples_in_data,
           max(iteration) + 1 AS iterations,
           sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
           sum(output_tokens) AS output_tokens, sum(reasoning_tokens) AS reasoning_tokens
    FROM generations g LEFT JOIN coverage c USING (run_id, benchmark, task)
    WHERE g.run_id = ? AND g.benchmark <> ? GROUP BY ALL
"""
_SAMPLES = """
    SELECT coalesce(sum(samples), 0)::BIGINT,
           CASE WHEN count(bundle_samples) = count(*) THEN sum(bundle_samples)::BIGINT END
    FROM coverage WHERE run_id = ?
"""
_NUMBERS = """
    SELECT * EXCLUDE (run_id, position, task_position, in_paper, df, within)
    FROM task_results SEMI JOIN (FROM scores WHERE run_id = $1) USING (run_id, benchmark, task, metric)
    WHERE run_id = $1 ORDER BY task_position, task, headline DESC, position
"""
"""Query for numbers of metrics that score single answers. Other numbers cover some samples of a task, which averages
would count twice."""
_ANSWERS = """
    SELECT g.sample_id, g.iteration, g.output, g.reasoning, g.error, g.finish_reason, g.prompt_tokens,
           g.cached_tokens, g.output_tokens, g.reasoning_tokens, g.original_tokens, g.truncated, g.tokens_cut,
           g.reference_cut, g.prompt_sha256, s.position, s.question, s."references", s.context_sha256, s.length,
           s.length_unit, s.language, coalesce(c.scores, []) AS scores
    FROM generations g LEFT JOIN samples s USING (benchmark, task, sample_id)
    LEFT JOIN (
        SELECT run_id, benchmark, task, sample_id, iteration,
               list({metric: metric, score: score, extracted: extracted, error: error, partial: partial,
                     loose: loose}
                    ORDER BY headline DESC, metric) AS scores
        FROM scores WHERE run_id = $1 AND benchmark = $2 AND task = $3 AND isfinite(score) GROUP BY ALL
    ) c USING (run_id, benchmark, task, sample_id, iteration)
    WHERE g.run_id = $1 AND g.benchmark = $2 AND g.task = $3 ORDER BY s.position, g.sample_id, g.iteration
"""
ANSWER_FACTS = (
    "iteration", "finish_reason", "truncated", "original_tokens", "tokens_cut", "reference_cut", "prompt_sha256",
    "context_sha256", "length", "length_unit", "language",
)  # fmt: skip
"""Facts of an answer for which the tools' files contain no field."""
SCORE_FACTS = ("error", "partial", "loose")
"""Facts of an answer's score for which the tools' files contain no field."""
_NUMBER_FACTS = (
    "official", "unit", "partial", "headline", "metric_version", "n", "cluster_by", "clusters", "method", "low", "high",
    "failed_as_0", "failed_as_1",
)  # fmt: skip
_RUN_COLUMNS = ("run_id", "model", "backend", "backend_version", "bundle_digest", "lbx_version")
_TOKENS = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
_COUNTS = ("asked", "answered", "failed", "truncated", "samples_asked", "samples_answered", "samples_in_data")


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task of a run.

    Attributes:
        numbers: rows of ``task_results``, the headline first, or [] if no metric scores the task.
        counts: counts of asked, answered, failed and truncated answers, and of samples. Unknown counts are None.
        tokens: sums of the answers' token counts. Unknown sums are None.
    """

    benchmark: str
    name: str
    iterations: int
    numbers: Sequence[Mapping[str, Any]]
    counts: Mapping[str, int | None]
    tokens: Mapping[str, int | None]

    @property
    def answered(self) -> int:
        return self.counts["answered"] or 0

    def facts_of(self, number: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of a number for which the tools' files contain no field."""
        return {**{name: number[name] for name in _NUMBER_FACTS}, **self.counts}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run with tasks in the paper's order. Times are UTC.

    Attributes:
        status: the state of the run (``lbx.results.read.runs.run_state``).
        answered_samples, samples_in_data: number of samples of all tasks that the run was asked for, also without an
            answer. The second is None if unknown.
        settings: the run's settings without the list of imported files.
        texts: which texts the file contains (``lbx.results.file.texts.texts_of``), or None for all.
    """

    store: Store
    run_id: str
    model: str
    backend: str
    backend_version: str
    bundle_digest: str
    lbx_version: str
    status: str
    answered_samples: int
    samples_in_data: int | None
    started_at: datetime
    finished_at: datetime | None
    settings: Mapping[str, Any]
    metadata: Mapping[str, str]
    texts: str | None
    tasks: Sequence[TaskRecord]

    @property
    def has_samples(self) -> bool:
        """Whether the file contains the texts of questions, references and answers."""
        return self.texts is None

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of the run for which the tools' files contain no field."""
        names = ("run_id", "status", "backend", "backend_version", "bundle_digest", "settings")
        counts = {"run_samples_answered": self.answered_samples, "run_samples_in_data": self.samples_in_data}
        return {**{name: getattr(self, name) for name in names}, **counts, "texts": self.texts or "all"}

    def answers(self, task: TaskRecord) -> Iterator[dict[str, Any]]:
        """Yield a task's answers with question, references and scores, in the order of the data."""
        metrics = {number["metric"] for number in task.numbers}
        for row in self.store.query(_ANSWERS, [self.run_id, task.benchmark, task.name]).dicts():
            row["scores"] = [score for score in row["scores"] if score["metric"] in metrics]
            references = json.loads(row["references"] or "[]")
            row["references"] = [str(text) for text in references] if isinstance(references, list) else []
            row["question"] = row["question"] or ""
            yield row

    def stable_id(self, *names: str) -> bytes:
        """Compute a digest that identifies an object of the run, such as a task, in the same way in every export.

        The start time and the bundle distinguish runs with equal names.
        """
        key = [self.run_id, self.bundle_digest, self.started_at.isoformat(), *names]
        return bytes.fromhex(sha256_text(json.dumps(key)))


def read_run(store: Store, run_id: str) -> RunRecord:
    """Read a run without answers. Raises UsageError if the file does not contain the run."""
    check_runs(store, [run_id])
    (run,) = store.query("SELECT * FROM runs WHERE run_id = ?", [run_id]).dicts()
    numbers: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for values in store.query(_NUMBERS, [run_id]).dicts():
        row = {name: _to_json_value(value) for name, value in values.items()}
        if row["score"] is not None and row["metric"] != BENCHMARKS[values["benchmark"]].scoring.uncounted_metric:
            numbers.setdefault((values["benchmark"], values["task"]), []).append(row)
    order = {key: place for place, key in enumerate(numbers)}
    rows = store.query(_TASKS, [run_id, JUDGE]).dicts()
    tasks = [
        TaskRecord(
            row["benchmark"],
            row["task"],
            row["iterations"],
            numbers.get((row["benchmark"], row["task"]), []),
            {name: row[name] for name in _COUNTS},
            {name: row[name] for name in _TOKENS},
        )
        for row in sorted(rows, key=lambda row: (order.get((row["benchmark"], row["task"]), len(order)), row["task"]))
    ]
    settings = json.loads(run["settings"])
    ((answered_samples, samples_in_data),) = store.query(_SAMPLES, [run_id]).rows
    return RunRecord(
        store=store,
        **{name: run[name] for name in _RUN_COLUMNS},
        status=states_of_runs(store)[run_id],
        answered_samples=answered_samples,
        samples_in_data=samples_in_data,
        started_at=run["started_at"].replace(tzinfo=UTC),
        finished_at=run["finished_at"] and run["finished_at"].replace(tzinfo=UTC),
        settings={name: value for name, value in settings.items() if name != "files"},
        metadata=metadata_of(run),
        texts=texts_of(store),
        tasks=tasks,
    )


def ascii_json(value: object) -> str:
    """Encode a value as JSON in ASCII, because some readers split lines at Unicode line ends.

    NaN becomes null, and lone surrogates become U+FFFD.
    """
    return json.dumps(_to_json_value(value), allow_nan=False)


def _to_json_value(value: object) -> object:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {replace_surrogates(str(name)): _to_json_value(item) for name, item in value.items()}
    return [_to_json_value(item) for item in value] if isinstance(value, (list, tuple)) else value


def as_texts(facts: Mapping[str, Any]) -> dict[str, str]:
    """Convert facts to texts, for formats without other values. Unknown facts become "unknown"."""
    return {
        name: "unknown" if value in (None, "") else value if isinstance(value, str) else ascii_json(value)
        for name, value in facts.items()
    }


def file_name_part(text: str) -> str:
    """Convert a text to letters, digits, dots and hyphens for a file name, with a hash if characters were replaced."""
    part = re.sub(r"[_/ -]+", "-", text).strip("-.")
    if re.fullmatch(rf"[A-Za-z0-9.-]{{1,{_LONGEST_NAME}}}", part):
        return part
    part = re.sub("[^A-Za-z0-9.]+", "-", part)[: _LONGEST_NAME // 2].strip("-.")
    return "-".join(filter(None, (part, sha256_text(text)[:8])))


def task_names(tasks: Iterable[TaskRecord]) -> dict[tuple[str, str], str]:
    """Return {(benchmark, task): name in other tools}.

    Readers find a task's files by the text up to an underscore, so names contain no underscores.
    """
    names = {(task.benchmark, task.name): f"{task.benchmark}/{task.name}" for task in tasks}
    parts = {key: file_name_part(name) for key, name in names.items()}
    uses = Counter(parts.values())
    return {
        key: f"{TASK_PREFIX}{part}" if uses[part] == 1 else f"{TASK_PREFIX}{part}-{sha256_text(names[key])[:8]}"
        for key, part in parts.items()
    }
