"""Base class of RULER's generators: the authors' search for the size of samples, and the token counts that it needs.

Source: niah.py, variable_tracking.py, common_words_extraction.py and qa.py in
https://github.com/NVIDIA/RULER/tree/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a/scripts/data/synthetic. A sample's size is
the number of its words, lines or documents. Each test of the search draws a whole sample from the same random state as
the samples that follow, so the number and order of draws decide every later byte.

Token counts of the texts that a generator tries are stored, so that the texts of a set of samples are counted once. A
generator's draws depend on a tokenizer only through these counts. With the counts of an earlier run it makes the same
samples again without a tokenizer, in a fraction of the time. A file of counts takes kilobytes, the samples gigabytes.
"""

from __future__ import annotations

import json
import logging
import os
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.inputs import read_input
from lbx.base.outputs import atomic_file
from lbx.base.records import canonical_json, sha256_text


def join_lines(text: str) -> str:
    """Join lines and tabs by single blanks, like ``--remove_newline_tab``."""
    return " ".join(text.replace("\n", " ").replace("\t", " ").strip().split())


def split_answer_prefix(text: str, prefix: str) -> tuple[str, str]:
    """Split a sample before the answer prefix, found from the end by its first ten characters, as officially."""
    at = text.rfind(prefix[:10])
    return text[:at], text[at:]


log = logging.getLogger("lbx")

_MOST_BYTES = 1 << 23
"""Largest file of counts that is read, in bytes. The counts of 100,000 samples, the most allowed, take half of it."""
_MOST = (1 << 32) - 1
"""Maximum of a checksum, and of tokens."""

_SAVE_EVERY_S = 10.0

CountTokens = Callable[[str], int]
"""Function that counts the tokens of a text, without BOS."""


@dataclass(slots=True)
class CountLog:
    """Token counts in the order of a generator's requests.

    Attributes:
        entries: (CRC-32, tokens) of each text.
        path: file that the entries were read from, or None if they were counted in this process.
        right_samples: numbers of the samples whose counts from a file were compared with the tokenizer.
        is_suspect: whether a text's checksum differed from the stored one, so that earlier counts may be wrong, too.
        save: writes the entries. It is called from time to time, so that a killed process loses little.
    """

    entries: list[tuple[int, int]] = field(default_factory=list)
    path: Path | None = None
    right_samples: set[int] = field(default_factory=set)
    is_suspect: bool = False
    save: Callable[[], None] | None = None
    _next_save_s: float = field(default_factory=lambda: time.monotonic() + _SAVE_EVERY_S)

    def counter(self, count: CountTokens) -> CountTokens:
        """Make a function that returns counts from the log first, and then counts and extends the log.

        If a text's checksum differs from the entry's, the rest of the log is discarded, because it is of other texts.
        """
        position = 0

        def count_tokens(text: str) -> int:
            nonlocal position
            index, position = position, position + 1
            checksum = zlib.crc32(text.encode("utf-8", "surrogatepass"))
            if index < len(self.entries):
                if self.entries[index][0] == checksum:
                    return self.entries[index][1]
                log.warning("Kept token counts of RULER do not belong to these texts; they are counted again.")
                del self.entries[index:]
                self.is_suspect = True
            tokens = count(text)
            if index == len(self.entries):  # another iteration over the same samples may be ahead
                self.entries.append((checksum, tokens))
                if self.save and time.monotonic() > self._next_save_s:
                    self.save()
                    self._next_save_s = time.monotonic() + _SAVE_EVERY_S
            return tokens

        return count_tokens

    def discard(self) -> None:
        """Remove all entries, so that all texts are counted again."""
        if not self.is_suspect:  # else the counter has logged it
            log.warning(f"{self.path} has wrong token counts: its samples are counted again.")
        self.entries.clear()
        self.path, self.is_suspect = None, False


_LOGS: dict[str, CountLog] = {}


@contextmanager
def cached_counts(description: Mapping[str, Any], bundled: Path | None) -> Iterator[CountLog]:
    """Open the stored counts of a set of samples, and store new ones from time to time and after an interruption.

    Args:
        description: the settings that decide the texts and counts. Texts also depend on the bundle's files, which the
            checksums cover.
        bundled: folder with counts in the bundle, which take precedence because the bundle's digest covers them.
    """
    digest = sha256_text(canonical_json(description))
    counts = _LOGS.get(digest)
    if counts is None:
        logs = (_read_log(folder / f"{digest}.json") for folder in (bundled, count_cache_folder()) if folder)
        counts = _LOGS[digest] = next((log for log in logs if log.entries), CountLog())
    before = [*counts.entries]
    counts.save = partial(_write_log, digest, description, counts)
    try:
        yield counts
    finally:
        if counts.entries != before:
            counts.save()


