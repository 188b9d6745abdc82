"""The marks that are known to stand around a model's reasoning."""

from __future__ import annotations

from typing import NamedTuple


class Marks(NamedTuple):
    """What opens and what closes the reasoning, as text; control tokens stand in it by their texts.

    Attributes:
        header: of answers in several messages: what ends a message, what a header may begin with besides, and last what
            ends the header. () for others.
        end: text that ends the answer behind the reasoning; "" where only the end of sequence does.
    """

    open: str
    close: str
    header: tuple[str, ...] = ()
    end: str = ""


THINK = Marks("<think>", "</think>")
KNOWN = (
    THINK,
    Marks("[THINK]", "[/THINK]"),  # Magistral
    Marks("<seed:think>", "</seed:think>"),  # Seed-OSS
    Marks("<|channel>thought", "<channel|>"),  # Gemma 4
    Marks("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", end="[END FINAL RESPONSE]"),  # Apriel
    # Harmony: a model that skips the analysis goes to the final channel at once, so the close is short.
    Marks(
        "<|channel|>analysis<|message|>",
        "<|channel|>final<|message|>",
        ("<|end|>", "<|start|>", "<|channel|>", "<|message|>"),
    ),
)
