"""What the engine's tests are made of: unpacked bundles of made-up data, and scripted models that answer it."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lbx.backends.cards import ModelCard, read_card
from lbx.backends.scripted import ScriptedBackend, load
from lbx.base.bundle_folder import BUNDLE_JSON, FILES, HUB, TAG_MANIFEST, Bundle, repo_folder
from lbx.base.records import Task
from lbx.benchmarks.longbench_pro.paper_tables import CATEGORIES
from lbx.benchmarks.longbench_pro.tasks import TASKS as PRO_TASKS
from lbx.benchmarks.registry import BENCHMARKS
from lbx.engine.prompter import ChatTemplate, Prompter
from lbx.options.run_spec import RunSettings
from lbx.results import GenerationRow, RunRow, Store
from lbx.running.answering import LocalAsker
from lbx.running.jobs import Work
from lbx.running.runner import Outcome, Runner, record_end_status

COMMIT = "0" * 40
V2_PROMPTS = {
    "0shot.txt": "$DOC$ | $Q$ (A) $C_A$ (B) $C_B$ (C) $C_C$ (D) $C_D$",
    "0shot_cot.txt": "$DOC$ | $Q$ (A) $C_A$ (B) $C_B$ (C) $C_C$ (D) $C_D$ think:",
    "0shot_cot_ans.txt": "$Q$ (A) $C_A$ (B) $C_B$ (C) $C_C$ (D) $C_D$ thought: $COT$ so:",
    "0shot_no_context.txt": "$Q$ (A) $C_A$ (B) $C_B$ (C) $C_C$ (D) $C_D$",
    "0shot_rag.txt": "$DOC$ || $Q$ (A) $C_A$ (B) $C_B$ (C) $C_C$ (D) $C_D$",
}
"""Templates of our own with the official marks."""


def write_bundle(root: Path, content: Mapping[str, bytes]) -> Bundle:
    """A bundle of {place: content}; a place is "hub:org/name/path" or "files/path"."""
    for place, what in content.items():
        if place.startswith("hub:"):
            org, name, rest = place.removeprefix("hub:").split("/", 2)
            folder = root / HUB / repo_folder("dataset", f"{org}/{name}")
            target = folder / "snapshots" / COMMIT / rest
            (folder / "refs").mkdir(parents=True, exist_ok=True)
            (folder / "refs" / "main").write_text(COMMIT)
        else:
            target = root / FILES / place.removeprefix("files/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(what)
    (root / BUNDLE_JSON).parent.mkdir(parents=True, exist_ok=True)
    (root / BUNDLE_JSON).write_text("{}")
    (root / TAG_MANIFEST).write_text("")
    return Bundle(root)


def v2_row(number: int, **changes: Any) -> dict[str, Any]:
    """One question of LongBench v2; its document names the right choice."""
    choices = {f"choice_{letter}": f"colour {letter}{number}" for letter in "ABCD"}
    row = {
        "_id": f"q{number}",
        "domain": "Single-Document QA",
        "sub_domain": ("Academic", "Legal")[number % 2],
        "difficulty": ("easy", "hard")[number % 2],
        "length": ("short", "medium", "long")[number % 3],
        "question": f"Which colour is house {number}?",
        "answer": "ABCD"[number % 4],
        "context": f"Streets. {'Grass grows. ' * 40}House {number} is colour {'ABCD'[number % 4]}{number}. "
        + "Rain falls. " * 40,
        **choices,
    }
    return row | changes


def v2_bundle(root: Path, rows: Sequence[Mapping[str, Any]]) -> Bundle:
    content = {f"files/THUDM/LongBench/prompts/{name}": text.encode() for name, text in V2_PROMPTS.items()}
    return write_bundle(root, {**content, "hub:THUDM/LongBench-v2/data.json": json.dumps(rows).encode()})


def pro_row(number: int, task: str = "t3.2", **changes: Any) -> dict[str, Any]:
    title = PRO_TASKS[task].title
    row = {
        "id": f"q{number}",
        "context": f"Document {number}. The ship left in {1900 + number}. " + "Sea. " * 30,
        "language": ("Chinese", "English")[number % 2],
        "token_length": CATEGORIES["length"][number % 6],
        "primary_task": next(name for name in CATEGORIES["primary_task"] if name.startswith(title.split(".")[0] + ".")),
        "secondary_task": title,
        "contextual_requirement": ("Full", "Partial")[number % 2],
        "question_nonthinking": f"When did ship {number} leave?",
        "question_thinking": f"Think. When did ship {number} leave?",
        "answer": [f"In {1900 + number} the ship left the harbour."],
        "difficulty": CATEGORIES["difficulty"][number % 4],
    }
    return row | changes


def pro_bundle(root: Path, rows: Sequence[Mapping[str, Any]]) -> Bundle:
    return write_bundle(root, {"hub:caskcsg/LongBench-Pro/longbench_pro.json": json.dumps(rows).encode()})


def longbench_bundle(root: Path, tasks: Mapping[str, Sequence[Mapping[str, Any]]]) -> Bundle:
    """Rows of LongBench v1 by task, under prompts of our own."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for task, rows in tasks.items():
            lines = "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows)
            archive.writestr(f"data/{task}.jsonl", lines)
    plain = {task.removesuffix("_e") for task in tasks}
    config = "files/THUDM/LongBench/LongBench/config"
    return write_bundle(
        root,
        {
            "hub:THUDM/LongBench/data.zip": packed.getvalue(),
            f"{config}/dataset2prompt.json": json.dumps(dict.fromkeys(plain, "Read: {context} Ask: {input}")).encode(),
            f"{config}/dataset2maxlen.json": json.dumps(dict.fromkeys(plain, 32)).encode(),
        },
    )


