"""Ranking: BM25 against its formula, cosines, ties, and the retriever around them."""

from __future__ import annotations

import logging
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.errors import UsageError
from lbx.benchmarks.retrieval.chunks import split, split_like_longbench, words
from lbx.benchmarks.retrieval.retriever import (
    best_chunks,
    bm25,
    bm25_characters,
    bm25_elasticsearch,
    bm25_retriever,
    cosine_scores,
    embedding_retriever,
)

DOCUMENT = (
    "The lighthouse keeper counted seven ships. "
    "Taxes on tea were raised in the spring. "
    "The grey ship left the harbour at dawn. "
    "Rivers and bridges fill the old maps. "
)


def by_formula(texts: list[str], question: str, k1: float = 1.5, b: float = 0.75) -> list[float]:
    """Lucene's BM25 as it is printed (Kamphuis et al., ECIR 2020, without the constant factor k1 + 1)."""
    documents = [words(text) for text in texts]
    average = sum(map(len, documents)) / len(documents)
    found = []
    for document in documents:
        total = 0.0
        for term in words(question):
            n = sum(term in other for other in documents)
            idf = math.log(1 + (len(documents) - n + 0.5) / (n + 0.5))
            tf = document.count(term)
            total += idf * tf / (tf + k1 * (1 - b + b * len(document) / average))
        found.append(total)
    return found


WORDY = st.lists(st.sampled_from(["ship", "tea", "sea", "小", "船", "9"]), max_size=8).map(" ".join)


@given(st.lists(WORDY, min_size=1, max_size=6), WORDY)
def test_bm25_is_its_formula(texts, question):
    score = bm25(texts)
    expected = by_formula(texts, question) if any(map(words, texts)) else [0] * len(texts)
    assert np.allclose(score(question), expected, rtol=1e-12, atol=0)


def okapi(texts: list[str], question: str) -> list[float]:
    """rank_bm25's BM25Okapi, given strings for lists of words, as its authors' formula reads."""
    average = sum(map(len, texts)) / len(texts)
    idf = {}
    for character in dict.fromkeys("".join(texts)):
        n = sum(character in text for text in texts)
        idf[character] = math.log(len(texts) - n + 0.5) - math.log(n + 0.5)
    common = 0.25 * sum(idf.values()) / len(idf)
    found = [0.0] * len(texts)
    for character in question:
        weight = idf.get(character, 0.0)
        for i, text in enumerate(texts):
            f, norm = text.count(character), 1.5 * (1 - 0.75 + 0.75 * len(text) / average)
            found[i] += (common if weight < 0 else weight) * (f * 2.5 / (f + norm))
    return found


@given(st.lists(st.text("abc .船", min_size=1, max_size=12), min_size=1, max_size=7), st.text("abcd .船", max_size=9))
def test_bm25_by_characters_is_the_library_s(texts, question):
    """Held against rank_bm25 itself once: 80 documents of LongBench, every score the same to the bit."""
    assert bm25_characters(texts)(question).tolist() == okapi(texts, question)


def official_split(text: str, size: int) -> list[str]:
    """What ``split_long_sentence`` is said to do, by its tests: one part after the other, ends of sentences apart."""
    parts = re.split(r"([。？！；\n.!?;]\s*)", text)
    groups: list[list[str]] = []
    for part in parts:
        if groups and "".join(groups[-1]) and sum(len(words(one)) for one in [*groups[-1], part]) <= size:
            groups[-1].append(part or " ")
        else:
            groups.append([part])
    return [chunk for chunk in map("".join, groups) if chunk]


@given(st.text("ab .\n？船", max_size=40), st.integers(1, 6))
def test_chunks_as_published(text, size):
    chunks = split_like_longbench(text, size)
    assert chunks == official_split(text, size)
    assert "".join(chunks).replace(" ", "") == text.replace(" ", "")


