"""Difference of models' next-token distributions by position in long texts (``lbx parity --depth``).

Only one model is in memory at a time. The reference model reads every text, and its distributions are kept on disk,
compressed (``lbx.running.distributions``). Each candidate then reads the same token ids.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lbx.base.errors import BackendError, UsageError
from lbx.engine.model import Backend, BackendInfo, TextBackend, TopBackend
from lbx.running.distributions import Distributions, PositionParity
from lbx.statistics.estimates import t_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.engine.model import Logits, TopLogProbs

FIRST_BIN = 1024
"""Size of the first bin of positions, in tokens. Each further bin ends at twice the position."""
MIN_TEXTS = 6
"""Smallest number of texts with an interval."""
DepthProgress = Callable[[str, int, int], None]
"""Callback for progress: model name, number of read tokens, number of tokens."""


@dataclass(frozen=True, slots=True)
class DepthText:
    """Text that all models read.

    Attributes:
        name: name in results, such as a sample's key.
        max_tokens: number of tokens to read at most, or 0 for the size of the reference's context window.
    """

    name: str
    text: str
    max_tokens: int = 0

    def token_ids(self, backend: Backend) -> list[int]:
        """Token ids of the text as a prompt without a chat template, with the BOS token of the model."""
        tokenizer = backend.tokenizer
        return [*tokenizer.prefix_ids, *tokenizer.encode(self.text, special=False)]


@dataclass(frozen=True, slots=True)
class BinParity:
    """Comparison of two models on one text's positions in a bin.

    Attributes:
        start, stop: the bin's positions are ``start`` to ``stop`` - 1, counted from 0.
        positions: number of compared positions, all but the last of a text's.
        kl: mean Kullback-Leibler divergence of the candidate from the reference, in nats.
        kl_p99, kl_max: 99th percentile and maximum of the divergence.
        same_top: share of positions with the same likeliest token.
        log_prob_reference, log_prob: mean log probability that each model gives the text's next token, in nats.
    """

    text: str
    start: int
    stop: int
    positions: int
    kl: float
    kl_p99: float
    kl_max: float
    same_top: float
    log_prob_reference: float
    log_prob: float

    @property
    def is_covered(self) -> bool:
        """Whether the text covers at least half of the bin's positions."""
        return 2 * self.positions >= self.stop - self.start


class ReadingSpeed(NamedTuple):
    """Number of tokens that a model read, and the seconds of reading, without the comparison."""

    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CandidateDepth:
    """Comparison of a candidate with the reference over all texts.

    Attributes:
        audited_positions: number of positions with a second divergence, from whole distributions.
        kl_error: mean error of the divergence at these positions, in nats.
        max_kl_error: largest error.
    """

    info: BackendInfo
    bins: tuple[BinParity, ...]
    speed: ReadingSpeed
    audited_positions: int
    kl_error: float
    max_kl_error: float


@dataclass(frozen=True, slots=True)
class Depth:
    """Comparison of candidates with a reference.

    Attributes:
        stored_bytes: size of the reference's distributions on disk.
    """

    reference: BackendInfo
    speed: ReadingSpeed
    stored_bytes: int
    candidates: tuple[CandidateDepth, ...]


def position_bins(tokens: int) -> list[tuple[int, int]]:
    """Bins of positions, (start, stop), for a text of ``tokens`` tokens: 0 to 1,024, to 2,048, to 4,096 and so on."""
    bins, start, stop = [], 0, FIRST_BIN
    while start < tokens:
        bins.append((start, stop))
        start, stop = stop, 2 * stop
    return bins


def compare_by_depth(
    texts: Sequence[DepthText],
    load_reference: Callable[[], Backend],
    load_candidates: Sequence[Callable[[], Backend]],
    *,
    folder: Path,
    chunk: int = 0,
    progress: DepthProgress = lambda _name, _done, _total: None,
) -> Depth:
    """Compare candidates with a reference on texts. Each model is loaded after the previous one is closed.

    Args:
        folder: folder for the reference's distributions.
        chunk: number of tokens of a pass; 0: the reference chooses (``text_chunk``).

    Raises:
        UsageError: no text fills a bin, or a candidate has another vocabulary.
        BackendError: a model cannot be loaded, failed, or does not return logits.
        OSError: the folder's disk is full.
    """
    ids: list[list[int]] = []
    with _LoadedModel(load_reference) as reference:
        _check_reference(reference)
        info = reference.info
        ids = [text.token_ids(reference)[: text.max_tokens or info.context_window] for text in texts]
        _check_lengths(ids, info)
        total, done, seconds = sum(map(len, ids)), 0, 0.0
        paths = [folder / f"{number}.distributions" for number in range(len(texts))]
        for path, tokens in zip(paths, ids, strict=True):
            with path.open("wb") as file:
                for start, logits, elapsed in _read_text(reference, tokens, chunk):
                    seconds += elapsed
                    for values in Distributions.of_logits(logits, tokens, start):
                        np.save(file, values)
                    done, chunk = done + len(logits), chunk or len(logits)
                    progress(info.model, done, total)
    speed = ReadingSpeed(total, seconds)
    stored = sum(path.stat().st_size for path in paths)
    candidates = []
    for load in load_candidates:
        with _LoadedModel(load) as candidate:
            _check_vocabulary(candidate, info, texts, ids)
            readings = list(zip([text.name for text in texts], ids, paths, strict=True))
            candidates.append(_compare_candidate(candidate, readings, chunk, progress))
    return Depth(info, speed, stored, tuple(candidates))


