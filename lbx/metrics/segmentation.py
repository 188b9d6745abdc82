"""Chinese word segmentation exactly as jieba 0.42.1 does it by default (``cut(text)``: dictionary and HMM), but faster.

A text is cut into blocks of Chinese characters, letters and digits, and what lies between them. In a block the words
of the dictionary are laid out on the most probable path; what that path leaves as single characters goes through a
hidden Markov model with the states Begin, Middle, End and Single, which finds words that no dictionary has.

The same tokens on every text need the same floating-point operations in the same order: rounding decides ties. So the
arithmetic here is jieba's, and only what surrounds it is faster: logarithms are taken once, fragments are looked up
once, nothing is copied along a path, and what was cut before is remembered.

Sources: ``Tokenizer.cut`` of https://github.com/fxsjy/jieba/blob/v0.42.1/jieba/__init__.py and ``cut`` of
https://github.com/fxsjy/jieba/blob/v0.42.1/jieba/finalseg/__init__.py .
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf, log
from operator import add

_BLOCK = re.compile(r"([\u4E00-\u9FD5a-zA-Z0-9+#&._%\-]+)")
_BETWEEN = re.compile(r"\r\n|.", re.DOTALL)
_RUN = re.compile(r"([\u4E00-\u9FD5]+)")
_NUMBER = re.compile(r"([a-zA-Z0-9]+(?:\.\d+)?%?)")

_B, _M, _E, _S = range(4)
"""The states: a character that begins a word, is in the middle of one, ends one, or is one."""

_UNSEEN = -3.14e100
"""The log probability of what the HMM has never seen."""

_SAME_FIRST = re.compile(r"^(.).*\n(?:\1.*\n)*", re.MULTILINE)
_SAME_SECOND = re.compile(r"^(?=.(.))(.*\n(?:.\1.*\n)*)", re.MULTILINE)
"""Neighbouring lines of the dictionary whose first, or second, character is the same."""

_REMEMBERED = 1 << 14
_SHORT = 64
"""How many blocks and runs are remembered, each of at most how many characters: a few megabytes in all."""

Second = tuple[float, dict[str, float]]
First = tuple[float, dict[str, "str | Second"]]
Emission = tuple[float, float, float, float]
"""A character's log probabilities in the states Begin, Middle, End and Single."""


class _Weights(dict[str, float]):
    """{a frequency as the file has it: log probability}, worked out once each; minus infinity for 0."""

    def __init__(self, log_total: float) -> None:
        super().__init__()
        self._log_total = log_total

    def __missing__(self, digits: str) -> float:
        frequency = int(digits)
        self[digits] = weight = log(frequency) - self._log_total if frequency else -inf
        return weight


class Lexicon(dict[str, First]):
    """The dictionary, read as texts ask for it: a run of the metrics needs a fifth of its 349,046 words.

    It is {a character: (its log probability, {the next character: what begins with both})}. The inner values are
    the dictionary's lines until ``read`` makes of them (the log probability of the two characters, {longer fragment:
    log probability}). A log probability is minus infinity for what only begins longer words.

    Attributes:
        floor: the log probability of a character that is no word.
    """

    def __init__(self, text: str) -> None:
        """Take jieba's dict.txt: on each line a word, its frequency and its part of speech.

        Raises:
            ValueError: a line has something else.
        """
        super().__init__()
        log_total = log(sum(map(int, text.split(" ")[1::2])))
        self.floor = 0.0 - log_total
        self._weights = _Weights(log_total)
        self._lines = _joined((match[1], match[0]) for match in _SAME_FIRST.finditer(text))

    def __missing__(self, character: str) -> First:
        lines = _joined(_SAME_SECOND.findall(self._lines.get(character, "")))
        own = self._read(lines.pop(" ", ""))
        longer: dict[str, str | Second] = {**lines}
        self[character] = entry = (own.get(character, -inf if longer else self.floor), longer)
        return entry

    def read(self, character: str, following: str) -> Second:
        """What begins with the two characters, of which the dictionary has words."""
        longer = self[character][1]
        lines = longer[following]
        if isinstance(lines, tuple):
            return lines  # another thread was faster
        words = self._read(lines)
        begun = {word[:length] for word in words for length in range(3, len(word))}
        words.update(dict.fromkeys(begun.difference(words), -inf))
        longer[following] = entry = (words.pop(character + following, -inf), words)
        return entry

    def weight(self, fragment: str) -> float:
        """The log probability of a word of at least two characters, minus infinity for what is none."""
        second = self[fragment[0]][1].get(fragment[1])
        if second is None:
            return -inf
        weight, longer = self.read(fragment[0], fragment[1])
        return weight if len(fragment) == 2 else longer.get(fragment, -inf)

    def _read(self, lines: str) -> dict[str, float]:
        fields = lines.split()
        return dict(zip(fields[::3], map(self._weights.__getitem__, fields[1::3]), strict=True))


def _joined(pieces: Iterable[tuple[str, str]]) -> dict[str, str]:
    """{key: its pieces, one after the other}: the dictionary is sorted, but for a few words."""
    joined: dict[str, str] = {}
    for key, piece in pieces:
        joined[key] = joined[key] + piece if key in joined else piece
    return joined


