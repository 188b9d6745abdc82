r"""InfiniteBench's metrics of short answers: numbers, words, names of functions, letters of choices.

Source: get_score_one_* of
https://github.com/OpenBMB/InfiniteBench/blob/88b3daa6989da2fbe0077170d7a3c84c25d5ae58/src/compute_scores.py
(not of eval_utils.py, whose functions are older). Questions are scored by F1 (``f1``), summaries by ROUGE-Lsum
(``rouge``).

Numbers are runs of the digits 0 to 9; in math_find ``\d`` also finds other digits. Words are separated by spaces and
some punctuation. A phrase such as "answer is:" states an answer, which begins after one more character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NUMBER = re.compile("[0-9]+")
_FLOAT = re.compile(r"\d+\.\d+|\d+")
_SPACES = re.compile(" {2,}")
_SIGNS = tuple("\n\"'.,?!{}")
_CODE_SIGNS = ("\n", "`", "'", '"', "-", "*", "Option", "option")
_CODE_PHRASES = ("answer is:", "is:", "answer:", "correct option is:")
_CHOICE_PHRASES = ("answer is:", "answer:", "answer is", "option is")


def first_number(prediction: str) -> str:
    """First number of a prediction as text, with leading zeros, or "" without a number."""
    match = _NUMBER.search(prediction)
    return match[0] if match else ""


def contains_word(prediction: str, word: str) -> bool:
    return word in _blank(prediction, (*_SIGNS, ":")).split()


def last_integer(prediction: str) -> int | None:
    """Last word of a prediction as an integer in Python's notation ("-4", "1_000"), or None for another word."""
    try:
        return int(_blank(prediction, ("\n", ".", "`", "'", '"', ":")).split()[-1])
    except (IndexError, ValueError):
        return None


MathScore = tuple[float, str | None]
"""Score in 0..1, and the error at which the official script stops, such as "3.5" for a whole number, or None."""


def equals_first_number(prediction: str, label: float) -> MathScore:
    """Compare the first number of a prediction with a label, as an integer with an integer."""
    match = _FLOAT.search(prediction)
    if match is None:
        return 0.0, None
    try:
        return float(type(label)(match[0]) == label), None
    except ValueError as exc:
        return 0.0, f"ValueError: {exc}"


def leading_values(prediction: str, labels: Sequence[int], offset: int = 0) -> MathScore:
    """Share of the labels before the first label that differs from the number at the same index.

    Args:
        offset: number of first numbers to skip: 1 for GPT-4, which repeats the first operand.
    """
    try:
        numbers = [int(text) for text in _NUMBER.findall(prediction)][offset:]
    except ValueError as exc:  # thousands of digits
        return 0.0, f"ValueError: {exc}"
    pairs = zip(labels, numbers, strict=False)
    right = next(
        (count for count, (label, number) in enumerate(pairs) if label != number), min(len(labels), len(numbers))
    )
    return right / len(labels), None


def names_function(prediction: str, name: str, letter: str) -> bool:
    """Whether a prediction begins with a letter like "B." or states a letter or the name of a function."""
    text = prediction.strip()
    if text[:2] in (f"{letter}.", f"{letter}:"):
        return True
    stated = _stated_answer(_SPACES.sub(" ", _blank(text, _CODE_SIGNS)), _CODE_PHRASES)
    return bool(stated) and str(stated)[1:].startswith((letter, name))


def choose(prediction: str, option: str, letter: str) -> tuple[bool, str]:
    """Read a choice: the first character, the whole text, the text after a phrase, or the first word in "ABCD".

    A first character A, B, C or D counts alone, also in "About" or "Dear". A word such as "AB" ends the search.
    Returns whether the choice is right, and the text that was read, or "" without a choice.
    """
    labels, text = (option, letter), prediction.strip()
    if text[:1] and text[0] in "ABCD":
        return text[0] in labels, text[0]
    if text in labels:
        return bool(text), text
    text = _SPACES.sub(" ", _blank(text, _SIGNS))
    if (stated := _stated_answer(text, _CHOICE_PHRASES)) is not None:
        return bool(stated) and stated[1:].startswith(labels), stated[1:]
    word = next((word for word in text.split() if word in "ABCD"), "")
    return word in labels and bool(word), word


def _blank(text: str, signs: Iterable[str]) -> str:
    for sign in signs:
        text = text.replace(sign, " ")
    return text


def _stated_answer(text: str, phrases: Sequence[str]) -> str | None:
    """Text after the first of the phrases that occurs anywhere, or None. The answer begins after one more character."""
    for phrase in phrases:
        if (at := text.find(phrase)) >= 0:
            return text[at + len(phrase) :]
    return None
