"""Comparison of two models on the same prompts: token ids, logits, greedy answers, scores.

Only one model is in memory at a time. The first model answers every prompt greedily; the logits at the first positions
of each answer are kept on disk. The second model is then fed the first one's token ids, so that only the weights and
the arithmetic can differ: its logits are taken after the prompt and after each token of the first one's answer,
regardless of its own choice. The greedy answers of both models are compared, too. Models with different
vocabularies share no logits: each gets its own tokens, and only answers and scores are compared.

Differences are those of logits after a given text, and the first differing token of answers. The summary is by task,
over all prompts, and against a bound on logits.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BackendError, PromptError
from lbx.base.records import Completion, Prompt, Request, Sample, SampleKey, Sampling, ScoredSample, Task, Truncation
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.needle import Needle, NeedleSettings, make_prompt, make_sample
from lbx.engine.batching import complete
from lbx.engine.model import Backend, BackendInfo, BulkExtension, LocalBackend, SequenceExtension, bulk_tokens
from lbx.engine.prefix import common_prefix_length
from lbx.engine.prompter import Prompter
from lbx.options.asking import PLAIN as PLAIN_MODE
from lbx.options.sample_selection import Selection

if TYPE_CHECKING:
    from lbx.engine.model import Logits


@dataclass(frozen=True, slots=True)
class LogitDifference:
    """Difference of two models' logits over a number of positions.

    Attributes:
        positions: number of compared positions; all means are over these.
        max_abs: largest |a - b| of any token at any position.
        mean_abs: mean |a - b| over tokens and positions.
        kl, max_kl: Kullback-Leibler divergence of the second model's distribution from the first one's, KL(a || b),
            in nats: its mean and its maximum.
        same_top: number of positions with the same likeliest token in both models.
    """

    positions: int = 0
    max_abs: float = 0.0
    mean_abs: float = 0.0
    kl: float = 0.0
    max_kl: float = 0.0
    same_top: int = 0

    @property
    def top_agreement(self) -> float:
        """Share of the positions with the same likeliest token, or 0 without positions."""
        return self.same_top / self.positions if self.positions else 0.0

    def to_json(self) -> dict[str, Any]:
        values = asdict(self) | {"top_agreement": self.top_agreement}
        del values["same_top"]
        return values


NO_DIFFERENCE = LogitDifference()
"""Difference over no positions."""


def compare_logits(a: Logits, b: Logits) -> LogitDifference:
    """Compare two models' logits at one position.

    Shapes (vocabulary,); vocabularies of different sizes (padding) are compared on their common tokens.
    """
    import numpy as np

    size = min(len(a), len(b))
    first, second = a[:size].astype(np.float64), b[:size].astype(np.float64)
    apart = np.abs(np.subtract(first, second, where=first != second, out=np.zeros(size)))
    p, q = _log_softmax(first), _log_softmax(second)
    possible = np.exp(p) > 0
    kl = max(0.0, float(np.sum(np.exp(p[possible]) * (p[possible] - q[possible]))))
    same = int(np.argmax(first) == np.argmax(second))
    return LogitDifference(1, float(apart.max()), float(apart.mean()), kl, kl, same)


def merge_differences(differences: Iterable[LogitDifference]) -> LogitDifference:
    measured = [item for item in differences if item.positions]
    total = sum(item.positions for item in measured)
    if not total:
        return NO_DIFFERENCE
    return LogitDifference(
        positions=total,
        max_abs=max(item.max_abs for item in measured),
        mean_abs=sum(item.mean_abs * item.positions for item in measured) / total,
        kl=sum(item.kl * item.positions for item in measured) / total,
        max_kl=max(item.max_kl for item in measured),
        same_top=sum(item.same_top for item in measured),
    )


def _log_softmax(logits: Any) -> Any:
    import numpy as np

    shifted = logits - logits.max()
    return shifted - np.log(np.sum(np.exp(shifted)))


class FirstDifference(NamedTuple):
    """First difference between two models' answers to one prompt.

    Attributes:
        position: index of the first differing token.
        gap: logit of the token chosen there minus the logit of the other answer's token, or None if the model has no
            such token.
    """

    position: int
    gap: float | None


class DifferenceWatch:
    """Token watch that stores the first difference of an answer from another answer in ``first_difference``."""

    def __init__(self, other: Sequence[int]) -> None:
        self._other = other
        self.first_difference: FirstDifference | None = None

    def __call__(self, position: int, logits: Logits, token: int) -> None:
        if self.first_difference is None and position < len(self._other) and token != (other := self._other[position]):
            self.first_difference = FirstDifference(
                position, float(logits[token] - logits[other]) if other < len(logits) else None
            )


def forced_logits(backend: LocalBackend, prompt: Sequence[int], tokens: Sequence[int]) -> Iterator[Logits]:
    """Yield the logits after a prompt, and after each of the tokens that are fed after the prompt.

    Raises:
        BackendError: the model failed.
    """
    memory = backend.sequences()

    def extend(ids: Sequence[int]) -> Logits:
        (logits,) = memory.extend([SequenceExtension(0, ids, wants_logits=True)])
        assert logits is not None
        return logits

    bulk, step = bulk_tokens(len(prompt), memory.traits.bulk), memory.max_step
    try:
        for at in range(0, bulk, step):
            memory.extend([BulkExtension(0, prompt[at : min(at + step, bulk)], wants_logits=False)])
        for at in range(bulk, len(prompt), step):
            logits = extend(prompt[at : at + step])
        yield logits
        yield from (extend((token,)) for token in tokens)
    finally:
        memory.drop(0)


ParityProgress = Callable[[str, int, int], None]
"""Callback for progress: model name, number of answered prompts, number of prompts."""


@dataclass(frozen=True, slots=True)
class ParityModel:
    """Model in a comparison: loaded, with a prompter."""

    backend: Backend
    prompter: Prompter

    @property
    def has_tokenizer(self) -> bool:
        """Whether prompts are counted in tokens, or else, for a server without a known tokenizer, in characters."""
        return self.backend.info.counts_tokens


@dataclass(frozen=True, slots=True)
class _FirstResult:
    """Results of the first model for a prompt.

    Attributes:
        plain: ids of the prompt's whole text, without BOS and chat template, or None without a tokenizer.
        logits: file of shape (positions, vocabulary).
    """

    plain: tuple[int, ...] | None
    request: Request | None = None
    completion: Completion | None = None
    logits: Path | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PromptParity:
    """Comparison of two models on one prompt.

    Attributes:
        prompt_tokens: count by the first model, or 0 if the prompt could not be run.
        same_ids: whether both tokenizers turn the prompt's text into the same ids, or None without two tokenizers.
        first_id_difference: index of the first differing id.
        same_prompt: whether the ids that a run would feed are equal: BOS, chat template and truncation included.
        logits: differences at the compared positions.
        same_output: whether the greedy answers have the same tokens, or the same text if the vocabularies differ; None
            if either is missing.
        first_difference: first differing token of the answers, and the second model's preference for its own token.
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
    first_difference: FirstDifference | None = None
    outputs: tuple[str, str] | None = None
    reasoned: tuple[bool, bool] = (False, False)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Parity:
    """Comparison of two models over all prompts.

    Attributes:
        same_vocabulary: whether both models use the same token ids, or None without two tokenizers.
        not_compared: sentences on parts that could not be compared, with reasons.
    """

    first: BackendInfo
    second: BackendInfo
    same_vocabulary: bool | None
    not_compared: tuple[str, ...]
    prompts: tuple[PromptParity, ...]


