"""Needle tasks of RULER: keys and values hidden in noise, in other needles or in essays."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from lbx.base.layout import Bundle
from lbx.benchmarks.ruler.essays import read_essays
from lbx.benchmarks.ruler.generator import Draft, Generator, Room
from lbx.benchmarks.ruler.official import needle_text, noise_text
from lbx.benchmarks.ruler.sentences import SentenceSplitter, read_parameters
from lbx.benchmarks.ruler.tasks import NeedleRules
from lbx.benchmarks.ruler.token_counts import CountTokens
from lbx.benchmarks.ruler.words import WordPairs, word_list

_DEPTHS = [int(depth) for depth in np.round(np.linspace(0, 100, num=40, endpoint=True)).astype(int)]
"""Possible positions of needles in essays, in percent."""
_SINGULAR = (("Some", "A"), ("are all", "is"), ("are", "is"), ("answers", "answer"))
"""Replacements in the whole template, a model's included, if a task asks for a single value."""


def singular(template: str) -> str:
    """Return a template for a single value, as niah.py changes it."""
    for plural, replacement in _SINGULAR:
        template = template.replace(plural, replacement)
    return template


class Needles(Generator):
    """Generator of a needle task."""

    def __init__(self, bundle: Bundle, rules: NeedleRules, template: str, room: Room, seed: int) -> None:
        self.room = room
        self._rules = rules
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - the authors' draws
        self._asks_one = rules.queries * rules.values == 1
        self._template = singular(template) if self._asks_one else template
        self._kind = rules.value[:-1] if self._asks_one else rules.value
        self._needle = needle_text(bundle)
        self._noise = noise_text(bundle) if rules.haystack == "noise" else ""
        self._essays = Essays(bundle) if rules.haystack == "essay" else None
        self._pairs = _word_pairs(bundle) if rules.key == "words" or rules.value == "words" else ()

    def find_size(self, count: CountTokens, extra: int = 0) -> int:
        size = super().find_size(count, extra)
        if self._essays:
            # Texts of the search may repeat words of an incomplete file. With a step left, these are too long anyway.
            self._essays.source.check_size(size + self.room.step, self.room.name)
        return size

    def draw(self, size: int, number: int) -> Draft:
        rules = self._rules
        keys: list[str] = []
        values: list[list[str]] = []
        needles: list[str] = []
        for _ in range(max(rules.keys, rules.queries)):
            keys.append(self._draw_item(rules.key))
            values.append([])
            for _ in range(rules.values):
                values[-1].append(self._draw_item(rules.value))
                needles.append(self._sentence(keys[-1], values[-1][-1]))
        random.Random(self._seed).shuffle(needles)  # noqa: S311 - the same permutation in every sample
        context = self._hide_in_essays(size, needles) if self._essays else self._hide_in_lines(size, needles)
        asked = self._random.sample(range(len(keys)), rules.queries)
        names = [keys[index] for index in asked]
        query = f"{', '.join(names[:-1])}, and {names[-1]}" if len(names) > 1 else names[0]
        text = self._template.format(type_needle_v=self._kind, context=context, query=query)
        return Draft(text, tuple(value for index in asked for value in values[index]), query)

    def _draw_item(self, kind: str) -> str:
        if kind == "numbers":
            return str(self._random.randint(10**6, 10**7 - 1))
        if kind == "words":
            return str(self._random.choice(self._pairs))
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _sentence(self, key: str, value: str) -> str:
        return self._needle.format(type_needle_v=self._rules.value, key=key, value=value)

    def _hide_in_lines(self, size: int, needles: Sequence[str]) -> str:
        if self._noise:
            lines = [self._noise] * size
        else:
            kinds = self._rules.key, self._rules.value
            lines = [self._sentence(*map(self._draw_item, kinds)) for _ in range(size)]
        positions = sorted(self._random.sample(range(size), len(needles)), reverse=True)
        for position, needle in zip(positions, needles, strict=True):
            lines.insert(position, needle)
        return "\n".join(lines)

    def _hide_in_essays(self, size: int, needles: Sequence[str]) -> str:
        assert self._essays is not None
        sentences = self._essays.sentences(size)
        depths = sorted(int(len(sentences) * (depth / 100)) for depth in self._random.sample(_DEPTHS, len(needles)))
        starts = [0, *depths]
        ends = [*depths, len(sentences)]
        pieces = [" ".join(sentences[start:end]) for start, end in zip(starts, ends, strict=True)]
        # A needle follows each piece but the last one; an empty piece still gets its blank.
        return " ".join(text for pair in zip(pieces, [*needles, ""], strict=True) for text in pair)[:-1]


class Essays:
    """Sentences of the essays' first words; the essays repeat if they are too short."""

    def __init__(self, bundle: Bundle) -> None:
        self.source = read_essays(bundle)
        self._splitter = SentenceSplitter(read_parameters(bundle))
        self.sentences = lru_cache(maxsize=4)(self._split)

    def _split(self, size: int) -> list[str]:
        words = [*self.source.words] * -(-size // len(self.source.words))
        return self._splitter.split(" ".join(words[:size]).strip())


def _word_pairs(bundle: Bundle) -> WordPairs:
    return WordPairs(word_list(bundle, "adjective"), word_list(bundle, "noun"))
