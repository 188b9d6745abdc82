"""LV-Eval's metrics: the gate's edges, and both F1 and ROUGE-L against plain readings of the official rules."""

from __future__ import annotations

import string
import warnings
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lbx.benchmarks.metrics import keyword_gate
from lbx.benchmarks.metrics.keyword_gate import STOP_WORDS_CHINESE, STOP_WORDS_ENGLISH, keyword_f1, keyword_f1_zh
from tests.profiles import examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import jieba
    from rouge import Rouge

PUNCTUATION = string.punctuation + "，。？！《》“”、"
chinese_texts = st.text(alphabet="的是年京北大学生活。，. aC\n1", max_size=24)
english_texts = st.lists(st.sampled_from(["the", "cat", "Cat.", "of", "is", "sat", "mat,", "...", "a"]), max_size=9)


def test_stop_words() -> None:
    assert (len(STOP_WORDS_ENGLISH), len(STOP_WORDS_CHINESE)) == (38, 85)
    assert {"and", "does"} < STOP_WORDS_ENGLISH
    assert {"的", "‰", "c", "亿元"} < STOP_WORDS_CHINESE


def test_exactly_the_threshold_is_enough() -> None:
    assert keyword_f1("one", "one", "one two three four five").official == 1.0
    assert keyword_f1("one", "one", "one two three four five six").official == 0.0
    assert keyword_f1_zh("北京。上海", "北京", "北京。上海。广州。天津。重庆").recall == 0.4
    assert keyword_f1_zh("北京。上海", "北京", "北京。上海。广州。天津。重庆").official > 0
    assert keyword_f1_zh("北京", "北京", "北京。上海。广州。天津。重庆").official == 0.0


def test_stop_words_are_no_find_but_are_asked_for() -> None:
    assert keyword_f1("who is it", "who is it", "who is it").recall == 0.0
    assert keyword_f1("it is paris", "it is paris", "it is paris").recall == 1 / 3


def test_the_paper_s_f1_is_without_stop_words() -> None:
    found = keyword_f1("it was Paris", "Paris", "Paris")
    assert (found.official, found.paper, found.f1_without_gate) == (0.5, 1.0, 0.5)
    shut = keyword_f1("it was London", "it was Paris", "Paris")
    assert (shut.official, shut.paper, shut.f1_without_gate) == (0.0, 0.0, pytest.approx(2 / 3))


@pytest.mark.parametrize("keywords", [None, ""])
def test_without_keywords(keywords: str | None) -> None:
    """English has no gate then; Chinese asks for the reference's words."""
    assert keyword_f1("no match at all", "a match", keywords).recall is None
    assert keyword_f1("no match at all", "a match", keywords).official == pytest.approx(0.4)
    assert keyword_f1_zh("北京", "北京。上海。广州", keywords).recall == pytest.approx(1 / 3)
    assert keyword_f1_zh("北京", "北京。上海。广州", keywords).official == 0.0
    assert keyword_f1_zh("北京", "", keywords) == keyword_gate.KeywordF1(0.0, 0.0, 0.0, None)


@pytest.mark.parametrize("keywords", ["...", "the a an", "  "])
def test_keywords_without_a_word(keywords: str) -> None:
    found = keyword_f1("cat", "cat", keywords)
    assert (found.official, found.f1_without_gate, found.error) == (0.0, 1.0, keyword_gate.NO_KEYWORDS)
    assert keyword_f1_zh("猫", "猫", "。").error == keyword_gate.NO_KEYWORDS
    assert keyword_f1_zh("猫", "。", None).error == keyword_gate.NO_KEYWORDS


def plain_f1(predicted: list[str], expected: list[str]) -> float:
    shared = sum((Counter(predicted) & Counter(expected)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


@settings(max_examples=examples(300))
@given(english_texts, english_texts, english_texts)
def test_english_gate(prediction: list[str], reference: list[str], keywords: list[str]) -> None:
    def tokens(words: list[str]) -> list[str]:
        bare = [word.lower().strip(".,") for word in words]
        return [word for word in bare if word not in ("", "the", "a")]

    predicted, expected, asked = tokens(prediction), tokens(reference), tokens(keywords)
    found = keyword_f1(" ".join(prediction), " ".join(reference), " ".join(keywords))
    assert (found.error is not None) == (bool(keywords) and not asked)
    if found.error:
        return
    missing = Counter(asked) - Counter(predicted)
    named = [word for word in asked if word not in STOP_WORDS_ENGLISH]
    found_words = len(named) - sum(count for word, count in missing.items() if word not in STOP_WORDS_ENGLISH)
    shut = bool(keywords) and found_words / len(asked) < 0.2
    assert found.official == (0.0 if shut else plain_f1(predicted, expected))


def official_rouge_l(prediction: str, reference: str) -> float:
    """Cut, joined, cut again, stripped of punctuation and spaces, stop words left out, joined, and compared."""
    texts = []
    for text in (prediction, reference):
        again = jieba.cut(" ".join(jieba.cut(text)))
        bare = ["".join(c for c in word.lower() if c not in PUNCTUATION and not c.isspace()) for word in again]
        texts.append(" ".join(word for word in bare if word not in STOP_WORDS_CHINESE))
    try:
        return float(Rouge().get_scores([texts[0]], [texts[1]], avg=True)["rouge-l"]["f"])
    except Exception:  # whatever goes wrong is a 0, officially
        return 0.0


@settings(max_examples=examples(200))
@given(chinese_texts, chinese_texts)
@example("。。", "，，")  # two empty words make a text of one empty word, which matches
@example("。。", "。")
@example("的的", "是是")
@example("", "")
@example("的。，", "。。。京")
def test_rouge_l_without_stop_words(prediction: str, reference: str) -> None:
    assert keyword_gate.rouge_l_zh(prediction, reference).official == official_rouge_l(prediction, reference)


def test_the_recursion_limit() -> None:
    text = "京 " * 989
    at, beyond = keyword_gate.rouge_l_zh(text, text), keyword_gate.rouge_l_zh(text + "京", text + "京")
    assert (at.frames, at.official > 0.99) == (990, True)
    assert (beyond.frames, beyond.official, beyond.without_limit > 0.99) == (991, 0.0, True)
