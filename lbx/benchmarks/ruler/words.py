"""Word lists of wonderwords, single and in pairs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Any

from lbx.base.layout import Bundle
from lbx.benchmarks.base.files import damaged_file_error, read_text
from lbx.benchmarks.ruler.official import DATA


def word_list(bundle: Bundle, part: str) -> list[str]:
    """Return the words of a list of wonderwords, in its order.

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
    """Return the path of a word list in a bundle."""
    return f"wonderwords/{part}list.txt"


def shuffled_words(bundle: Bundle, seed: int) -> list[str]:
    """Return all distinct words in the authors' random order."""
    words = sorted({word for part in ("noun", "adjective", "verb") for word in word_list(bundle, part)})
    Random(seed).shuffle(words)  # noqa: S311 - the authors' draw
    return words


class WordPairs(Sequence[str]):
    """Distinct "adjective-noun" pairs in code-point order, computed on access.

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