def longbench_row(number: int, task: str, **changes: Any) -> dict[str, Any]:
    row = {
        "input": f"Who lives in house {number}?",
        "context": f"House {number} is where person {number} lives. " + "Rain falls. " * 20,
        "answers": [f"person {number}"],
        "length": 3000 + 2000 * number,
        "dataset": task,
        "language": "en",
        "all_classes": None,
        "_id": f"id{number}",
    }
    return row | changes


def scripted(
    folder: Path, answers: Mapping[str, Any], *, window: int = 1_000_000, template: str | None = None
) -> tuple[ModelCard, ScriptedBackend]:
    """A scripted model of these answers, its card in a file as everybody's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answers.json").write_text(json.dumps(answers), "utf-8")
    card = folder / "model.toml"
    chat = "" if template is None else f"[chat]\ntemplate = {json.dumps(template)}\n"
    card.write_text(
        f'name = "scripted"\nbackend = "scripted"\ncontext_window = {window}\n'
        f'[weights]\npath = "{folder / "answers.json"}"\n{chat}',
        "utf-8",
    )
    read = read_card(card)
    return read, load(read, folder / "answers.json")


def run_row(run_id: str = "r1", model: str = "scripted", **changes: Any) -> RunRow:
    row = RunRow(run_id, model, "scripted", "1", {}, "digest", {"seed": 0}, {}, "0.1")
    return dataclasses.replace(row, **changes)


class Watcher:
    """A listener that remembers, and may raise at a sample."""

    def __init__(self, raise_at: int | None = None) -> None:
        self.rows: list[GenerationRow | None] = []
        self.tokens = 0
        self.raise_at = raise_at

    def count_sample(self, row: GenerationRow | None) -> None:
        self.rows.append(row)
        if len(self.rows) == self.raise_at:
            raise KeyboardInterrupt

    def count_tokens(self, tokens: int) -> None:
        self.tokens += tokens


def make_work(
    bundle: Bundle,
    tasks: Sequence[Task],
    backend: ScriptedBackend,
    settings: RunSettings,
    run_id: str = "r1",
    **more: Any,
) -> Work:
    """As the command line makes it."""
    source, window = backend.tokenizer.chat_template, backend.info.context_window
    prompter = Prompter(
        backend.tokenizer,
        context_window=window,
        template=ChatTemplate(source) if source else None,
        max_prompt_tokens=settings.max_prompt_tokens,
        max_new_tokens=settings.max_new_tokens,
        thinking_tokens=settings.reasoning_budget(window),
    )
    more.setdefault("benchmarks", BENCHMARKS)
    more.setdefault("mode", settings.mode(window))
    row = run_row(run_id, settings=settings.to_json())
    return Work(bundle, tasks, backend=backend, prompter=prompter, settings=settings, row=row, **more)


def run(store: Store, work: Work, watcher: Watcher | None = None) -> Outcome:
    """The whole run, taken up again if it is there."""
    asker = LocalAsker(lambda: [work])
    done = store.begin_run(work.row)
    with record_end_status(store, [work.run_id]):
        return Runner([work.run_id], [work], store, [done], watcher or Watcher(), asker).run()[0]
