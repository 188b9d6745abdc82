"""A stand-in of HELMET's data.py with other words, and made-up rows of its data sets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lbx.benchmarks.helmet import texts as places
from lbx.benchmarks.helmet.tasks import DATASETS
from lbx.benchmarks.helmet.texts import TEMPLATES
from tests.made_parquet import write_parquet

Row = dict[str, Any]
_USER = {
    "json_kv": "{context}\n{demos}Key {question}",
    "kilt": "{demos}{context}\nAsk {question}",
    "msmarco": "{demos}{context}\nSort {question}",
    "icl": "Write {{label}}.\n{context}\n{question}",
    "alce": "{demo_text}{instruction}\n{question}\n{context}",
    "infbench_choice": "{demo}{context}\n{question}\n{options}",
    "ruler_several": "All {type_needle_v}:\n{context}\nof {query}?",
    "ruler_niah": "One {type_needle_v}:\n{context}\nof {query}?",
}
_START = {
    "json_kv": "Corresponding value:", "icl": "label:", "msmarco": "Ranking:",
    "ruler_several": "The {type_needle_v} of {query} are", "ruler_niah": "The {type_needle_v} of {query} is",
}  # fmt: skip
_PARTS = {
    places.KILT_DEMO: "{documents}\nAsk {question}\nAnswer {answer}",
    places.KILT_PASSAGE: "<{title}> {text}",
    places.JSON_KV_DEMO: "Key {key}={value}",
    places.RANKED_TITLED: "[{id}] <{title}> {text}",
    places.RANKED_PASSAGE: "[{id}] {text}",
    places.ICL_ITEM: "{text} -> {label}",
    places.OPTIONS: "A {}, B {}, C {}, D {}",
    places.BOOK_DEMO["infbench_qa"]: "{question}: {answer[0]}",
    places.BOOK_DEMO["infbench_choice"]: "{question} {options}: {answer[0]}",
    places.LAWSUIT_DEMO: "Case: {}",
    places.CUT_MARK: " (cut)",
}
_F_STRINGS = {
    places.RANKED_DEMO: 'f"\\nSort {a}: {b}"',
    places.STORY_DEMO: 'f"{a}: {b}"',
    places.BOOK_DEMO["infbench_sum"]: 'f"Sum: {a}"',
    places.BOOK_DEMOS: 'f"Like {a}.\\n"',
}


def made_script() -> bytes:
    """Python with a text literal at each place that lbx reads."""
    texts: dict[tuple[str, int], str] = {place: repr(text) for place, text in _PARTS.items()} | dict(_F_STRINGS)
    for kind, template in TEMPLATES.items():
        user = _USER.get(kind, "{demo}{context}\n{question}")
        texts[template.function, template.user] = repr(user)
        texts[template.function, template.user + 1] = repr(_START.get(kind, "Answer:"))
    lines = []
    for function in dict.fromkeys(name for name, _ in texts):
        last = max(index for name, index in texts if name == function)
        literals = [texts.get((function, index), f"'text {index}'") for index in range(last + 1)]
        lines += [f"def {function}(a, b):", "    return [", *(f"        {literal}," for literal in literals), "    ]"]
    return "\n".join(lines).encode()


def as_lines(rows: Iterable[Row]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def kilt_row(number: int, depth: float = 0.0, **changes: Any) -> Row:
    return {
        "id": f"q{number}", "question": f"Question {number}", "answers": [f"answer {number}", "other"],
        "ctxs": [{"title": f"T{n}", "text": f"text {n} of {number}"} for n in range(3)], "depth": depth, **changes,
    }  # fmt: skip


def msmarco_row(number: int, **changes: Any) -> Row:
    passages = [{"id": f"{number}{n}", "text": f"passage {n}", "label": n % 3} for n in range(4)]
    return {"qid": f"{number}", "query": f"Query {number}", "ctxs": passages, "depth": 0.0, **changes}


def json_kv_row(number: int, **changes: Any) -> Row:
    return {
        "context": json.dumps({f"k{number}": f"v{number}"}), "question": f"k{number}", "answer": f"v{number}",
        "demos": [["a", "b"], ["c", "d"], ["e", "f"]], "num_kvs": 1, "depth": 0.4, **changes,
    }  # fmt: skip


def ruler_row(number: int, **changes: Any) -> Row:
    return {"context": f"hay {number}", "query": "door", "type_needle_v": "numbers", "answer": ["12", "34"], **changes}


def asqa_row(number: int, **changes: Any) -> Row:
    return {
        "question": f"Q{number}", "answer": "long", "docs": [{"title": "T", "text": f"{n}"} for n in range(40)],
        "qa_pairs": [{"short_answers": ["red cat", "cat"]}, {"short_answers": ["dog"]}], **changes,
    }  # fmt: skip


PROMPT_FILE = {
    "instruction": "Cite.", "demo_prompt": "{instruction} {question}\n{context}\n{answer}",
    "doc_prompt": "({ID}) {title} {text}",
    "demos": [{"question": f"D{n}", "answer": f"A{n}", "docs": [{"title": "t", "text": "x"}]} for n in range(4)],
}  # fmt: skip
HUB = "hub:princeton-nlp/HELMET/data"


def file_of(dataset: str, number: int, *, demos: bool = False) -> str:
    """Place of a data set's file, or of its demonstrations, in a bundle."""
    settings = DATASETS[dataset]
    return f"{HUB}/{(settings.demo_file if demos else settings.file).format(number)}"


def made_content(folder: Path) -> dict[str, bytes | Path]:
    """Content of a bundle with rows of each category that needs no tokenizer, at 8k."""
    kilt = [kilt_row(number, depth) for number in range(4) for depth in (0.0, 1.0)]
    popular = [{**row, "id": number, "s_pop": (10, 999, 1000, 50)[number]} for number, row in enumerate(kilt[::2])]
    labelled = [{"text": f"text {number}", "label": number % 7} for number in range(60)]
    return {
        "files/princeton-nlp/HELMET/data.py": made_script(),
        "files/princeton-nlp/HELMET/prompts/asqa_revised.json": json.dumps(PROMPT_FILE).encode(),
        file_of("json_kv", 105): as_lines(json_kv_row(number) for number in range(5)),
        file_of("ruler_niah_mv", 8192): as_lines(ruler_row(number) for number in range(3)),
        file_of("kilt_nq", 50): as_lines(kilt),
        file_of("kilt_nq", 0, demos=True): as_lines(kilt_row(number + 10) for number in range(3)),
        file_of("kilt_popqa", 50): as_lines(popular),
        file_of("kilt_popqa", 0, demos=True): as_lines(popular),
        file_of("msmarco_rerank", 50): as_lines(msmarco_row(number) for number in range(3)),
        file_of("msmarco_rerank", 0, demos=True): as_lines(msmarco_row(number) for number in range(4)),
        file_of("alce_asqa", 0): json.dumps([asqa_row(number) for number in range(3)]).encode(),
        "hub:xingkunliuxtracta/nlu_evaluation_data/default/train/0000.parquet": write_parquet(
            folder / "nlu.parquet", labelled, {"text": "VARCHAR", "label": "BIGINT"}
        ),
    }


def book_rows(answers: Mapping[int, str]) -> list[Row]:
    """Rows of InfiniteBench's questions on one book of about 70,000 tokens."""
    book = "one two three four. " * 17_500
    return [
        {"id": number, "context": book, "input": f"Q{number}", "answer": [answer], "options": ["x", "y", "z", "w"]}
        for number, answer in answers.items()
    ]
