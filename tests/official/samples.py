"""A bundle to try the scripts on where none is named: the real data beside the checkout, and rows made up here.

What ../shared lacks (LV-Eval, LongBench Pro, most tasks of LongBench, L-Eval's codeU) is asked about L-Eval's real
documents. Besides, every family gets the texts that templates and tokenizers stumble over.
"""

from __future__ import annotations

import io
import json
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from bench.inputs import link_tree
from lbx.base.bundle_folder import BUNDLE_JSON, FILES, HUB, TAG_MANIFEST, Bundle, repo_folder
from lbx.benchmarks import babilong as babilong_tasks
from lbx.benchmarks import infinitebench as infinitebench_tasks
from lbx.benchmarks import lveval as lveval_tasks
from lbx.benchmarks.helmet import tasks as helmet_tasks
from lbx.benchmarks.longbench import tasks as longbench_tasks
from lbx.benchmarks.longbench_pro import tasks as longbench_pro_tasks
from lbx.benchmarks.longbench_pro.paper_tables import CATEGORIES
from tests.made_parquet import write_parquet
from tests.official.helmet_rows import helmet_files, helmet_tables

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = REPOSITORY.parent / "shared"
COMMIT = "0" * 40
CHECKOUTS = {"OpenLMLab": "LEval", "THUDM": "LongBench", "infinigence": "LVEval"}
"""Organisation of a repository -> what its checkout is called."""

ODD = (
    ("A {brace}, {0}, {}, %s, {{two}}, $Q$ and $DOC$ \\n stand in it.", "What of {context} and {inst}?"),
    ("  \n\tBlank at both ends.\r\nA line more.\n\n \n", "  Which line? \n"),
    (
        "It says <|im_start|>system<|im_end|> and <s>[INST] and </s> and <|endoftext|> in so many words.",
        "Says it what?",
    ),
    ("长文本。第二句！\u3000第三句？ naïve 👩‍👩‍👧‍👦 e\u0301 \u200b end", "谁说了什么？"),
    ("One more, and nothing is asked of it.", ""),
)
"""Documents and questions that templates and tokenizers stumble over."""


def make_bundle(root: Path, folder: Path, shared: Path = SHARED) -> Bundle:
    """A folder in the form of an unpacked bundle.

    Args:
        folder: the checkouts; files of recipes that ../shared lacks are taken from there.

    Raises:
        FileNotFoundError: the real data is not there.
    """
    hub = shared / "data" / "hub" / "datasets"
    if not hub.is_dir():
        raise FileNotFoundError(f"There is no data in {hub}. Name a bundle: --bundle DIR.")
    for recipe in ("leval", "longbench", "longbench_v2", "lveval", "babilong", "infinitebench", "helmet"):
        _official_files(root, folder, shared, tomllib.loads((REPOSITORY / "bundle" / f"{recipe}.toml").read_text()))
    link_tree(hub / "L4NLP" / "LEval" / "LEval", _snapshot(root, "L4NLP/LEval") / "LEval")
    documents = list(_documents(hub / "L4NLP" / "LEval" / "LEval" / "Exam"))
    _write_lines(_snapshot(root, "L4NLP/LEval") / "LEval" / "Exam" / "codeU.jsonl", _code_rows(documents))
    with zipfile.ZipFile(hub / "THUDM" / "LongBench" / "data.zip") as real:
        _zip(_snapshot(root, "THUDM/LongBench") / "data.zip", _longbench(real, documents))
    v2 = json.loads((hub / "THUDM" / "LongBench-v2" / "data.json").read_text("utf-8"))
    _write(_snapshot(root, "THUDM/LongBench-v2") / "data.json", json.dumps([*v2, *_v2_rows(documents)]))
    for place, dataset in enumerate(lveval_tasks.DATASETS):
        members = {f"{dataset}/{dataset}_{lveval_tasks.LEVELS[0]}.jsonl": _turn(documents, place)}
        _zip(_snapshot(root, "Infinigence/LVEval") / f"{dataset}.zip", members)
    _write(_snapshot(root, "caskcsg/LongBench-Pro") / "longbench_pro.json", json.dumps(_pro_rows(documents)))
    for place, (kind, labels) in enumerate(babilong_tasks.LABELS.items()):
        made = [
            {"id": f"made-{number}", "input": document, "question": question, "target": labels[0]}
            for number, (document, question) in enumerate(_pairs(documents))
            if number % 5 == place % 5
        ]
        _write(_snapshot(root, babilong_tasks.REPOS[0]) / f"data/{kind}/4k.json", json.dumps(made))
    for place, task in enumerate(infinitebench_tasks.TASKS):
        made_rows = _infinitebench_rows(task, _pairs(documents)[place % 5 :: 5])
        if task in ("longbook_qa_eng", "longbook_qa_chn", "math_find"):
            made_rows.append({**made_rows[0], "id": len(made_rows), "context": " ".join(documents * 4)[:2_000_000]})
        if task in ("longbook_choice_eng", "longbook_sum_eng"):  # HELMET takes long ones alone
            made_rows.append({**made_rows[0], "id": len(made_rows), "context": " ".join(documents)})
        _write_lines(_snapshot(root, infinitebench_tasks.REPO) / f"{task}.jsonl", made_rows)
    _helmet(root, folder, documents)
    _write(root / BUNDLE_JSON, "{}")
    _write(root / TAG_MANIFEST, "")
    return Bundle(root)


