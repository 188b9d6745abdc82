"""Search for the size of RULER's samples: the authors' estimate, binary search and retries, draw by draw.

Source: niah.py, variable_tracking.py, common_words_extraction.py and qa.py in
https://github.com/NVIDIA/RULER/tree/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a/scripts/data/synthetic. A sample's size is
its number of words, lines or documents. Each test of the search draws a whole sample from the same random state as the
samples that follow, so the number and order of draws decide every later byte.

Form of a finished sample: its lines, and where its answer prefix begins.

Token counts of the texts that a generator tries, kept so that a set of samples is counted once.

A generator's draws depend on a tokenizer only through these counts. With the counts of an earlier run it makes the same
samples again without a tokenizer, in a fraction of the time, and a file of them has kilobytes where the samples have
gigabytes.
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
    """Split a sample before its answer prefix, found from the end by its first ten characters, as officially."""
    at = text.rfind(prefix[:10])
    return text[:at], text[at:]


log = logging.getLogger("lbx")

_MOST_BYTES = 1 << 23
"""A file with the counts of the most samples (100,000) has half of it."""
_MOST = (1 << 32) - 1
"""Maximum of a checksum, and of tokens."""

_SAVE_EVERY_S = 10.0

CountTokens = Callable[[str], int]
"""Returns the number of tokens of a text, without BOS."""


@dataclass(slots=True)
class CountLog:
    """Counts in the order in which a generator asks for them.

    Attributes:
        entries: (CRC-32, tokens) of each text.
        path: file with the entries; None if they were counted in this process.
        right_samples: numbers of samples whose counts from a file were compared with the tokenizer.
        is_suspect: whether a text had another checksum than its entry, so that earlier counts may be wrong, too.
        save: writes the entries; called from time to time, so that a killed process loses little.
    """

    entries: list[tuple[int, int]] = field(default_factory=list)
    path: Path | None = None
    right_samples: set[int] = field(default_factory=set)
    is_suspect: bool = False
    save: Callable[[], None] | None = None
    _next_save_s: float = field(default_factory=lambda: time.monotonic() + _SAVE_EVERY_S)

    def counter(self, count: CountTokens) -> CountTokens:
        """Return a function that answers from the log first, and then counts and extends the log.

        A text with another checksum than its entry ends the log there: it belongs to other texts.
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
        """Remove all entries, so that their texts are counted again."""
        if not self.is_suspect:  # else the counter has logged it
            log.warning(f"{self.path} has wrong token counts: its samples are counted again.")
        self.entries.clear()
        self.path, self.is_suspect = None, False


_LOGS: dict[str, CountLog] = {}


@contextmanager
def kept_counts(description: Mapping[str, Any], bundled: Path | None) -> Iterator[CountLog]:
    """Open the counts of a set of samples, and keep new ones from time to time and after an interruption.

    Args:
        description: the settings that decide the texts and their counts. Texts also depend on the bundle's files, which
            the checksums cover.
        bundled: folder with counts in the bundle. They have precedence, because the bundle's digest covers them.
    """
    digest = sha256_text(canonical_json(description))
    counts = _LOGS.get(digest)
    if counts is None:
        logs = (_read_log(folder / f"{digest}.json") for folder in (bundled, kept_folder()) if folder)
        counts = _LOGS[digest] = next((log for log in logs if log.entries), CountLog())
    before = [*counts.entries]
    counts.save = partial(_write_log, digest, description, counts)
    try:
        yield counts
    finally:
        if counts.entries != before:
            counts.save()


def kept_folder() -> Path | None:
    """Folder of kept counts: ``lbx/ruler`` in the user's cache folder; None without a home folder."""
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
    folder = kept_folder()
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
    """Log once for all tasks that counts are lost."""
    log.warning(
        f"The token counts of RULER's samples cannot be kept ({reason}): the next run counts again. To keep them, set "
        "XDG_CACHE_HOME to a folder that you can write to."
    )


def _digest_of(entries: list[tuple[int, int]]) -> str:
    return sha256_text(canonical_json(entries))


MOST_RETRIES = 2000
"""Tries at the smallest size, after which lbx gives up; the authors' scripts try for ever."""


class UnusableDrawError(Exception):
    """A draw that makes no sample; the authors' scripts catch its error and draw again."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A drawn text, answer prefix included.

    Attributes:
        outputs: accepted answers.
        query: the words asked for.
        tokens: tokens of the text and of the answer's budget; 0 before they are counted.
    """

    text: str
    outputs: tuple[str, ...]
    query: str
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """Room of a sample in tokens.

    Attributes:
        name: full name of the task, for messages.
        limit: tokens of text and answer together.
        answer: budget of the answer.
        step: smallest size, and the step by which sizes shrink.
        advice: for the error if no sample fits.
    """

    name: str
    limit: int
    answer: int
    step: int
    advice: str = "Choose a larger length, or leave the task out."


class Generator(ABC):
    """Generator of a task's samples; each draw advances its random state."""

    budget: TokenBudget
    first_size = 0
    """Size of the text that estimates the tokens of a unit; 0 for the smallest size."""

    @abstractmethod
    def draw(self, size: int, number: int) -> Candidate:
        """Draw a sample.

        Args:
            number: number of the sample, from 0; 0 in the search.

        Raises:
            UnusableDrawError: the draw makes no sample.
        """

    def highest_size(self, tokens: int, size: int) -> int:
        """Return the upper bound of the search, given the tokens of a text of this size."""
        return max(int(self.budget.limit / (tokens / size) * 3), self.budget.step * 2)

    def samples(self, count: CountTokens) -> Iterator[Candidate]:
        """Yield samples without end.

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
        """Return the largest size that fits, by the authors' search.

        Args:
            extra: tokens that each sample has in addition to its text in the search.
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


def no_tokens_error(budget: TokenBudget) -> UsageError:
    """Return the error for a tokenizer that has no tokens for a text."""
    return UsageError(
        f"{budget.name} cannot be made: the model's tokenizer has no tokens for its words.",
        fix="Check that the model's tokenizer.json is complete.",
    )


def too_short_error(budget: TokenBudget, least: int) -> UsageError:
    """Return the error for a length that no sample fits into."""
    tokens = f": the smallest sample has {least:,} tokens, but the length leaves {budget.limit:,}" if least else ""
    return UsageError(
        f"{budget.name} cannot be made{tokens}. NVIDIA's script tries until a sample fits, usually for ever.",
        fix=budget.advice,
    )
