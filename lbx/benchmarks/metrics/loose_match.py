"""Loose matches: right answers whose reference a metric may have found by chance.

A loose match keeps its score, which is the authors'. The mark ``loose_matches`` counts such answers.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_MOST_LENGTHS = 20
"""Length of the longest answer that is no loose match, in lengths of the reference."""


def is_loose_match(score: float, output: str, reference: str, other_choices: Collection[str] = ()) -> bool:
    """Whether an answer is right by a loose match: it is empty, long, or names a wrong choice, too.

    Args:
        output: the output, or the part that the metric reads.
        reference: the reference that the metric found, or "" if the output matches without one.
        other_choices: choices that the output names besides the right ones.
    """
    text = output.strip()
    return score >= 1 and (not text or len(text) > _MOST_LENGTHS * len(reference) or bool(other_choices))


def named_letters(output: str, letters: str) -> set[str]:
    """Return the letters of choices that an output names, alone or together ("ABCD"), but no article "A"."""
    words = re.finditer(rf"(?<!\w)[{letters}]{{1,{len(letters)}}}(?![\w'’])(?! (?!and\b|or\b)[a-z])", output)
    return {letter for word in words for letter in word[0]}


def matched_choice(output: str, letter: str, option: str) -> str:
    """Return the longer of an option's text and letter if an output names the option by either, or else ""."""
    text = output.strip().lower()
    names_option = (option and option.lower() in text) or text == letter.lower()
    names_letter = re.search(rf"(?<!\w){re.escape(letter)}(?!\w)", output)
    return max(option, letter, key=len) if names_option or names_letter else ""