def test_a_retriever_by_characters():
    retriever = bm25_retriever(8, "bm25-characters")
    assert retriever.name == "bm25-characters/8 words"
    texts = split_like_longbench(DOCUMENT, 8)
    scores = okapi(texts, "grey harbour")
    found = retriever.retrieve(DOCUMENT, "grey harbour", 9)
    assert [c.text for c in sorted(found, key=lambda c: c.rank)] == [
        texts[i] for i in sorted(range(len(texts)), key=lambda i: (-scores[i], -i))
    ]
    nothing = retriever.retrieve(DOCUMENT, "", 2)
    assert [c.index for c in nothing] == [len(texts) - 2, len(texts) - 1], "of equal ones the last, as in rank_bm25"
    assert bm25_characters([])("x").shape == (0,)


def test_elasticsearch_knows_words_and_rounds_lengths():
    texts = ["pi is 3.14 and U.S. don't", "pi 3 14 us dont", "船 小船"]
    for term, hits in {"3.14": [0], "14": [1], "u.s": [0], "don't": [0], "DON'T": [0], "船": [2], "小": [2]}.items():
        assert [i for i, score in enumerate(bm25_elasticsearch(texts)(term)) if score] == hits
    same = [f"ship {'x ' * n}" for n in (46, 47)]  # 47 and 48 words, of which Lucene keeps 46 and 48
    one, other = bm25_elasticsearch(same)("ship")
    assert one > other
    one, other = bm25_elasticsearch([f"ship {'x ' * n}" for n in (47, 48)])("ship")
    assert one == other
    assert bm25_elasticsearch([])("x").shape == (0,)


@pytest.mark.parametrize("texts", [[], [""], ["", " . "], ["ship", ""]])
@pytest.mark.parametrize("question", ["", "?!", "unknown", "ship"])
def test_bm25_of_nothing(texts, question):
    found = bm25(texts)(question)
    assert found.shape == (len(texts),)
    assert (found > 0).tolist() == [question == text == "ship" for text in texts]


def test_bm25_says_nothing(capfd, caplog):
    caplog.set_level(logging.DEBUG)
    bm25(["a ship", "some tea"])("ship")
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_bm25_does_not_depend_on_the_order_of_sets():
    code = (
        "from lbx.benchmarks.retrieval.retriever import bm25\n"
        "texts = [f'ship {i} tea {i % 7} sea {i % 3} maps and rivers' for i in range(60)]\n"
        "print(bm25(texts)('tea 3 sea 2 rivers 17').tobytes().hex())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_cosine():
    vectors = np.array([[1, 0], [3, 4], [0, 0], [-2, 0]], np.float32)
    assert np.allclose(cosine_scores(np.array([2, 0], np.float32), vectors), [1, 0.6, 0, -1])
    assert cosine_scores(np.zeros(2, np.float32), vectors).tolist() == [0, 0, 0, 0]
    assert cosine_scores(np.zeros(2, np.float32), np.zeros((0, 2), np.float32)).shape == (0,)


def test_the_best_come_in_document_order_with_their_ranks():
    pieces = split("a. b. c. d. e.", 1)
    found = best_chunks(pieces, [0.1, 0.9, 0.5, 0.9, 0.5], 3)
    assert [(c.index, c.rank, c.score, c.text) for c in found] == [
        (1, 0, 0.9, "b. "),
        (2, 2, 0.5, "c. "),
        (3, 1, 0.9, "d. "),
    ]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=9), st.integers(1, 12))
def test_ties_rank_in_document_order(scores, n):
    pieces = split("x. " * len(scores), 1)
    found = best_chunks(pieces, scores, n)
    assert len(found) == min(n, len(scores))
    assert [c.index for c in found] == sorted(c.index for c in found)
    by_rank = sorted(found, key=lambda c: c.rank)
    assert [c.rank for c in by_rank] == list(range(len(found)))
    assert [(-c.score, c.index) for c in by_rank] == sorted((-s, i) for i, s in enumerate(scores))[:n]


