"""Whole benchmarks to ask: all tasks of a family at their real counts, and what a model answers.

Data and answers are real where ../shared has them (L-Eval; three tasks of LongBench, 23 questions of v2; answers that
others published). Elsewhere a row is a golden record that travels with the code: its references, and its prediction as
the answer. Documents are short where they are made, since no scripted model reads them.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

from lbx.base.records import SampleKey

RECORDS = Path(__file__).resolve().parents[1] / "golden" / "records"
LONGEST = 2_000
"""Characters of a golden prediction: longer ones are there for a recursion limit, and take seconds to score."""

E_COUNTS = {
    "qasper": 224, "multifieldqa_en": 150, "hotpotqa": 300, "2wikimqa": 300, "gov_report": 300, "multi_news": 294,
    "trec": 300, "triviaqa": 300, "samsum": 300, "passage_count": 300, "passage_retrieval_en": 300, "lcc": 300,
    "repobench-p": 300,
}  # fmt: skip
LVEVAL_COUNTS = {
    "hotpotwikiqa_mixup": 124, "loogle_SD_mixup": 160, "loogle_CR_mixup": 99, "loogle_MIR_mixup": 139,
    "multifieldqa_en_mixup": 101, "multifieldqa_zh_mixup": 133, "factrecall_en": 200, "factrecall_zh": 200,
    "cmrc_mixup": 200, "lic_mixup": 197, "dureader_mixup": 176,
}  # fmt: skip
LEVELS = ("16k", "32k", "64k", "128k", "256k")
PRO_QUESTIONS, PRO_ITERATIONS = 60, 3
PRO_KINDS = {
    "token_length": ("8k", "16k", "32k", "64k", "128k", "256k"),
    "contextual_requirement": ("Full", "Partial"),
    "difficulty": ("Easy", "Moderate", "Hard", "Extreme"),
}
DOMAINS = (
    ("Single-Document QA", "Academic"), ("Multi-Document QA", "Legal"), ("Long In-context Learning", "User guide QA"),
    ("Long-dialogue History Understanding", "Agent history QA"), ("Code Repository Understanding", "Code repo QA"),
    ("Long Structured Data Understanding", "Table QA"),
)  # fmt: skip

Row = dict[str, Any]
Members = Mapping[str, Sequence[Row]]
Shared = Callable[[str], Path]


@dataclass(frozen=True, slots=True)
class Made:
    """A family's data and answers.

    Attributes:
        files: by place on the hub; a mapping is a zip's members, by their names.
        answers: by ``str(SampleKey)``.
        predictions: what the authors' scorer reads of them, by task.
    """

    files: dict[str, bytes | Path | Members] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    predictions: dict[str, list[Row]] = field(default_factory=dict)

    def answer(self, key: SampleKey, text: str, said: Row) -> None:
        self.answers[str(key)] = text
        self.predictions.setdefault(key.task, []).append(said)


def write_hub(hub: Path, families: Iterable[Made]) -> None:
    """All data sets as a hub's folder; families may share a zip."""
    zips: dict[str, dict[str, Sequence[Row]]] = {}
    for made in families:
        for place, content in made.files.items():
            path = hub / "datasets" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            elif isinstance(content, Path):
                path.write_bytes(content.read_bytes())
            else:
                zips.setdefault(place, {}).update(content)
    for place, members in zips.items():
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, rows in members.items():
                archive.writestr(name, lines(rows))
        (hub / "datasets" / place).write_bytes(packed.getvalue())


