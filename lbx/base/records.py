"""The values that travel between rooms: frozen, plain, and free of behaviour that needs a library."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from lbx.base.run_options import PromptOptions

if TYPE_CHECKING:
    from lbx.statistics.estimates import Estimate


def sha256_text(text: str) -> str:
    """SHA-256 of the text's UTF-8 bytes, hex. A lone surrogate, which UTF-8 has no form for, is kept as its code."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def encodable(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD: they have no UTF-8 form, and tokenizers fail on them.

    A high and a low surrogate that stand together become the character they mean.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class SampleKey(NamedTuple):
    """What names one generation inside a run; the primary key of ``generations`` without ``run_id``."""

    benchmark: str
    task: str
    sample_id: str
    iteration: int = 0

    def __str__(self) -> str:
        return f"{self.benchmark}/{self.task}/{self.sample_id}" + (f"#{self.iteration}" if self.iteration else "")


@dataclass(frozen=True, slots=True)
class Task:
    """One row of ``lbx tasks``: something that ``--tasks`` can name.

    Attributes:
        metrics: names of the per-sample metrics; the first is the headline.
        unscored: how many of them are asked for judges and people alone: no metric gives them anything.
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
    """One question about one document, as the benchmark's data file holds it.

    Attributes:
        sample_id: unique inside (benchmark, task) and stable between runs.
        context: the long document; "" where the benchmark's mode shows none.
        references: the accepted answers, in the data's order.
        length: the document's length in ``length_unit`` ("words", "characters", "tokens").
        meta: what else the metric or the report needs (JSON values only).
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


class Truncation(StrEnum):
    """What to do with a prompt that is longer than its limit. Tokens, not characters, are counted.

    MIDDLE: keep int(limit/2) tokens of each end of the whole prompt (LongBench v1, LV-Eval).
    MIDDLE_FLOOR: keep ids[:limit//2] + ids[-limit//2:] (LongBench v2 and Pro: an odd limit keeps one more at the end).
    DOCUMENT_MIDDLE, DOCUMENT_END: cut that part of the document, and never the question (benchmarks of one's own).
    WORDS_END: keep as many of the document's first words as its limit has tokens, then 250 fewer each time, until its
        tokens are within the limit and the whole prompt fits; the question is never cut (L-Eval).
    WORDS_START: the same with its last words (L-Eval's codeU).
    REFUSE: never cut; the sample fails (needle, where a cut could remove what is asked for).
    """

    MIDDLE = "middle"
    MIDDLE_FLOOR = "middle_floor"
    DOCUMENT_MIDDLE = "document_middle"
    DOCUMENT_END = "document_end"
    WORDS_END = "words_end"
    WORDS_START = "words_start"
    REFUSE = "refuse"


@dataclass(frozen=True, kw_only=True)
class Mode(PromptOptions):
    """The options of a run as benchmarks take them. The defaults are every benchmark's plain way.

    Attributes:
        thinking: the model is to reason first: prompts and budgets for that, where the benchmark has its own.
        thinking_tokens: a reasoning budget apart from the answer's; 0 means that one budget serves both.
        context_window: of the model, in tokens; 0 where there is no model.
        reasoning_block: whether the model reasons in a block of its own, whatever the prompt says; LongBench Pro
            asks such a model the plain question.
    """

    thinking: bool = False
    thinking_tokens: int = 0
    context_window: int = 0
    reasoning_block: bool = False


