"""``lbx export BENCHMARK --judged``: answers for a judge, as the official runners write them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.base.records import Mode, Sample
from lbx.benchmarks import BENCHMARKS, official_judges
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.base.official_judge import OfficialJudge
from lbx.benchmarks.base.predictions import file_part
from lbx.exchange.exporting import Exported, write_files
from lbx.exchange.prediction_files import format_named
from lbx.store import Store
from lbx.store.runs import check_runs


def export_judged(
    store: Store, metric: str, runs: Sequence[str], bundle: Bundle, directory: Path, *, force: bool = False
) -> Exported:
    """Write each run's answers to judged questions as MODEL.pred.jsonl, over all open tasks in the authors' order.

    Args:
        metric: one of a judge's ``answer_files``.
        bundle: says in which order the questions stand, and the prompts that rows tell.

    Raises:
        UsageError: no such metric or run, an import, no answer to such a question, or a file already exists.
        BundleError: the bundle has no open task, or they are damaged.
    """
    metrics = {name: judge for judge in official_judges().values() for name in judge.answer_files}
    if metric not in metrics:
        raise UsageError(f"There are no answers for a judge called {metric!r}.", fix=f"Known are {', '.join(metrics)}.")
    judge = metrics[metric]
    every = judge.samples(bundle)
    wanted = [(sample, mark) for sample, mark in every if mark in judge.answer_files[metric]]
    files: dict[str, list[str]] = {}
    left_out: Counter[str] = Counter()
    for run_id in dict.fromkeys(runs):
        check_runs(store, [run_id])
        (run,) = store.query("SELECT * FROM runs WHERE run_id = ?", [run_id]).dicts()
        model, rows = _rows(store, judge, run, bundle, wanted)
        if not rows:
            asks = as_command("lbx", "run", "--tasks", judge.benchmark)
            raise UsageError(
                f"The run {run_id!r} has no answer to a question of {metric} in the bundle at {bundle.root}.",
                fix=f"`{asks}` asks them together with those that metrics score.",
            )
        left_out["not answered"] += len(wanted) - len(rows)
        if files.setdefault(f"{model}.pred.jsonl", rows) is not rows:
            raise UsageError(
                f"Two of the runs are of {model}, and would be one file.", fix="Export one after the other."
            )
    written = write_files(directory, files, whose=", ".join(runs), force=force)
    return Exported(written, sum(map(len, files.values())), +left_out)


def _rows(
    store: Store, judge: OfficialJudge, run: Mapping[str, Any], bundle: Bundle, asked: list[tuple[Sample, str]]
) -> tuple[str, list[str]]:
    """The model as files name it, and the lines."""
    family, settings = BENCHMARKS[judge.benchmark], json.loads(run["settings"])
    if settings.get("imported") == family.name:
        raise UsageError(
            f"The run {run['run_id']!r} was imported.", fix="Leave out --judged: its files come back as they were."
        )
    model = file_part(format_named(family.name).label(run["model"], settings))
    mode = Mode(length_hint=settings.get("length_hint") is not False)
    answers = {
        (task, name): output
        for task, name, output in store.query(
            "SELECT task, sample_id, output FROM generations WHERE run_id = ? AND benchmark = ? AND iteration = 0 "
            "AND error IS NULL",
            [run["run_id"], family.name],
        ).rows
    }
    lines = []
    for sample, mark in asked:
        if (output := answers.get((sample.task, sample.sample_id))) is not None:
            row = judge.row(model, sample, mark, _prompt(family, bundle, sample, mode), output)
            lines.append(json.dumps(row) + "\n")
    return model, lines


def _prompt(family: Benchmark, bundle: Bundle, sample: Sample, mode: Mode) -> str:
    """The prompt with braces where document and question stand."""
    made = family.prompt(bundle, replace(sample, context="{}", question="{}"), mode)
    return f"{made.system}{made.before}{made.document}{made.after}"