class _LoadedModel:
    """Context manager that loads a model and closes the model at the end."""

    def __init__(self, load: Callable[[], Backend]) -> None:
        self._load = load

    def __enter__(self) -> Backend:
        self._backend = self._load()
        return self._backend

    def __exit__(self, *_: object) -> None:
        self._backend.close()
        del self._backend
        gc.collect()


def _check_lengths(ids: Sequence[Sequence[int]], info: BackendInfo) -> None:
    longest = max(map(len, ids), default=0)
    if 2 * (longest - 1) < FIRST_BIN:
        raise UsageError(
            f"The longest text has {longest:,} tokens, less than half of the first bin of {FIRST_BIN:,}.",
            fix="Give longer texts.",
        )
    if longest > info.context_window:
        raise UsageError(
            f"A text has {longest:,} tokens, more than the context window of {info.model}, {info.context_window:,}.",
            fix="Read less of each text with --length, or raise context_window in the model card.",
        )


def _check_vocabulary(
    candidate: Backend, reference: BackendInfo, texts: Sequence[DepthText], ids: Sequence[Sequence[int]]
) -> None:
    name = candidate.info.model
    if not candidate.info.knows_prompt_tokens:
        raise UsageError(
            f"{name} turns texts into tokens itself, so its distributions cannot be compared.",
            fix='Add [tokenizer] to the model card, and leave out api = "chat".',
        )
    if max(map(len, ids)) > candidate.info.context_window:
        raise UsageError(
            f"A text has more tokens than the context window of {name}, {candidate.info.context_window:,}.",
            fix="Read less of each text with --length, or raise context_window in the model card.",
        )
    if any(text.token_ids(candidate)[: len(tokens)] != [*tokens] for text, tokens in zip(texts, ids, strict=True)):
        raise UsageError(
            f"{name} and {reference.model} turn the texts into different token ids, so their distributions cannot be "
            "compared.",
            fix="Compare two formats of one model, or compare the answers of both: leave out --depth.",
        )


def _check_reference(backend: Backend) -> None:
    if not isinstance(backend, TextBackend):
        raise UsageError(
            f"{backend.info.model} cannot be the reference: the backend {backend.info.name} does not return the "
            "probabilities of all tokens within a text.",
            fix="Give a model on llama.cpp or transformers first.",
        )


def _read_text(backend: Backend, tokens: Sequence[int], chunk: int) -> Iterator[tuple[int, Logits, float]]:
    """Yield (position of the first token, logits, seconds) of each pass over a text."""
    if not isinstance(backend, TextBackend):
        raise BackendError(
            f"The backend {backend.info.name} of {backend.info.model} does not return probabilities within a text.",
            fix="Use a model on llama.cpp or transformers, or a vLLM server.",
        )
    start, clock = 0, time.monotonic()
    for logits in backend.text_logits(tokens, chunk):
        yield start, logits, time.monotonic() - clock
        start, clock = start + len(logits), time.monotonic()


def _read_candidate(
    backend: Backend, tokens: Sequence[int], chunk: int
) -> Iterator[tuple[int, Logits | TopLogProbs, float]]:
    """Yield the passes of ``_read_text``, or a server's answer in parts of the same sizes."""
    if not isinstance(backend, TopBackend):
        yield from _read_text(backend, tokens, chunk)
        return
    clock = time.monotonic()
    found = backend.text_top_log_probs(tokens)
    seconds = (time.monotonic() - clock) / len(tokens)
    for start in range(0, len(tokens), chunk):
        part = found.part(start, start + chunk)
        yield start, part, seconds * len(part)


def _compare_candidate(
    candidate: Backend,
    readings: Sequence[tuple[str, Sequence[int], Path]],
    chunk: int,
    progress: DepthProgress,
) -> CandidateDepth:
    """Compare a candidate with the reference. ``readings``: name, token ids and the reference's file of each text."""
    total, done, seconds = sum(len(tokens) for _, tokens, _ in readings), 0, 0.0
    errors: list[NDArray[np.float64]] = []
    bins: list[BinParity] = []
    for name, tokens, path in readings:
        passes = []
        with path.open("rb") as file:
            for start, logits, elapsed in _read_candidate(candidate, tokens, chunk):
                seconds += elapsed
                reference = Distributions.load(file)
                passes.append(reference.compare(logits, tokens, start))
                done += len(logits)
                progress(candidate.info.model, done, total)
        positions = PositionParity(*map(np.concatenate, zip(*passes, strict=True)))
        bins += _summarise_bins(name, positions)
        errors.append(positions.error[np.isfinite(positions.error)])
    error = np.concatenate(errors)
    return CandidateDepth(
        candidate.info,
        tuple(bins),
        ReadingSpeed(total, seconds),
        len(error),
        float(error.mean()) if len(error) else math.nan,
        float(error.max(initial=0)),
    )


