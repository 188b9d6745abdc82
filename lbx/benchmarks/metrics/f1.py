"""Token F1 of question answering, English and Chinese.

Source: qa_f1_score and qa_f1_zh_score of
https://github.com/THUDM/LongBench/blob/2e00731f8d0bff23dc4325161044d0ed8af94c1e/LongBench/metrics.py ;
L-Eval's f1 is the English one. HELMET adds ``YES_NO``, and exact and substring match of the same normalised texts.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Collection, Sequence

from lbx.benchmarks.metrics import chinese

_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
# The official list has 》, but not 《 and 〈.
_CHINESE_PUNCTUATION = str.maketrans(
    "",
    "",
    string.punctuation
    + "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】"
    + "〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏.",
)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


YES_NO = frozenset({"yes", "no", "noanswer"})
"""Normalised answers that SQuAD's and HotpotQA's F1 compare as a whole."""


def qa_f1(prediction: str, references: Sequence[str], *, whole_answers: Collection[str] = ()) -> float:
    """Best F1 over the references, of lower-case English words without punctuation and articles, or 0 without any.

    Args:
        whole_answers: normalised answers that score 0 unless answer and reference are equal.
    """
    predicted = english_tokens(prediction)
    return max((_qa_f1(predicted, english_tokens(reference), whole_answers) for reference in references), default=0.0)


def _qa_f1(answer: Sequence[str], reference: Sequence[str], whole_answers: Collection[str]) -> float:
    is_whole = any(len(tokens) == 1 and tokens[0] in whole_answers for tokens in (answer, reference))
    return 0.0 if is_whole and answer != reference else token_f1(answer, reference)


def normalized_match(prediction: str, references: Sequence[str]) -> float:
    """Score 1.0 if a reference and the prediction are equal without case, punctuation and articles ("A" is empty)."""
    answer = english_tokens(prediction)
    return float(any(english_tokens(reference) == answer for reference in references))


def substring_match(prediction: str, references: Sequence[str]) -> float:
    """Score 1.0 if the prediction contains a reference by characters ("art" in "party"), both normalised as above."""
    answer = " ".join(english_tokens(prediction))
    return float(any(" ".join(english_tokens(reference)) in answer for reference in references))


def qa_f1_zh(prediction: str, references: Sequence[str]) -> float:
    """Best F1 over the references, of jieba's words without punctuation and spaces. 0 without references."""
    predicted = chinese_tokens(prediction)
    return max((token_f1(predicted, chinese_tokens(reference)) for reference in references), default=0.0)


def qa_f1_characters(prediction: str, references: Sequence[str]) -> float:
    """Best F1 over the references, of characters without punctuation and spaces, as InfiniteBench compares Chinese."""
    predicted = _characters(prediction)
    return max((token_f1(predicted, _characters(reference)) for reference in references), default=0.0)


def _characters(text: str) -> str:
    return "".join(text.lower().translate(_CHINESE_PUNCTUATION).split())


def english_tokens(text: str) -> list[str]:
    """Split an English text into lower-case words, without ASCII punctuation ("don't" is "dont") and articles."""
    return without_articles(text.lower().translate(_ASCII_PUNCTUATION)).split()


def chinese_tokens(text: str) -> list[str]:
    """Split a Chinese text into jieba's words in lower case, without punctuation, spaces and empty words."""
    # Split first, strip after: punctuation and case influence jieba's word boundaries.
    cleaned = ("".join(word.lower().translate(_CHINESE_PUNCTUATION).split()) for word in chinese.words(text))
    return [word for word in cleaned if word]


def without_articles(text: str) -> str:
    return _ARTICLES.sub(" ", text)


def without_punctuation(text: str) -> str:
    return text.translate(_ASCII_PUNCTUATION)


def token_f1(prediction_tokens: Sequence[str], reference_tokens: Sequence[str]) -> float:
    """F1 of two bags of tokens, in 0..1. It is 0 without common tokens, also for two empty bags."""
    return f_measure(
        (Counter(prediction_tokens) & Counter(reference_tokens)).total(), len(prediction_tokens), len(reference_tokens)
    )


def f_measure(common_count: int, prediction_count: int, reference_count: int) -> float:
    """Harmonic mean of precision and recall, from counts of tokens. It is 0 without common tokens."""
    if not common_count:
        return 0.0
    precision, recall = common_count / prediction_count, common_count / reference_count
    return (2 * precision * recall) / (precision + recall)
