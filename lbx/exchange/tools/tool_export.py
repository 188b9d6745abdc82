"""Export of runs as files of other evaluation tools, and as the head of a model card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from lbx.base.errors import UsageError
from lbx.base.visible import as_command
from lbx.exchange.exporting import ExportSummary, write_files
from lbx.exchange.tools.every_eval_ever_export import every_eval_ever_files
from lbx.exchange.tools.inspect_export import inspect_files
from lbx.exchange.tools.lm_eval_export import lm_eval_files
from lbx.exchange.tools.model_index_export import model_index_files
from lbx.exchange.tools.run_records import RunRecord, read_run
from lbx.results import Store
from lbx.results.scoring.reading import add_missing_numbers

NOTICE = "NOTICE-references.txt"
_NOTICE_TEXT = """\
The sample files in this folder contain questions, reference answers and the answers of models.

The questions and references belong to the authors of the benchmarks: check their licences before you share the files.
Published references can become training data, and models that have read them can no longer be measured.
`lbx runs extract --without-texts` makes a results file whose exports contain numbers only.
"""

_WRITERS: Mapping[str, Callable[[RunRecord], Mapping[str, Iterable[str]]]] = {
    "every_eval_ever": every_eval_ever_files,
    "inspect": inspect_files,
    "lm_eval": lm_eval_files,
    "model_index": model_index_files,
}
_WITHOUT_SAMPLES = {"model_index"}
"""Formats that contain scores only."""


def export_for_tool(
    store: Store, format_name: str, run_ids: Sequence[str], directory: Path, *, force: bool = False
) -> ExportSummary:
    """Write tasks' numbers and answers of runs as files of another tool, with a notice if they contain references.

    Args:
        format_name: name in ``lbx.benchmarks.registry.EXPORT_FORMATS``.

    Raises:
        UsageError: a run is unknown or contains no numbers, two runs need the same file, or a file already exists.
        LbxError: the disk is full or the folder cannot be written. All files are then unchanged.
    """
    add_missing_numbers(store)
    files: dict[str, Iterable[str]] = {}
    n_answers, left_out, has_samples = 0, Counter[str](), False
    for run_id in dict.fromkeys(run_ids):
        run = read_run(store, run_id)
        run_files = _WRITERS[format_name](run) if run.tasks else {}
        if not run_files:
            raise _no_numbers_error(store, run)
        if shared := files.keys() & run_files.keys():
            raise UsageError(
                f"The runs {' and '.join(run_ids)} need the same file {min(shared)}.",
                fix="Export each run into a separate folder.",
            )
        files |= run_files
        has_samples |= run.has_samples and format_name not in _WITHOUT_SAMPLES
        for task in run.tasks:
            n_answers += task.answered if task.numbers else 0
            left_out["unscored"] += 0 if task.numbers else task.answered
            left_out["failed"] += task.counts["failed"] or 0
    if has_samples and not (directory / NOTICE).exists():
        files[NOTICE] = [_NOTICE_TEXT]
    paths = write_files(directory, files, run_names=", ".join(run_ids), force=force)
    return ExportSummary(paths, n_answers, {} if format_name == "inspect" else dict(+left_out))


def _no_numbers_error(store: Store, run: RunRecord) -> UsageError:
    if not run.tasks:
        return UsageError(
            f"The run {run.run_id!r} has no answers of a model to export.", fix="Pass another run with --run."
        )
    return UsageError(
        f"No metric has scored the answers of the run {run.run_id!r}, and the format has no place for other answers.",
        fix="Score it first, if a metric applies:",
        command=as_command("lbx", "score", store.path),
    )
