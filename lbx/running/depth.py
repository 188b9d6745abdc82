"""Difference of models' next-token distributions by position in long texts (``lbx parity --depth``).

Only one model is in memory at a time. The reference model reads every text, and the distributions are stored on disk,
compressed (``lbx.running.distributions``). Each candidate then reads the same token ids.

With a results file, the rows of a text are committed as soon as a candidate has read it, and each text's distributions
are a file that is complete or missing. The same call after a kill therefore reads only the missing texts.
"""

from __future__ import annotations

import gc
import io
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lbx.base.errors import UsageError
from lbx.base.inputs import open_input
from lbx.base.outputs import atomic_file
from lbx.base.records import canonical_json, sha256_text
from lbx.base.units import format_count
from lbx.base.version import __version__
from lbx.engine.model import Backend, BackendInfo, TextBackend, TopBackend
from lbx.results import DepthPairRow, DepthRow, Store
from lbx.results.file.depth import DepthPair, begin_depth_pair, write_depth_rows
from lbx.running.distributions import Distributions, PositionParity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lbx.engine.model import Logits, TopLogProbs

log = logging.getLogger("lbx")

FIRST_BIN = 1024
"""Size of the first bin of positions, in tokens. Each further bin ends at twice the position."""
_CHARACTERS_PER_TOKEN = 8
_LAST_TOKENS = 64
"""Number of tokens at the end of a text that was cut that may differ from those of the whole text, with a margin."""
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

    def token_ids(self, backend: Backend, limit: int = 0) -> list[int]:
        """First token ids of the text as a prompt without a chat template, with the BOS token of the model.

        Args:
            limit: number of token ids, or 0 for all. Little more of the text is then encoded.
        """
        tokenizer = backend.tokenizer
        characters = _CHARACTERS_PER_TOKEN * limit or len(self.text)
        while True:
            ids = [*tokenizer.prefix_ids, *tokenizer.encode(self.text[:characters], special=False)]
            if characters >= len(self.text) or len(ids) >= limit + _LAST_TOKENS:
                return ids[: limit or None]
            characters *= 2


@dataclass(frozen=True, slots=True)
class Depth:
    """Comparison of candidates with a reference.

    Attributes:
        pairs: candidates in the order of the command.
        stored_bytes: size of the reference's distributions on disk.
        known_texts: number of texts that the results file had already, summed over candidates.
        known_servers: candidates on servers with such texts.
    """

    pairs: tuple[DepthPair, ...]
    stored_bytes: int
    known_texts: int
    known_servers: tuple[str, ...]


def position_bins(tokens: int) -> list[tuple[int, int]]:
    """Bins of positions, (start, stop), for a text of ``tokens`` tokens: 0 to 1,024, to 2,048, to 4,096 and so on."""
    bins, start, stop = [], 0, FIRST_BIN
    while start < tokens:
        bins.append((start, stop))
        start, stop = stop, 2 * stop
    return bins


class _TokenText(NamedTuple):
    """Text as token ids, and the file of the reference's distributions."""

    source: DepthText
    tokens: Sequence[int]
    sha256: str
    path: Path


@dataclass(frozen=True, slots=True)
class _TextComparison:
    """Reference and texts of a comparison."""

    info: BackendInfo
    readings: Sequence[_TokenText]
    folder: Path
    bundle_digest: str

    @classmethod
    def prepare(
        cls, reference: Backend, texts: Sequence[DepthText], folder: Path, bundle_digest: str
    ) -> _TextComparison:
        info = reference.info
        ids = [text.token_ids(reference, text.max_tokens or info.context_window) for text in texts]
        _check_lengths(ids, info)
        by_hash = {
            sha256_text(canonical_json(tokens)): (text, tokens)
            for text, tokens in zip(texts, ids, strict=True)
            if len(tokens) > 1
        }
        if others := len(texts) - len(by_hash):
            log.info(f"Left out {format_count(others, 'text')} with fewer than two tokens or with another's tokens.")
        longest, limit = max(map(len, ids)), max(text.max_tokens for text in texts)
        if longest < limit:
            log.info(f"No text reaches the length of {limit:,} tokens: the longest has {longest:,}.")
        place = folder / sha256_text(canonical_json([*_identity(info), sorted(by_hash)]))[:8]
        readings = [
            _TokenText(text, tokens, sha256, place / f"{sha256[:16]}.distributions")
            for sha256, (text, tokens) in by_hash.items()
        ]
        return cls(info, readings, place, bundle_digest)

    @property
    def comparison_id(self) -> str:
        return f"{self.info.model}-{self.info.name}-{self.folder.name}"

    def pair_row(self, candidate: BackendInfo) -> DepthPairRow:
        digest = sha256_text(canonical_json([self.comparison_id, *_identity(candidate)]))[:8]
        return DepthPairRow(
            pair_id=f"{candidate.model}-{candidate.name}-{digest}",
            comparison_id=self.comparison_id,
            **_model_columns(candidate),
            **{f"reference_{name}": value for name, value in _model_columns(self.info).items()},
            texts=len(self.readings),
            bundle_digest=self.bundle_digest,
            lbx_version=__version__,
        )


