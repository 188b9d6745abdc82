"""The rule for what is reasoning and what is the answer, on whole texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.engine.reasoning import KNOWN_MARKS, THINK, ReasoningMarks, choose_marks, opens_reasoning, split_reasoning

BRACKETS, HARMONY = KNOWN_MARKS[1], KNOWN_MARKS[-1]


@pytest.mark.parametrize(
    ("text", "opened", "reasoning", "answer"),
    [
        ("The answer is A", False, None, "The answer is A"),
        ("<think>hm</think>\n\nA", False, "hm", "A"),
        ("\n<think>\nhm\n</think>\n\nA\n", False, "hm", "A\n"),
        ("hm</think>A", False, "hm", "A"),
        ("hm</think>A", True, "hm", "A"),
        ("hm, cut off", True, "hm, cut off", ""),
        ("<think>hm, cut off", False, "hm, cut off", ""),
        ("Well. <think>hm</think> A", False, "hm", "Well. A"),
        ("<think></think>A", False, "", "A"),
        ("A </think> B </think> C", False, "A", "B </think> C"),
        # the model writes the mark again that its prompt ends in
        ("\n<think>hm</think>A", True, "hm", "A"),
        ("hm <think> still</think>A", True, "hm <think> still", "A"),
        # an answer that only speaks of the mark
        ("The tag <think> opens it", False, None, "The tag <think> opens it"),
        ("", False, None, ""),
        ("", True, "", ""),
        ("</think>A", False, "", "A"),
    ],
)
def test_reasoning_is_kept_apart(text: str, opened: bool, reasoning: str | None, answer: str) -> None:
    assert split_reasoning(text, opened=opened) == (reasoning, answer)


@given(st.text(st.sampled_from("<>/think \nA"), max_size=40))
def test_text_without_a_block_is_untouched(text: str) -> None:
    if "</think>" not in text and not text.lstrip().startswith("<think>"):
        assert split_reasoning(text) == (None, text)


def test_other_marks() -> None:
    assert split_reasoning("[THINK]a[/THINK]b", marks=BRACKETS) == ("a", "b")
    assert split_reasoning("<think>a</think>b", marks=BRACKETS) == (None, "<think>a</think>b")
    assert split_reasoning("abc", marks=ReasoningMarks("ab", "bc")) == ("c", ""), "the marks may not share a character"


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("A a<|end|>N F b", "a", "b"),
        ("A a<|end|>N A c<|end|>N F b<|return|>", "a\n\nc", "b<|return|>"),
        ("C a<|end|>N A c<|end|>N F b<|end|>N F d", "a\n\nc", "b"),
        (
            "A a<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}",
            "a\n\n{}",
            "",
        ),
        ("A a<|end|>N<|chan", "a", ""),
        ("F b", "", "b"),
        ("b", None, "b"),
    ],
)
def test_messages_of_channels(text: str, reasoning: str | None, answer: str) -> None:
    for short, long in (
        ("A ", "<|channel|>analysis<|message|>"), ("C ", "<|channel|>commentary<|message|>"),
        ("F ", "<|channel|>final<|message|>"), ("N ", "<|start|>assistant"), ("N", "<|start|>assistant"),
    ):  # fmt: skip
        text = text.replace(short, long)
    assert split_reasoning(text, marks=HARMONY) == (reasoning, answer)


@pytest.mark.parametrize(
    ("template", "tokens", "given_marks", "expected"),
    [
        (None, (), None, THINK),
        ("{{ messages }}", (), None, THINK),
        ("{{ m.split('</think>')[-1] }}", BRACKETS, None, THINK),
        ("{{ '[THINK]' }}", THINK, None, BRACKETS),
        ("<|start|>assistant<|channel|>analysis<|message|>", (), None, HARMONY),
        ("{{ '<|turn>model\\n<|channel>thought\\n<channel|>' }}", (), None, KNOWN_MARKS[3]),
        ("{{ messages }}", BRACKETS, None, BRACKETS),
        (None, ("[THINK]",), None, THINK),
        ("{{ '<think>' }}", THINK, ("<a>", "<b>"), ReasoningMarks("<a>", "<b>")),
        (None, (), HARMONY[:2], HARMONY),
    ],
)
def test_which_marks_apply(template, tokens, given_marks, expected) -> None:
    assert choose_marks(template, lambda text: text in tokens, given_marks) == expected


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("<|assistant|>\n<think>\n", True),
        ("<|assistant|><think>", True),
        ("<|assistant|>\n<think>\n\n</think>\n\n", False),
        ("<|assistant|></think>", False),
        ("<|assistant|>", False),
        ("Use <think> tags.\nAssistant:", False),
    ],
)
def test_prompts_that_open_the_reasoning(end: str, expected: bool) -> None:
    assert opens_reasoning(end, THINK) is expected
