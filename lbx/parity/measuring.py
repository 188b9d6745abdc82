"""Compare two models on the same prompts: token ids, logits, greedy answers, scores.

Only one model is in memory at a time. The first model answers every prompt greedily; the logits at the first positions
of each answer are kept on disk. The second model is then fed the first one's token ids, so that only the weights and
the arithmetic can differ: its logits are taken after the prompt and after each token of the first one's answer,
regardless of its own choice. Its own greedy answers are compared with the first one's. Models with different
vocabularies have no common logits: each gets its own tokens, and only answers and scores are compared.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lbx.base.errors import BackendError, PromptError
from lbx.base.layout import Bundle
from lbx.base.records import Completion, Prompt, Request, Sample, SampleKey, Sampling, Task, Truncation
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.needle import Needle, NeedleSettings, make_prompt, make_sample
from lbx.inference.completing import complete
from lbx.inference.model import Backend, BackendInfo, LocalBackend
from lbx.inference.prefix import common_prefix
from lbx.parity.differences import NO_DIFFERENCE, Flip, FlipWatch, LogitDifference, compare, forced_logits, merge
from lbx.prompting.prompter import Prompter
from lbx.spec.selection import Selection

if TYPE_CHECKING:
    from lbx.inference.model import Logits

ParityProgress = Callable[[str, int, int], None]
"""Callback for progress: model name, number of answered prompts, number of prompts."""


@dataclass(frozen=True, slots=True)
class ParityModel:
    """Loaded model with its prompter."""

    backend: Backend
    prompter: Prompter

    @property
    def has_tokenizer(self) -> bool:
        """False for a server without one: its prompts are counted in characters."""
        return self.backend.info.counts_tokens


@dataclass(frozen=True, slots=True)
class _FirstResult:
    """First model's results for a prompt.

    Attributes:
        plain: ids of the prompt's whole text, without BOS and chat template; None without a tokenizer.
        logits: file of shape (positions, vocabulary).
    """

    plain: tuple[int, ...] | None
    request: Request | None = None
    completion: Completion | None = None
    logits: Path | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PromptParity:
    """Comparison of one prompt.

    Attributes:
        prompt_tokens: count by the first model; 0 if the prompt could not be run.
        same_ids: whether both tokenizers turn the prompt's text into the same ids; None without two tokenizers.
        first_id_difference: index of the first differing id.
        same_prompt: whether the ids that a run would feed are equal: BOS, chat template and truncation included.
        logits: differences at the compared positions.
        same_output: whether the greedy answers have the same tokens, or the same text if the vocabularies differ; None
            if either is missing.
        flip: first differing token of the answers, and the second model's preference for its own token.
        outputs, reasoned: answer of each model, and whether it wrote a block of reasoning.
        problem: reason, in a sentence, for a prompt that did not run on both models.
    """

    prompt: ParityPrompt
    prompt_tokens: int
    same_ids: bool | None = None
    first_id_difference: int | None = None
    same_prompt: bool | None = None
    logits: LogitDifference = NO_DIFFERENCE
    same_output: bool | None = None
    flip: Flip | None = None
    outputs: tuple[str, str] | None = None
    reasoned: tuple[bool, bool] = (False, False)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Parity:
    """Comparison over all prompts.

    Attributes:
        same_vocabulary: whether token ids mean the same to both; None without two tokenizers.
        not_compared: sentences with the parts that could not be compared, and the reasons.
    """

    first: BackendInfo
    second: BackendInfo
    same_vocabulary: bool | None
    not_compared: tuple[str, ...]
    prompts: tuple[PromptParity, ...]


def measure(
    prompts: Sequence[ParityPrompt],
    load: tuple[Callable[[], ParityModel], Callable[[], ParityModel]],
    *,
    positions: int,
    folder: Path,
    progress: ParityProgress = lambda _name, _done, _total: None,
) -> Parity:
    """Compare two models; the second is loaded after the first is closed.

    Args:
        positions: number of tokens of each answer to compare logits after, besides the position after the prompt.
        folder: for the first model's logits, 4 bytes x vocabulary x (positions + 1) per prompt.

    Raises:
        BackendError: a model cannot be loaded.
        OSError: the folder's disk is full.
    """
    first = load[0]()
    try:
        info = first.backend.info
        steps = isinstance(first.backend, LocalBackend)
        firsts: list[_FirstResult] = []
        for number, prompt in enumerate(prompts):
            firsts.append(_run_first(first, prompt, folder / f"{number}.npy", positions))
            progress(info.model, number + 1, len(prompts))
    finally:
        first.backend.close()
    del first
    gc.collect()
    second = load[1]()
    try:
        same_vocabulary = _same_vocabulary(second, prompts, firsts)
        reasons = _limitations(info, second, same_vocabulary, steps)
        measured: list[PromptParity] = []
        for number, (prompt, first_result) in enumerate(zip(prompts, firsts, strict=True)):
            measured.append(_compare(second, prompt, first_result, same_vocabulary=bool(same_vocabulary)))
            if first_result.logits is not None:
                first_result.logits.unlink()
            progress(second.backend.info.model, number + 1, len(prompts))
        return Parity(info, second.backend.info, same_vocabulary, reasons, tuple(measured))
    finally:
        second.backend.close()


def _plain(side: ParityModel, prompt: ParityPrompt) -> tuple[int, ...] | None:
    return tuple(side.backend.tokenizer.encode(prompt.prompt.text, special=False)) if side.has_tokenizer else None


def _request(side: ParityModel, prompt: ParityPrompt) -> Request:
    return side.prompter.request(prompt.key, prompt.prompt, Sampling())


def _run_first(side: ParityModel, prompt: ParityPrompt, logits_path: Path, positions: int) -> _FirstResult:
    import numpy as np

    plain = _plain(side, prompt)
    logits_rows: list[Logits] = []

    def keep(at: int, logits: Logits, _token: int) -> None:
        if at <= positions:
            logits_rows.append(logits)

    try:
        request = _request(side, prompt)
        answer = complete(side.backend, request, keep)
    except (PromptError, BackendError) as exc:
        return _FirstResult(plain, problem=f"{side.backend.info.model}: {exc.cause}")
    if logits_rows:
        np.save(logits_path, np.stack(logits_rows))
    return _FirstResult(plain, request, answer, logits_path if logits_rows else None)


def _same_vocabulary(side: ParityModel, prompts: Sequence[ParityPrompt], firsts: Sequence[_FirstResult]) -> bool | None:
    """Whether both models give most texts the same ids, as only programs with the same vocabulary do."""
    if not side.has_tokenizer or any(result.plain is None for result in firsts):
        return None
    agreeing = sum(_plain(side, prompt) == result.plain for prompt, result in zip(prompts, firsts, strict=True))
    return 2 * agreeing >= len(prompts)


def _limitations(first: BackendInfo, side: ParityModel, same_vocabulary: bool | None, steps: bool) -> tuple[str, ...]:
    second = side.backend.info
    reasons: list[str] = []
    if same_vocabulary is None:
        reasons.append("Token ids: a server without [tokenizer] in its card does not return them.")
    for info, shows in ((first, steps), (second, isinstance(side.backend, LocalBackend))):
        if not shows:
            reasons.append(f"Logits: the backend {info.name} of {info.model} does not return them.")
    if same_vocabulary is False:
        reasons.append(
            f"Logits: {first.model} and {second.model} have different vocabularies, so their logits cannot be "
            "compared. Each model got its own tokens, and their answers are compared as text."
        )
    return tuple(reasons)


def _compare(side: ParityModel, prompt: ParityPrompt, first: _FirstResult, *, same_vocabulary: bool) -> PromptParity:
    plain = _plain(side, prompt)
    same_ids, difference = None, None
    if plain is not None and first.plain is not None:
        same_ids = plain == first.plain
        difference = None if same_ids else common_prefix(first.plain, plain)
    if first.request is None or first.completion is None:
        return PromptParity(prompt, 0, same_ids, difference, problem=first.problem)
    tokens = len(first.request.token_ids)
    same_prompt: bool | None = None
    try:
        own_request = _own_request(side, prompt, required=not same_vocabulary)
        same_prompt = (
            None if same_ids is None else own_request is not None and own_request.token_ids == first.request.token_ids
        )
        if same_vocabulary and isinstance(side.backend, LocalBackend) and first.logits is not None:
            logits, flip, answer = _follow(side.backend, first)
        else:
            request = first.request if same_vocabulary or own_request is None else own_request
            logits, flip, answer = NO_DIFFERENCE, None, complete(side.backend, request)
    except (PromptError, BackendError) as exc:
        problem = f"{side.backend.info.model}: {exc.cause}"
        return PromptParity(prompt, tokens, same_ids, difference, same_prompt, problem=problem)
    same = flip is None and (answer.text, answer.reasoning) == (first.completion.text, first.completion.reasoning)
    outputs = (first.completion.text, answer.text)
    reasoned = (first.completion.reasoning is not None, answer.reasoning is not None)
    return PromptParity(prompt, tokens, same_ids, difference, same_prompt, logits, same, flip, outputs, reasoned)


def _own_request(side: ParityModel, prompt: ParityPrompt, *, required: bool) -> Request | None:
    """Request for the prompt as in a run; None if the model refuses a prompt that is not ``required``."""
    try:
        return _request(side, prompt)
    except PromptError:
        if required:
            raise
        return None


def _follow(backend: LocalBackend, first: _FirstResult) -> tuple[LogitDifference, Flip | None, Completion]:
    """Feed the first model's answer to the second: compare the logits, and make the second model's own answer.

    One pass gives both as long as the answers agree; after the first difference the rest is computed again.
    """
    import numpy as np

    assert first.request is not None and first.completion is not None and first.logits is not None
    request, tokens = first.request, first.completion.output_ids or ()
    first_logits = np.load(first.logits, mmap_mode="r")
    parts: list[LogitDifference] = []
    flip_watch = FlipWatch(tokens)

    def watch(position: int, logits: Logits, token: int) -> None:
        if flip_watch.flip is None and position < len(first_logits):
            parts.append(compare(first_logits[position], logits))
        flip_watch(position, logits, token)

    answer = complete(backend, request, watch)
    if len(parts) < len(first_logits):
        for position, logits in enumerate(forced_logits(backend, request.token_ids, tokens[: len(first_logits) - 1])):
            if position >= len(parts):
                parts.append(compare(first_logits[position], logits))
    return merge(parts), flip_watch.flip, answer


PLAIN = "plain"
"""Task name of the built-in texts."""

_NEEDLES = NeedleSettings(lengths=(64, 256, 1024), depths=(0.5,), samples_per_cell=2)
_NEW_TOKENS = 48

# Common failures of tokenizers and number formats: spaces, digits, quotes, code, scripts, emoji, control characters.
_TEXTS = (
    "The report of the harbour office begins with the year in which the old bridge was closed. In that year",
    "  Two leading spaces,  two inside,\n\n\ttabs and blank lines \n \n and one at the end ",
    "Invoice 2026-03-14: 1,204.50 + 87.25 = 1,291.75; 0.1 % of 12345678901234567890 is",
    "\"It isn't ours,\" they'd said; 'we'll see', you're told. I'VE said so. Whose is it?",
    "def area(width: float, height: float) -> float:\n    # returns square metres\n    return width *",
    '{"name": "north tower", "floors": [1, 2, 3], "open": true, "note": null, "size":',
    "第三次会议决定：港口从四月一日起关闭，为期两周。会议的第二项议题是",
    "Ｆｕｌｌ　ｗｉｄｔｈ ①②③ naïve café Straße Œuvre İstanbul e\u0301 \u200bzero\u200dwidth\u00a0space \ufeff",
    "日本語と한국어、العربية, עברית, हिन्दी, ไทย 👩‍👩‍👧‍👦🏳️‍🌈 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ∑∞≠",
    "<s> </s> <|user|> <|im_start|> [INST] are words here, not tokens; so is </think>, and so is",
    "\x00\x01\x07\x7f\r\n\r control characters, then a line that goes on and on and on and on and on and on and on",
)


@dataclass(frozen=True, slots=True)
class ParityPrompt:
    """Prompt for both models.

    Attributes:
        sample, benchmark: source of the prompt, so that answers can be scored; None for built-in texts.
    """

    key: SampleKey
    prompt: Prompt
    sample: Sample | None = None
    benchmark: Benchmark | None = None

    @property
    def task(self) -> str:
        return f"{self.key.benchmark}/{self.key.task}"


def built_in_prompts() -> list[ParityPrompt]:
    """Needles in short texts of two languages, and texts that are difficult for tokenizers."""
    needle = Needle()
    prompts = [
        ParityPrompt(sample.key, make_prompt(sample), sample, needle)
        for language in _NEEDLES.languages
        for length in _NEEDLES.lengths
        for index in range(_NEEDLES.samples_per_cell)
        for sample in [make_sample(_NEEDLES, "single", language, length=length, depth=0.5, index=index)]
    ]
    for number, text in enumerate(_TEXTS):
        prompt = Prompt("", text, "", _NEW_TOKENS, Truncation.REFUSE, chat=False)
        prompts.append(ParityPrompt(SampleKey("built-in", PLAIN, str(number)), prompt))
    return prompts


def bundle_prompts(
    bundle: Bundle, tasks: Sequence[Task], benchmarks: Mapping[str, Benchmark], selection: Selection
) -> Iterator[ParityPrompt]:
    """Yield the prompts of the chosen samples of each task, in the task's plain mode.

    Both models read the same prompts, so a family with samples for a model has them for one of the two.

    Raises:
        BundleError: a data file is damaged, or a prompt is missing.
    """
    for task in tasks:
        benchmark = benchmarks[task.benchmark]
        for _, sample in selection.select(task, benchmark.samples(bundle, task.name)):
            yield ParityPrompt(sample.key, benchmark.prompt(bundle, sample), sample, benchmark)