def _settings(info: BackendInfo) -> dict[str, Any]:
    """Settings of a backend, named as in ``runs``."""
    return {f"backend.{name}": value for name, value in info.settings.items()}


def _identity(info: BackendInfo) -> list[Any]:
    return [info.model, info.name, info.version, _settings(info)]


def _model_columns(info: BackendInfo) -> dict[str, Any]:
    return {
        "model": info.model,
        "backend": info.name,
        "backend_version": info.version,
        "settings": _settings(info),
        "hardware": dict(info.hardware),
        "weights_bytes": info.weights_bytes,
        "kv_bytes_per_token": info.kv_bytes_per_token,
    }


def compare_by_depth(
    texts: Sequence[DepthText],
    load_reference: Callable[[], Backend],
    load_candidates: Sequence[Callable[[], Backend]],
    *,
    folder: Path,
    open_store: Callable[[], AbstractContextManager[Store | None]] = nullcontext,
    bundle_digest: str = "",
    chunk: int = 0,
    progress: DepthProgress = lambda _name, _done, _total: None,
) -> Depth:
    """Compare candidates with a reference on texts. Each model is loaded after the previous one is closed.

    Before the reference reads a text, each candidate is loaded once to compare the token ids.

    Args:
        folder: folder for the reference's distributions, which are removed at the end. After a failure they stay.
        open_store: opens the results file that gets the rows of each text at once, after all models were checked. Texts
            in the file are not read again.
        bundle_digest: digest of the texts' bundle, or "" for text files.
        chunk: number of tokens of a pass; 0: the reference chooses (``text_chunk``).

    Raises:
        UsageError: no text fills a bin, or a candidate has another vocabulary.
        BackendError: a model cannot be loaded, failed, or does not return probabilities.
        StoreError: the results file cannot be written.
        OSError: the folder's disk is full.
    """
    with _LoadedModel(load_reference) as reference:
        _check_reference(reference)
        comparison = _TextComparison.prepare(reference, texts, folder, bundle_digest)
    loads: dict[str, Callable[[], Backend]] = {}
    rows: list[DepthPairRow] = []
    servers: set[str] = set()
    for load in load_candidates:  # all are checked before the reference reads for minutes, and before any is stored
        with _LoadedModel(load) as candidate:
            _check_candidate(candidate, comparison)
            rows.append(comparison.pair_row(candidate.info))
            loads[rows[-1].pair_id] = load
            if isinstance(candidate, TopBackend):
                servers.add(rows[-1].pair_id)
    with open_store() as store:
        pairs = {row.pair_id: DepthPair(row, begin_depth_pair(store, row) if store else []) for row in rows}
        unread = {
            pair_id: [
                reading
                for reading in comparison.readings
                if reading.sha256 not in {row.text_sha256 for row in pair.bins}
            ]
            for pair_id, pair in pairs.items()
        }
        known_servers = tuple(row.model for row in rows if pairs[row.pair_id].bins and row.pair_id in servers)
        known_texts = sum(len(comparison.readings) - len(rest) for rest in unread.values())
        needed = {reading.sha256: reading for rest in unread.values() for reading in rest if not reading.path.is_file()}
        if needed:
            comparison.folder.mkdir(parents=True, exist_ok=True)
            with _LoadedModel(load_reference) as reference:
                _keep_distributions(reference, [*needed.values()], chunk, progress)
        stored_bytes = sum(reading.path.stat().st_size for reading in comparison.readings if reading.path.is_file())
        for pair_id, rest in unread.items():
            if not rest:
                continue
            with _LoadedModel(loads[pair_id]) as candidate:
                for bins in _compare_candidate(candidate, pair_id, rest, progress):
                    if store is not None:
                        write_depth_rows(store, bins)
                    pairs[pair_id].bins.extend(bins)
    if comparison.folder.exists():
        shutil.rmtree(comparison.folder)
    return Depth(tuple(pairs.values()), stored_bytes, known_texts, known_servers)


def _keep_distributions(
    reference: Backend, readings: Sequence[_TokenText], chunk: int, progress: DepthProgress
) -> None:
    """Write the reference's distributions of texts, pass by pass, then the seconds of the passes."""
    total, done = sum(len(reading.tokens) for reading in readings), 0
    for reading in readings:
        seconds = []
        with atomic_file(reading.path, sync=True) as file:
            for start, logits, elapsed in _read_text(reference, reading.tokens, chunk):
                seconds.append(elapsed)
                _save(file, *Distributions.of_logits(logits, reading.tokens, start))
                done += len(logits)
                progress(reference.info.model, done, total)
            _save(file, np.array(seconds))


def _save(file: Any, *arrays: NDArray[Any]) -> None:
    content = io.BytesIO()
    for values in arrays:
        np.save(content, values)
    file.write(content.getbuffer())  # np.save of a file reports a full disk without its error number


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
    if 2 * longest < FIRST_BIN:
        raise UsageError(
            f"The longest text has {longest:,} tokens, less than half of the first bin of {FIRST_BIN:,}.",
            fix="Give longer texts, or more of a bundle's documents (--documents).",
        )
    if longest > info.context_window:
        raise UsageError(
            f"A text has {longest:,} tokens, more than the context window of {info.model}, {info.context_window:,}.",
            fix="Read less of each text with --length, or raise context_window in the model card.",
        )


