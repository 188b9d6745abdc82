"""L-Eval's retrieval: chunks and ranks are those that its authors published.

``leval_published.json`` holds numbers alone, of the rows that Predictions/*/retrieval-bm25-turbo-0613 had at commit
b5df024 of OpenLMLab/LEval: for each document how many words each chunk has, counted with GPT-2's own tokenizer; and for
each question [document, question, places of the four chunks that Elasticsearch gave, the best first]. Each row names
the first hundred characters of its chunks, which tell them apart. All 569 agree, chunk by chunk and place by place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.benchmarks.retrieval.chunks import ChunkTokenizer, split_between_words
from lbx.benchmarks.retrieval.retriever import best_chunks, bm25_elasticsearch

PUBLISHED = json.loads((Path(__file__).parent / "leval_published.json").read_text("utf-8"))
TOKENIZER = Path(__file__).resolve().parents[2] / "models" / "demo" / "hf" / "tokenizer.json"
Shared = Callable[[str], Path]


def words_on_the_form(shared: Shared, task: str) -> str:
    """The script's sentence on the answer's form, which two published prompts hold, too, but for a capital letter."""
    (upstream,) = shared("data/upstream/OpenLMLab/LEval").iterdir()
    place, pattern = (
        ("gsm100", "Make sure .*?_ [.]") if task == "gsm100" else ("coursera", "there could be .*? when answering[.]")
    )
    with (upstream / f"Predictions/exam_eval/turbo-16k-0613/{place}.pred.jsonl").open() as file:
        prompt = json.loads(file.readline())["prompt"]
    found = re.search(pattern, prompt, re.DOTALL)
    assert found
    return found[0]


def grouped(document: str, sizes: list[int]) -> list[str]:
    """Chunks of so many words each."""
    words, chunks = [word for word in document.split(" ") if word], []
    for size in sizes:
        chunks.append(" ".join(words[:size]).strip())
        words = words[size:]
    assert not "".join(words).strip()
    return chunks


@pytest.mark.parametrize("task", PUBLISHED)
def test_the_published_ranks(shared: Shared, task: str) -> None:
    (path,) = shared("data/hub/datasets/L4NLP/LEval").glob(f"**/Exam/{task}.jsonl")
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    form = words_on_the_form(shared, task)
    indices = {}
    for document, question, order in PUBLISHED[task]["orders"]:
        row = rows[document]
        if document not in indices:
            chunks = grouped(row["input"], PUBLISHED[task]["chunks"][document])
            indices[document] = chunks, bm25_elasticsearch(chunks)
        chunks, score = indices[document]
        found = best_chunks(chunks, score(f"{row['instructions'][question]} {form}"), 4)
        assert [chunk.index for chunk in sorted(found, key=lambda chunk: chunk.rank)] == order


class Letters(ChunkTokenizer):
    """One token for each letter."""

    def __init__(self) -> None:
        """No file."""

    def counts(self, texts):
        return [len(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "size", "chunks"),
    [
        ("", 9, []),
        ("   ", 9, []),
        ("ab cd ef", 5, ["ab cd", "ef"]),
        ("ab cd ef", 4, ["ab", "cd", "ef"]),
        ("ab   cd ef", 5, ["ab cd", "ef"]),
        ("abcdefgh i", 4, ["abcdefgh", "i"]),
        ("a\nb c\n d", 3, ["a\nb", "c\n", "d"]),
        ("\n ab", 2, ["ab"]),
    ],
)
def test_cut_between_words(text: str, size: int, chunks: list[str]) -> None:
    assert split_between_words(text, size, Letters()) == [chunk.strip() for chunk in chunks]


def test_cut_into_tokens() -> None:
    pytest.importorskip("tokenizers", reason="needs lbx[hf]")
    tokenizer = ChunkTokenizer(TOKENIZER)
    text = "The grey ship left the harbour at dawn, and nobody knew 7 of its names.\n小船 <|endoftext|> \ud800 end " * 9
    readable = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for size in (1, 7, 128, 10_000):
        chunks = tokenizer.split(text, size)
        total = tokenizer.counts([text])[0]
        assert len(chunks) == -(-total // size)
        if size > 100:
            assert "".join(chunks).replace("\ufffd", "") == readable.replace("\ufffd", "")
    assert tokenizer.split("", 5) == []