class Hmm:
    """The model of words that the dictionary lacks."""

    def __init__(
        self,
        start: Mapping[str, float],
        transition: Mapping[str, Mapping[str, float]],
        emission: Mapping[str, Mapping[str, float]],
    ) -> None:
        """Take jieba's tables, keyed by the states' letters B, M, E and S."""
        self._start = tuple(start[state] for state in "BMES")
        self._moves = tuple(transition[old][new] for old, new in ("EB", "SB", "BM", "MM", "BE", "ME", "ES", "SS"))
        self._tables = tuple(emission[state] for state in "BMES")
        self._emissions: dict[str, Emission] = {}

    def cut(self, run: str) -> list[str]:
        """A run of Chinese characters cut into words along its most probable states."""
        words = []
        begin = done = 0
        for place, state in enumerate(self._states(run)):
            if state == _B:
                begin = place
            elif state == _E:
                words.append(run[begin : place + 1])
                done = place + 1
            elif state == _S:
                words.append(run[place])
                done = place + 1
        if done < len(run):
            words.append(run[done:])
        return words

    def _states(self, run: str) -> list[int]:
        """Viterbi. Where two paths are equally probable, jieba takes the state whose letter is the later one."""
        emissions = map(self._emission, run)
        b, m, e, s = map(add, self._start, next(emissions))
        to_b_from_e, to_b_from_s, to_m_from_b, to_m_from_m, to_e_from_b, to_e_from_m, to_s_from_e, to_s_from_s = (
            self._moves
        )
        came_from = []
        for at_b, at_m, at_e, at_s in emissions:
            e_b, s_b = e + to_b_from_e + at_b, s + to_b_from_s + at_b
            b_m, m_m = b + to_m_from_b + at_m, m + to_m_from_m + at_m
            b_e, m_e = b + to_e_from_b + at_e, m + to_e_from_m + at_e
            e_s, s_s = e + to_s_from_e + at_s, s + to_s_from_s + at_s
            came_from.append(
                (
                    _E if e_b > s_b else _S,
                    _B if b_m > m_m else _M,
                    _B if b_e > m_e else _M,
                    _E if e_s > s_s else _S,
                )
            )
            b, m, e, s = max(e_b, s_b), max(b_m, m_m), max(b_e, m_e), max(e_s, s_s)
        states = [_E if e > s else _S]
        for step in reversed(came_from):
            states.append(step[states[-1]])
        return states[::-1]

    def _emission(self, character: str) -> Emission:
        found = self._emissions.get(character)
        if found is None:
            b, m, e, s = (table.get(character, _UNSEEN) for table in self._tables)
            self._emissions[character] = found = (b, m, e, s)
        return found


class Segmenter:
    """Cuts texts into words; safe to use from several threads at once."""

    def __init__(self, lexicon: Lexicon, hmm: Hmm) -> None:
        self._lexicon = lexicon
        self._hmm = hmm
        self._short_block = lru_cache(_REMEMBERED)(self._block)
        self._short_run = lru_cache(_REMEMBERED)(self._run)

    def cut(self, text: str) -> list[str]:
        """The text's words; whitespace and signs are words too, so that joined they are the text again."""
        words: list[str] = []
        pieces = iter(_BLOCK.split(text))
        words += _between(next(pieces))
        for block in pieces:
            words += self._short_block(block) if len(block) <= _SHORT else self._block(block)
            words += _between(next(pieces))
        return words

    def _block(self, block: str) -> list[str]:
        words: list[str] = []
        ends = self._ends(block)
        begin = place = 0  # characters from begin to place are a run of single ones, not yet cut
        while place < len(block):
            end = ends[place]
            if end - place > 1:
                words += self._singles(block[begin:place])
                words.append(block[place:end])
                begin = end
            place = end
        words += self._singles(block[begin:])
        return words

    def _ends(self, block: str) -> list[int]:
        """For each place of a block, where the word that begins there ends on the most probable path to the end."""
        lexicon, size = self._lexicon, len(block)
        best = [0.0] * (size + 1)
        ends = [0] * size
        following = ""
        for place in range(size - 1, -1, -1):
            character = block[place]
            weight, longer = lexicon[character]
            end = place + 1
            score = weight + best[end]
            second = longer.get(following)
            if second is not None:
                stop = place + 2
                found: float | None
                found, longest = second if isinstance(second, tuple) else lexicon.read(character, following)
                while found is not None:
                    if (other := found + best[stop]) >= score:  # of equals, the longer word
                        score, end = other, stop
                    stop += 1
                    found = longest.get(block[place:stop]) if stop <= size else None
            if score == -inf:  # begins words, but none of these, and is none
                end = place + 1
                score = lexicon.floor + best[end]
            best[place], ends[place] = score, end
            following = character
        return ends

    def _singles(self, run: str) -> Sequence[str]:
        if len(run) < 2:
            return run
        return self._short_run(run) if len(run) <= _SHORT else self._run(run)

    def _run(self, run: str) -> list[str]:
        if self._lexicon.weight(run) > -inf:
            return list(run)  # a word, but a less probable one than its characters
        return list(self._found(run))

    def _found(self, run: str) -> Iterator[str]:
        for number, piece in enumerate(_RUN.split(run)):
            if number % 2:
                yield from self._hmm.cut(piece)
            else:
                yield from filter(None, _NUMBER.split(piece))


def _between(text: str) -> Sequence[str]:
    return _BETWEEN.findall(text) if "\r\n" in text else text