def _check_reference(backend: Backend) -> None:
    if not isinstance(backend, TextBackend):
        raise UsageError(
            f"{backend.info.model} cannot be the reference: the backend {backend.info.name} does not return the "
            "probabilities of all tokens within a text.",
            fix="Give a model on llama.cpp or transformers first.",
        )
    for _ in backend.text_logits([0, 0]):  # some models read only whole texts
        pass


def _check_candidate(candidate: Backend, comparison: _TextComparison) -> None:
    name, readings = candidate.info.model, comparison.readings
    if not candidate.info.knows_prompt_tokens:
        raise UsageError(
            f"{name} turns texts into tokens itself, so its distributions cannot be compared.",
            fix='Add [tokenizer] to the model card, and leave out api = "chat".',
        )
    longest = max(len(reading.tokens) for reading in readings)
    if longest + isinstance(candidate, TopBackend) > candidate.info.context_window:  # a server adds a token
        raise UsageError(
            f"A text has more tokens than the context window of {name}, {candidate.info.context_window:,}.",
            fix="Read less of each text with --length, or raise context_window in the model card.",
        )
    if any(text.token_ids(candidate, len(tokens)) != [*tokens] for text, tokens, *_ in readings):
        raise UsageError(
            f"{name} and {comparison.info.model} turn the texts into different token ids, so their distributions "
            "cannot be compared.",
            fix="Compare two formats of one model, or compare the answers of both: leave out --depth.",
        )
    if not isinstance(candidate, TextBackend | TopBackend):
        raise UsageError(
            f"The backend {candidate.info.name} of {name} does not return probabilities within a text.",
            fix="Use a model on llama.cpp or transformers, or a vLLM server.",
        )
    if isinstance(candidate, TopBackend) and longest > candidate.max_text_tokens:
        raise UsageError(
            f"A text has {longest:,} tokens, and {name} can return the probabilities of at most "
            f"{candidate.max_text_tokens:,} in one answer.",
            fix="Read less of each text with --length.",
        )
    for _ in _read_candidate(candidate, readings[0].tokens[:2], 2):  # some servers refuse, some models read whole texts
        pass


def _read_text(backend: Backend, tokens: Sequence[int], chunk: int) -> Iterator[tuple[int, Logits, float]]:
    """Yield (position of the first token, logits, seconds) of each pass over a text."""
    assert isinstance(backend, TextBackend)
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
    token_s = (time.monotonic() - clock) / len(tokens)
    for start in range(0, len(tokens), chunk):
        part = found.slice(start, start + chunk)
        yield start, part, token_s * len(part)


def _compare_candidate(
    candidate: Backend, pair_id: str, readings: Sequence[_TokenText], progress: DepthProgress
) -> Iterator[list[DepthRow]]:
    """Yield the rows of each text."""
    total, done = sum(len(reading.tokens) for reading in readings), 0
    for reading in readings:
        passes: list[PositionParity] = []
        seconds: list[float] = []
        with open_input(reading.path) as file:
            reference = Distributions.load(file)
            for start, logits, elapsed in _read_candidate(candidate, reading.tokens, len(reference.counts)):
                if start:
                    reference = Distributions.load(file)
                passes.append(reference.compare(logits, reading.tokens, start))
                seconds.append(elapsed)
                done += len(logits)
                progress(candidate.info.model, done, total)
            reference_seconds = np.load(file, allow_pickle=False)
        counts = [len(part.divergence) for part in passes]
        # the time of a pass is shared by its positions
        shares, reference_shares = (
            np.repeat(np.divide(times, counts), counts) for times in (seconds, reference_seconds)
        )
        positions = PositionParity(*map(np.concatenate, zip(*passes, strict=True)))
        yield [*_summarise_bins(pair_id, reading, positions, shares, reference_shares)]


def _summarise_bins(
    pair_id: str,
    text: _TokenText,
    positions: PositionParity,
    seconds: NDArray[np.float64],
    reference_seconds: NDArray[np.float64],
) -> Iterator[DepthRow]:
    count = len(seconds) - 1  # no token follows the last one
    for start, stop in position_bins(count):
        span = slice(start, min(stop, count))
        part = PositionParity._make(values[span] for values in positions)
        errors = part.error[np.isfinite(part.error)]
        yield DepthRow(
            pair_id,
            text.source.name,
            start,
            stop,
            len(part.divergence),
            float(part.divergence.mean()),
            float(np.quantile(part.divergence, 0.99)),
            float(part.divergence.max()),
            float(part.same_top.mean()),
            float(part.candidate.mean()),
            float(part.reference.mean()),
            float(seconds[span].sum()),
            float(reference_seconds[span].sum()),
            len(errors),
            float(errors.mean()) if len(errors) else None,
            float(errors.max()) if len(errors) else None,
            text.sha256,
        )
