"""Registry of the metrics for custom benchmarks, by name.

Text in Chinese ("zh") is split into words by jieba, every other language at its spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from lbx.benchmarks.metrics import f1, longbench, rouge
from lbx.benchmarks.metrics.stated_choice import stated_choice

VERSION = 3
"""Version of these metrics, incremented whenever a change of code can change a score."""


class ScoringTarget(NamedTuple):
    """Accepted answers to a question, and settings of the task that scoring needs.

    Attributes:
        references: accepted answers, as letters for a question with choices.
        choices: {letter: text}, or {} for a question without choices.
        answer_cues: the task's phrases that announce the chosen option.
    """

    references: Sequence[str]
    language: str = "en"
    choices: Mapping[str, str] = {}
    answer_cues: Sequence[str] = ()


class MetricResult(NamedTuple):
    """Metric value in 0..1, and the extracted answer.

    ``extracted`` is None if the whole output is the answer, and "" if no answer was found.
    """

    value: float
    extracted: str | None = None


def exact_match(output: str, target: ScoringTarget) -> MetricResult:
    """Score 1 if the answer equals a reference, ignoring case, punctuation and English articles before a word."""
    answer = _normalize(output, target.language)
    references = (_normalize(reference, target.language) for reference in target.references)
    return MetricResult(float(bool(answer) and answer in references))


def contains(output: str, target: ScoringTarget) -> MetricResult:
    """Score 1 if the answer contains a reference, ignoring case and the length of white space."""
    text = _join_words(fold_characters(output), target.language)
    references = (_join_words(fold_characters(reference), target.language) for reference in target.references)
    return MetricResult(float(any(reference and reference in text for reference in references)))


def accuracy(output: str, target: ScoringTarget) -> MetricResult:
    """Score 1 if the answer states the right option."""
    letter = stated_choice(output, target.choices, target.language, target.answer_cues)
    return MetricResult(float(letter in target.references), letter or "")


def first_line(output: str, target: ScoringTarget) -> MetricResult:
    """Score the first line that is not blank by ``exact_match``."""
    line = next((line for line in output.splitlines() if fold_characters(line).strip()), "")
    return exact_match(line, target)._replace(extracted=line)


def _f1(output: str, target: ScoringTarget) -> MetricResult:
    """Score by LongBench's F1, or by ``exact_match`` for references without words to F1, such as "A" or "+"."""
    chinese = target.language == "zh"
    tokens = f1.chinese_tokens if chinese else f1.english_tokens
    worded = [reference for reference in target.references if tokens(reference)]
    score = (f1.qa_f1_zh if chinese else f1.qa_f1)(output, worded)
    wordless_references = [reference for reference in target.references if reference not in worded]
    return MetricResult(max(score, exact_match(output, target._replace(references=wordless_references)).value))


def _rouge_l(output: str, target: ScoringTarget) -> rouge.RougeL:
    return (rouge.rouge_l_zh if target.language == "zh" else rouge.rouge_l)(output, target.references)


def _edit_similarity(output: str, target: ScoringTarget) -> MetricResult:
    line = longbench.code_line(output)
    return MetricResult(longbench.edit_similarity(line, target.references), line)


METRICS: dict[str, Callable[[str, ScoringTarget], MetricResult]] = {
    "exact_match": exact_match,
    "exact_match_first_line": first_line,
    "contains": contains,
    "accuracy": accuracy,
    "f1": _f1,
    "rouge_l": lambda output, target: MetricResult(_rouge_l(output, target).official),
    "rouge_l_unlimited": lambda output, target: MetricResult(_rouge_l(output, target).without_limit),
    "rouge1": lambda output, target: MetricResult(rouge.rouge(output, target.references).rouge1),
    "rouge2": lambda output, target: MetricResult(rouge.rouge(output, target.references).rouge2),
    "rougeL": lambda output, target: MetricResult(rouge.rouge(output, target.references).rouge_l),
    "edit_similarity": _edit_similarity,
    "count": lambda output, target: MetricResult(longbench.count(output, target.references)),
}
"""{name: metric}. rouge_l is LongBench's, with the official recursion limit. rouge1, rouge2, rougeL are L-Eval's."""
_LATIN_ONLY = ("rouge1", "rouge2", "rougeL")


