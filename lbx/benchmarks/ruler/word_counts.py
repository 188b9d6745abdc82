"""Generators of common words (cwe) and frequent words (fwe): lists where some words occur more often than others."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from lbx.base.errors import UsageError
from lbx.benchmarks.ruler.generator import (
    Candidate,
    CountTokens,
    Generator,
    SampleBudget,
    no_tokens_error,
    too_short_error,
)

_COMMON = 10
"""Number of common words."""
_WORD_LETTERS = 6
_MOST_WORDS_PER_TOKEN = 4
"""Number of words per token above which a tokenizer must be dropping words."""
_ZETA_OF_2 = np.pi**2 / 6
"""Sum of all k**-2, by which the counts of words are divided."""


def _numbered_list(words: Sequence[str]) -> str:
    return " ".join([f"{number}. {word}" for number, word in enumerate(words, 1)])


class CommonWords(Generator):
    """Generator of common words (cwe).

    Args:
        is_short: whether the words are repeated less often, as below a length of 4,096 tokens.
        words: all words of the word lists, in random order.
        english_words: returns the larger list for samples that need more words than ``words`` contains.
    """

    first_size = 4096

    def __init__(
        self,
        template: str,
        budget: SampleBudget,
        seed: int,
        *,
        is_short: bool,
        words: Sequence[str],
        english_words: Callable[[], Sequence[str]],
    ) -> None:
        self.budget = budget
        self._template = template
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - the authors' draws
        self._words = words
        self._english_words = english_words
        # (words, repetitions of common words, of others) of the example, and repetitions in the sample
        self._example, self._repetitions = ((20, 3, 1), (6, 1)) if is_short else ((40, 10, 3), (30, 3))

    def highest_size(self, tokens: int, size: int) -> int:
        return max(int(self.budget.limit // (tokens / size)) * 2, self.budget.step * 2)

    def draw(self, size: int, number: int) -> Candidate:
        context, words = self._draw_list(*self._example)
        example = f"{self._fill(context)} {_numbered_list(words)}"
        context, words = self._draw_list(size, *self._repetitions)
        return Candidate(f"{example}\n{self._fill(context)}", tuple(words), "")

    def _fill(self, context: str) -> str:
        return self._template.format(num_cw=_COMMON, context=context, query="")

    def _draw_list(self, size: int, often: int, seldom: int) -> tuple[str, list[str]]:
        source = self._words if size <= len(self._words) else self._english_words()
        if size > len(source):
            raise UsageError(
                f"{self.budget.name} needs {size:,} distinct words, but its word list has {len(source):,}.",
                fix="Choose a smaller length.",
            )
        drawn = self._random.sample(source, size)
        words = drawn[:_COMMON] * often + drawn[_COMMON:] * seldom
        random.Random(self._seed).shuffle(words)  # noqa: S311 - the same permutation in every sample
        return _numbered_list(words), drawn[:_COMMON]


class FrequentWords:
    """Generator of frequent words (fwe): random words with counts that follow a zeta distribution.

    The number of words grows until a first sample is full. Later samples only shrink. ``budget.limit`` includes the
    tokens of the answer, which are subtracted once.
    """

    def __init__(self, template: str, budget: SampleBudget, seed: int) -> None:
        self._budget = budget
        self._template = template
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - the authors' draws
        self._limit = budget.limit - budget.answer
        self._vocabulary_size = self._limit // 50
        self._step = self._limit // 32

    def samples(self, count: CountTokens) -> Iterator[Candidate]:
        """Yield candidates that fit the budget, without end. Raises UsageError if the length is too short."""
        if self._vocabulary_size < 2 or self._step < 1:  # the first word is not asked for
            raise too_short_error(self._budget, 0)
        words = self._draw_vocabulary()
        largest = self._limit // 6
        while count(self._fill(words, largest)) < self._limit:
            largest += self._step
            if largest > _MOST_WORDS_PER_TOKEN * self._limit:
                raise no_tokens_error(self._budget)
        largest -= self._step
        while True:
            words = self._draw_vocabulary()
            size = largest
            while (tokens := count(text := self._fill(words, size))) > self._limit:
                size -= self._step
                if size <= 0:
                    raise too_short_error(self._budget, tokens + self._budget.answer)
            yield Candidate(text, tuple(words[1:4]), "", tokens + self._budget.answer)

    def _draw_vocabulary(self) -> list[str]:
        words: set[str] = set()
        while len(words) < self._vocabulary_size:
            words.add("".join(self._random.choices(string.ascii_lowercase, k=_WORD_LETTERS)))
        vocabulary = sorted(words)
        random.Random(self._seed).shuffle(vocabulary)  # noqa: S311 - the authors' draw
        vocabulary[0] = "..."
        return vocabulary

    def _fill(self, words: Sequence[str], size: int) -> str:
        counts = (size * (np.arange(1, len(words) + 1) ** -2.0) / _ZETA_OF_2).astype(int)
        text = [word for word, repetitions in zip(words, counts.tolist(), strict=True) for _ in range(repetitions)]
        random.Random(self._seed).shuffle(text)  # noqa: S311 - the authors' draw
        return self._template.format(context=" ".join(text), query="")
