"""Chinese words: jieba 0.42.1 with its own dictionary and HMM, as the official scripts call it.

lbx does two things without jieba. It reads the dictionary without jieba's cache in the temporary folder, because jieba
would read any file that another user has put there. And it computes the most probable states of characters outside of
all words, because jieba copies a path at every character, which takes 103 s for 100,000 characters (0.6 s here) and
hours for a million. Scoring all of LongBench takes 1.5 to 2 times the CPU time that it took with the faster jieba.
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
"""{state of a character: states that the character before can have}.

B begins a word, M is in the middle of a word, E ends a word, and S is a word.
"""


def words(text: str) -> list[str]:
    """Split a text into words that, joined, are the text again.

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
        Log probability of the most probable path, and the path's state for each character.
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
