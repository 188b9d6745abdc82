"""Exact match of L-Eval's closed tasks: answer extraction and comparison.

Source: the process_* functions of
https://github.com/OpenLMLab/LEval/blob/cd34b050269148aed75acbbe4a599873ad0f37e9/Evaluation/auto_eval.py
and exact_match_score of .../Evaluation/em.py. Where the official scripts stop with an exception, the function here
returns None, and the caller scores 0.
"""

from __future__ import annotations

import re

from lbx.benchmarks.metrics.f1 import without_articles, without_punctuation

_LETTERS = frozenset("ABCD")
_OPTION = re.compile(r"\s*[A-Z](?=[\s.)])")
_ANSWER_IS = re.compile(r"The answer is (\S+)")
_SPACES = re.compile(r"\s+")
_CODE_NOISE = ("will be", "of the code", "is", "would be", "the value of", "the result of", "printed")


def choice_answer(output: str, *, several: bool) -> str:
    """Extract the chosen letters of a multiple-choice answer.

    Args:
        output: the model's answer.
        several: whether several options may be right (coursera). Otherwise the first A to D anywhere counts.

    Returns:
        Letters, "A" if none can be found, or "None" for a blank answer.
    """
    if not output.strip():
        return "None"
    if output in "ABCD":  # a substring test officially: "BC" passes, "AC" does not
        return output
    if not several and (first := next((sign for sign in output if sign in _LETTERS), None)):
        return first
    rest = output.lstrip("ABCD")
    leading = output[: len(output) - len(rest)]
    if len(leading) > 1:
        return "".join(sorted(set(leading)))
    rest = rest.split("Question")[0]
    letters = _LETTERS & set(leading + "".join(_OPTION.findall(rest)))
    return "".join(sorted(letters)) or _first_run(rest) or "A"


def choice_reference(reference: str) -> str | None:
    """Extract the letters of the reference's first word, "A" if there are none, or None for a blank reference."""
    words = reference.split()
    return "".join(sign for sign in words[0] if sign in _LETTERS) or "A" if words else None


def math_answer(text: str) -> str:
    """Extract the digits after the first "The answer is ", else of the last word with a digit in the first paragraph.

    Digits end at ".". Sign, "," and "/" are dropped.
    """
    match = _ANSWER_IS.search(text)
    if match:
        word = match.group(1)
    else:
        words = reversed(text.split("\n\n", maxsplit=1)[0].split(" "))
        word = next((word for word in words if any(sign.isdigit() for sign in word)), "")
    return "".join(sign for sign in word.split(".")[0] if sign.isdigit())


def code_answer(output: str, reference: str) -> str:
    """Extract the program's output from an answer: the last words, or those after the last "the final output".

    The result contains three words more than the raw reference. The phrases in ``_CODE_NOISE`` are cut out of the
    middle of words, too ("this" becomes "th"), as in the official script.
    """
    text = code_reference(output)
    for noise in _CODE_NOISE:
        text = text.replace(noise, "")
    width = len(reference.split()) + 3
    if "the final output" in text:
        return " ".join(_SPACES.split(text.split("the final output")[-1])[:width])
    return " ".join(_SPACES.split(text)[-width:])


def code_reference(text: str) -> str:
    r"""Normalise a text to one line without "," "'" "\" and ".0" ("1.05" becomes "15"), and join brackets."""
    text = _SPACES.sub(" ", text)
    for old, new in ((",", ""), ("'", ""), ("\\", ""), (".0", ""), ("] [", "]["), ("[ [", "[["), ("] ]", "]]")):
        text = text.replace(old, new)
    return text


def statement_reference(reference: str) -> tuple[str, str] | None:
    """Parse "True [fact: False]" into ("true", "false"): by the story, and in fact. Returns None without "[fact:"."""
    loyalty, marker, fact = reference.lower().partition("[fact:")
    # Officially everything up to a second marker, less its last character, which should be "]".
    return (loyalty.strip(), fact.split("[fact:")[0][:-1].strip()) if marker else None


def statement_answer(output: str) -> tuple[str, str] | None:
    """Extract both truth values of an answer: the first word with "true" or "false" before and after "[fact:".

    Where there is no such word, the value is "<error>".
    """
    halves = statement_reference(output)
    return (_truth(halves[0]), _truth(halves[1])) if halves else None


def exact_match(prediction: str, reference: str) -> float:
    """Score an answer and a reference prepared by the functions above: 1, 0.25 or 0.

    A reference of letters A to D must be matched exactly. A prediction of only some of its letters gets 0.25. Other
    references are compared as numbers if both texts are numbers. Otherwise the prediction must contain the reference,
    ignoring spaces and case.
    """
    expected = _normalize(reference)
    if _LETTERS.issuperset(expected):
        answer = _normalize(prediction)
        if answer == expected:
            return 1.0
        return 0.25 if set(answer) <= set(expected) else 0.0
    try:
        return float(float(prediction) == float(reference))
    except ValueError:
        return float(reference.lower().replace(" ", "") in prediction.lower().replace(" ", ""))


def _first_run(text: str) -> str:
    match = re.search("[A-D]+", text)
    return match.group() if match else ""


def _truth(text: str) -> str:
    for word in text.split():
        if "true" in word:
            return "true"
        if "false" in word:
            return "false"
    return "<error>"


def _normalize(text: str) -> str:
    return " ".join(without_articles(without_punctuation(text)).split())