def count_cache_folder() -> Path | None:
    """Folder of stored counts: ``lbx/ruler`` in the user's cache folder, or None without a home folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        cache = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return cache / "lbx" / "ruler"


def _read_log(path: Path) -> CountLog:
    try:
        content = json.loads(read_input(path, _MOST_BYTES))
        entries = [(checksum, tokens) for checksum, tokens in content["counts"]]
        is_own = sha256_text(canonical_json(content["made_by"])) == path.stem
        are_counts = all(type(number) is int and 0 <= number <= _MOST for entry in entries for number in entry)
        if is_own and are_counts and content["sha256"] == _digest_of(entries):
            return CountLog(entries, path)
        problem = "is damaged" if is_own else "has the counts of other samples"
        log.warning(f"{path} {problem}: its samples are counted again.")
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as exc:
        log.warning(f"Cannot use {path} ({exc}): its samples are counted again.")
    return CountLog()


def _write_log(digest: str, description: Mapping[str, Any], counts: CountLog) -> None:
    folder = count_cache_folder()
    if folder is None:
        return _report_unkept("there is no home folder")
    path = folder / f"{digest}.json"
    content = {"made_by": dict(description), "counts": counts.entries, "sha256": _digest_of(counts.entries)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(canonical_json(content).encode())
    except OSError as exc:
        _report_unkept(f"{exc.filename or folder}: {exc.strerror or exc}")


@lru_cache(maxsize=8)
def _report_unkept(reason: str) -> None:
    """Log, once for all tasks, that counts cannot be stored."""
    log.warning(
        f"The token counts of RULER's samples cannot be kept ({reason}): the next run counts again. To keep them, set "
        "XDG_CACHE_HOME to a folder that you can write to."
    )


def _digest_of(entries: list[tuple[int, int]]) -> str:
    return sha256_text(canonical_json(entries))


MOST_RETRIES = 2000
"""Number of tries at the smallest size, after which lbx gives up. (The authors' scripts try for ever.)"""


class UnusableDrawError(Exception):
    """Draw that gives no sample. The authors' scripts catch the error and draw again."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Candidate text of a sample, with the answer prefix.

    Attributes:
        outputs: accepted answers.
        query: the key, name or question that the text asks for.
        tokens: number of tokens of the text and of the answer's budget, or 0 before they are counted.
    """

    text: str
    outputs: tuple[str, ...]
    query: str
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class SampleBudget:
    """Maximum number of tokens of a sample of a task, and sizes of its text.

    Attributes:
        name: full name of the task, for messages.
        limit: tokens of text and answer together.
        answer: tokens of the answer.
        step: smallest size of a sample, and the step by which sizes shrink, in words, lines or documents.
        advice: advice in the error if no sample fits.
    """

    name: str
    limit: int
    answer: int
    step: int
    advice: str = "Choose a larger length, or leave the task out."


class Generator(ABC):
    """Base class of the generators of a task's samples. Each draw advances the generator's random state."""

    budget: SampleBudget
    first_size = 0
    """Size of the text by which the tokens per word, line or document are estimated. 0 stands for the smallest size."""

    @abstractmethod
    def draw(self, size: int, number: int) -> Candidate:
        """Draw the candidate of a sample.

        Args:
            size: number of words, lines or documents.
            number: number of the sample, from 0. In the search it is 0.

        Raises:
            UnusableDrawError: the draw gives no sample.
        """

    def highest_size(self, tokens: int, size: int) -> int:
        """Upper bound of the search, given the number of tokens of a text of this size."""
        return max(int(self.budget.limit / (tokens / size) * 3), self.budget.step * 2)

    def samples(self, count: CountTokens) -> Iterator[Candidate]:
        """Yield candidates that fit the budget, without end.

        Raises:
            UsageError: no sample fits, or there is no further sample.
        """
        size = self.find_size(count)
        number = 0
        while True:
            yield self._fit(count, size, number)
            number += 1

    def draw_in_search(self, size: int) -> str:
        """Draw a text that the search counts. Raises UnusableDrawError."""
        return self.draw(size, 0).text

    def find_size(self, count: CountTokens, extra: int = 0) -> int:
        """Find the largest size that fits the budget, by the authors' search.

        Args:
            extra: number of tokens of each sample in addition to the text that the search draws.
        """
        budget = self.budget
        first = self.first_size or budget.step
        size = low = budget.step
        tokens = count(self._draw_in_search(first))
        if tokens <= 0:
            raise no_tokens_error(budget)
        high = self.highest_size(tokens, first)
        while low <= high:
            middle = (low + high) // 2
            if count(self._draw_in_search(middle)) + extra + budget.answer <= budget.limit:
                size, low = middle, middle + 1
            else:
                high = middle - 1
        return size

    def _draw_in_search(self, size: int) -> str:
        try:
            return self.draw_in_search(size)
        except UnusableDrawError as exc:
            raise UsageError(
                f"{self.budget.name}: the authors' search for the size of samples stops with an error for this "
                f"tokenizer, length and seed ({exc}).",
                fix="Choose another length.",
            ) from exc

    def _fit(self, count: CountTokens, size: int, number: int) -> Candidate:
        budget, least = self.budget, 0
        for _ in range(size // budget.step + MOST_RETRIES):
            try:
                candidate = self.draw(size, number)
                tokens = count(candidate.text) + budget.answer
                if tokens <= budget.limit:
                    return replace(candidate, tokens=tokens)
                least = min(least or tokens, tokens)
            except UnusableDrawError:
                pass
            if size > budget.step:
                size -= budget.step
        raise too_short_error(budget, least)


def no_tokens_error(budget: SampleBudget) -> UsageError:
    """Error for a tokenizer that gives no tokens for a text."""
    return UsageError(
        f"{budget.name} cannot be made: the model's tokenizer has no tokens for its words.",
        fix="Check that the model's tokenizer.json is complete.",
    )


def too_short_error(budget: SampleBudget, least: int) -> UsageError:
    """Error for a length into which no sample fits. ``least`` is the size of the smallest sample, or 0 if unknown."""
    tokens = f": the smallest sample has {least:,} tokens, but the length leaves {budget.limit:,}" if least else ""
    return UsageError(
        f"{budget.name} cannot be made{tokens}. NVIDIA's script tries until a sample fits, usually for ever.",
        fix=budget.advice,
    )