def compare_models(
    prompts: Sequence[ParityPrompt],
    load: tuple[Callable[[], ParityModel], Callable[[], ParityModel]],
    *,
    positions: int,
    folder: Path,
    progress: ParityProgress = lambda _name, _done, _total: None,
) -> Parity:
    """Compare two models on prompts. The second model is loaded after the first is closed.

    Args:
        positions: number of tokens of each answer to compare logits after, besides the position after the prompt.
        folder: folder for the first model's logits, 4 bytes x vocabulary x (positions + 1) per prompt.

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
        # Whether both models give most texts the same ids, as only programs with the same vocabulary do
        if not second.has_tokenizer or any(result.plain is None for result in firsts):
            same_vocabulary = None
        else:
            agreeing = sum(
                _plain(second, prompt) == result.plain for prompt, result in zip(prompts, firsts, strict=True)
            )
            same_vocabulary = 2 * agreeing >= len(prompts)
        reasons = _limitations(info, second, same_vocabulary, steps)
        measured: list[PromptParity] = []
        for number, (prompt, first_result) in enumerate(zip(prompts, firsts, strict=True)):
            measured.append(_compare(second, prompt, first_result, same_vocabulary=bool(same_vocabulary)))
            if first_result.logits is not None:
                first_result.logits.unlink()
            progress(second.backend.info.model, number + 1, len(prompts))
        return Parity(info, second.backend.info, same_vocabulary, not_compared=reasons, prompts=tuple(measured))
    finally:
        second.backend.close()


def _plain(model: ParityModel, prompt: ParityPrompt) -> tuple[int, ...] | None:
    return tuple(model.backend.tokenizer.encode(prompt.prompt.text, special=False)) if model.has_tokenizer else None


def _request(model: ParityModel, prompt: ParityPrompt) -> Request:
    return model.prompter.request(prompt.key, prompt.prompt, Sampling())


def _run_first(model: ParityModel, prompt: ParityPrompt, logits_path: Path, positions: int) -> _FirstResult:
    import numpy as np

    plain = _plain(model, prompt)
    logits_rows: list[Logits] = []

    def keep(at: int, logits: Logits, _token: int) -> None:
        if at <= positions:
            logits_rows.append(logits)

    try:
        request = _request(model, prompt)
        answer = complete(model.backend, request, keep)
    except (PromptError, BackendError) as exc:
        return _FirstResult(plain, problem=f"{model.backend.info.model}: {exc.cause}")
    if logits_rows:
        np.save(logits_path, np.stack(logits_rows))
    return _FirstResult(plain, request, answer, logits_path if logits_rows else None)


def _limitations(first: BackendInfo, model: ParityModel, same_vocabulary: bool | None, steps: bool) -> tuple[str, ...]:
    second = model.backend.info
    reasons: list[str] = []
    if same_vocabulary is None:
        reasons.append("Token ids: a server without [tokenizer] in its card does not return them.")
    for info, shows in ((first, steps), (second, isinstance(model.backend, LocalBackend))):
        if not shows:
            reasons.append(f"Logits: the backend {info.name} of {info.model} does not return them.")
    if same_vocabulary is False:
        reasons.append(
            f"Logits: {first.model} and {second.model} have different vocabularies, so their logits cannot be "
            "compared. Each model got its own tokens, and their answers are compared as text."
        )
    return tuple(reasons)


def _compare(model: ParityModel, prompt: ParityPrompt, first: _FirstResult, *, same_vocabulary: bool) -> PromptParity:
    plain = _plain(model, prompt)
    same_ids, id_difference = None, None
    if plain is not None and first.plain is not None:
        same_ids = plain == first.plain
        id_difference = None if same_ids else common_prefix_length(first.plain, plain)
    if first.request is None or first.completion is None:
        return PromptParity(prompt, 0, same_ids, id_difference, problem=first.problem)
    tokens = len(first.request.token_ids)
    same_prompt: bool | None = None
    try:
        own_request = _own_request(model, prompt, required=not same_vocabulary)
        same_prompt = (
            None if same_ids is None else own_request is not None and own_request.token_ids == first.request.token_ids
        )
        if same_vocabulary and isinstance(model.backend, LocalBackend) and first.logits is not None:
            logits, first_difference, answer = _follow(model.backend, first)
        else:
            request = first.request if same_vocabulary or own_request is None else own_request
            logits, first_difference, answer = NO_DIFFERENCE, None, complete(model.backend, request)
    except (PromptError, BackendError) as exc:
        problem = f"{model.backend.info.model}: {exc.cause}"
        return PromptParity(prompt, tokens, same_ids, id_difference, same_prompt, problem=problem)
    same = first_difference is None and (answer.text, answer.reasoning) == (
        first.completion.text,
        first.completion.reasoning,
    )
    outputs = (first.completion.text, answer.text)
    reasoned = (first.completion.reasoning is not None, answer.reasoning is not None)
    return PromptParity(
        prompt, tokens, same_ids, id_difference, same_prompt, logits, same, first_difference, outputs, reasoned
    )


def _own_request(model: ParityModel, prompt: ParityPrompt, *, required: bool) -> Request | None:
    """Make the model's own request for a prompt, or None if the prompt does not fit and is not ``required``."""
    try:
        return _request(model, prompt)
    except PromptError:
        if required:
            raise
        return None


