"""Rows as the store takes and gives them: one frozen dataclass a table, and ``Table`` for answers.

A row's ``values`` are named and ordered as its table's columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lbx.base.number_key import Kind
from lbx.base.records import Sample, Task, canonical_json, sha256_text

if TYPE_CHECKING:
    from lbx.statistics.estimates import Interval


def as_json(value: object) -> str:
    """JSON for the database. Lone surrogates, which UTF-8 and so DuckDB cannot hold, become U+FFFD.

    That is what a tokenizer is given for them, too: a chunk that was kept here makes the prompt that it made before.
    """
    text = canonical_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


PROMPT_TOKENS = "prompt tokens"
"""The unit of a length that the model's own tokenizer counts, before truncation."""

_IDENTITY = ("model", "backend", "bundle_digest")


def identity(run: Mapping[str, Any]) -> dict[str, Any]:
    """What makes the run of a row of ``runs``: its settings, its model and its bundle."""
    return {**json.loads(run["settings"]), **{name: run[name] for name in _IDENTITY}}


def unequal(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The keys whose values are not the same JSON, sorted."""
    return [name for name in sorted({*before, *now}) if as_json(before.get(name)) != as_json(now.get(name))]


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table: a field a column, of the same name. Times are aware."""

    def values(self) -> dict[str, object]:
        """As JSON has them. ``dataclasses.asdict`` would copy each value, for some hundred thousand rows."""
        pairs = ((column.name, getattr(self, column.name)) for column in fields(self))
        return {name: _utc(value) if isinstance(value, datetime) else value for name, value in pairs}


def _utc(time: datetime) -> str:
    return time.astimezone(UTC).replace(tzinfo=None).isoformat()


@dataclass(frozen=True, slots=True)
class RunRow(TableRow):
    """One row of ``runs``. ``settings`` are what makes the run: the same name with others is refused.

    ``task_samples`` says how many samples the bundle has of each task, by its full name; None where nobody knows.
    ``unscored_samples`` says how many of these no metric counts, of the tasks that have such.
    ``metadata`` is what people say of the run: nothing is made of it but exports.
    """

    run_id: str
    model: str
    backend: str
    backend_version: str
    benchmark_versions: Mapping[str, int]
    bundle_digest: str
    settings: Mapping[str, Any]
    hardware: Mapping[str, Any]
    lbx_version: str
    task_samples: Mapping[str, int] | None = None
    metadata: Mapping[str, str] | None = None
    unscored_samples: Mapping[str, int] | None = None

    def counting(self, tasks: Iterable[Task]) -> RunRow:
        """The same with the counts of its tasks, each with all samples that its bundle has."""
        counts = [(task.full_name, task.samples, task.unscored) for task in tasks]
        unscored = {name: number for name, _, number in counts if number}
        return replace(
            self, task_samples={name: number for name, number, _ in counts}, unscored_samples=unscored or None
        )


@dataclass(frozen=True, slots=True)
class SampleRow(TableRow):
    """One row of ``samples``: what was asked, and its place in the data.

    Of the document only the hash is stored; NULL where nobody knows it (an imported file does not hold it).
    """

    sample: Sample
    position: int

    def values(self) -> dict[str, object]:
        of_sample = {column.name: getattr(self.sample, column.name) for column in fields(Sample)}
        document = sha256_text(context) if (context := of_sample.pop("context")) else None
        return {**of_sample, "meta": dict(self.sample.meta), "context_sha256": document, "position": self.position}


@dataclass(frozen=True, slots=True)
class GenerationRow(TableRow):
    """One row of ``generations``: an answer, or the error that stands in its place.

    Attributes:
        error_type: the class of the error.
        reference_cut: truncation cut away the only place in the document where a reference stood; None where the
            references say nothing about that, or nothing was cut.
        bos_tokens: BOS tokens that the prompt begins with, as the model read it; more than one is a fault.
        steps: of an answer that took several prompts, the earlier ones; token counts of the row cover them all.
        source_row: of an imported answer, its line in the file it came from, verbatim.
        output_ids: of the last prompt's answer, every generated token as it came (``Completion.output_ids``); None
            where they are not known: imports, servers.
        system_prompt: where the prompt's system message stood (``Request.system_place``).
    """

    run_id: str
    benchmark: str
    task: str
    sample_id: str
    iteration: int
    output: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    original_tokens: int | None = None
    truncated: bool | None = None
    prompt_sha256: str | None = None
    prompt_source: str | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    seed: int | None = None
    error: str | None = None
    error_type: str | None = None
    reasoning_tokens: int | None = None
    reasoning_closed: bool | None = None
    stop_in_reasoning: bool | None = None
    tokens_cut: int | None = None
    reference_cut: bool | None = None
    bos_tokens: int | None = None
    steps: Sequence[Mapping[str, Any]] | None = None
    source_row: str | None = None
    output_ids: Sequence[int] | None = None
    system_prompt: str | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class ScoreRow(TableRow):
    """One row of ``scores``. ``headline`` marks the metric that averages and curves are made of."""

    run_id: str
    benchmark: str
    task: str
    sample_id: str
    iteration: int
    metric: str
    metric_version: int
    score: float
    extracted: str | None
    headline: bool
    error: str | None = None
    partial: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SureRow(TableRow):
    """What a number says of how sure it is, in the unit of its score.

    Attributes:
        low, high: of the 95% interval; None where ``method`` says why.
        se, df: its standard error, and the degrees of freedom of that.
        clusters: of how many documents (``cluster_by``: "document", "question", or "sample" where nobody knows).
        method: "t", "wilson", "one cluster", "all alike" or "no number".
        within: the share of se squared that more answers to the same samples would take away; None with one each.
    """

    low: float | None = None
    high: float | None = None
    clusters: int | None = None
    cluster_by: str | None = None
    method: str | None = None
    se: float | None = None
    df: float | None = None
    within: float | None = None


SURE = tuple(column.name for column in fields(SureRow))
"""The columns of an interval, wherever there is one: in tables, views and reports."""
ENDS = ("low", "high", "method", "cluster_by")
"""Those that a row with several intervals has of each."""


def sureness(found: Interval, cluster_by: str) -> dict[str, Any]:
    """An interval as the columns ``SURE``."""
    return {name: cluster_by if name == "cluster_by" else getattr(found, name) for name in SURE}


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRow(SureRow):
    """One row of ``numbers``, of the kind of its class.

    Attributes:
        answered, asked: samples that the number counts, and that were asked.
        failed_as_0, failed_as_1: the number, were what it does not count all wrong, or all right; None where an
            import does not say what failed.
    """

    answered: int | None = None
    asked: int | None = None
    failed_as_0: float | None = None
    failed_as_1: float | None = None

    @property
    def kind(self) -> Kind:
        """The kind of the number's key."""
        return _KINDS[type(self)]

    def values(self) -> dict[str, object]:
        # "super()" needs the class: slots make another one.
        return {**_NO_KEY, "kind": self.kind, **super(NumberRow, self).values()}


_NO_KEY: Mapping[str, object] = {
    **dict.fromkeys(("task", "grouping", "name", "metric", "judge", "against", "questions", "length_unit"), ""),
    "length_up_to": 0,
}


@dataclass(frozen=True, slots=True)
class ResultRow(NumberRow):
    """A number of a task, as the official script adds it up.

    ``position`` orders a task's numbers, ``task_position`` the tasks as their paper does; ``in_paper`` says which stand
    in its tables. A score of 1 is ``unit`` in ``official``.
    """

    run_id: str
    benchmark: str
    task: str
    metric: str
    metric_version: int
    n: int
    score: float | None
    official: float | None
    headline: bool
    position: int
    partial: bool = False
    task_position: int | None = None
    unit: float | None = 100.0
    in_paper: bool = True


@dataclass(frozen=True, slots=True)
class GroupRow(NumberRow):
    """A number over several tasks, or over a part of the samples across tasks.

    A score of 1 is ``unit`` more in ``official`` than one of 0; None where that is unknown.
    """

    run_id: str
    benchmark: str
    grouping: str
    name: str
    metric: str
    metric_version: int
    n: int
    score: float | None
    official: float | None
    partial: bool
    position: int
    unit: float | None = 100.0


@dataclass(frozen=True, slots=True)
class OpinionRow(GroupRow):
    """An opinion of a judge or of raters on a run's answers.

    Attributes:
        judge: the judge's run, or the set of ratings.
        against: the run that was compared with; "" for none.
        questions: "all", or the mark of the questions that count.
    """

    judge: str = ""
    against: str = ""
    questions: str = ""


@dataclass(frozen=True, slots=True)
class BenchmarkRow(NumberRow):
    """A benchmark's one score, see the view ``leaderboard``."""

    run_id: str
    benchmark: str
    metric_version: int
    n: int
    score: float | None


@dataclass(frozen=True, slots=True)
class LengthRow(NumberRow):
    """A task's headline over the samples of one length.

    Attributes:
        length_unit: of the document as its benchmark counts, or "prompt tokens" of the model before truncation.
        length_up_to: the power of two up to which, from half of it on; 0 where lengths are not known.
        position: orders a task's lengths.
    """

    run_id: str
    benchmark: str
    task: str
    metric: str
    metric_version: int
    length_unit: str
    position: int
    length_up_to: int
    n: int
    score: float | None


_KINDS: Mapping[type[NumberRow], Kind] = {
    ResultRow: "task",
    GroupRow: "group",
    OpinionRow: "opinion",
    BenchmarkRow: "mean",
    LengthRow: "length",
}


@dataclass(frozen=True, slots=True)
class SessionRow(TableRow):
    """One row of ``sessions``: one call of ``lbx run``, what was expected of it and what it did.

    Runs that are made together have a row each; ``estimated_s``, ``wall_s`` and ``peak_memory_bytes`` are of all of
    them. What was not planned, and what a killed session did, is None.

    Attributes:
        session: the run's first is 1.
        status: "running", "done", "interrupted", "failed"; "killed" where the next session found it running.
        workers: processes that held the model; 0: the one that wrote.
        planned_new_tokens: as many as the answers were expected to take (of runs made together, by what each may
            take); without an estimate, as many as they may.
        computed_tokens: of prompts and answers, shared prefixes once.
        prefill_s, decode_s: of the model, in all processes together.
        spec: what was asked for, as `lbx run --spec` takes it.
        done_before, to_ask: answers of the run that stand from before, and those to come.
    """

    run_id: str
    session: int
    workers: int
    hardware: Mapping[str, Any]
    planned_samples: int | None = None
    planned_prompt_tokens: int | None = None
    planned_distinct_tokens: int | None = None
    planned_new_tokens: int | None = None
    estimated_s: float | None = None
    estimate_basis: str | None = None
    answered: int | None = None
    failed: int | None = None
    prompt_tokens: int | None = None
    computed_tokens: int | None = None
    output_tokens: int | None = None
    wall_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    peak_memory_bytes: int | None = None
    status: str = "running"
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    finished_at: datetime | None = None
    spec: Mapping[str, Any] | None = None
    done_before: int | None = None
    to_ask: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """An answer: column names and rows of plain Python values."""

    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]]

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def stored_sample(benchmark: str, task: str, row: Mapping[str, Any]) -> Sample:
    """A stored sample, without its document: no metric needs it. What has not the form that lbx writes is left out."""
    references, meta = json.loads(row["references"]), json.loads(row["meta"])
    return Sample(
        benchmark=benchmark,
        task=task,
        sample_id=row["sample_id"],
        context="",
        question=row["question"],
        references=tuple(references) if isinstance(references, list) else (),
        language=row["language"],
        length=row["length"],
        length_unit=row["length_unit"],
        meta=meta if isinstance(meta, dict) else {},
    )
