"""Keeping a thinking model's reasoning apart from its answer."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def split_reasoning(text: str, *, opened: bool = False) -> tuple[str | None, str]:
    """Split generated text into (reasoning, answer).

    Args:
        text: what the model generated.
        opened: the prompt itself ended in "<think>", so the text begins inside the reasoning.

    Returns:
        reasoning: None where there was none. A block that never closed is all reasoning and leaves the answer "".
        answer: the text after the first "</think>", without the blank lines that follow it; text that stood
            before an opening "<think>" is kept in front. Text without a block comes back unchanged.
    """
    head, closed, answer = text.partition(CLOSE)
    before, found, reasoning = head.partition(OPEN)
    if not found:
        if not (closed or opened):
            return None, text
        # A lone "</think>": the block was opened by the template, where the output does not show it.
        before, reasoning = "", head
    return reasoning.strip(), (before if before.strip() else "") + answer.lstrip()
