"""Token F1 of question answering, English and Chinese.

Source: qa_f1_score and qa_f1_zh_score of
https://github.com/THUDM/LongBench/blob/2e00731f8d0bff23dc4325161044d0ed8af94c1e/LongBench/metrics.py ;
L-Eval's f1 is the English one.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

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


def qa_f1(prediction: str, references: Sequence[str]) -> float:
    """Best F1 over the references, of lower-case English words without punctuation and articles, or 0 without any."""
    predicted = english_tokens(prediction)
    return max((token_f1(predicted, english_tokens(reference)) for reference in references), default=0.0)


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
