"""The marks around a thinking model's reasoning, and the rule for what counts as a block of it.

A block is opened by the prompt, or by an opening mark as the output's first words, or is told by its closing mark
alone: everything before that was reasoning. Whatever follows the first closing mark is the answer, other marks
included. An opening mark in the middle of an answer counts only when a closing mark follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Marks(NamedTuple):
    """What opens and what closes the reasoning, as text; control tokens stand in it by their texts."""

    open: str
    close: str


THINK = Marks("<think>", "</think>")
KNOWN = (
    THINK,
    Marks("[THINK]", "[/THINK]"),  # Magistral
    Marks("<seed:think>", "</seed:think>"),  # Seed-OSS
    Marks("<|channel>thought", "<channel|>"),  # Gemma 4
    # Harmony (gpt-oss): a model that skips the analysis goes to the final channel at once, so the close is short.
    Marks("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)


def choose_marks(template: str | None, is_token: Callable[[str], bool], given: tuple[str, str] | None = None) -> Marks:
    """The marks of a model: those given; else known ones that its template holds or that are tokens; else <think>.

    Args:
        template: Jinja source of the chat template, or None.
        is_token: whether the tokenizer has a token of exactly that text.
        given: by the model card.
    """
    if given is not None:
        return Marks(*given)
    if template is not None:
        for marks in KNOWN:
            if marks.open in template or marks.close in template:
                return marks
    return next((marks for marks in KNOWN if is_token(marks.open) and is_token(marks.close)), THINK)


def opens_reasoning(prompt: str, marks: Marks) -> bool:
    """Whether a prompt ends inside the reasoning: in an opening mark, blanks behind it aside."""
    return prompt.rstrip().endswith(marks.open)


def split_reasoning(text: str, *, opened: bool = False, marks: Marks = THINK) -> tuple[str | None, str]:
    """Split generated text into (reasoning, answer).

    Args:
        text: what the model generated.
        opened: the prompt itself ended in the opening mark, so the text begins inside the reasoning.

    Returns:
        reasoning: without blanks around it; None where there was none. A block that never closed is all reasoning and
            leaves the answer "".
        answer: the text after the first closing mark, without the blanks that follow it; text that stood before an
            opening mark is kept in front. Text without a block comes back unchanged.
    """
    start = opening_end(text, marks.open)
    inside = opened or start > 0
    at = text.find(marks.close, start)
    if at < 0:
        return (text[start:].strip(), "") if inside else (None, text)
    before = ""
    if not inside:
        head, found, _ = text[:at].partition(marks.open)
        if found:
            before, start = head, len(head) + len(marks.open)
    return text[start:at].strip(), before + text[at + len(marks.close) :].lstrip()


def opening_end(text: str, mark: str) -> int:
    """Where the opening mark ends that is the text's first words, blanks aside; 0 where there is none."""
    blank = len(text) - len(text.lstrip())
    return blank + len(mark) if text.startswith(mark, blank) else 0
