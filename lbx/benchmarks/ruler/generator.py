"""Search for the size of RULER's samples: the authors' estimate, binary search and retries, draw by draw.

Source: niah.py, variable_tracking.py, common_words_extraction.py and qa.py in
https://github.com/NVIDIA/RULER/tree/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a/scripts/data/synthetic. A sample's size is
its number of words, lines or documents. Each test of the search draws a whole sample from the same random state as the
samples that follow, so the number and order of draws decide every later byte.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lbx.base.errors import UsageError
from lbx.benchmarks.ruler.token_counts import CountTokens

MOST_RETRIES = 2000
"""Tries at the smallest size, after which lbx gives up; the authors' scripts try for ever."""


class UnusableDrawError(Exception):
    """A draw that makes no sample; the authors' scripts catch its error and draw again."""


@dataclass(frozen=True, slots=True)
class Draft:
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
class Room:
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

    room: Room
    first_size = 0
    """Size of the text that estimates the tokens of a unit; 0 for the smallest size."""

    @abstractmethod
    def draw(self, size: int, number: int) -> Draft:
        """Draw a sample.

        Args:
            number: number of the sample, from 0; 0 in the search.

        Raises:
            UnusableDrawError: the draw makes no sample.
        """

    def highest_size(self, tokens: int, size: int) -> int:
        """Return the upper bound of the search, given the tokens of a text of this size."""
        return max(int(self.room.limit / (tokens / size) * 3), self.room.step * 2)

    def samples(self, count: CountTokens) -> Iterator[Draft]:
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
        room = self.room
        first = self.first_size or room.step
        size = low = room.step
        tokens = count(self._draw_in_search(first))
        if tokens <= 0:
            raise no_tokens_error(room)
        high = self.highest_size(tokens, first)
        while low <= high:
            middle = (low + high) // 2
            if count(self._draw_in_search(middle)) + extra + room.answer <= room.limit:
                size, low = middle, middle + 1
            else:
                high = middle - 1
        return size

    def _draw_in_search(self, size: int) -> str:
        try:
            return self.draw_in_search(size)
        except UnusableDrawError as exc:
            raise UsageError(
                f"{self.room.name}: the authors' search for the size of samples stops with an error for this "
                f"tokenizer, length and seed ({exc}).",
                fix="Choose another length.",
            ) from exc

    def _fit(self, count: CountTokens, size: int, number: int) -> Draft:
        room, least = self.room, 0
        for _ in range(size // room.step + MOST_RETRIES):
            try:
                draft = self.draw(size, number)
                tokens = count(draft.text) + room.answer
                if tokens <= room.limit:
                    return replace(draft, tokens=tokens)
                least = min(least or tokens, tokens)
            except UnusableDrawError:
                pass
            if size > room.step:
                size -= room.step
        raise too_short_error(room, least)


def no_tokens_error(room: Room) -> UsageError:
    """Return the error for a tokenizer that has no tokens for a text."""
    return UsageError(
        f"{room.name} cannot be made: the model's tokenizer has no tokens for its words.",
        fix="Check that the model's tokenizer.json is complete.",
    )


def too_short_error(room: Room, least: int) -> UsageError:
    """Return the error for a length that no sample fits into."""
    tokens = f": the smallest sample has {least:,} tokens, but the length leaves {room.limit:,}" if least else ""
    return UsageError(
        f"{room.name} cannot be made{tokens}. NVIDIA's script tries until a sample fits, usually for ever.",
        fix=room.advice,
    )
