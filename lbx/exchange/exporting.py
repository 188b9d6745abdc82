"""``lbx export``: a run as the files that the official scorers read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.errors import LbxError, StoreError, UsageError
from lbx.exchange.formats import Answer, Format, Rows
from lbx.exchange.registry import format_named
from lbx.records import Sample
from lbx.store import Store


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote.

    Attributes:
        rows: lines in all files together.
        left_out: answers that are in none, by why: "failed", "further iterations", "empty answers".
    """

    files: tuple[Path, ...]
    rows: int
    left_out: Mapping[str, int]


def export_predictions(
    store: Store, format_name: str, run_id: str, directory: Path, *, force: bool = False
) -> Exported:
    """Write a run's answers to one benchmark family as its official prediction files.

    An imported run's files come back byte for byte. Documents are not stored, so no file holds any.

    Args:
        format_name: a key of ``FORMATS``.
        directory: made if it is not there.
        force: replace files that are there already.

    Raises:
        UsageError: no such run, nothing of this benchmark in it, or a file is there already.
        LbxError: the disk is full or the folder cannot be written; no file has changed then.
    """
    form = format_named(format_name)
    run = _run(store, run_id)
    if run["backend"] == "import":
        files = _imported_files(store, form, run)
        left_out: Counter[str] = Counter()
    else:
        files, left_out = _made_files(store, form, run)
    if not files:
        raise _nothing(store, form, run_id)
    targets = {directory / name: lines for name, lines in files.items()}
    if not force:
        _refuse_existing(targets)
    _write_all(targets)
    return Exported(tuple(targets), sum(map(len, files.values())), dict(left_out))


def _run(store: Store, run_id: str) -> dict[str, Any]:
    found = store.query("SELECT run_id, model, backend, settings FROM runs WHERE run_id = ?", [run_id]).dicts()
    if not found:
        names = [row[0] for row in store.query("SELECT run_id FROM runs ORDER BY started_at").rows]
        raise UsageError(
            f"{store.path} holds no run {run_id!r}.",
            fix=f"Its runs are: {', '.join(names)}." if names else "It holds no run at all.",
        )
    return found[0]


def _nothing(store: Store, form: Format, run_id: str) -> UsageError:
    held = store.query("SELECT DISTINCT benchmark FROM generations WHERE run_id = ? ORDER BY ALL", [run_id]).rows
    return UsageError(
        f"The run {run_id!r} has no answers to {form.name}.",
        fix=f"It answers {', '.join(row[0] for row in held)}." if held else "It has no answers yet.",
    )


def _imported_files(store: Store, form: Format, run: Mapping[str, Any]) -> dict[str, list[str]]:
    """Lines of each file, as they stood there; the last one without its line feed where it had none."""
    settings = json.loads(run["settings"])
    if settings.get("imported") != form.name:
        return {}
    files = {}
    for file in settings["files"]:
        rows = store.query(
            "SELECT source_row FROM generations WHERE run_id = ? AND benchmark = ? AND (task = ? OR ? IS NULL) "
            "ORDER BY created_at",
            [run["run_id"], form.name, file["task"], file["task"]],
        ).rows
        if len(rows) != file["rows"]:
            raise StoreError(
                f"The import {run['run_id']!r} in {store.path} is not complete.",
                fix="Import the files again, then export.",
            )
        separator = file.get("separator", "\n")
        lines = [f"{row[0]}{separator}" for row in rows]
        if not file["final_newline"]:
            lines[-1] = lines[-1].removesuffix(separator)
        files[form.place(run["model"], file["task"], file["name"])] = lines
    return files


def _made_files(store: Store, form: Format, run: Mapping[str, Any]) -> tuple[dict[str, list[str]], Counter[str]]:
    tasks = {
        row[0]
        for row in store.query(
            "SELECT DISTINCT task FROM generations WHERE run_id = ? AND benchmark = ?", [run["run_id"], form.name]
        ).rows
    }
    settings = json.loads(run["settings"])
    files: dict[str, list[str]] = {}
    left_out: Counter[str] = Counter()
    for task in [task for task in form.known_tasks if task in tasks]:
        answers = list(_answers(store, form, run["run_id"], task))
        failed = store.query(
            "SELECT count(*) FROM generations WHERE run_id = ? AND benchmark = ? AND task = ? AND error IS NOT NULL",
            [run["run_id"], form.name, task],
        ).rows[0][0]
        made = form.export(form.label(run["model"], settings), task, answers) if answers else Rows("", [])
        left_out.update({"failed": failed} if failed else {})
        left_out.update(made.left_out)
        if made.rows:
            files.setdefault(made.name, []).extend(_line(row) for row in made.rows)
    return files, left_out


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _answers(store: Store, form: Format, run_id: str, task: str) -> Iterator[Answer]:
    rows = store.query(
        """
        SELECT a.sample_id, a.language, a.length, a.length_unit, a."references", a.question, a.meta, a.position,
               g.iteration, g.output, g.reasoning, g.steps
        FROM generations g JOIN samples a USING (benchmark, task, sample_id)
        WHERE g.run_id = ? AND g.benchmark = ? AND g.task = ? AND g.error IS NULL
        ORDER BY a.position, g.iteration
        """,
        [run_id, form.name, task],
    ).dicts()
    for row in rows:
        sample = Sample(
            benchmark=form.name,
            task=task,
            sample_id=row["sample_id"],
            context="",
            question=row["question"],
            references=tuple(json.loads(row["references"])),
            language=row["language"],
            length=row["length"],
            length_unit=row["length_unit"],
            meta=json.loads(row["meta"]),
        )
        steps = json.loads(row["steps"]) if row["steps"] else []
        yield Answer(sample, row["position"], row["iteration"], row["output"] or "", row["reasoning"], steps)


def _refuse_existing(targets: Iterable[Path]) -> None:
    there = [path for path in targets if path.exists()]
    if there:
        others = f" and {len(there) - 1} more files are" if len(there) > 1 else " is"
        raise UsageError(f"{there[0]}{others} there already.", fix="Give another folder, or replace them with --force.")


def _write_all(targets: Mapping[Path, list[str]]) -> None:
    """All files or none: each is written beside its place first, and moved there when all are whole."""
    parts = {path: path.with_name(f".{path.name}.part") for path in targets}
    with ExitStack() as stack:
        try:
            for path, part in parts.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                stack.callback(part.unlink, missing_ok=True)
                with part.open("wb") as file:
                    for line in targets[path]:
                        file.write(line.encode("utf-8", "replace"))
            for path, part in parts.items():
                part.replace(path)
        except OSError as exc:
            raise LbxError(
                f"{exc.filename or 'The export'} cannot be written: {exc.strerror or exc}.",
                fix="Nothing was exported. Mend the cause (a full disk, a folder of somebody else's) and try again.",
            ) from exc
