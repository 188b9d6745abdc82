"""Reasoning apart from the answer while decoding: where it begins and ends, its budget, and the stop strings."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lbx.backends.scripted import EOS, ByteTokenizer
from lbx.base.errors import PromptError
from lbx.base.records import Completion, Request, SampleKey
from lbx.engine.decoding import Decoding
from lbx.engine.reasoning import KNOWN_MARKS, ReasoningMarks, split_reasoning
from lbx.engine.token_budget import check_fits
from tests.backends.pieces import PieceTokenizer

BYTES = ByteTokenizer()
END = 10_000
KEY = SampleKey("b", "t", "0")


def feed(tokenizer, tokens, ends=frozenset({END}), **changes) -> Completion:
    """Push the tokens and an end of sequence, until the answer ends."""
    decoding = Decoding(Request(KEY, (1,), **({"max_new_tokens": 1000} | changes)), tokenizer, ends)
    for token in [*tokens, min(ends)]:
        if not decoding.push(token):
            break
    return decoding.completion()


def run(text: str, **changes) -> Completion:
    return feed(BYTES, text.encode(), frozenset({EOS}), **changes)


def facts(said: Completion):
    return said.text, said.reasoning, said.output_tokens, said.reasoning_tokens, said.finish_reason


# --- what is reasoning

THOUGHT = "<think>hm</think>"  # 17 bytes


@pytest.mark.parametrize(
    ("text", "opened", "expected", "closed"),
    [
        ("yes", False, ("yes", None, 3, 0, "stop"), None),
        (THOUGHT + "\n\nyes", False, ("yes", "hm", 22, 17, "stop"), True),
        ("\n " + THOUGHT + "yes", False, ("yes", "hm", 22, 19, "stop"), True),
        ("hm</think>yes", False, ("yes", "hm", 13, 10, "stop"), True),
        ("hm</think>yes", True, ("yes", "hm", 13, 10, "stop"), True),
        (THOUGHT + "yes", True, ("yes", "hm", 20, 17, "stop"), True),
        ("<think>hm", False, ("", "hm", 9, 9, "stop"), False),
        ("hm", True, ("", "hm", 2, 2, "stop"), False),
        ("hm</thin", True, ("", "hm</thin", 8, 8, "stop"), False),
        ("", True, ("", "", 0, 0, "stop"), False),
        ("", False, ("", None, 0, 0, "stop"), None),
        (" \n", False, (" \n", None, 2, 0, "stop"), None),
        ("<thi", False, ("<thi", None, 4, 0, "stop"), None),
        ("<thin air", False, ("<thin air", None, 9, 0, "stop"), None),
        ("Well. <think>hm</think> yes", False, ("Well. yes", "hm", 27, 17, "stop"), True),
        ("a <think> b", False, ("a <think> b", None, 11, 0, "stop"), None),
        ("a</think>b</think>c", False, ("b</think>c", "a", 19, 9, "stop"), True),
        ("<think></think>", False, ("", "", 15, 15, "stop"), True),
    ],
)
def test_what_is_reasoning(text, opened, expected, closed):
    said = run(text, opens_reasoning=opened)
    assert facts(said) == expected
    assert said.reasoning_closed is closed
    assert not said.stop_in_reasoning


# --- budgets


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("budget", range(1, 24))
def test_one_budget_for_both(opened, budget):
    text = ("hm</think>" if opened else THOUGHT) + "\nyes"
    said = run(text, opens_reasoning=opened, max_new_tokens=budget)
    cut = text[:budget]
    assert (said.reasoning, said.text) == split_reasoning(cut, opened=opened)
    assert said.output_tokens == len(cut)
    assert said.finish_reason == ("length" if budget <= len(text) else "stop")


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("thinking", range(1, 20))
@pytest.mark.parametrize("budget", [1, 3, 4, 5])
def test_a_budget_of_its_own(opened, thinking, budget):
    block = "hm</think>" if opened else THOUGHT
    said = run(block + "\nyes", opens_reasoning=opened, thinking_tokens=thinking, max_new_tokens=budget)
    if thinking >= len(block):  # exactly used up is enough
        expected = ("\nyes"[:budget].lstrip(), "hm", len(block) + min(budget, 4), len(block))
        assert facts(said) == (*expected, "length" if budget <= 4 else "stop")
        assert said.reasoning_closed is True
        return
    seen_at = 0 if opened else len("<think>")
    made = max(thinking, seen_at)
    if made <= thinking + budget:
        assert facts(said) == ("", block[seen_at:made], made, made, "length")
        assert said.reasoning_closed is False
    else:  # the mark itself did not fit into both budgets
        assert facts(said) == (block[:budget], None, budget, 0, "length")


@pytest.mark.parametrize("text", ["yes or no", "<thx or no", "\n\n\n\n\n\n\n", "a <think> b", "<think", "<"])
@pytest.mark.parametrize("budget", range(1, 12))
def test_without_a_block_the_answers_budget_holds_from_the_first_token(text, budget):
    plain = run(text, max_new_tokens=budget)
    assert facts(run(text, max_new_tokens=budget, thinking_tokens=50)) == facts(plain)
    assert plain.text == text[:budget]
    assert plain.output_tokens == min(budget, len(text))
    assert plain.finish_reason == ("length" if budget <= len(text) else "stop")


def test_a_lone_close_does_not_lengthen_the_whole():
    said = run("x" * 20 + "</think>" + "y" * 50, thinking_tokens=5, max_new_tokens=30)
    assert facts(said) == ("y" * 7, "x" * 20, 35, 28, "length")
    said = run("x" * 20 + "</think>" + "y" * 50, thinking_tokens=40, max_new_tokens=30)
    assert facts(said) == ("y" * 30, "x" * 20, 58, 28, "length")


def test_an_answer_ends_before_tokens_that_are_kept():
    """Tokens that were made only to see whether a block begins are no part of it, but were made."""
    request = Request(KEY, (1,), max_new_tokens=2, thinking_tokens=20)
    decoding = Decoding(request, BYTES, {EOS})
    assert [decoding.push(token) for token in b"<th."] == [True, True, True, False]
    said = decoding.completion()
    assert (said.text, said.output_tokens, said.output_ids) == ("<t", 2, tuple(b"<th."))


def test_all_three_parts_must_fit_the_window():
    request = Request(KEY, (1,) * 90, 11, thinking_tokens=100)
    check_fits(request, 201)
    with pytest.raises(PromptError, match=r"90 tokens .* 11 and its reasoning 100: together 201, .* window is 200"):
        check_fits(request, 200)


# --- stop strings


@pytest.mark.parametrize(
    ("text", "changes", "expected", "inside"),
    [
        ("<think>a\nb</think>yes\nno", {}, ("yes", "a\nb", 21, 18, "stop"), True),
        ("<think>a</think>\n\nyes\nno", {}, ("yes", "a", 21, 16, "stop"), False),
        ("<think>a</think>\n\n", {}, ("", "a", 18, 16, "stop"), False),
        ("a\nb</think>yes\nno", {"opens_reasoning": True}, ("yes", "a\nb", 14, 11, "stop"), True),
        ("<think>a\nb", {}, ("", "a\nb", 10, 10, "stop"), True),
        # nothing is known of a block before its lone close
        ("a\nb</think>yes", {}, ("a", None, 1, 0, "stop"), False),
        # the line break in front of a block ends nothing; in front of an answer it does, as ever
        ("\n<think>a</think>yes\nno", {}, ("yes", "a", 20, 17, "stop"), False),
        ("\nyes", {}, ("", None, 0, 0, "stop"), False),
        ("\n<thin", {}, ("", None, 0, 0, "stop"), False),
        ("\n\n\nyes", {"max_new_tokens": 2}, ("", None, 0, 0, "stop"), False),
        ("<think>a</think>\nyes\nno", {"min_new_tokens": 1}, ("yes", "a", 20, 16, "stop"), False),
        ("<think>a</think>\ny\no\nn", {"min_new_tokens": 3}, ("y\no", "a", 20, 16, "stop"), False),
        ("<think>a</think>y\no\nn", {"min_new_tokens": 2}, ("y\no", "a", 19, 16, "stop"), False),
        ("<think>a</think>ENDyes END", {"stop": ("END",)}, ("", "a", 18, 16, "stop"), False),
        ("<think>a</think>问题END", {"stop": ("题",)}, ("问", "a", 21, 16, "stop"), False),
        # characters that come byte by byte: the answer's first one, and a blank in front of it
        ("<think>a</think>问题", {"stop": ("问",)}, ("", "a", 18, 16, "stop"), False),
        ("<think>a</think>\u3000xb", {"stop": ("x",), "min_new_tokens": 1}, ("xb", "a", 21, 16, "stop"), False),
    ],
)
def test_stop_strings_end_answers_only(text, changes, expected, inside):
    said = run(text, **({"stop": ("\n",)} | changes))
    assert facts(said) == expected
    assert said.stop_in_reasoning is inside


def test_a_stop_string_in_the_token_that_closes_the_block():
    tokens = PieceTokenizer(["<think>", "a", "</think", ">yes\nno", "x"])
    said = feed(tokens, tokens.tokens("<think>", "a", "</think", ">yes\nno", "x"), stop=("\n",))
    assert facts(said) == ("yes", "a", 4, 4, "stop")


def test_what_may_not_be_chosen():
    """samsum's rule, no end and no line break first, holds for the answer behind the reasoning."""
    tokens = PieceTokenizer(["<think>", "</think>", "\n", "a", "END"])
    line, word = tokens.tokens("\n", "a")
    request = Request(KEY, (1,), 50, stop=("\n", "END"), min_new_tokens=1, thinking_tokens=20)
    decoding = Decoding(request, tokens, {5})
    like = np.array([0, 0, 2, 1, 3, 4], np.float32)  # the end, then END, then a line break, then the word

    def taken(*pushed: str) -> int:
        for token in tokens.tokens(*pushed):
            decoding.push(token)
        return Decoding.take(decoding, like)

    assert decoding.take(like) == word, "as without reasoning: none of the three"
    decoding = Decoding(request, tokens, {5})
    assert taken("<think>", "</think>") == line, "blanks in front of the answer end nothing"
    assert decoding.take(np.array([0, 0, 0, 1, 3, 4], np.float32)) == word
    assert decoding.take(like) is None
    assert decoding.completion().text == "a"
    decoding = Decoding(dataclasses.replace(request, opens_reasoning=True), tokens, {5})
    assert decoding.take(like) is None, "reasoning may be empty"
    assert decoding.completion().reasoning_closed is False