PLAIN = Mode()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as text, before tokens; the user's message is ``before + document + after``.

    Attributes:
        max_new_tokens: the answer's budget in tokens.
        budget_for_both: the authors meant max_new_tokens for reasoning and answer together, so that no default
            reasoning budget is added.
        truncation: the benchmark's own rule for a prompt that is too long.
        chat: False where the benchmark feeds the bare text even to chat models (few-shot and code tasks).
        system: the system message: a message of its own where the model's chat template takes one, else it precedes
            the text.
        system_gap: what separates the system message from the text it precedes.
        turns: messages behind the text, the assistant's and the user's by turns, the last the user's: of a model's chat
            template messages of their own, else they stand behind the text, a blank line before each.
        stop: strings that end the answer; they are not part of it.
        stop_tokens: texts whose token ends the answer, as an end of sequence does; longer tokens that hold such a
            text end nothing (LongBench's samsum: the line break's token).
        min_new_tokens: tokens before which neither end-of-sequence nor a stop ends the answer.
        temperature: the benchmark's own sampling temperature; None means greedy.
        model_sampling: the benchmark samples as the model's makers recommend, and at temperature 1 where they say
            nothing (LongBench Pro); ``temperature`` is then of no account.
        limits: the prompt's limit in tokens by the model's context window, where the authors fixed one,
            e.g. {4096: 3500}; any other window gets all that the answer's budget leaves. By the WORDS rules it is
            the document's limit.
        source: where the text came from, e.g. the file in the bundle ("lbx" when it is lbx's own).
    """

    before: str
    document: str
    after: str
    max_new_tokens: int
    truncation: Truncation
    chat: bool = True
    system: str = ""
    system_gap: str = ""
    turns: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[str, ...] = ()
    min_new_tokens: int = 0
    temperature: float | None = None
    model_sampling: bool = False
    budget_for_both: bool = False
    limits: Mapping[int, int] = field(default_factory=dict)
    source: str = "lbx"

    @property
    def text(self) -> str:
        return self.before + self.document + self.after

    @property
    def system_in_text(self) -> Prompt:
        """The same with its system message in the text."""
        if not self.system:
            return self
        return replace(self, system="", before=self.system + self.system_gap + self.before)

    @property
    def in_one_message(self) -> Prompt:
        """The same with its turns in the text."""
        return replace(self, turns=(), after="\n\n".join((self.after, *self.turns))) if self.turns else self


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. temperature 0 is greedy, and then nothing else matters.

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
    """A prompt as the model will read it.

    Attributes:
        token_ids: the whole prompt, BOS included.
        original_tokens: tokens of the untruncated prompt, chat wrapping not counted where truncation precedes it.
        tokens_cut: tokens of the untruncated prompt that were cut away.
        kept: what was left of the prompt's text by truncation; "" where nothing was cut.
        bos_tokens: how many BOS tokens ``token_ids`` begins with; more than one is a fault.
        prompt_sha256: of the text the model reads, chat wrapping included.
        opens_reasoning: the prompt itself ends in an opening mark such as "<think>", so the answer begins inside the
            reasoning.
        thinking_tokens: a budget for the reasoning, apart from max_new_tokens, which then is the answer's alone;
            0 means that max_new_tokens is for both.
        system: the system message that ``token_ids`` begin with where a server wraps prompts: it travels apart.
        turns: of ``Prompt.turns``, where a server wraps prompts: ``token_ids`` end with them, and they travel apart.
        system_place: where the prompt's system message stands: in a "message" of its own, or before the user's
            "text"; None where there is none.
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
        """Every text that ends the answer, as a string or as a token."""
        return tuple(stop for stop in (*self.stop, *self.stop_tokens) if stop)


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model said.

    Attributes:
        text: the answer: the decoded new tokens, control tokens and reasoning left out, stop string removed.
        output_tokens: how many new tokens were made, reasoning included, the ending token not counted.
        finish_reason: "stop" (end of sequence or a stop string) or "length" (a budget ran out).
        reasoning: what stood in the reasoning block, without its marks; None where there was none.
        reasoning_tokens: how many of output_tokens were reasoning, marks included.
        reasoning_closed: whether the block was closed; None where there was none. An open one leaves ``text`` "".
        stop_in_reasoning: a stop string stood inside the reasoning, where it ends nothing.
        cached_tokens: prompt tokens that were not computed again, because the previous prompt shared them.
        prompt_tokens: how many tokens the prompt had where the model counted them itself; None: those of the request.
        output_ids: every token as it came: reasoning and its marks, those of a stop string, and the ending token
            included; None where the backend does not show them.
    """

    text: str
    output_tokens: int
    finish_reason: str
    reasoning: str | None = None
    reasoning_tokens: int = 0
    reasoning_closed: bool | None = None
    stop_in_reasoning: bool = False
    cached_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    prompt_tokens: int | None = None
    output_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """One metric of one generation.

    Attributes:
        extracted: what the metric took for the answer; "" where it looked for one and found none, None where it takes
            the whole output.
        error: why the official script would stop on this sample, and its whole run with it; the score is 0 then.
        partial: what the score lacks, e.g. "no embedding model: ROUGE-L alone"; None for a whole one.
    """

    metric: str
    score: float
    extracted: str | None = None
    error: str | None = None
    partial: str | None = None


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """A sample beside its metrics' values {metric: score}, as ``aggregate`` and ``groups`` take them.

    Attributes:
        cluster: what its questions share, as the hash of a document; "" where nobody knows.
        reasoned: whether the model wrote a block of reasoning, which is not part of the answer.
    """

    sample: Sample
    scores: Mapping[str, float]
    iteration: int = 0
    partial: bool = False
    cluster: str = ""
    reasoned: bool = False


@dataclass(frozen=True, slots=True)
class TaskScore:
    """One number of a task.

    Attributes:
        score: in 0..1.
        official: as the benchmark's own script prints it; None where that has no such number, or not from these rows.
        estimate: the samples' part in ``score``, which its interval is made of.
    """

    metric: str
    n: int
    score: float
    official: float | None
    partial: bool = False
    estimate: Estimate | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class GroupScore:
    """One number over several tasks, or over a part of the samples across tasks.

    Attributes:
        grouping: what the groups go by: "overall", "category", "length", "language", "domain" ...
        name: the group: "single-document QA", "8k", "en"; "all" under "overall".
        metric: which number of the group: "average", "accuracy", "pass@3" ...
    """

    grouping: str
    name: str
    metric: str
    n: int
    score: float
    official: float | None = None
    partial: bool = False
    estimate: Estimate | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A retrieved piece of a document, as it takes the document's place in a prompt.

    Attributes:
        index, rank: its places among the document's chunks and by score, from 0.
        score: by the retriever; scores of different retrievers cannot be compared.
    """

    index: int
    rank: int
    score: float
    text: str


class Compared(NamedTuple):
    """Texts whose likeness a metric needs from an embedding model: one against each of several."""

    text: str
    references: tuple[str, ...]


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: the same value always gives the same text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
