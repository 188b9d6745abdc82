"""``lbx export``: a run as the files that the official scorers read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.predictions import ExportedFile, PredictionFormat, StoredAnswer
from lbx.errors import LbxError, StoreError, UsageError
from lbx.exchange.naming import format_named
from lbx.paths import inside
from lbx.store import Store
from lbx.store.rows import stored_sample


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
        format_name: the benchmark's name.
        directory: made if it is not there.
        force: replace files that are there already.

    Raises:
        UsageError: no such run, nothing of this benchmark in it, or a file is there already.
        LbxError: the disk is full or the folder cannot be written; no file has changed then.
    """
    run = _run(store, run_id)
    form = format_named(format_name, [name for name in _answered(store, run_id) if name not in set(BENCHMARKS)])
    if run["backend"] == "import":
        files = _imported_files(store, form, run)
        left_out: Counter[str] = Counter()
    else:
        files, left_out = _made_files(store, form, run)
    if not files:
        raise _nothing(store, form, run_id)
    targets = {_target(directory, name, run_id): lines for name, lines in files.items()}
    if not force:
        _refuse_existing(targets)
    _write_all(targets)
    return Exported(tuple(targets), sum(map(len, files.values())), dict(left_out))


def _target(directory: Path, name: str, run_id: str) -> Path:
    try:
        return inside(directory, name)
    except ValueError as exc:
        raise StoreError(
            f"The run {run_id!r} names a file {name!r}, which is not written: {exc}.",
            fix="Nothing was exported. Who made the results file?",
        ) from exc


def _run(store: Store, run_id: str) -> dict[str, Any]:
    found = store.query("SELECT run_id, model, backend, settings FROM runs WHERE run_id = ?", [run_id]).dicts()
    if not found:
        names = [row[0] for row in store.query("SELECT run_id FROM runs ORDER BY started_at").rows]
        raise UsageError(
            f"{store.path} holds no run {run_id!r}.",
            fix=f"Its runs are: {', '.join(names)}." if names else "It holds no run at all.",
        )
    return found[0]


def _answered(store: Store, run_id: str) -> list[str]:
    found = store.query("SELECT DISTINCT benchmark FROM generations WHERE run_id = ? ORDER BY ALL", [run_id])
    return [row[0] for row in found.rows]


def _nothing(store: Store, form: PredictionFormat, run_id: str) -> UsageError:
    held = _answered(store, run_id)
    return UsageError(
        f"The run {run_id!r} has no answers to {form.name}.",
        fix=f"It answers {', '.join(held)}." if held else "It has no answers yet.",
    )


def _imported_files(store: Store, form: PredictionFormat, run: Mapping[str, Any]) -> dict[str, list[str]]:
    """Lines of each file, as they stood there; the last one without its line feed where it had none."""
    settings = json.loads(run["settings"])
    if settings.get("imported") != form.name:
        return {}
    try:
        stored = [_StoredFile(**file) for file in settings["files"]]
    except (KeyError, TypeError, ValueError) as exc:
        raise StoreError(f"{store.path} does not say which files {run['run_id']!r} was imported from.") from exc
    files: dict[str, list[str]] = {}
    for file in stored:
        rows = store.query(
            "SELECT source_row FROM generations WHERE run_id = ? AND benchmark = ? AND (task = ? OR ? IS NULL) "
            "ORDER BY created_at",
            [run["run_id"], form.name, file.task, file.task],
        ).rows
        place = form.place(run["model"], file.task, file.name)
        if len(rows) != file.rows or not rows or place in files:
            raise StoreError(
                f"The import {run['run_id']!r} in {store.path} is not complete.",
                fix="Import the files again, then export.",
            )
        lines = [f"{row[0]}{file.separator}" for row in rows]
        if not file.final_newline:
            lines[-1] = lines[-1].removesuffix(file.separator)
        files[place] = lines
    return files


@dataclass(frozen=True, slots=True)
class _StoredFile:
    """What an import remembers of a file (``Reading.files``). A name of several parts is no file's name."""

    name: str
    task: str | None
    rows: int
    final_newline: bool
    separator: str = "\n"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.separator, str) or "/" in self.name:
            raise ValueError(self.name)


def _made_files(
    store: Store, form: PredictionFormat, run: Mapping[str, Any]
) -> tuple[dict[str, list[str]], Counter[str]]:
    tasks = {
        row[0]
        for row in store.query(
            "SELECT DISTINCT task FROM generations WHERE run_id = ? AND benchmark = ?", [run["run_id"], form.name]
        ).rows
    }
    settings = json.loads(run["settings"])
    files: dict[str, list[str]] = {}
    left_out: Counter[str] = Counter()
    for task in [task for task in form.known_tasks or sorted(tasks) if task in tasks]:
        answers = list(_answers(store, form, run["run_id"], task))
        failed = store.query(
            "SELECT count(*) FROM generations WHERE run_id = ? AND benchmark = ? AND task = ? AND error IS NOT NULL",
            [run["run_id"], form.name, task],
        ).rows[0][0]
        made = form.export(form.label(run["model"], settings), task, answers) if answers else ExportedFile("", [])
        left_out.update({"failed": failed} if failed else {})
        left_out.update(made.left_out)
        if made.rows:
            files.setdefault(made.name, []).extend(_line(row) for row in made.rows)
    return files, left_out


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _answers(store: Store, form: PredictionFormat, run_id: str, task: str) -> Iterator[StoredAnswer]:
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
        sample = stored_sample(form.name, task, row)
        steps = json.loads(row["steps"]) if row["steps"] else []
        yield StoredAnswer(sample, row["position"], row["iteration"], row["output"] or "", row["reasoning"], steps)


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
                part.unlink(missing_ok=True)  # it may be a link to somewhere else
                with part.open("xb") as file:
                    for line in targets[path]:
                        file.write(line.encode("utf-8", "replace"))
            for path, part in parts.items():
                part.replace(path)
        except OSError as exc:
            raise LbxError(
                f"{exc.filename or 'The export'} cannot be written: {exc.strerror or exc}.",
                fix="Nothing was exported. Fix the cause (a full disk, a folder of somebody else's) and try again.",
            ) from exc