def lines(rows: Iterable[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def read_lines(content: Path | bytes) -> list[Row]:
    text = content.read_bytes() if isinstance(content, Path) else content
    return [json.loads(line) for line in text.decode().split("\n") if line]


def _records(family: str, task_key: str) -> dict[str, list[Row]]:
    """Golden records on which no official script stops, by task."""
    found: dict[str, list[Row]] = {}
    for record in read_lines(gzip.decompress((RECORDS / f"{family}.jsonl.gz").read_bytes())):
        said = record.get("prediction", record.get("output"))
        if not record.get("error") and len(said) < LONGEST:
            found.setdefault(record[task_key], []).append(record)
    return found


def kind(text: str) -> int:
    """Which of two kinds a text is of: to the embedding model those of one kind are the same, others wholly unlike."""
    return crc32(text.encode()) % 2


def _document(*of: object) -> str:
    return f"Document {' '.join(map(str, of))}. It is short: nobody reads it."


def longbench(shared: Shared) -> Made:
    """Llama-2's published answers; questions and documents are made where ../shared has not the task."""
    made, members = Made(), {}
    with zipfile.ZipFile(shared("data/hub/datasets/THUDM/LongBench/data.zip")) as real:
        for file in sorted(shared("data/predictions/longbench/llama2-7b-chat-4k").glob("*.jsonl")):
            task, place, said = file.stem, f"data/{file.name}", read_lines(file)
            rows = read_lines(real.read(place)) if place in real.namelist() else [
                {"input": f"What is {n} of {task}?", "context": _document(task, n), "dataset": task, "language": "en",
                 "_id": f"{task}-{n:03d}", **{name: row[name] for name in ("answers", "length", "all_classes")}}
                for n, row in enumerate(said)
            ]  # fmt: skip
            members[place] = rows
            for row, prediction in zip(rows, said, strict=True):
                assert row["answers"] == prediction["answers"], "the published answers lie in the data's order"
                made.answer(SampleKey("longbench", task, row["_id"]), prediction["pred"], prediction)
    made.files["THUDM/LongBench/data.zip"] = members
    return made


def longbench_e(_: Shared) -> Made:
    """Of samsum only one-line answers: its generation ends with the line."""
    made, members = Made(), {}
    for plain, records in _records("longbench", "dataset").items():
        task, rows = f"{plain}_e", []
        usable = [one for one in records if plain != "samsum" or "\n" not in one["prediction"]]
        for n in range(E_COUNTS.get(plain, 0)):
            record = usable[n % len(usable)]
            said = {name: record[name] for name in ("answers", "length", "all_classes")}
            said["length"] = (record["length"] + 997 * n) % 12_000
            rows.append({"input": f"What is {n}?", "context": _document(task, n), "dataset": plain, "language": "en",
                         "_id": f"{task}-{n:03d}", **said})  # fmt: skip
            made.answer(SampleKey("longbench", task, f"{task}-{n:03d}"), record["prediction"],
                        {"pred": record["prediction"], **said})  # fmt: skip
        if rows:
            members[f"data/{task}.jsonl"] = rows
    made.files["THUDM/LongBench/data.zip"] = members
    return made


def longbench_v2(shared: Shared) -> Made:
    """gpt-4o-mini's published letters; golden answers where its request failed."""
    made, rows = Made(), []
    real = {row["_id"]: row for row in json.loads(shared("data/hub/datasets/THUDM/LongBench-v2/data.json").read_text())}
    golden = [record for some in _records("longbench_v2", "kind").values() for record in some]
    for n, published in enumerate(read_lines(shared("data/predictions/longbench_v2/oneshot.jsonl"))):
        record = golden[n % len(golden)]
        said = record["output"]
        row = real.get(published["_id"]) or _v2_row(published, record, n)
        if "error" not in published:
            said = f"The correct answer is ({published['pred']})"
        rows.append(row)
        key = SampleKey("longbench_v2", "mcq", row["_id"])
        kind = {name: row[name] for name in ("_id", "domain", "difficulty", "length", "answer")}
        made.answer(key, said, kind | {"output": said})
    made.files["THUDM/LongBench-v2/data.json"] = json.dumps(rows).encode()
    return made


def _v2_row(published: Row, record: Row, n: int) -> Row:
    kind = dict(zip(("domain", "sub_domain"), DOMAINS[n % len(DOMAINS)], strict=True))
    row = {"_id": published["_id"], "question": f"Which is {n}?", "context": _document("v2", n), **kind,
           **{f"choice_{letter}": f"{letter} of {n}" for letter in "ABCD"},
           **{name: record[name] for name in ("difficulty", "length", "answer")}}  # fmt: skip
    if "error" in published:
        return row
    # The judgement tells whether the letter was right; any other stands for the right one where it was not.
    wrong = next(letter for letter in "ABCD" if letter != published["pred"])
    kept = {name: published[name] for name in row if name in published and name != "context"}
    return row | kept | {"answer": published["pred"] if published["judge"] else wrong}


def longbench_pro(_: Shared) -> Made:
    made, rows = Made(), []
    for title, records in _records("longbench_pro", "secondary_task").items():
        tries = {}
        for record in records:
            tries.setdefault(record["id"], []).append(record)
        pool = [some for some in tries.values() if len(some) == PRO_ITERATIONS]
        task = title.split(maxsplit=1)[0].lower()
        for n in range(PRO_QUESTIONS):
            same = ("primary_task", "secondary_task", "language", "answer")
            row = {"id": f"{task}-{n:02d}", **{name: pool[n % len(pool)][0][name] for name in same},
                   **{name: kinds[n % len(kinds)] for name, kinds in PRO_KINDS.items()}}  # fmt: skip
            rows.append(row | {"context": _document(task, n), "question_nonthinking": f"What is {n}?",
                               "question_thinking": f"Think. What is {n}?"})  # fmt: skip
            for iteration, record in enumerate(pool[n % len(pool)]):
                made.answer(SampleKey("longbench_pro", task, row["id"], iteration), record["prediction"],
                            row | {"prediction": record["prediction"], "bon_idx": iteration + 1})  # fmt: skip
    made.files["caskcsg/LongBench-Pro/longbench_pro.json"] = json.dumps(rows).encode()
    return made


def lveval(_: Shared) -> Made:
    made = Made()
    for dataset, records in _records("lveval", "dataset").items():
        members = {}
        for at, level in enumerate(LEVELS):
            task, rows = f"{dataset}_{level}", []
            for n in range(LVEVAL_COUNTS[dataset]):
                record = records[(n + 7 * at) % len(records)]
                row = {"input": f"What is {n}?", "context": _document(task, n), "answers": record["answers"],
                       "length": 1000 * 2 ** (4 + at), "dataset": dataset, "language": "en"}  # fmt: skip
                said = {"pred": record["prediction"], "answers": record["answers"]}
                if record["answer_keywords"] is not None:
                    row["answer_keywords"] = said["gold_ans"] = record["answer_keywords"]
                rows.append(row)
                made.answer(SampleKey("lveval", task, f"{n:04d}"), record["prediction"], said)
            members[f"{dataset}/{task}.jsonl"] = rows
        made.files[f"Infinigence/LVEval/{dataset}.zip"] = members
    return made


def leval(shared: Shared) -> Made:
    """turbo-16k's published answers; codeU and narrative_qa are asked on made documents, sci_fi is answered "True"."""
    made, hub = Made(), shared("data/hub/datasets")
    (upstream,) = shared("data/upstream/OpenLMLab/LEval").iterdir()
    published = {path.name.partition(".")[0]: read_lines(path) for path in
                 (upstream / "Predictions").glob("*_eval/turbo-16k-0613/*.jsonl")}  # fmt: skip
    for path in sorted((hub / "L4NLP/LEval/LEval").rglob("*.jsonl")):
        made.files[str(path.relative_to(hub))] = path
        _ask_leval(made, path.stem, read_lines(path), published.get(path.stem, []))
    for task, group in (("codeU", "Exam"), ("narrative_qa", "Generation")):
        rows = [
            {"instructions": [row["query"]], "outputs": [row["gt"]], "input": _document(task, n), "source": "made",
             "evaluation": row["evaluation"]}
            for n, row in enumerate(published[task])
        ]  # fmt: skip
        made.files[f"L4NLP/LEval/LEval/{group}/{task}.jsonl"] = lines(rows)
        _ask_leval(made, task, rows, published[task])
    return made


def _ask_leval(made: Made, task: str, rows: Sequence[Row], published: Sequence[Row]) -> None:
    """Questions that the scorer counts get the published answer to them, in their order; all others "C"."""
    left = [next(text for key, text in row.items() if key.endswith("_pred")) for row in published]
    for document, number, question, output, evaluation in _leval_questions(rows):
        key = SampleKey("leval", task, f"{document:03d}-{number:02d}")
        if evaluation not in ("exam", "f1", "rouge"):
            made.answers.setdefault(str(key), "C")
            continue
        text = left.pop(0) if left else "True"
        said = f"{text} [fact: {text}]" if task == "sci_fi" else text  # asked of the story, then of the world
        made.answers[str(key)] = text
        made.predictions.setdefault(task, []).append(
            {"query": question, "gt": output, "model_pred": said, "evaluation": evaluation}
        )
    assert not left, f"{task}: {len(left)} published answers to no question"


def _leval_questions(rows: Sequence[Row]) -> Iterator[tuple[int, int, str, str, str]]:
    for document, row in zip(count(), rows):
        for number, pair in enumerate(zip(row["instructions"], row["outputs"], strict=True)):
            yield document, number, *pair, row["evaluation"]


FAMILIES: Mapping[str, Callable[[Shared], Made]] = {
    "longbench": longbench,
    "longbench_e": longbench_e,
    "longbench_v2": longbench_v2,
    "longbench_pro": longbench_pro,
    "lveval": lveval,
    "leval": leval,
}
"""What ``--tasks`` calls a family: how it is made."""