# --- marks of control tokens

CONTROLS = PieceTokenizer(["a", "b", "\n", " "], ["[THINK]", "[/THINK]"], ReasoningMarks("[THINK]", "[/THINK]"))
ANALYSIS, FINAL = ("<|channel|>", "analysis", "<|message|>"), ("<|channel|>", "final", "<|message|>")
NEXT = ("<|end|>", "<|start|>", "assistant")
COMMENTARY = ("<|channel|>", "commentary", "<|message|>")
HARMONY = PieceTokenizer(
    ["a", "b", "\n", "analysis", "final", "commentary", "assistant"],
    ["<|channel|>", "<|message|>", "<|start|>", "<|end|>"],
    KNOWN_MARKS[-1],
)


@pytest.mark.parametrize(
    ("tokenizer", "pieces", "expected"),
    [
        (CONTROLS, ["[THINK]", "a", "\n", "[/THINK]", "\n", "b"], ("b", "a", 6, 4, "stop")),
        (CONTROLS, ["a", "[/THINK]", "b"], ("b", "a", 3, 2, "stop")),
        (CONTROLS, ["a", "[THINK]", "b"], ("ab", None, 3, 0, "stop")),
        (CONTROLS, ["a", "[THINK]", "b", "[/THINK]", "b"], ("ab", "b", 5, 3, "stop")),
        (CONTROLS, ["[THINK]", "a", "[THINK]", "b"], ("", "ab", 4, 4, "stop")),
        (CONTROLS, ["[THINK]", "a", "[/THINK]", "b", "[THINK]", "a", "[/THINK]"], ("ba", "a", 7, 3, "stop")),
        (CONTROLS, ["\n", "[THINK]", "a"], ("", "a", 3, 3, "stop")),
        (HARMONY, [*ANALYSIS, "a", *NEXT, *FINAL, "b"], ("b", "a", 11, 10, "stop")),
        (HARMONY, [*ANALYSIS, "a", *NEXT, *FINAL, "b", *NEXT, *FINAL, "a"], ("b", "a", 11, 10, "stop")),
        (HARMONY, [*ANALYSIS, "a", *NEXT, *ANALYSIS, "b", *NEXT, *FINAL, "b"], ("b", "a\n\nb", 18, 17, "stop")),
        (HARMONY, [*ANALYSIS, "a", *NEXT, *COMMENTARY, "b", *NEXT, *FINAL, "b"], ("b", "a\n\nb", 18, 17, "stop")),
        (HARMONY, [*COMMENTARY, "a", *NEXT, *ANALYSIS, "b", *NEXT, *FINAL, "b"], ("b", "a\n\nb", 18, 17, "stop")),
        (HARMONY, [*FINAL, "b"], ("b", "", 4, 3, "stop")),
        (HARMONY, ["b", "a"], ("ba", None, 2, 0, "stop")),
        (HARMONY, [*COMMENTARY, "a"], ("", "a", 4, 4, "stop")),
        (HARMONY, [*ANALYSIS, "a"], ("", "a", 4, 4, "stop")),
        (HARMONY, [*ANALYSIS, "a", *NEXT], ("", "a", 7, 7, "stop")),
        (HARMONY, [*ANALYSIS, "a", *NEXT, "<|channel|>", "final"], ("", "a", 9, 9, "stop")),
        (HARMONY, ["<|channel|>", *ANALYSIS, "a"], ("", "a", 5, 5, "stop")),
    ],
)
def test_marks_of_control_tokens(tokenizer, pieces, expected):
    assert facts(feed(tokenizer, tokenizer.tokens(*pieces))) == expected


