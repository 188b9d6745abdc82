"""Rows of the tables of a results file as frozen dataclasses, and ``Table`` for query results.

The ``values`` of a row follow the names and order of the table's columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lbx.base.number import INTERVAL_COLUMNS
from lbx.base.records import (
    NO_COLUMN,
    JudgedAnswer,
    RoundSample,
    Sample,
    TableRow,
    Task,
    canonical_json,
    sha256_text,
)

if TYPE_CHECKING:
    from lbx.statistics.estimates import Interval


def as_json(value: object) -> str:
    """Encode a value as JSON for the database. Lone surrogates, which UTF-8 and DuckDB cannot represent, become U+FFFD.

    Tokenizers receive U+FFFD for lone surrogates too, so that a stored chunk gives the same prompt as before.
    """
    text = canonical_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


PROMPT_TOKENS = "prompt tokens"
"""Unit of lengths in tokens of the model's tokenizer, before truncation."""

EARLIER = "earlier"
"""Key of ``samples.meta`` with the contents of a changed question at the time of earlier answers, oldest first."""

_IDENTITY = ("model", "backend", "bundle_digest")


def run_identity(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a run from its row of ``runs``: settings, model, backend and bundle."""
    return {**json.loads(run["settings"]), **{name: run[name] for name in _IDENTITY}}


def show_setting(value: object) -> str:
    """Text of a setting in a message."""
    return "not set" if value is None else repr(value)


def differing_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List, sorted, the keys with values that differ as JSON."""
    return [name for name in sorted({*old, *new}) if as_json(old.get(name)) != as_json(new.get(name))]


@dataclass(frozen=True, slots=True)
class RunRow(TableRow):
    """Row of ``runs``. ``settings`` identify the run: the same name with other settings is refused.

    ``task_samples`` is {full name of a task: number of samples in the bundle}, or None if unknown.
    ``unscored_samples`` is {full name of a task: number of samples that metrics do not count}, without zeros.
    ``metadata`` contains the user's notes on the run, which only exports use.
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

    def with_sample_counts(self, tasks: Iterable[Task]) -> RunRow:
        """Return the row with the number of samples of each task in the bundle."""
        counts = [(task.full_name, task.samples, task.unscored) for task in tasks]
        unscored = {name: number for name, _, number in counts if number}
        return replace(
            self, task_samples={name: number for name, number, _ in counts}, unscored_samples=unscored or None
        )


@dataclass(frozen=True, slots=True)
class DepthPairRow(TableRow):
    """Row of ``depth_pairs``: a candidate that is compared with a reference by position in texts.

    ``comparison_id`` identifies the reference and the texts. ``texts`` is the number of texts. ``settings`` and
    ``reference_settings`` are settings of the backends, named as in ``runs``. ``bundle_digest`` is "" for text files.
    """

    pair_id: str
    comparison_id: str
    model: str
    backend: str
    backend_version: str
    settings: Mapping[str, Any]
    hardware: Mapping[str, Any]
    weights_bytes: int | None
    kv_bytes_per_token: int | None
    reference_model: str
    reference_backend: str
    reference_backend_version: str
    reference_settings: Mapping[str, Any]
    reference_hardware: Mapping[str, Any]
    reference_weights_bytes: int | None
    reference_kv_bytes_per_token: int | None
    texts: int
    bundle_digest: str
    lbx_version: str
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class DepthRow(TableRow):
    """Row of ``depth_parity``: comparison of two models on one text's positions in a bin.

    Attributes:
        start, stop: the bin's positions are ``start`` to ``stop`` - 1, counted from 0.
        positions: number of compared positions, all but the last of a text's.
        kl: mean Kullback-Leibler divergence of the candidate from the reference, in nats.
        kl_p99, kl_max: 99th percentile and maximum of the divergence.
        same_top: share of positions with the same likeliest token.
        log_prob, reference_log_prob: mean log probability that each model gives the text's next token, in nats.
        seconds, reference_seconds: time of each model for these positions.
        audited_positions: number of positions with a second divergence, from whole distributions.
        kl_error, kl_error_max: mean and largest error of the divergence there, in nats, or None without such positions.
        text_sha256: hash of the text's token ids.
    """

    pair_id: str
    text: str
    start: int
    stop: int
    positions: int
    kl: float
    kl_p99: float
    kl_max: float
    same_top: float
    log_prob: float
    reference_log_prob: float
    seconds: float
    reference_seconds: float
    audited_positions: int
    kl_error: float | None
    kl_error_max: float | None
    text_sha256: str

    @property
    def is_covered(self) -> bool:
        """Whether the text has tokens at half of the bin's positions or more. Its last token is not compared."""
        return 2 * (self.positions + 1) >= self.stop - self.start


@dataclass(frozen=True, slots=True)
class SampleRow(TableRow):
    """Row of ``samples``: a sample, and its position in the data.

    Documents are stored only as a hash, or NULL if the document is unknown, as for imported files without documents.
    """

    sample: Sample
    position: int

    def values(self) -> dict[str, object]:
        of_sample = {column.name: getattr(self.sample, column.name) for column in fields(Sample)}
        document = sha256_text(context) if (context := of_sample.pop("context")) else None
        return {**of_sample, "meta": dict(self.sample.meta), "context_sha256": document, "position": self.position}


@dataclass(frozen=True, slots=True)
class RoundRow(TableRow):
    """Row of ``rounds``: the judged answer of a judge's sample, with a column for each field of ``subject``.

    The key is that of the sample. The rubric is the sample's task.
    """

    rubric: str
    round_id: str
    subject: JudgedAnswer = field(metadata=NO_COLUMN)

    @classmethod
    def of(cls, sample: RoundSample) -> RoundRow:
        return cls(sample.task, sample.sample_id, sample.subject)

    def values(self) -> dict[str, object]:
        relations = {column.name: getattr(self.subject, column.name) for column in fields(JudgedAnswer)}
        return {"rubric": self.rubric, "round_id": self.round_id, **relations}


@dataclass(frozen=True, slots=True)
class GenerationRow(TableRow):
    """Row of ``generations``: an answer, or the error instead of an answer.

    Attributes:
        reference_cut: whether truncation removed the only occurrence of a reference in the document, or None if the
            references cannot show that, or the document was not truncated.
        bos_tokens: number of BOS tokens at the start of the prompt that the model read. More than one is a fault.
        steps: earlier prompts and answers, if the answer took several prompts. The token counts include them.
        source_row: original line of an imported answer, verbatim.
        output_ids: all generated tokens of the last prompt's answer (``Completion.output_ids``), or None if unknown, as
            for imports and servers.
        system_prompt: where the prompt contains the system message (``Request.system_place``).
        instructions_sha256: hash of the prompt without its document (``Prompt.instructions_sha256``).
        served_model: the server's name for the model that answered (``Completion.served_model``).
        output_words: 0 for an empty answer before which the benchmark put the answer's beginning.
        ended_by_stop: see ``Completion``. It is not a column.
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
    instructions_sha256: str | None = None
    served_model: str | None = None
    output_words: int | None = None
    ended_by_stop: bool = field(default=False, metadata=NO_COLUMN)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class ScoreRow(TableRow):
    """Row of ``scores``. ``headline`` marks the metric that averages and curves use."""

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
    loose: bool | None = None


@dataclass(frozen=True, slots=True)
class SessionRow(TableRow):
    """Row of ``sessions``: a call of ``lbx run``, with estimates and work.

    Each simultaneous run has a row, and ``estimated_s``, ``wall_s`` and ``peak_memory_bytes`` cover all these runs.
    Values that were not planned, and the work of a killed session, are None.

    Attributes:
        session: number of the session within the run, from 1.
        status: "running", "done", "interrupted", "failed", or "killed" if the next session found it running.
        workers: number of processes that loaded the model, or 0 for the writing process itself.
        planned_new_tokens: expected number of generated tokens, divided between simultaneous runs in proportion to
            their maximum. Without an estimate it is the maximum.
        computed_tokens: tokens of prompts and answers, with shared prefixes counted once.
        prefill_s, decode_s: time of the model, summed over processes.
        spec: the run's spec, as for `lbx run --spec`.
        done_before, to_ask: number of the run's earlier answers that remain, and number of answers to come.
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
    """Result of a query: column names, and rows of plain Python values."""

    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]]

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def stored_sample(benchmark: str, task: str, row: Mapping[str, Any]) -> Sample:
    """Build a sample from a stored row, without the document, which metrics do not need. Malformed values are dropped.

    Args:
        row: columns of ``samples``, and for a judge's round ``subject``, the round's row of ``rounds``.
    """
    references, meta = json.loads(row["references"]), json.loads(row["meta"])
    sample = Sample(
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
    if not (relations := row.get("subject")):
        return sample
    verdicts = json.loads(relations["verdicts"]) if relations["verdicts"] is not None else None
    pairs = tuple(tuple(pair) for pair in verdicts if isinstance(pair, list)) if isinstance(verdicts, list) else None
    known = {column.name: relations[column.name] for column in fields(JudgedAnswer)}
    judged = JudgedAnswer(**{**known, "marks": tuple(relations["marks"]), "verdicts": pairs})
    return RoundSample(**{column.name: getattr(sample, column.name) for column in fields(Sample)}, subject=judged)


BOUND_COLUMNS = ("low", "high", "method", "cluster_by")
"""Columns that a row with several intervals contains for each interval."""


def interval_columns(interval: Interval, cluster_by: str) -> dict[str, Any]:
    """Convert an interval to the columns ``INTERVAL_COLUMNS``."""
    return {name: cluster_by if name == "cluster_by" else getattr(interval, name) for name in INTERVAL_COLUMNS}