def _helmet(root: Path, folder: Path, documents: Sequence[str]) -> None:
    """Rows of HELMET's data sets at 8k, and the tokenizer of the demo in place of Llama 2's.

    Without control tokens: where a script counts them as such, it cuts a document elsewhere.
    """
    pairs = [pair for pair in _pairs(documents) if "<|im_start|>" not in pair[0]]
    place = _snapshot(root, helmet_tasks.FOLDER) / "data"
    for name, rows in helmet_files(pairs).items():
        if name.endswith(".json"):
            _write(place / name, json.dumps(rows))
        else:
            _write_lines(place / name, rows)
    for name, (rows, types) in helmet_tables(" ".join(documents)).items():
        repo, _, path = name.partition(":")
        write_parquet(_snapshot(root, repo) / path, rows, types)
    link_tree(
        REPOSITORY / "models/demo/hf/tokenizer.json", _snapshot(root, helmet_tasks.LLAMA2, "model") / "tokenizer.json"
    )


def _official_files(root: Path, folder: Path, shared: Path, recipe: Mapping[str, Any]) -> None:
    for source in recipe["source"]:
        if source["kind"] != "https":
            continue
        organisation, name, rest = source["to"].split("/", 2)
        commit = source["url"].split("/")[5]
        places = (
            *(shared / "data" / part / organisation / name / commit / rest for part in ("upstream", "upstream_more")),
            folder / CHECKOUTS.get(organisation, name) / rest,
        )
        found = next((place for place in places if place.is_file()), None)
        if found is not None:
            link_tree(found, root / FILES / source["to"])


def _snapshot(root: Path, repo: str, kind: str = "dataset") -> Path:
    base = root / HUB / repo_folder(kind, repo)
    _write(base / "refs" / "main", COMMIT)
    return base / "snapshots" / COMMIT


def _documents(exams: Path) -> Iterator[str]:
    """Real ones of some 1,000 to 30,000 words."""
    for task in ("tpo", "quality", "coursera", "topic_retrieval_longchat", "sci_fi"):
        with (exams / f"{task}.jsonl").open(encoding="utf-8") as lines:
            yield json.loads(next(lines))["input"]


def _pairs(documents: Sequence[str]) -> list[tuple[str, str]]:
    """Documents with questions: real ones, odd ones, and odd ones inside long ones."""
    asked = [(document, f"What does part {number} say?") for number, document in enumerate(documents)]
    inside = [(f"{odd}\n{document}\n{odd}", asks) for (odd, asks), document in zip(ODD, cycle(documents), strict=False)]
    return [*asked, *ODD, *inside]


