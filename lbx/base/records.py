"""Frozen value types shared by all packages: samples, prompts, requests, completions, scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    pass


def sha256_text(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes, hex. Lone surrogates, invalid in UTF-8, are encoded as code points."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates by U+FFFD: they cannot be encoded as UTF-8, and tokenizers fail on them.

    A high surrogate followed by a low one becomes the character that the pair encodes.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class SampleKey(NamedTuple):
    """Identity of a generation within a run: the primary key of ``generations`` without ``run_id``."""

    benchmark: str
    task: str
    sample_id: str
    iteration: int = 0

    def __str__(self) -> str:
        return f"{self.benchmark}/{self.task}/{self.sample_id}" + (f"#{self.iteration}" if self.iteration else "")


@dataclass(frozen=True, slots=True)
class Task:
    """Task of a benchmark, as listed by ``lbx tasks`` and selected by ``--tasks``.

    Attributes:
        metrics: names of the per-sample metrics; the first is the headline.
        unscored: number of samples that no metric can score; only judges and raters can.
    """

    benchmark: str
    name: str
    metrics: tuple[str, ...]
    samples: int
    language: str = "en"
    unscored: int = 0

    @property
    def full_name(self) -> str:
        return f"{self.benchmark}/{self.name}"


@dataclass(frozen=True, slots=True)
class Sample:
    """Sample of a task: a question about a document, from the benchmark's data file.

    Attributes:
        sample_id: unique within (benchmark, task) and stable between runs.
        context: the long document, or "" if the benchmark's mode omits it.
        references: accepted answers, in the data's order.
        length: length of the document in ``length_unit`` ("words", "characters", "tokens").
        meta: further data for the metric or the report (JSON values only).
    """

    benchmark: str
    task: str
    sample_id: str
    context: str
    question: str
    references: tuple[str, ...]
    language: str = "en"
    length: int = 0
    length_unit: str = "words"
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> SampleKey:
        return SampleKey(self.benchmark, self.task, self.sample_id)


EVIDENCE_DEPTH = "evidence_depth"
"""Key of ``Sample.meta`` for the position of the answer's evidence, as a share of the text from 0 to 1."""
JUDGE = "judge"
"""Benchmark of judges' rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """Stored answer that a judge's round is about, and the patterns for reading the judge's text.

    Attributes:
        kind: "pair" (the better of two answers) or "score" (the quality of a single one).
        benchmark, task, sample_id: the judged sample.
        run_id, iteration: the judged answer.
        against_run_id, against_iteration: the answer to compare with; None and 0 in a rating.
        answer_first: whether the judged answer is shown first, or None in a rating.
        document_sha256: hash of the judged sample's document, or "" if unknown.
        marks: marks of the question's copies that the round counts for.
        answer_sha256, answer_words, against_sha256, against_words: hashes and lengths of the answers; None if unknown,
            and for the other answer in a rating.
        verdicts: for a pair, the rubric's (mark, "first" | "second" | "tie") in order of priority, or None if removed.
        pattern: for a rating, the text around its number, or None if removed.
        scale_low, scale_high: for a rating, the ends of the scale.
    """

    kind: str
    benchmark: str
    task: str
    sample_id: str
    run_id: str
    iteration: int = 0
    against_run_id: str | None = None
    against_iteration: int = 0
    answer_first: bool | None = None
    document_sha256: str = ""
    marks: tuple[str, ...] = ()
    answer_sha256: str | None = None
    answer_words: int | None = None
    against_sha256: str | None = None
    against_words: int | None = None
    verdicts: tuple[tuple[Any, ...], ...] | None = None
    pattern: str | None = None
    scale_low: float | None = None
    scale_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSample(Sample):
    """Round of a judge: a sample of the benchmark "judge", with the rubric as its task."""

    subject: JudgedAnswer


class Truncation(StrEnum):
    """Method of shortening a prompt that exceeds its limit. Limits are in tokens, not characters.

    MIDDLE: keep int(limit/2) tokens of each end of the whole prompt (LongBench v1, LV-Eval).
    MIDDLE_FLOOR: keep ids[:limit//2] + ids[-limit//2:] (LongBench v2 and Pro: an odd limit keeps one more at the end).
    MIDDLE_EVEN: keep limit//2 tokens of each end (InfiniteBench: an odd limit keeps one token less).
    DOCUMENT_MIDDLE, DOCUMENT_END: cut the middle or the end of the document, never the question (custom benchmarks).
    DOCUMENT_END_ONCE: cut as many tokens off the document's end as the whole prompt has too many, chat template
        included. Only the window limits the result again (HELMET).
    WORDS_END: with a limit of n tokens, keep the document's first n words, then 250 fewer each time, until its
        tokens are within the limit and the whole prompt fits; the question is never cut (L-Eval).
    WORDS_START: keep the last words instead (L-Eval's codeU).
    REFUSE: never cut; the sample fails (needle tasks, since a cut could remove the needle).
    """

    MIDDLE = "middle"
    MIDDLE_FLOOR = "middle_floor"
    MIDDLE_EVEN = "middle_even"
    DOCUMENT_MIDDLE = "document_middle"
    DOCUMENT_END = "document_end"
    DOCUMENT_END_ONCE = "document_end_once"
    WORDS_END = "words_end"
    WORDS_START = "words_start"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt as text, before tokenization. The user's message is ``before + document + after``.

    Attributes:
        max_new_tokens: the answer's budget in tokens.
        has_shared_budget: max_new_tokens is the authors' budget for reasoning and answer together; no default
            reasoning budget is added.
        truncation: the benchmark's rule for a prompt that is too long.
        chat: False if the benchmark feeds the bare text even to chat models (few-shot and code tasks).
        reads_control_tokens: texts of control tokens in a bare prompt become these tokens, as in a chat template that
            the authors write into the text; elsewhere they stay text. The truncation must be ``REFUSE``.
        system: the system message: a separate message if the model's chat template supports it, else text before the
            prompt.
        system_gap: separator between the system message and the text if the message is put before the prompt.
        answer_prefix: beginning of the answer, after the chat template's opening of the assistant's turn; without a
            template, or if a server applies it, the end of the user's text.
        turns: further messages after the text, alternately the assistant's and the user's, ending with the user's:
            separate messages in the model's chat template, else appended to the text, a blank line before each.
        stop: strings that end the answer and are cut off.
        stop_tokens: texts that end the answer, like an end of sequence, if generated as exactly one token; longer
            tokens that contain the text do not (LongBench's samsum: the line break's token).
        min_new_tokens: tokens before which neither end-of-sequence nor a stop ends the answer.
        temperature: the benchmark's sampling temperature; None means greedy.
        model_sampling: the benchmark uses the sampling settings recommended by the model's authors, and temperature 1
            without a recommendation (LongBench Pro); ``temperature`` is then ignored.
        limits: {context window: limit of the prompt in tokens} if the authors fixed it, e.g. {4096: 3500}; with any
            other window the prompt may fill all but the answer's budget. For the WORDS rules it limits the document.
        source: origin of the text, e.g. the file in the bundle ("lbx" for lbx's own texts).
    """

    before: str
    document: str
    after: str
    max_new_tokens: int
    truncation: Truncation
    chat: bool = True
    reads_control_tokens: bool = False
    system: str = ""
    system_gap: str = ""
    turns: tuple[str, ...] = ()
    answer_prefix: str = ""
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[str, ...] = ()
    min_new_tokens: int = 0
    temperature: float | None = None
    model_sampling: bool = False
    has_shared_budget: bool = False
    limits: Mapping[int, int] = field(default_factory=dict)
    source: str = "lbx"

    @property
    def text(self) -> str:
        return self.before + self.document + self.after

    @property
    def instructions_sha256(self) -> str:
        """SHA-256 of the prompt without document and source: texts, budget, stop strings, truncation, sampling."""
        names = (column.name for column in fields(self) if column.name not in ("document", "source"))
        return sha256_text(canonical_json({name: getattr(self, name) for name in names}))

    @property
    def with_system_in_text(self) -> Prompt:
        """Copy of the prompt with the system message moved into the user's text."""
        if not self.system:
            return self
        return replace(self, system="", before=self.system + self.system_gap + self.before)

    @property
    def with_turns_in_text(self) -> Prompt:
        """Copy of the prompt with the turns moved into the user's text."""
        return replace(self, turns=(), after="\n\n".join((self.after, *self.turns))) if self.turns else self

    @property
    def with_prefix_in_text(self) -> Prompt:
        """Copy of the prompt with the answer prefix moved to the end of the user's last message."""
        if not self.answer_prefix:
            return self
        *messages, last = (self.after, *self.turns)
        after, *turns = (*messages, last + self.answer_prefix)
        return replace(self, after=after, turns=tuple(turns), answer_prefix="")


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings. With temperature 0 decoding is greedy and the other settings have no effect.

    Attributes:
        temperature: >= 0.
        top_p: in (0, 1]; 1 keeps everything.
        top_k: >= 0; 0 keeps everything.
        min_p: in [0, 1); tokens less likely than min_p times the likeliest are dropped.
        seed: makes a sampled answer repeatable, together with the sample's key.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """Request to a model: a tokenized prompt, with budgets, stop strings and sampling settings.

    Attributes:
        token_ids: the whole prompt, BOS included.
        original_tokens: tokens of the untruncated prompt, without the chat template if truncation precedes it.
        tokens_cut: number of tokens removed from the untruncated prompt.
        kept: the prompt's text after truncation, or "" if it was not cut.
        bos_tokens: number of BOS tokens at the start of ``token_ids``; more than one is a fault.
        prompt_sha256: SHA-256 of the text that the model reads, chat template included.
        opens_reasoning: the prompt itself ends in an opening mark such as "<think>", so the answer begins inside the
            reasoning.
        thinking_tokens: budget for the reasoning, in addition to max_new_tokens for the answer; 0 means that
            max_new_tokens covers both.
        system: if a server applies the chat template, the system message at the start of ``token_ids``, to send it
            separately.
        turns: if a server applies the chat template, ``Prompt.turns`` at the end of ``token_ids``, to send them
            separately.
        system_place: position of the system message: "message" (a separate message) or "text" (before the user's
            text), or None without a system message.
    """

    key: SampleKey
    token_ids: tuple[int, ...]
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[str, ...] = ()
    min_new_tokens: int = 0
    sampling: Sampling = Sampling()
    original_tokens: int = 0
    truncated: bool = False
    tokens_cut: int = 0
    kept: str = ""
    bos_tokens: int = 0
    prompt_sha256: str = ""
    opens_reasoning: bool = False
    thinking_tokens: int = 0
    system: str = ""
    turns: tuple[str, ...] = ()
    system_place: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """All texts that end the answer, as a string or as a token."""
        return tuple(stop for stop in (*self.stop, *self.stop_tokens) if stop)


CountedIn = Literal["tokens", "characters", "bytes"]
"""Unit of the lengths of prompts and answers, by the model's tokenizer. Without one: characters, or bytes."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Output of a model for a request.

    Attributes:
        text: the answer: the decoded new tokens, control tokens and reasoning left out, stop string removed.
        output_tokens: number of generated tokens, reasoning included, the ending token not counted, or None if unknown.
        finish_reason: "stop" (end of sequence or a stop string) or "length" (a budget ran out).
        reasoning: content of the reasoning block, without its marks, or None without a block.
        reasoning_tokens: number of output_tokens in the reasoning block, marks included, or None if unknown.
        reasoning_closed: whether the block was closed, or None without a block. If it is not closed, ``text`` is "".
        stop_in_reasoning: whether a stop string occurred inside the reasoning; it does not end generation there.
        cached_tokens: prompt tokens reused from the previous prompt's KV cache.
        prompt_tokens: number of prompt tokens if the backend counted them itself.
        served_model: the server's name for the model that answered, or None for other backends, or without a name.
        ended_by_stop: whether a stop string or stop token ended the answer.
        output_ids: all generated tokens, including reasoning with its marks, stop strings and the ending token; None if
            the backend does not expose them.
    """

    text: str
    output_tokens: int | None
    finish_reason: str
    reasoning: str | None = None
    reasoning_tokens: int | None = 0
    reasoning_closed: bool | None = None
    stop_in_reasoning: bool = False
    cached_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    prompt_tokens: int | None = None
    served_model: str | None = None
    ended_by_stop: bool = False
    output_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """Value of a metric for a generation.

    Attributes:
        extracted: the answer that the metric extracted, or "" if extraction failed, None if the metric uses the whole
            output.
        error: reason why the official script would stop at this sample, aborting its run; the score is then 0.
        partial: the missing part of the score, e.g. "no embedding model: only ROUGE-L", or None if complete.
        loose: whether the answer is right by a loose match, or None if the metric does not search for a reference.
    """

    metric: str
    score: float
    extracted: str | None = None
    error: str | None = None
    partial: str | None = None
    loose: bool | None = None


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """Sample of a run with the scores of its answer, for the methods ``aggregate`` and ``groups`` of a benchmark.

    Attributes:
        cluster: key shared by related questions, such as the hash of their document, or "" if unknown.
        reasoned: whether the model wrote a reasoning block before the answer.
    """

    sample: Sample
    scores: Mapping[str, float]
    iteration: int = 0
    partial: bool = False
    cluster: str = ""
    reasoned: bool = False


NO_COLUMN = {"column": False}
"""Metadata of fields of a ``TableRow`` that are not columns."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """Row of a table of the results file, with a field for each column. Times are timezone-aware."""

    def values(self) -> dict[str, object]:
        """Return {column: value}, with values of JSON's types.

        ``dataclasses.asdict`` would copy each value, for some hundred thousand rows.
        """
        pairs = ((column.name, getattr(self, column.name)) for column in fields(self) if not column.metadata)
        return {name: _utc(value) if isinstance(value, datetime) else value for name, value in pairs}


def _utc(time: datetime) -> str:
    return time.astimezone(UTC).replace(tzinfo=None).isoformat()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Retrieved chunk of a document, used in the prompt instead of the document.

    Attributes:
        index, rank: position among the document's chunks, and rank by score, both from 0.
        score: the retriever's score; scores of different retrievers cannot be compared.
    """

    index: int
    rank: int
    score: float
    text: str


class SimilarityInput(NamedTuple):
    """Input of a metric that compares embeddings: a text and its references."""

    text: str
    references: tuple[str, ...]


def canonical_json(value: object) -> str:
    """Serialize a value to JSON with sorted keys and no spaces: equal values give equal texts."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
