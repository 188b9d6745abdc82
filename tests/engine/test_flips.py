"""Where two answers part, found from one's tokens and the other's text, against runs whose tokens are all known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pieces import PieceTokenizer

from lbx.backends.loop import Decoding
from lbx.engine.checking.flips import Choice, Flip, StoredAnswer, find_flip, gap_in
from lbx.records import Completion, Request, SampleKey, Sampling

PIECES = ("a", "b", "ab", "ba", "aa", " ", " a", "ab b", "é".encode()[:1], "é".encode()[1:], "<think>", "</think>", "x")
TOKENIZER = PieceTokenizer([*PIECES, ""])
EOS = len(PIECES)
KEY = SampleKey("toy", "task", "1")


def request(new: int = 12, **more: object) -> Request:
    return Request(KEY, (0,), new, **more)


def logits_after(tokens: Sequence[int]) -> np.ndarray:
    """Half a unit apart at least, in an order that depends on all tokens before."""
    digest = hashlib.sha256(repr(list(tokens)).encode()).digest()
    order = sorted(range(EOS + 1), key=lambda token: digest[token])
    found = np.zeros(EOS + 1, dtype=np.float32)
    found[order] = np.arange(EOS + 1) / 2
    found[EOS] -= 2  # so that answers are not too short
    return found


Model = Callable[[list[int]], np.ndarray]


def decode(model: Model, one: Request) -> tuple[Completion, list[int], list[np.ndarray]]:
    """The answer, its tokens with the ending one, and the logits that each was chosen by."""
    decoding, tokens, seen = Decoding(one, TOKENIZER, {EOS}), [], []
    while True:
        seen.append(model(tokens))
        tokens.append(decoding.choose(seen[-1]))
        if not decoding.push(tokens[-1]):
            return decoding.completion(), tokens, seen


def stored(one: Request, said: Completion) -> StoredAnswer:
    return StoredAnswer(
        one, TOKENIZER, {EOS}, said.text, said.reasoning, said.finish_reason, output_tokens=said.output_tokens
    )


def said(completion: Completion) -> tuple[object, ...]:
    return completion.text, completion.reasoning, completion.finish_reason


@settings(max_examples=200)
@given(st.integers(0, 11), st.integers(0, 200), st.sampled_from([(), ("ab",), ("ba", "xx")]), st.sampled_from([0, 5]))
def test_a_near_tie_that_fell_the_other_way_is_found(
    place: int, salt: int, stop: tuple[str, ...], thinking: int
) -> None:
    one = request(stop=stop, thinking_tokens=thinking, opens_reasoning=bool(thinking))

    def model(tokens: list[int], *, ahead: float) -> np.ndarray:
        found = logits_after([salt, *tokens])
        if len(tokens) == place:
            best, second = np.argsort(-found)[:2]
            found[second] = found[best] - np.float32(ahead)
        return found

    alone, tokens, seen = decode(lambda t: model(t, ahead=0.25), one)
    together, others, _ = decode(lambda t: model(t, ahead=-0.25), one)
    assume(len(tokens) > place)
    assert tokens[:place] == others[:place]
    assert tokens[place] != others[place]
    batched = stored(one, together)
    choices = [Choice.of(logits, token) for logits, token in zip(seen, tokens, strict=True)]
    found = find_flip(batched, tokens, choices)
    if said(alone) == said(together):  # of other tokens
        assert found is None or found.gap == 0.25
        return
    assert found == Flip(place, 0.25)
    assert gap_in(batched, tokens, seen[place], place) == 0.25
    assert not batched.equals(alone)
    assert find_flip(stored(one, alone), tokens, choices) is None
    assert stored(one, alone).equals(alone)


def flip(text: str, tokens: list[int], logits: Sequence[dict[int, float]], **more: object) -> Flip | None:
    one = request(**more)
    whole = []
    for given_logits, token in zip(logits, tokens, strict=True):
        row = np.full(EOS + 1, -20, dtype=np.float32)
        for number, value in given_logits.items():
            row[number] = value
        whole.append(Choice.of(row, token))
    return find_flip(StoredAnswer(one, TOKENIZER, {EOS}, text, finish_reason="stop"), tokens, whole)


def test_a_token_that_begins_as_the_text_goes_on_is_no_agreement() -> None:
    a, ab, b, end = 0, 2, 1, EOS
    # Alone "a", then the end; together "ab": the other token was chosen at the first place, not at the second.
    assert flip("ab", [a, end], [{a: 3.0, ab: 2.99}, {end: 5.0, b: 0.0}]) == Flip(0, pytest.approx(0.01, abs=1e-6))
    # Where "b" was near instead, it was chosen behind the same "a".
    assert flip("ab", [a, end], [{a: 3.0, ab: -3.0}, {end: 5.0, b: 4.5}]) == Flip(1, 0.5)


def test_an_end_is_a_token_too() -> None:
    a, b, end = 0, 1, EOS
    assert flip("a", [a, b, end], [{a: 1.0}, {b: 1.0, end: 0.75}, {end: 1.0}]) == Flip(1, 0.25)
    assert flip("ab", [a, end], [{a: 1.0}, {end: 1.0, b: 0.5}]) == Flip(1, 0.5)


def test_half_a_character_agrees_until_it_is_whole() -> None:
    first, second, a, end = 8, 9, 0, EOS
    assert flip("éa", [first, second, end], [{first: 1.0}, {second: 1.0}, {end: 1.0, a: 0.5}]) == Flip(2, 0.5)


def test_a_sampled_answer_has_a_place_and_no_gap() -> None:
    a, b, end = 0, 1, EOS
    found = flip("b", [a, end], [{a: 1.0, b: 0.5}, {end: 1.0}], sampling=Sampling(temperature=1.0))
    assert found == Flip(0, None)


def test_a_token_that_is_not_among_the_likeliest_is_looked_for_further() -> None:
    one, x = request(), PIECES.index("x")
    logits = np.arange(EOS + 1, dtype=np.float32)[::-1].copy()
    answer = StoredAnswer(one, TOKENIZER, {EOS}, "x", finish_reason="stop")
    few = [Choice.of(logits, 0, count=4), Choice.of(logits, EOS, count=4)]
    assert find_flip(answer, [0, EOS], few) == Flip(0, None)
    assert gap_in(answer, [0, EOS], logits, 0) == x


def test_an_answer_that_never_reasoned_parts_where_reasoning_begins() -> None:
    think, a, end = PIECES.index("<think>"), 0, EOS
    assert flip("a", [think, a, end], [{think: 1.0, a: 0.875}, {a: 1.0}, {end: 1.0}]) == Flip(0, 0.125)
