"""The project's own ROUGE, edit similarity and Chinese words against the packages that the official scripts call."""

from __future__ import annotations

import random
import sys
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.benchmarks.metrics import longbench, rouge
from tests.profiles import examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fuzzywuzzy import fuzz
    from rouge import Rouge
    from rouge_score.rouge_scorer import RougeScorer

# Few different tokens, so that subsequences are long and ties are many.
anything = st.characters(codec=None, exclude_categories=())
sentences = st.text(alphabet="ab c.\n。", max_size=60)
lines = st.text(alphabet="abc (", max_size=240)


def official_rouge_l(prediction: str, reference: str) -> float:
    try:
        return float(Rouge().get_scores([prediction], [reference], avg=True)["rouge-l"]["f"])
    except Exception:  # as LongBench has it: whatever goes wrong is a 0
        return 0.0


@settings(max_examples=examples(150))
@given(sentences, sentences)
def test_rouge_l_is_the_package_s(prediction: str, reference: str) -> None:
    assert rouge.rouge_l(prediction, [reference]).official == official_rouge_l(prediction, reference)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_rouge_l_of_long_sentences(seed: int) -> None:
    """Many tokens, so that some of the backtrace's ties fall differently from what a wrong rule would do."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices([str(n) for n in range(12)] + ["x."], k=rng.randrange(1, 90))) for _ in range(2)]
    assert rouge.rouge_l(texts[0], [texts[1]]).official == official_rouge_l(*texts)


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.sampled_from("abce"), max_size=12))
def test_frames_are_the_depth_of_the_recursion(reference: list[str], candidate: list[str]) -> None:
    table = _table(reference, candidate)

    def depth(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return 1
        if reference[i - 1] == candidate[j - 1]:
            return 1 + depth(i - 1, j - 1)
        return 1 + (depth(i - 1, j) if table[i - 1][j] > table[i][j - 1] else depth(i, j - 1))

    if reference and candidate:
        got = rouge.rouge_l(" ".join(candidate), [" ".join(reference)])
        assert got.frames == depth(len(reference), len(candidate))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_recursion_limit_takes_all(language: str) -> None:
    measure, limit = (rouge.rouge_l, 991) if language == "en" else (rouge.rouge_l_zh, 990)
    word = "w" if language == "en" else "。"  # jieba leaves each a word of its own
    at = measure(" ".join([word] * (limit - 1)), [" ".join([word] * (limit - 1))])
    beyond = measure(" ".join([word] * limit), [" ".join([word] * limit)])
    assert at.frames == limit
    assert at.official == at.without_limit > 0.99
    assert beyond.frames == limit + 1
    assert (beyond.official, beyond.without_limit > 0.99) == (0.0, True)


def test_counted_frames_are_the_frames_that_the_package_needs() -> None:
    """With one frame less than counted the package gives up, with as many it does not."""
    text = " ".join(f"t{n}" for n in range(100))
    reference = text + " more of it"
    frames = rouge.rouge_l(text, [reference]).frames
    before = sys.getrecursionlimit()
    depth = len(_stack())
    outcomes = []
    try:
        for spare in range(2, 30, 3):
            sys.setrecursionlimit(depth + frames + spare)
            outcomes.append(official_rouge_l(text, reference) > 0)
    finally:
        sys.setrecursionlimit(before)
    assert outcomes == sorted(outcomes)  # fails, fails, ..., works
    assert True in outcomes
    assert False in outcomes


def _stack() -> list[object]:
    frame, found = sys._getframe(), []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return found


@settings(max_examples=examples(150))
@given(st.text(alphabet="ab 1É-\n", max_size=60), st.text(alphabet="ab 1É-\n", max_size=60))
def test_rouge_n_is_the_package_s(prediction: str, reference: str) -> None:
    official = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False).score(reference, prediction)
    got = rouge.rouge(prediction, [reference])
    assert got.rouge1 == official["rouge1"].fmeasure
    assert got.rouge2 == official["rouge2"].fmeasure
    assert got.rouge_l == official["rougeL"].fmeasure


@settings(max_examples=examples(150))
@given(st.one_of(lines, st.text(alphabet=anything)), st.one_of(lines, st.text(alphabet=anything)))
def test_edit_similarity_is_fuzzywuzzy_s(line: str, reference: str) -> None:
    assert longbench.edit_similarity(line, [reference]) == fuzz.ratio(line, reference) / 100


@settings(max_examples=examples(300))
@given(
    st.lists(st.sampled_from(["cats", "running", "the", "red", "a", "\n", "", "b b"]), max_size=30),
    st.lists(st.sampled_from(["cat", "runs", "the", "reds", "a", "\n", "", "b b"]), max_size=30),
)
def test_stemmed_rouge_is_the_package_s(prediction: list[str], reference: list[str]) -> None:
    texts = " ".join(reference), " ".join(prediction)
    official = RougeScorer(["rougeL", "rougeLsum"], use_stemmer=True).score(*texts)
    wanted = [value for kind in ("rougeL", "rougeLsum") for value in (official[kind].fmeasure, official[kind].recall)]
    assert list(rouge.stemmed_rouge(texts[1], [texts[0]])) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("room", [rouge.MAX_BITS, 20])
@given(x=st.lists(st.sampled_from("abc")), y=st.lists(st.sampled_from("abd")))
def test_lcs_rows_are_the_table(room: int, x: list[str], y: list[str]) -> None:
    """With room for 20 bits, most of it is worked out twice."""
    table = _table(x, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rouge, "MAX_BITS", room)
        masks = rouge.positions(y)
        assert dict(masks) == {token: sum(1 << j for j, other in enumerate(y) if other == token) for token in y}
        steps = list(rouge.rows_upwards([token for token in x if token in masks], masks, len(y)))
        assert rouge.lcs_length(x, y) == rouge.lcs_length(y, x) == table[-1][-1]
    kept = [row for row, token in zip(table[1:], x, strict=True) if token in masks]
    assert [[row[j + 1] - row[j] for j in range(len(y))] for row in reversed(kept)] == [
        [step >> j & 1 for j in range(len(y))] for step in steps
    ]


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_rouge_l_in_little_room(seed: int) -> None:
    """Sentences too long to keep the whole table of give the same."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices("abcdefg", k=rng.randrange(1, 200))) for _ in range(2)]
    plenty = rouge.rouge_l(texts[0], [texts[1]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rouge, "MAX_BITS", 500)
        assert rouge.rouge_l(texts[0], [texts[1]]) == plenty


def _every_pair(prediction: str, reference: str) -> tuple[set[str], int]:
    """What all pairs of sentences have in common, and the deepest recursion, as plainly as the package does it."""
    common: set[str] = set()
    deepest = 0
    for x in (piece.split() or [""] for piece in reference.split(".") if piece):
        for y in (piece.split() or [""] for piece in prediction.split(".") if piece):
            table = _table(x, y)
            i, j, frames = len(x), len(y), 1
            while i and j:
                frames += 1
                if x[i - 1] == y[j - 1]:
                    common.add(x[i - 1])
                    i, j = i - 1, j - 1
                elif table[i - 1][j] > table[i][j - 1]:
                    i -= 1
                else:
                    j -= 1
            deepest = max(deepest, frames)
    return common, deepest


@settings(max_examples=examples(150))
@given(st.integers(0, 10**6))
def test_no_pair_of_sentences_is_missed(seed: int) -> None:
    """Score and depth of texts of many sentences are those of every single pair."""
    rng = random.Random(seed)
    texts = [
        " ".join(
            rng.choice(["t.", ". .", "the", "of"]) if rng.random() < 0.4 else f"w{rng.randrange(9)}" for _ in range(30)
        )
        for _ in range(2)
    ]
    common, deepest = _every_pair(*texts)
    found = rouge.rouge_l(texts[0], [texts[1]])
    unique = [len({token for piece in text.split(".") if piece for token in piece.split() or [""]}) for text in texts]
    precision, recall = len(common) / unique[0], len(common) / unique[1]
    assert found.frames == deepest
    assert found.without_limit == 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def _table(x: list[str], y: list[str]) -> list[list[int]]:
    """The textbook's table of lengths."""
    table = [[0] * (len(y) + 1) for _ in range(len(x) + 1)]
    for i, left in enumerate(x, 1):
        for j, top in enumerate(y, 1):
            table[i][j] = table[i - 1][j - 1] + 1 if left == top else max(table[i - 1][j], table[i][j - 1])
    return table
