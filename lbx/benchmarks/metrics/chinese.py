"""Chinese words: jieba 0.42.1 with its own dictionary and HMM, as the official scripts call it.

Two parts are not left to jieba. Its dictionary is read without the cache that it keeps in the temporary folder: the
next start-up would read any file that another user has put there. And the most probable states of characters outside
of all words are computed here: jieba copies a path at every character, which takes 103 s for 100,000 of them (0.6 s
here) and hours for a million. A whole LongBench scoring takes 1.5 to 2 times the CPU time of the faster jieba that was
used before.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

from lbx.base.errors import LbxError

_UNSEEN_LOG_PROBABILITY = -3.14e100
"""jieba's log probability of events that its HMM has never seen."""
_PREVIOUS_STATES = {"B": "ES", "M": "MB", "S": "SE", "E": "BM"}
"""The states that a character can follow: one that begins a word, is in the middle of one, is one, or ends one."""


def words(text: str) -> list[str]:
    """Split a text into words; joined, they are the text again.

    Raises:
        LbxError: jieba's data is missing.
    """
    return list(_tokenizer().cut(text))


@cache
def _tokenizer() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a package that is older than this Python
            from jieba import Tokenizer, finalseg
        tokenizer = Tokenizer()
        tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    except (ImportError, OSError, ValueError) as exc:
        raise LbxError(
            f"Cannot split Chinese text into words: {exc}.",
            fix="Install jieba 0.42.1.",
            command="pip install jieba==0.42.1",
        ) from exc
    tokenizer.initialized = True
    finalseg.viterbi = _viterbi
    return tokenizer


def _viterbi(
    run: str,
    states: str,
    start: Mapping[str, float],
    transition: Mapping[str, Mapping[str, float]],
    emission: Mapping[str, Mapping[str, float]],
) -> tuple[float, list[str]]:
    """Compute ``jieba.finalseg.viterbi``, up to rounding, storing only the previous state of each character.

    Returns:
        Log probability of the most probable path, and its state for each character.
    """
    scores = {state: start[state] + emission[state].get(run[0], _UNSEEN_LOG_PROBABILITY) for state in states}
    came_from = []
    for character in run[1:]:
        best = {}
        for state in states:
            seen = emission[state].get(character, _UNSEEN_LOG_PROBABILITY)
            # Of two equally probable states, jieba takes the later letter.
            best[state] = max(
                (scores[old] + transition[old].get(state, _UNSEEN_LOG_PROBABILITY) + seen, old)
                for old in _PREVIOUS_STATES[state]
            )
        scores = {state: score for state, (score, _) in best.items()}
        came_from.append({state: old for state, (_, old) in best.items()})
    score, last = max((scores[state], state) for state in "ES")
    path = [last]
    for step in reversed(came_from):
        path.append(step[path[-1]])
    return score, path[::-1]