_ARTICLE = re.compile(r"\b(?:a|an|the)\s+(?=[^\w\s]*\w)")
_UNSPACED = ("zh", "ja", "th", "lo", "km", "my")
"""Languages written without spaces between words."""
_DECIMAL_COMMA = frozenset(
    [
        "bg", "ca", "cs", "da", "de", "el", "es", "et", "fi", "fr", "hr", "hu", "id", "is", "it", "lt", "lv", "mk",
        "nb", "nl", "nn", "no", "pl", "pt", "ro", "ru", "sk", "sl", "sq", "sr", "sv", "tr", "uk", "vi",
    ]
)  # fmt: skip
"""Languages in which "3,125" is a fraction."""
_THOUSANDS = re.compile(r"(?:(?:\A|[^\d,.])[1-9]\d{0,2}|,\d{3})\Z")
_VARIATION_SELECTOR = re.compile("[\u034f\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_SIGNS = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201a\u201b\u02bb\u02bc\u2032\u2039\u203a\u05f3\u00b4", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u05f4", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-")
    | {"\u2044": "/", "\u2215": "/", "\u301c": "~"}
)
"""{character: ASCII character}, for quotation marks, apostrophes, primes, hyphens, dashes, minus signs and slashes."""
_LONG_DASH = re.compile(r"(?<=\w)[\u2014\u2015]|[\u2014\u2015](?!\d)")
"""Long dashes, except before a number that follows no word: that dash begins a quotation or a list entry."""
_ELLIPSIS = re.compile(r"\.{2,}")
_RAISED, _LOWERED = "\u00b2\u00b3\u00b9\u2070\u2074-\u2079", "\u2080-\u2089"
_OTHER_NUMBERS = (
    "\u00bc-\u00be\u2150-\u215f\u2189\u2460-\u249b\u24ea\u3250-\u325f\u32b1-\u32cb\u3358-\u3370\u3378-\u3379"
    "\u339f-\u33a6\u33a8\u33af\u33e0-\u33fe\U0001f100-\U0001f10a"
)
"""Fractions, circled numbers, dates, square units and the like, which NFKC writes with ordinary digits."""
_EXPONENT = re.compile(rf"(?<=[\d{_LOWERED}{_OTHER_NUMBERS}])(?=[{_RAISED}])|(?<=\S)(?=[\u207a\u207b][{_RAISED}])")
_NUMBER_BOUNDARY = re.compile(
    rf"(?<=[\d{_RAISED}{_OTHER_NUMBERS}])(?=[{_LOWERED}{_OTHER_NUMBERS}])|(?<=[{_LOWERED}])(?=[{_OTHER_NUMBERS}])"
    rf"|(?<=[{_RAISED}{_LOWERED}{_OTHER_NUMBERS}])(?=\d)"
)


def fold_characters(text: str) -> str:
    """Fold different ways to write the same characters into one, for comparison of texts.

    Compatibility characters (NFKC), case, dashes and quotation marks are unified, and invisible characters are dropped.
    Numbers keep their values: "10²" becomes "10^2", and "1½" becomes "1 1/2".
    """
    if text.isascii():
        return text.lower()
    visible = _VARIATION_SELECTOR.sub("", "".join(sign for sign in text if unicodedata.category(sign) != "Cf"))
    signs = unicodedata.normalize("NFC", visible).translate(_SIGNS)
    numbers = _NUMBER_BOUNDARY.sub(" ", _EXPONENT.sub("^", signs))
    folded = unicodedata.normalize("NFKC", numbers).casefold().replace("i\u0307", "i")  # "i̇" is "İ" in lower case
    return _LONG_DASH.sub("-", unicodedata.normalize("NFKC", folded).translate(_SIGNS))


def _join_words(text: str, language: str) -> str:
    """Join the words of a text by single spaces, in an unspaced language only between digits."""
    joined = " ".join(text.split())
    return re.sub(r"(?<!\d) | (?!\d)", "", joined) if language.partition("-")[0] in _UNSPACED else joined


def _normalize(text: str, language: str) -> str:
    """Normalise a text for ``exact_match``. Punctuation remains only in a text that is all punctuation."""
    folded = _ELLIPSIS.sub("\u2026", fold_characters(text))
    worded = _ARTICLE.sub("", folded) if language.partition("-")[0] == "en" else folded
    characters = "".join(sign for index, sign in enumerate(worded) if not _is_punctuation(worded, index, language))
    return _join_words(characters, language) or folded.strip()


def _is_punctuation(text: str, index: int, language: str) -> bool:
    """Whether a character is punctuation, and not the sign, point or other separator of a number."""
    sign, before, after = text[index], text[max(index - 4, 0) : index], text[index + 1 : index + 5]
    if unicodedata.category(sign)[0] != "P" and sign not in "^`~|":
        return False
    if not after[:1].isdigit():
        return not (sign == "^" and before[-1:].isalnum() and re.match(r"[-+]\d", after))
    if before[-1:].isdigit():
        groups = sign == "," and language.partition("-")[0] not in _DECIMAL_COMMA
        return groups and bool(_THOUSANDS.search(before) and re.match(r"\d{3}(?!\d)", after))
    return sign not in "-." or (before[-1:].isalnum() and not re.search(r"\de\Z", before))


def unscorable_reason(metric: str, reference: str, target: ScoringTarget) -> str:
    """Reason why a metric cannot recognise right answers by a reference, or "" if it can."""
    letters = [sign for sign in reference if sign.isalpha()]
    if metric in _LATIN_ONLY and 2 * sum(sign.isascii() for sign in letters) < len(letters):
        return "it reads only the letters a to z, and digits"
    if not METRICS[metric](reference, target._replace(references=(reference,))).value:
        return "an answer equal to the reference scores 0"
    return ""