def _follow(backend: LocalBackend, first: _FirstResult) -> tuple[LogitDifference, FirstDifference | None, Completion]:
    """Compare the second model's logits along the first model's answer, and make the second model's own answer.

    One pass gives both as long as the answers agree; after the first difference the rest is computed again.
    """
    import numpy as np

    assert first.request is not None and first.completion is not None and first.logits is not None
    request, tokens = first.request, first.completion.output_ids or ()
    first_logits = np.load(first.logits, mmap_mode="r")
    differences: list[LogitDifference] = []
    watcher = DifferenceWatch(tokens)

    def watch(position: int, logits: Logits, token: int) -> None:
        if watcher.first_difference is None and position < len(first_logits):
            differences.append(compare_logits(first_logits[position], logits))
        watcher(position, logits, token)

    answer = complete(backend, request, watch)
    if len(differences) < len(first_logits):
        for position, logits in enumerate(forced_logits(backend, request.token_ids, tokens[: len(first_logits) - 1])):
            if position >= len(differences):
                differences.append(compare_logits(first_logits[position], logits))
    return merge_differences(differences), watcher.first_difference, answer


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
    """Prompt that both models answer.

    Attributes:
        sample, benchmark: source of the prompt, so that answers can be scored, or None for built-in texts.
        bundle: the sample's bundle, or None for built-in texts.
    """

    key: SampleKey
    prompt: Prompt
    sample: Sample | None = None
    benchmark: Benchmark | None = None
    bundle: Bundle | None = None

    @property
    def task(self) -> str:
        return f"{self.key.benchmark}/{self.key.task}"