HARMONY_TOKENS = st.lists(
    st.sampled_from([ANALYSIS, FINAL, COMMENTARY, NEXT, *((p,) for p in ("a", "b", "\n", "<|start|>", "<|channel|>"))])
)


@given(parts=HARMONY_TOKENS, opened=st.booleans())
def test_messages_token_by_token_are_the_split_of_the_whole_text(parts, opened):
    """The text with its control tokens spelled out, as some servers send it."""
    pieces = [piece for part in parts for piece in part]
    assume("<|message|>" in pieces)  # two tokens of a header may be any, and are no block yet
    said = feed(HARMONY, HARMONY.tokens(*pieces), opens_reasoning=opened)
    reasoning, answer = split_reasoning("".join(pieces), opened=opened, marks=HARMONY.reasoning_marks)
    assert said.reasoning == reasoning or (reasoning is None and not said.text)
    for token in HARMONY.control_tokens:
        answer = answer.replace(token, "")
    assert said.text.strip() == answer.strip()


def test_a_budget_waits_for_a_mark_of_control_tokens():
    said = feed(HARMONY, HARMONY.tokens(*ANALYSIS, "a", *FINAL, "b", "b"), max_new_tokens=1, thinking_tokens=7)
    assert facts(said) == ("b", "a", 8, 7, "length")
    said = feed(HARMONY, HARMONY.tokens(*FINAL, "b", "b"), max_new_tokens=1, thinking_tokens=7)
    assert facts(said) == ("b", "", 4, 3, "length")