def _summarise_bins(name: str, positions: PositionParity) -> Iterator[BinParity]:
    count = len(positions.divergence) - 1  # no token follows the last one
    for start, stop in position_bins(count):
        divergence, same_top, candidate, reference, _ = (values[start : min(stop, count)] for values in positions)
        yield BinParity(
            name,
            start,
            stop,
            len(divergence),
            float(divergence.mean()),
            float(np.quantile(divergence, 0.99)),
            float(divergence.max()),
            float(same_top.mean()),
            float(reference.mean()),
            float(candidate.mean()),
        )


@dataclass(frozen=True, slots=True)
class DepthRow:
    """Comparison of a candidate with the reference at the positions of a bin, over texts.

    The intervals are 95% intervals of the mean over texts (t), None below ``MIN_TEXTS`` texts.

    Attributes:
        texts: number of texts that cover at least half of the bin.
        kl, kl_low, kl_high: mean divergence in nats.
        kl_p99: mean over texts of the 99th percentile.
        same_top, same_top_low, same_top_high: share of positions with the same likeliest token.
        perplexity_ratio, perplexity_low, perplexity_high: perplexity of the candidate divided by the reference's:
            the exponential of the mean over texts.
    """

    model: str
    start: int
    stop: int
    texts: int
    positions: int
    kl: float
    kl_low: float | None
    kl_high: float | None
    kl_p99: float
    same_top: float
    same_top_low: float | None
    same_top_high: float | None
    perplexity_ratio: float
    perplexity_low: float | None
    perplexity_high: float | None


def summarise_by_bin(candidate: CandidateDepth) -> list[DepthRow]:
    """Summarise a candidate by bin of positions. Bins that no text covers are left out."""
    bins: dict[tuple[int, int], list[BinParity]] = {}
    for item in candidate.bins:
        if item.is_covered:
            bins.setdefault((item.start, item.stop), []).append(item)
    return [_summarise(candidate.info.model, start, stop, items) for (start, stop), items in sorted(bins.items())]


def _summarise(model: str, start: int, stop: int, items: Sequence[BinParity]) -> DepthRow:
    kl, kl_ends = _mean(item.kl for item in items)
    same, same_ends = _mean(item.same_top for item in items)
    loss, loss_ends = _mean(item.log_prob_reference - item.log_prob for item in items)
    return DepthRow(
        model,
        start,
        stop,
        len(items),
        sum(item.positions for item in items),
        kl,
        None if kl_ends is None else max(0.0, kl_ends[0]),
        None if kl_ends is None else kl_ends[1],
        float(np.mean([item.kl_p99 for item in items])),
        same,
        None if same_ends is None else max(0.0, same_ends[0]),
        None if same_ends is None else min(1.0, same_ends[1]),
        math.exp(loss),
        None if loss_ends is None else math.exp(loss_ends[0]),
        None if loss_ends is None else math.exp(loss_ends[1]),
    )


def _mean(values: Iterable[float]) -> tuple[float, tuple[float, float] | None]:
    """Mean, and the 95% interval by the t distribution, or None for fewer than ``MIN_TEXTS`` values."""
    array = np.array([*values])
    mean = float(array.mean())
    if len(array) < MIN_TEXTS:
        return mean, None
    half = t_quantile(0.975, len(array) - 1) * float(array.std(ddof=1)) / math.sqrt(len(array))
    return mean, (mean - half, mean + half)


def depth_json(depth: Depth) -> dict[str, Any]:
    """Return the comparison as JSON: models, bins over texts, and bins of each text."""
    return {
        "reference": _model_json(depth.reference, depth.speed),
        "stored_bytes": depth.stored_bytes,
        "candidates": [
            {
                **_model_json(candidate.info, candidate.speed),
                "audited_positions": candidate.audited_positions,
                "kl_error": candidate.kl_error,
                "max_kl_error": candidate.max_kl_error,
                "bins": [asdict(row) for row in summarise_by_bin(candidate)],
                "texts": [asdict(item) for item in candidate.bins],
            }
            for candidate in depth.candidates
        ],
    }


def _model_json(info: BackendInfo, speed: ReadingSpeed) -> dict[str, Any]:
    return {
        "model": info.model,
        "backend": info.name,
        "version": info.version,
        "weights_bytes": info.weights_bytes,
        "kv_bytes_per_token": info.kv_bytes_per_token,
        "tokens": speed.tokens,
        "seconds": speed.seconds,
        "settings": dict(info.settings),
    }