def test_fewer_than_one_chunk_cannot_be_asked_for():
    with pytest.raises(UsageError, match="Use at least 1"):
        bm25_retriever().retrieve(DOCUMENT, "ship", 0)


def test_a_retriever_by_bm25():
    retriever = bm25_retriever(8)
    assert retriever.name == "bm25/8 words"
    found = retriever.retrieve(DOCUMENT, "When did the grey SHIP leave the harbour?", 2)
    assert [c.text for c in found] == [
        "The lighthouse keeper counted seven ships. ",
        "The grey ship left the harbour at dawn. ",
    ]
    assert [c.rank for c in found] == [1, 0]
    assert retriever.retrieve(DOCUMENT, "", 2) == best_chunks(split(DOCUMENT, 8), [0] * 4, 2)
    assert len(retriever.retrieve(DOCUMENT, "ship", 99)) == 4
    assert retriever.retrieve("", "ship", 3) == []
    assert bm25_retriever().name == "bm25/500 words"


def test_a_chinese_document():
    text = "小船在清晨离开港口。茶税在春天提高了。旧地图上有河流。"
    found = bm25_retriever(9).retrieve(text, "茶税什么时候提高？", 1)
    assert [c.text for c in found] == ["茶税在春天提高了。"]


class Counting:
    """An embedding function that counts letters, and its own calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, texts, *, query=False):
        self.calls.append((len(texts), query))
        return np.array([[text.lower().count(c) for c in "abcdefghijklmnopqrstuvwxyz"] for text in texts], np.float32)


def test_a_retriever_by_embeddings_embeds_a_document_once():
    embed = Counting()
    retriever = embedding_retriever(embed, "letters", "c0ffee", 8)
    assert retriever.name == "embedding:letters:c0ffee/8 words"
    found = retriever.retrieve(DOCUMENT, "gridges rivers bmaps old", 1)
    assert [c.text for c in found] == ["Rivers and bridges fill the old maps. "]
    retriever.retrieve(DOCUMENT, "another question", 1)
    assert embed.calls == [(4, False), (1, True), (1, True)]
    retriever.retrieve("Some other document.", "question", 1)
    retriever.retrieve(DOCUMENT, "question", 1)
    assert embed.calls[3:] == [(1, False), (1, True), (4, False), (1, True)]
    assert retriever.retrieve("", "question", 1) == []
    assert embedding_retriever(embed, "letters", "c0ffee").name.endswith("/200 words")


def test_a_failed_embedding_leaves_nothing_stale():
    calls = []

    def embed(texts, *, query=False):
        calls.append(query)
        if len(calls) == 3:
            raise MemoryError
        return np.ones((len(texts), 2), np.float32)

    retriever = embedding_retriever(embed, "m", "f")
    retriever.retrieve("one", "q", 1)
    with pytest.raises(MemoryError):
        retriever.retrieve("two", "q", 1)
    assert [c.text for c in retriever.retrieve("two", "q", 1)] == ["two"]


def test_importing_the_room_loads_no_library():
    code = (
        "import sys, lbx.benchmarks.retrieval.retriever; "
        "print(sorted({'numpy', 'bm25s', 'torch', 'tqdm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_bm25_finds_the_paragraph_that_a_summary_was_made_from(documents):
    """LongBench's passage_retrieval_zh: some 30 paragraphs, one of them is summed up in the question."""
    retriever = bm25_retriever(200)
    rows = documents("passage_retrieval_zh")[:60]
    hits = 0
    for row in rows:
        text, mark = row["context"], row["answers"][0] + "："
        start = text.index(mark)
        end = text.find("段落", start + len(mark))
        (found,) = retriever.retrieve(text, row["input"], 1)
        at = text.index(found.text)
        hits += at < (end if end > 0 else len(text)) and at + len(found.text) > start
    assert hits >= 0.9 * len(rows)