def test_a_mark_may_come_byte_by_byte():
    tokenizer = ByteTokenizer(reasoning=("◁think▷", "◁/think▷"))
    opening, closing = "◁think▷".encode(), "◁/think▷".encode()
    said = feed(tokenizer, [*opening, *b"a", *closing, *b"bc"], max_new_tokens=1, thinking_tokens=30)
    block = len(opening) + 1 + len(closing)
    assert facts(said) == ("b", "a", block + 1, block, "length")


# --- any tokens at all

MARKS = ["<think>", "</think>", "<", "think", ">", "</", "<th", "ink>", "></"]
WORDS = ["\n", " ", "a", "b", "b ", "END", "EN", "D\n", b"\xe5", b"\xb0", b"\x8f", b"\xe3\x80", b"\x80"]
PIECES = PieceTokenizer([*MARKS, *WORDS], ["<s>"])
TEXT_TOKENS = st.lists(st.integers(0, len(PIECES.pieces) - 1), max_size=30)
PLAIN_TOKENS = st.lists(st.integers(len(MARKS), len(PIECES.pieces) - 1), max_size=20)


@given(tokens=TEXT_TOKENS, opened=st.booleans())
def test_token_by_token_is_the_split_of_the_whole_text(tokens, opened):
    said = feed(PIECES, tokens, opens_reasoning=opened)
    assert (said.reasoning, said.text) == split_reasoning(PIECES.decode(tokens), opened=opened)
    assert said.output_tokens == len(tokens)
    assert 0 <= said.reasoning_tokens <= said.output_tokens


