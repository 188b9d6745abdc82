"""Made-up parts of RULER in the form of the authors' files, with texts of a few words."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import Bundle

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]

SCRIPTS = "files/NVIDIA/RULER/scripts/data"
PUNKT = "files/nltk/punkt_tab.zip"
ESSAYS = f"{SCRIPTS}/synthetic/json/PaulGrahamEssays.json"
ENGLISH_WORDS = f"{SCRIPTS}/synthetic/json/english_words.json"
SQUAD = f"{SCRIPTS}/synthetic/json/squad.json"
HOTPOTQA = f"{SCRIPTS}/synthetic/json/hotpotqa.json"
CONSTANTS = f"{SCRIPTS}/synthetic/constants.py"
SETTINGS = "files/ruler/ruler.toml"
TEMPLATES = {
    "niah": (
        "Some {type_needle_v} are all hidden here.\n{context}\nWhich are they for {query}?",
        " Answer: for {query}, the {type_needle_v} are", 128,
    ),
    "variable_tracking": (
        "Remember who is who below.\n{context}\nWho has the value {query}?",
        " Answer: the {num_v} with {query} are: ", 30,
    ),
    "common_words_extraction": (
        "A list of words:\n{context}\nName the {num_cw} words.", " Answer: the {num_cw} words are:", 120,
    ),
    "freq_words_extraction": (
        "A coded text: {context}\nName three words.", " Answer: the three words are:", 50,
    ),
    "qa": ("Read these papers.\n{context}\nQuestion: {query}", " Answer:", 32),
}  # fmt: skip
"""(template, answer prefix, budget of the answer) by group of tasks."""
MEMBERS = {
    "abbrev_types.txt": ["dr", ". . "],
    "collocations.tab": ["##number##\tmile"],
    "ortho_context.tab": ["the\t34", "rain\t32"],
    "sent_starters.txt": ["the"],
}
NEEDLE = b"""needle = 'The {type_needle_v} of {key} is {value}.'
haystack = 'Rain falls. Wind blows.'
"""
QUESTIONS = 6


def constants(**changes: Mapping[str, Any]) -> bytes:
    """Return a constants.py; ``changes`` replace values by group of tasks."""
    tasks = {
        group: {"template": template, "answer_prefix": prefix, "tokens_to_generate": budget}
        | {**changes.get(group, {})}
        for group, (template, prefix, budget) in TEMPLATES.items()
    }
    return f"TASKS = {tasks!r}\n".encode()


def punkt(members: Mapping[str, Iterable[str]] = MEMBERS) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, lines in members.items():
            archive.writestr(f"punkt_tab/english/{name}", "\n".join(lines))
    return buffer.getvalue()


def squad() -> dict[str, Any]:
    """Return two articles of three paragraphs, with a question each and unanswerable ones."""

    def paragraph(number: int) -> dict[str, Any]:
        answer = {"text": f"answer {number}", "answer_start": 0}
        return {
            "context": f"Paragraph {number} has " + " ".join(f"fact{number}-{fact}" for fact in range(20)),
            "qas": [
                {"question": f"What is {number}?", "answers": [answer, answer], "is_impossible": False},
                {"question": "What is not?", "answers": [], "is_impossible": True},
            ],
        }

    return {"data": [{"paragraphs": [*map(paragraph, numbers)]} for numbers in (range(3), range(3, QUESTIONS))]}


def hotpotqa() -> list[dict[str, Any]]:
    """Return questions on ten documents each, of which neighbours share nine."""
    return [
        {
            "question": f"Who is {number}?",
            "answer": f"person {number}",
            "context": [[f"Title {n}", [f"Document {n}.", " It is short."]] for n in range(number, number + 10)],
        }
        for number in range(QUESTIONS)
    ]


def ruler_files() -> dict[str, bytes | Path]:
    """Return the files of a bundle by place."""
    words = [f"{letter}{number:04d}" for letter in "xyz" for number in range(50)]
    essays = " ".join(f"The rain {number} fell on Dr. Gray. It was word {number}, and so on." for number in range(200))
    template = {"base": "{task_template}", "own-chat": "<user>{task_template}<bot>"}
    return {
        CONSTANTS: constants(),
        f"{SCRIPTS}/template.py": f"Templates = {template!r}\n".encode(),
        f"{SCRIPTS}/synthetic/niah.py": NEEDLE,
        f"{SCRIPTS}/synthetic/qa.py": b"DOCUMENT_PROMPT = 'Paper {i}:\\n{document}'\n",
        ENGLISH_WORDS: json.dumps({str(number): f"e{number:05d}" for number in range(6000)}).encode(),
        ESSAYS: json.dumps({"text": essays}).encode(),
        SQUAD: json.dumps(squad()).encode(),
        HOTPOTQA: json.dumps(hotpotqa()).encode(),
        PUNKT: punkt(),
        **{f"files/wonderwords/{part}list.txt": "\n".join(words).encode() for part in ("noun", "adjective", "verb")},
        SETTINGS: b"samples = 3\n",
    }
