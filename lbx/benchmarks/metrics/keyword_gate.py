"""F1 with a keyword gate, and ROUGE-L without stop words: LV-Eval's metrics.

An answer must first name enough of the reference's keywords. Only then does the F1 count, so that an answer of only
common words scores 0. Stop words are the official blacklists, which are published only in the code.

Source: qa_f1_score_with_gold_ans, qa_f1_zh_score_with_gold_ans and rouge_zh_score_blacklist of
https://github.com/infinigence/LVEval/blob/63e7ae939bd347c76b2cdb1cebfb216faca26897/metrics.py . Details of that code:

- a stop word in the answer does not count as a found keyword, but the number of keywords includes stop words;
- a share equal to the threshold is enough;
- without keywords English has no gate, and the Chinese gate uses the words of the reference;
- keywords of punctuation only (in English also of articles) divide by zero, which ends the official run;
- F1 is over all words, while the paper also excludes stop words from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lbx.benchmarks.metrics import chinese, f1, rouge


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


STOP_WORDS_ENGLISH = _word_set(
    """
    about and are as at be because being but by does for from had has have he her his in is it of on or she that
    their they this to was were what when which who with
    """
)
STOP_WORDS_CHINESE = _word_set(
    """
    的 和 是 等 在 年 可以 为 与 ‰ 了 或 一种 月 c 至 日 有 进行 于 不 中 × 根据 小 由 亩 也 要 指 法 会 元 主要 以及
    通过 首先 对 然后 号 以 所 后 丁 包括 无 将 用 能 形 方面 因素 位于 而 从 到 一定 用于 但 使用 让 具有 并 亿元 万元
    上 类 基于 才 来 地 片 其他 个 或者 变得 时 给 你 使 条 受 已经 带 度
    """
)
THRESHOLD_ENGLISH = 0.2
THRESHOLD_CHINESE = 0.4
"""Share of the keywords that an answer must name, in English and in Chinese."""

FRAMES = rouge.FRAMES_CHINESE
"""Deepest recursion of ROUGE-L that works officially on CPython 3.11 to 3.13."""

NO_KEYWORDS = "The keywords have no word left to look for, for which the official script divides by zero."


@dataclass(frozen=True, slots=True)
class KeywordF1:
    """F1 values of one answer, in 0..1.

    Attributes:
        official: F1 over all words, or 0 if the answer names too few keywords.
        paper: F1 without stop words, or 0 if the answer names too few keywords.
        f1_without_gate: F1 over all words, regardless of keywords.
        recall: share of keywords in the answer, or None without keywords.
        error: reason why the official script would stop at the answer. ``official`` and ``paper`` are then 0.
    """

    official: float
    paper: float
    f1_without_gate: float
    recall: float | None
    error: str | None = None


def keyword_f1(prediction: str, reference: str, keywords: str | None) -> KeywordF1:
    """Score an English answer. Without keywords (None or "") there is no gate."""
    return _score_with_gate(
        f1.english_tokens(prediction),
        f1.english_tokens(reference),
        f1.english_tokens(keywords) if keywords else None,
        STOP_WORDS_ENGLISH,
        THRESHOLD_ENGLISH,
    )


def keyword_f1_zh(prediction: str, reference: str, keywords: str | None) -> KeywordF1:
    """Score a Chinese answer. Without keywords (None or "") the reference's words are the keywords."""
    expected = f1.chinese_tokens(reference)
    if keywords:
        keyword_tokens: list[str] | None = f1.chinese_tokens(keywords)
    else:
        keyword_tokens = expected if reference else None
    return _score_with_gate(
        f1.chinese_tokens(prediction), expected, keyword_tokens, STOP_WORDS_CHINESE, THRESHOLD_CHINESE
    )


def rouge_l_zh(prediction: str, reference: str) -> rouge.RougeL:
    """ROUGE-L of Chinese words without stop words."""
    return rouge.rouge_l(_without_stop_words(prediction), [_without_stop_words(reference)], frame_limit=FRAMES)


def _score_with_gate(
    prediction_tokens: Sequence[str],
    reference_tokens: Sequence[str],
    keywords: Sequence[str] | None,
    stop_words: frozenset[str],
    threshold: float,
) -> KeywordF1:
    ungated = f1.token_f1(prediction_tokens, reference_tokens)
    recall = None
    if keywords is not None:
        if not keywords:
            return KeywordF1(0.0, 0.0, ungated, None, NO_KEYWORDS)
        matches = Counter(prediction_tokens) & Counter(keywords)
        recall = sum(count for word, count in matches.items() if word not in stop_words) / len(keywords)
        if recall < threshold:
            return KeywordF1(0.0, 0.0, ungated, recall)
    paper = f1.token_f1(
        [word for word in prediction_tokens if word not in stop_words],
        [word for word in reference_tokens if word not in stop_words],
    )
    return KeywordF1(ungated, paper, ungated, recall)


def _without_stop_words(text: str) -> str:
    """Split a text into words, drop stop words, and join the rest by spaces.

    Splitting, joining and splitting again can give smaller words.
    """
    spaced = rouge.join_words(text)
    words = [word for word in f1.chinese_tokens(spaced) if word not in STOP_WORDS_CHINESE]
    if words:
        return " ".join(words)
    # In the official script, punctuation and spaces stay as empty words. Next to words they have no effect; without
    # words, two or more of them make a text of spaces, which ``rouge`` compares, and fewer an empty text.
    empty = len(chinese.words(spaced)) - len(f1.chinese_tokens(spaced))
    return " " * (empty - 1)