def built_in_prompts() -> list[ParityPrompt]:
    """Make prompts without a bundle: needles in short texts of two languages, and texts that challenge tokenizers."""
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

    Both models read the same prompts. Samples that depend on a model are made for one of the two models.

    Raises:
        BundleError: a data file is damaged, or a prompt is missing.
    """
    for task in tasks:
        benchmark = benchmarks[task.benchmark]
        for _, sample in selection.select(task, benchmark.samples(bundle, task.name)):
            yield ParityPrompt(sample.key, benchmark.prompt(bundle, sample), sample, benchmark, bundle)


ALL = "all"


@dataclass(frozen=True, slots=True)
class TaskParity:
    """Comparison of two models, summed over the prompts of a task or over all prompts.

    Attributes:
        task: BENCHMARK/TASK, or "all".
        prompts: number of prompts.
        compared: number of prompts that both models answered.
        same_ids, same_prompts: number of prompts with the same ids, as plain text and as fed by a run, or None if token
            ids could not be compared.
        logits: differences at the positions of all prompts.
        same_outputs: number of equal greedy answers among ``compared``.
        median_first_difference: median index of the first differing token over differing answers, or None without any,
            or without known tokens.
        median_gap, max_gap: the second model's preference for its own token there.
        metric: headline metric, or "" for answers without one.
        score_first, score_second: score of each model, in 0..1, over the ``compared`` prompts.
    """

    task: str
    prompts: int
    compared: int
    same_ids: int | None
    same_prompts: int | None
    logits: LogitDifference
    same_outputs: int
    median_first_difference: float | None
    median_gap: float | None
    max_gap: float | None
    metric: str = ""
    score_first: float | None = None
    score_second: float | None = None

    @property
    def difference(self) -> float | None:
        """Score of the second model minus score of the first."""
        return None if self.score_first is None or self.score_second is None else self.score_second - self.score_first

    def to_json(self) -> dict[str, Any]:
        logits = self.logits.to_json() if self.logits.positions else None
        return asdict(self) | {"logits": logits, "metric": self.metric or None, "difference": self.difference}


def summarise_by_task(parity: Parity) -> list[TaskParity]:
    """Summarise a comparison by task, then over all prompts. The total of several tasks contains no score."""
    tasks: dict[str, list[PromptParity]] = {}
    for comparison in parity.prompts:
        tasks.setdefault(comparison.prompt.task, []).append(comparison)
    rows = [_summarise(task, prompts, with_scores=True) for task, prompts in tasks.items()]
    return [*rows, _summarise(ALL, parity.prompts, with_scores=len(tasks) == 1)]


def _summarise(task: str, prompts: Sequence[PromptParity], *, with_scores: bool) -> TaskParity:
    gaps = [
        comparison.first_difference.gap
        for comparison in prompts
        if comparison.first_difference and comparison.first_difference.gap is not None
    ]
    positions = [comparison.first_difference.position for comparison in prompts if comparison.first_difference]
    metric, first, second = _scores(prompts) if with_scores else ("", None, None)
    return TaskParity(
        task=task,
        prompts=len(prompts),
        compared=sum(comparison.same_output is not None for comparison in prompts),
        same_ids=_count([comparison.same_ids for comparison in prompts]),
        same_prompts=_count([comparison.same_prompt for comparison in prompts]),
        logits=merge_differences(comparison.logits for comparison in prompts),
        same_outputs=sum(bool(comparison.same_output) for comparison in prompts),
        median_first_difference=median(positions) if positions else None,
        median_gap=median(gaps) if gaps else None,
        max_gap=max(gaps) if gaps else None,
        metric=metric,
        score_first=first,
        score_second=second,
    )


def _count(flags: Sequence[bool | None]) -> int | None:
    values = [flag for flag in flags if flag is not None]
    return sum(values) if values else None


def _scores(prompts: Sequence[PromptParity]) -> tuple[str, float | None, float | None]:
    """Return the headline metric, and the official aggregate for each model."""
    both = [
        comparison
        for comparison in prompts
        if comparison.outputs is not None and comparison.prompt.benchmark is not None
    ]
    if not both:
        return "", None, None
    scores = [_score(both, side) for side in (0, 1)]
    return scores[0][0], scores[0][1], scores[1][1]


def _score(prompts: Sequence[PromptParity], side: int) -> tuple[str, float]:
    rows: list[ScoredSample] = []
    for comparison in prompts:
        benchmark, sample, outputs = comparison.prompt.benchmark, comparison.prompt.sample, comparison.outputs
        assert benchmark is not None and sample is not None and outputs is not None
        output = outputs[side]
        if bundle := comparison.prompt.bundle:
            step = benchmark.next_step(bundle, sample, PLAIN_MODE, [output])
            output = step if isinstance(step, str) else output
        scores = benchmark.score(sample, output)
        values = {score.metric: score.score for score in scores}
        rows.append(ScoredSample(sample, values, reasoned=comparison.reasoned[side]))
    benchmark = prompts[0].prompt.benchmark
    assert benchmark is not None
    headline = benchmark.aggregate(prompts[0].prompt.key.task, rows)[0]
    return headline.metric, headline.score


def explain_excess(parity: Parity, bound: float) -> str:
    """Explain how the difference of two models exceeds a bound on logits, or "" if it does not."""
    (*_, total) = summarise_by_task(parity)
    if total.compared < total.prompts:
        return f"{total.prompts - total.compared} of {total.prompts} prompts were not answered by both models"
    if total.same_ids != total.prompts:
        return f"{total.prompts - (total.same_ids or 0)} of {total.prompts} prompts do not have equal token ids"
    if not total.logits.positions:
        return "no logits could be compared"
    if not total.logits.max_abs <= bound:
        return f"the largest logit difference is {total.logits.max_abs:.3g}"
    return ""


def to_json(parity: Parity) -> dict[str, Any]:
    *tasks, total = summarise_by_task(parity)
    return {
        "first": _info_json(parity.first),
        "second": _info_json(parity.second),
        "same_vocabulary": parity.same_vocabulary,
        "not_compared": list(parity.not_compared),
        "all": total.to_json(),
        "tasks": [task.to_json() for task in tasks],
        "prompts": [
            {
                "task": comparison.prompt.task,
                "sample_id": comparison.prompt.key.sample_id,
                "prompt_tokens": comparison.prompt_tokens,
                "same_ids": comparison.same_ids,
                "first_id_difference": comparison.first_id_difference,
                "same_prompt": comparison.same_prompt,
                "logits": comparison.logits.to_json() if comparison.logits.positions else None,
                "same_output": comparison.same_output,
                "first_difference": comparison.first_difference.position if comparison.first_difference else None,
                "gap": comparison.first_difference.gap if comparison.first_difference else None,
                "outputs": list(comparison.outputs) if comparison.outputs else None,
                "problem": comparison.problem or None,
            }
            for comparison in parity.prompts
        ],
    }


def _info_json(info: BackendInfo) -> dict[str, Any]:
    settings: Mapping[str, Any] = info.settings
    return {
        "model": info.model,
        "backend": info.name,
        "version": info.version,
        "context_window": info.context_window,
        "settings": dict(settings),
    }
