"""Made-up rows of HELMET's data sets, in the form that the authors' data.py reads."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from lbx.benchmarks.helmet.tasks import DATA, DATASETS, MULTI_LEXSUM, NARRATIVEQA

Row = dict[str, Any]
_ANSWERS = ("Ünïted Kingdom", "the Beatles", "3.14", "a-b c", "北京", "yes", 'O\'Neil; "Jr."', "12")
_DEPTHS = (0.0, 0.5, 1.0)


def helmet_files(pairs: Sequence[tuple[str, str]]) -> dict[str, list[Row]]:
    """{file in the authors' folder: rows} at 8k, made of documents and questions."""
    texts = [document[:6_000] for document, _ in pairs]
    asked = [question or "?" for _, question in pairs]
    rng = random.Random(7)

    def passages(count: int, number: int) -> list[Row]:
        return [
            {"title": asked[(number + place) % len(asked)][:30], "text": texts[(number * 3 + place) % len(texts)][:300]}
            for place in range(count)
        ]

    def questions(numbers: range, count: int, depths: Sequence[float], **fields: Any) -> list[Row]:
        return [
            {
                "question": f"{asked[number % len(asked)]} {number}",
                "answers": [_ANSWERS[number % len(_ANSWERS)], _ANSWERS[-number % len(_ANSWERS)]],
                "ctxs": passages(count, number),
                "depth": depth,
                **{name: value(number) for name, value in fields.items()},
            }
            for number in numbers
            for depth in depths
        ]

    def queries(numbers: range, count: int) -> list[Row]:
        return [
            {
                "qid": str(number),
                "query": f"{asked[number % len(asked)]} {number}",
                "ctxs": [
                    {
                        "id": str(100 * number + place),
                        "text": texts[place % len(texts)][:200],
                        "label": rng.randrange(4),
                    }
                    for place in range(count)
                ],
                "depth": depth,
            }
            for number in numbers
            for depth in _DEPTHS
        ]

    files: dict[str, list[Row]] = {}
    for number, name in enumerate(("kilt_nq", "kilt_hotpotqa", "kilt_popqa", "kilt_triviaqa")):
        fields: dict[str, Any] = {} if name == "kilt_nq" else {"id": (lambda n: f"id{n}")}
        if name == "kilt_popqa":
            fields = {"id": lambda n: n * 37, "s_pop": lambda n: (10, 999, 1000, 50, 7)[n % 5]}
        rows = questions(range(number, number + 5), 50, _DEPTHS, **fields)
        files[_file(name)] = rows
        demos = questions(range(number + 3, number + 12), 3, _DEPTHS[:2], **fields)
        files[DATASETS[name].demo_file] = demos
    files[_file("msmarco_rerank")] = queries(range(8, 12), 50)
    files[DATASETS["msmarco_rerank"].demo_file] = queries(range(10, 14), 10)
    keys = [f"{rng.getrandbits(64):x}" for _ in range(400)]
    files[_file("json_kv")] = [
        {
            "context": "{" + ", ".join(f'"{key}": "v{key}"' for key in keys[: 40 + 40 * number]) + "}",
            "question": keys[number],
            "answer": f"v{keys[number]}",
            "demos": [[key, f"v{key}"] for key in keys[number : number + 3]],
            "num_kvs": 105,
            "depth": 0.2 * number,
        }
        for number in range(6)
    ]
    for name in ("ruler_niah_mk_2", "ruler_niah_mk_3", "ruler_niah_mv"):
        files[_file(name)] = [
            {
                "context": " ".join(texts[number : number + 1 + number]),
                "query": f"door-{number}{{x}}",
                "type_needle_v": "numbers",
                "answer": [f"{number}123456", f"Ab{number}"][: 1 + number % 2],
            }
            for number in range(4)
        ]
    documents = [{"title": asked[place % len(asked)], "text": text[:250]} for place, text in enumerate(texts * 3)]
    cited = [{"question": f"{question} {number}", "docs": documents[number:]} for number, question in enumerate(asked)]
    files[DATASETS["alce_asqa"].file] = [
        {
            **row,
            "answer": "long",
            "qa_pairs": [{"short_answers": list(_ANSWERS[number % 8 :][:2])}, {"short_answers": ["12"]}],
        }
        for number, row in enumerate(cited)
    ]
    files[DATASETS["alce_qampari"].file] = [
        {**row, "answer": "long", "answers": [[answer, answer.upper()] for answer in _ANSWERS[: 1 + number % 8]]}
        for number, row in enumerate(cited)
    ]
    return files


def _file(name: str) -> str:
    return DATASETS[name].file.format(DATASETS[name].sizes[0])


def helmet_tables(story: str) -> dict[str, tuple[list[Row], Mapping[str, str]]]:
    """{"repository:file": (rows, SQL types)} of the hub's data sets; the story has the documents."""
    tables: dict[str, tuple[list[Row], Mapping[str, str]]] = {}
    for of in filter(None, (settings.label_source for settings in DATASETS.values())):
        columns = ("coarse_label", "fine_label") if of.repo == DATA.repositories[1] else (of.label,)
        for split in ("train", of.test) if of.test else ("train",):
            count = of.labels * 2 + 7 if split == "train" else 4
            rows = [
                {"text": f"{split} {number}, {story[number * 9 : number * 9 + 5]}"}
                | {
                    column: (number * 5 + number // 7) % (6 if column == "coarse_label" else of.labels)
                    for column in columns
                }
                for number in range(count)
            ]
            if split == "train" and of.repo == DATA.repositories[1]:
                rows += [{**rows[0], "text": f"more {number}", "fine_label": number % 50} for number in range(60)]
            tables[f"{of.repo}:{of.config}/{split}/0000.parquet"] = (
                rows, {"text": "VARCHAR", **dict.fromkeys(columns, "BIGINT")},
            )  # fmt: skip
    for split, long in (("train", False), ("test", True)):
        stories = [
            {
                "document": {"text": (story * 4)[: 600_000 + number] if long and number != 1 else story[:5_000]},
                "question": {"text": f"Who is it, {number}?"},
                "answers": [{"text": _ANSWERS[number]}, {"text": f"a man {number}"}],
            }
            for number in range(4)
        ]
        types = {
            "document": "STRUCT(text VARCHAR)",
            "question": "STRUCT(text VARCHAR)",
            "answers": "STRUCT(text VARCHAR)[]",
        }
        tables[f"{NARRATIVEQA}:default/{split}/0000.parquet"] = (stories, types)
    for split, long in (("train", False), ("validation", True)):
        cases = [
            {
                "id": f"case-{number}",
                "sources": [story[:300_000], f"and {number}"] if long and number else [story[:900]],
                "summary/short": None if number == 2 else f"Short summary {number} of it.",
                "summary/long": "Long.",
            }
            for number in range(5)
        ]
        types = {"id": "VARCHAR", "sources": "VARCHAR[]", "summary/short": "VARCHAR", "summary/long": "VARCHAR"}
        tables[f"{MULTI_LEXSUM}:v20230518/{split}/0000.parquet"] = (cases, types)
    return tables