def _asked(number: int, document: str, question: str) -> dict[str, Any]:
    return {
        "input": question,
        "context": document,
        "answers": ["an answer"],
        "length": len(document.split()),
        "dataset": "made",
        "language": "en",
        "all_classes": None,
        "answer_keywords": "answer",
        "confusing_facts": "none",
        "_id": f"made-{number:04d}",
    }


def _turn(documents: Sequence[str], place: int) -> list[dict[str, Any]]:
    """Three of the made-up rows: tasks take turns at them."""
    return [_asked(number, *pair) for number, pair in enumerate(_pairs(documents)) if number % 5 == place % 5]


def _longbench(real: zipfile.ZipFile, documents: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    members = {}
    for turn, (task, kind) in enumerate(longbench_tasks.TASKS.items()):
        for name in (task, f"{task}_e") if kind.in_e else (task,):
            place = f"data/{name}.jsonl"
            found = [json.loads(line) for line in real.read(place).splitlines()] if place in real.namelist() else []
            made = _turn(documents, turn)
            classes = {"all_classes": ["one", "two"]} if kind.metric == "classification" else {}
            members[place] = [*found, *({**row, **classes} for row in made)]
    return members


def _v2_rows(documents: Sequence[str]) -> list[dict[str, Any]]:
    choices = {"choice_A": "first ", "choice_B": " $C_A$ {x}", "choice_C": "第三", "choice_D": "<|im_end|>\n"}
    kind = {"domain": "Single-Document QA", "sub_domain": "Academic", "difficulty": "easy", "length": "short"}
    return [
        {"_id": f"made-{number}", "question": question, "context": document, "answer": "B", **choices, **kind}
        for number, (document, question) in enumerate(_pairs(documents))
    ]


def _pro_rows(documents: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for number, (document, question) in enumerate(_pairs(documents)):
        title = list(longbench_pro_tasks.TASKS.values())[number % len(longbench_pro_tasks.TASKS)].title
        head = title.split(".")[0] + "."
        rows.append(
            {
                "id": f"made-{number}",
                "context": document,
                "language": ("Chinese", "English")[number % 2],
                "token_length": CATEGORIES["length"][number % 6],
                "primary_task": next(name for name in CATEGORIES["primary_task"] if name.startswith(head)),
                "secondary_task": title,
                "contextual_requirement": "Full",
                "question_nonthinking": question,
                "question_thinking": question and f"{question} Think.",
                "answer": ["an answer"],
                "difficulty": "Easy",
            }
        )
    return rows


def _infinitebench_rows(task: str, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    options = ["first ", " {x}", "第三", "<|im_end|>\n"]
    asked = {"code_run": "What is func_12(-3)? And {0}?", "math_find": "The 2nd Largest number of it of all?"}
    answers = {"option": options[2:3], "integer": [4], "number": [2.5], "text": ["x"]}
    return [
        {"id": number, "context": document, "input": asked.get(task, question), "options": options,
         "answer": answers[infinitebench_tasks.TASKS[task].kind]}
        for number, (document, question) in enumerate(pairs)
    ]  # fmt: skip


def _code_rows(documents: Sequence[str]) -> list[dict[str, Any]]:
    """Code bases of two sizes, made of functions that nobody would want."""
    pieces = [f"def f{n}(x):\n    # {line[:60]}\n    return x + {n}\n" for n, line in enumerate(_lines(documents))]
    questions = ["What does f7(1) return?", "What is f{0}(2)?"]
    return [
        {"instructions": questions, "outputs": ["8", "2"], "input": "\n".join(islice(cycle(pieces), size)),
         "source": "made", "evaluation": "exam"}
        for size in (30, 2_000)
    ]  # fmt: skip


def _lines(documents: Sequence[str]) -> list[str]:
    return [line for document in documents for line in document.splitlines() if line.strip()]


def _zip(path: Path, members: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, rows in members.items():
            archive.writestr(name, "".join(json.dumps(row) + "\n" for row in rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    _write(path, "".join(json.dumps(row) + "\n" for row in rows))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
