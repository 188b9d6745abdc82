"""Word pairs and sentences of RULER's samples, compared with a plain construction and with nltk 3.9.1."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lbx.base.bundle_folder import Bundle
from lbx.benchmarks.ruler.needles import WordPairs, word_list
from lbx.benchmarks.ruler.sentences import SentenceSplitter, read_parameters

WORDS = st.lists(st.text(st.sampled_from("ab-.é"), max_size=4), max_size=8)


@given(WORDS, WORDS)
@example(["well", "well-known", "we", ""], ["a", "known-a", "-", ""])
def test_pairs_are_the_sorted_distinct_ones(adjectives: list[str], nouns: list[str]) -> None:
    expected = sorted({f"{adjective}-{noun}" for adjective in adjectives for noun in nouns})
    pairs = WordPairs(adjectives, nouns)
    assert len(pairs) == len(expected)
    assert [*pairs] == expected
    assert [pairs[-1 - index] for index in range(len(pairs))] == expected[::-1]
    for index in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            pairs[index]
    if expected:
        assert Random(1).choices(pairs, k=5) == Random(1).choices(expected, k=5)


def test_pairs_of_wonderwords_take_little_memory(ruler_bundle: Callable[[], Bundle]) -> None:
    adjectives, nouns = (word_list(ruler_bundle(), part) for part in ("adjective", "noun"))
    tracemalloc.start()
    pairs = WordPairs(adjectives, nouns)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6
    assert len(pairs) == 6_175_260
    starts = [0, len(pairs) - 20, *(Random(1).randrange(len(pairs) - 20) for _ in range(2000))]
    for start in starts:
        window = [pairs[index] for index in range(start, start + 20)]
        assert window == sorted({*window})
    first = min(adjectives)
    assert [*map(pairs.__getitem__, range(3))] == [f"{first}-{noun}" for noun in sorted({*nouns})[:3]]


SENTENCES: list[tuple[str, list[str]]] = [
    (
        "Dr. Gray met J. R. Smith. He left at 5 p.m. The train was late.",
        ["Dr. Gray met J. R. Smith.", "He left at 5 p.m.", "The train was late."],
    ),
    (
        "He said: “It rained.” Then he left. “Why?” she asked.",
        ["He said: “It rained.” Then he left.", "“Why?” she asked."],
    ),
    (
        'He said: "It rained." Then he left. (It was 5.) [Yes!] So it was.',
        ['He said: "It rained."', "Then he left.", "(It was 5.)", "[Yes!]", "So it was."],
    ),
    ("Wait... what? No... Yes. . . . And so on.", ["Wait... what?", "No...", "Yes.", ".", ".", ".", "And so on."]),
    (
        "It costs 3.50. 12 men came. No. 7 is missing. See p. 9.",
        ["It costs 3.50.", "12 men came.", "No.", "7 is missing.", "See p. 9."],
    ),
    ("Über alles. über nichts. Élan vital! ¿Qué? Sí.", ["Über alles.", "über nichts.", "Élan vital!", "¿Qué?", "Sí."]),
    (
        "a.b.c.d. E.g. this, i.e. that. U.S. troops. The U.S. The end",
        ["a.b.c.d.", "E.g.", "this, i.e.", "that.", "U.S. troops.", "The U.S.", "The end"],
    ),
    (
        "One.\n\nTwo.\tThree.\xa0Four.\u2003Five.\x0bSix.\x85Seven.",
        ["One.", "Two.", "Three.\xa0Four.\u2003Five.", "Six.", "Seven."],
    ),
    (
        "Hi!!! Really?! Yes.No. OK.) Done.' And.\" Then",
        ["Hi!!!", "Really?!", "Yes.No.", "OK.) Done.'", 'And."', "Then"],
    ),
    (
        "Mr. A. Then B. c. d. The vs. them etc. Etc. And Inc. It",
        ["Mr. A.", "Then B. c. d. The vs. them etc.", "Etc.", "And Inc.", "It"],
    ),
    ("x--y. --Z -- He. ''Q.'' ``R.`` S", ["x--y.", "--Z -- He.", "''Q.''", "``R.`` S"]),
    ("  Leading. Trailing.  ", ["  Leading.", "Trailing."]),
]
"""Texts, and their sentences by ``sent_tokenize`` of nltk 3.9.1."""


@pytest.mark.parametrize(("text", "sentences"), SENTENCES)
def test_sentences(ruler_bundle: Callable[[], Bundle], text: str, sentences: list[str]) -> None:
    assert SentenceSplitter(read_parameters(ruler_bundle())).split(text) == sentences


@pytest.mark.parametrize("unit", [". ", ".", "? ! ", "a.", "a.b ", "-", "' ", '." ', ".\n", "x" * 50, "( ", ".\u2003"])
def test_long_texts_lose_no_letter(ruler_bundle: Callable[[], Bundle], unit: str) -> None:
    text = unit * (100_000 // len(unit))
    sentences = SentenceSplitter(read_parameters(ruler_bundle())).split(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
