"""The marks around a thinking model's reasoning, and the rule for what counts as a block of it.

A block is opened by the prompt, or by an opening mark as the output's first words, or is told by its closing mark
alone: everything before that was reasoning. Whatever follows the first closing mark is the answer, other marks
included. An opening mark in the middle of an answer counts only when a closing mark follows.

Harmony (gpt-oss) writes several messages, each behind a header that names its channel: the message of the final channel
is the answer, and everything before it is reasoning. Headers are no part of either.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lbx.prompting.marks import KNOWN, THINK, Marks
from lbx.prompting.template_reasoning import find_marks


def choose_marks(template: str | None, is_token: Callable[[str], bool], given: tuple[str, str] | None = None) -> Marks:
    """The marks of a model: those given; else known ones that its template holds; else those that its template puts
    around reasoning; else known ones that are tokens; else <think>.

    Args:
        template: Jinja source of the chat template, or None.
        is_token: whether the tokenizer has a token of exactly that text.
        given: by the model card.
    """
    if given is not None:
        return next((marks for marks in KNOWN if marks[:2] == given), Marks(*given))
    if template is not None:
        for marks in KNOWN:
            if marks.open in template or marks.close in template:
                return marks
        if (found := find_marks(template)) is not None:
            return found
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
            opening mark is kept in front. Text without a block comes back unchanged. Of several messages it is the
            first one behind the mark.
    """
    start = opening_end(text, marks.open)
    inside = opened or start > 0 or begins_message(text, marks)
    at = text.find(marks.close, start)
    if at < 0:
        return (without_headers(text[start:], marks), "") if inside else (None, text)
    before = ""
    if not inside and not marks.header:
        head, opening, _ = text[:at].partition(marks.open)
        if opening:
            before, start = head, len(head) + len(marks.open)
    return without_headers(text[start:at], marks), before + answer_behind(text, at, marks)


def answer_behind(text: str, at: int, marks: Marks) -> str:
    """What follows the closing mark that stands at this place, without the blanks before it."""
    answer = text[at + len(marks.close) :].lstrip()
    return answer.partition(marks.header[0])[0] if marks.header else answer


def begins_message(text: str, marks: Marks) -> bool:
    """Whether the text's first words are a header that is not the closing mark: a message before the answer."""
    words = text.lstrip()
    return bool(marks.header) and words.startswith(marks.header[:-1]) and not words.startswith(marks.close)


def without_headers(reasoning: str, marks: Marks) -> str:
    """The words of the reasoning's messages, an empty line between them, without blanks around; a header that is cut
    off goes, too.
    """
    if not marks.header:
        return reasoning.strip()
    begins = "|".join(map(re.escape, marks.header[:-1]))
    header = f"(?:{begins}).*?(?:{re.escape(marks.header[-1])}|$)"
    messages = (message.strip() for message in re.split(header, reasoning, flags=re.DOTALL))
    return "\n\n".join(filter(None, messages))


def opening_end(text: str, mark: str) -> int:
    """Where the opening mark ends that is the text's first words, blanks aside; 0 where there is none."""
    blank = len(text) - len(text.lstrip())
    return blank + len(mark) if text.startswith(mark, blank) else 0
