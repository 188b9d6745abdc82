"""Answers for a judge: one file a model over several tasks, which says of a question only who is to judge it."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lbx.base.layout import Bundle
from lbx.base.records import Sample
from lbx.benchmarks import BENCHMARKS
from lbx.benchmarks.base.judge_marks import marks_in
from lbx.benchmarks.base.prediction_lines import read_bytes, split
from lbx.benchmarks.base.predictions import Prediction, PredictionFormat
from lbx.exchange.prediction_files import (
    Alone,
    PredictionFiles,
    bundled_samples,
    file_entry,
    refuse_strangers,
    task_named,
    why_unmatched,
)


def read_judged(form: PredictionFormat, paths: Sequence[Path]) -> PredictionFiles:
    """Files of one model, their rows behind each other. Raises UsageError: something is wrong with one."""
    rows: list[Prediction] = []
    files, digest = [], hashlib.sha256()
    for path in paths:
        data = read_bytes(path)
        content = split(path, data)
        before = len(rows)
        rows += (
            replace(row, line=replace(row.line, number=before + row.position), position=before + row.position)
            for row in form.read_judged(content.lines)
        )
        folder = {"folder": path.parent.name} if len(paths) > 1 else {}
        files.append({**file_entry(path, None, content), **folder})
        digest.update(data)
    return PredictionFiles(by_task(rows), files, digest.hexdigest(), judged=True)


def holds_judged(form: PredictionFormat, path: Path, *, e: bool = False) -> bool:
    """Whether a path is such a file: no task names it, and its first row is for a judge."""
    if not form.folder or not path.is_file() or task_named(form, path, e) in form.known_tasks:
        return False
    return form.for_judges(split(path, read_bytes(path)).lines[0])


def match_judged(form: PredictionFormat, bundle: Bundle, reading: PredictionFiles) -> PredictionFiles:
    """The same answers, each of the bundle's sample with that question and reference, be it scored as well or not.

    A question that is marked twice is one sample: its second row is the sample's second iteration. What is not in the
    bundle stays as its file tells it (``prediction_files.match``).

    Raises:
        UsageError: no row answers a sample.
        BundleError: the bundle has none of the tasks, or they are damaged.
    """
    family = BENCHMARKS[form.name]
    held = [task.name for task in family.tasks(bundle, family.open_tasks) if family.is_open(task.name)]
    if not held:
        raise family.no_data(bundle, f"any of the open tasks of {form.name}")
    samples_of: dict[object, list[tuple[int, Sample]]] = defaultdict(list)
    for task in held:
        for place, sample in enumerate(bundled_samples(form, bundle, task)):
            samples_of[sample.question, sample.references].append((place, sample))
    times: Counter[object] = Counter()
    matched, alone = [], Alone(form, 0)
    for row in reading.rows:
        assert row.sample is not None
        mark = row.sample.meta["evaluation"]
        pairs = samples_of.get((row.sample.question, row.sample.references), ())
        free = [pair for pair in pairs if (pair[1].key, mark) not in times]
        if not free:
            known = (row.sample.question, row.sample.references) in samples_of
            matched.append(alone.row(row, why_unmatched(known=known)))
            continue
        place, sample = next((pair for pair in free if mark in marks_in(pair[1].meta)), free[0])
        matched.append(
            replace(
                row, task=sample.task, sample_id=sample.sample_id, position=place, sample=sample,
                iteration=times[sample.key],
            )
        )  # fmt: skip
        times.update([sample.key, (sample.key, mark)])
    refuse_strangers(bundle, matched)
    return replace(reading, tasks=by_task(matched))


def by_task(rows: Sequence[Prediction]) -> dict[str, list[Prediction]]:
    """Rows under their tasks, in their order."""
    tasks: dict[str, list[Prediction]] = {}
    for row in rows:
        tasks.setdefault(row.task, []).append(row)
    return tasks