@given(tokens=TEXT_TOKENS, opened=st.booleans(), thinking=st.integers(1, 12), budget=st.integers(1, 12))
def test_budgets_cut_the_same_answer_shorter(tokens, opened, thinking, budget):
    said = feed(PIECES, tokens, opens_reasoning=opened, thinking_tokens=thinking, max_new_tokens=budget)
    made = said.output_tokens
    assert said == dataclasses.replace(
        feed(PIECES, tokens[:made], opens_reasoning=opened),
        finish_reason=said.finish_reason,
        output_ids=said.output_ids,
    ) or (said.reasoning is None and said.text == PIECES.decode(tokens[:made]))
    assert made <= thinking + budget
    if said.reasoning is None:
        assert made == min(budget, len(tokens))
    elif said.reasoning_closed:
        closes = (n for n in range(made + 1) if feed(PIECES, tokens[:n], opens_reasoning=opened).reasoning_closed)
        assert made == min(next(closes) + budget, thinking + budget, len(tokens))
    elif made < len(tokens):
        assert made >= thinking
    assert (said.finish_reason == "stop") <= (made == len(tokens))
    assert said.output_ids is not None
    assert said.output_ids[:made] == tuple(tokens[:made])


@given(
    tokens=PLAIN_TOKENS, stops=st.sets(st.sampled_from(["\n", "END", "a", "小", " b"]), max_size=2),
    least=st.integers(0, 4), budget=st.integers(1, 12), thinking=st.sampled_from([0, 30]),
)  # fmt: skip
def test_without_reasoning_answers_end_as_ever(tokens, stops, least, budget, thinking):
    """Against the plain rule, spelled out: the first token at which a stop string stands in the whole text."""
    said = feed(
        PIECES, tokens, stop=tuple(stops), min_new_tokens=least, max_new_tokens=budget, thinking_tokens=thinking
    )
    expected = (PIECES.decode(tokens), len(tokens), "stop")
    for made in range(1, len(tokens) + 1):
        text, start = PIECES.decode(tokens[:made]), len(PIECES.decode(tokens[:least]))
        found = [at for stop in stops if (at := text.find(stop, start if least else 0)) >= 0] if made > least else []
        if found:
            expected = (text[: min(found)], made - 1, "stop")
            break
        if made == budget:
            expected = (text, made, "length")
            break
    assert (said.text, said.output_tokens, said.finish_reason) == expected
    assert (said.reasoning, said.reasoning_tokens, said.reasoning_closed) == (None, 0, None)


@given(tokens=PLAIN_TOKENS, thought=PLAIN_TOKENS, least=st.integers(0, 3), budget=st.integers(1, 12))
def test_an_answer_behind_reasoning_ends_as_it_would_alone(tokens, thought, least, budget):
    """Blanks in front of it aside: without them, and without the reasoning, it is the same answer."""
    words = tokens[max(n for n in range(len(tokens) + 1) if not PIECES.decode(tokens[:n]).strip()) :]
    changes = {"stop": ("\n", "END"), "min_new_tokens": least}
    alone = feed(PIECES, words, max_new_tokens=1000, **changes)
    block = PIECES.tokens("<think>", *(PIECES.pieces[t] for t in thought), "</think>")
    said = feed(PIECES, [*block, *words], max_new_tokens=1000, **changes)
    assert said.text == alone.text.lstrip()
    assert said.output_tokens == len(block) + alone.output_tokens
    assert said.reasoning_tokens == len(block)
    limited = feed(PIECES, [*block, *words], thinking_tokens=40, max_new_tokens=budget, **changes)
    assert limited.text == feed(PIECES, words, max_new_tokens=budget, **changes).text.lstrip()
