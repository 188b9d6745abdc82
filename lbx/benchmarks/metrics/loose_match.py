"""Loose matches: right answers whose reference a metric may have found by chance.

A loose match keeps its score, which is the authors'. The mark ``loose_matches`` counts such answers.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from lbx.benchmarks.metrics.f1 import english_tokens

_MOST_LENGTHS = 20
"""Length of the longest answer that is no loose match, in lengths of the reference."""


def is_loose_match(score: float, output: str, reference: str, other_choices: Collection[str] = ()) -> bool:
    """Whether an answer is right by a loose match: empty, long, or with a wrong choice, too.

    Args:
        output: the output, or the part that the metric reads.
        reference: the reference that the metric found, or "" if the output matches without one.
        other_choices: choices that the output names besides the right ones.
    """
    text = output.strip()
    return score >= 1 and (not text or len(text) > _MOST_LENGTHS * len(reference) or bool(other_choices))


def named_letters(output: str, letters: str, option: str = "") -> set[str]:
    """Return the letters of choices that an output names, alone or together ("ABCD"), but no article "A".

    Args:
        option: text of the right option, in which letters name no choice.
    """
    if option:
        output = re.sub(re.escape(option), " ", output, flags=re.IGNORECASE)
    words = re.finditer(rf"(?<!\w)[{letters}]{{1,{len(letters)}}}(?![\w'’])(?! (?!and\b|or\b)[a-z])", output)
    return {letter for word in words for letter in word[0]}


def matched_choice(output: str, letter: str, option: str) -> str:
    """Return the longer of an option's text and letter if an output names the option by either, or else ""."""
    text, words = output.strip().lower(), english_tokens(option)
    is_named = bool(option and option.lower() in text) or text.strip(" .():") == letter.lower()
    is_named = is_named or bool(words and english_tokens(text) == words)
    is_named = is_named or bool(re.search(rf"(?<!\w){re.escape(letter)}(?!\w)", output))
    return max(option, letter, key=len) if is_named else ""
