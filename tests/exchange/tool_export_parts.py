"""Results files to export to other tools, and the numbers that the tools must read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lbx.results import Store
from tests.command_line import Lbx
from tests.page_parts import results_file

ODD = "first\u2028second\x85third\x00\u202efourth 猫"
"""Line ends that readers of lines may split at, NUL, and a direction mark."""
Numbers = dict[str, dict[str, tuple[float, float | None]]]


def odd_file(path: Path, *, question: str = ODD, **options: object) -> Path:
    """Runs org/one and org/two with failures, cut prompts, reasoning and two answers a question; some texts are odd."""
    options = {"runs": ("org/one", "org/two"), "iterations": 2, "failed": (3, 5), "output": ODD, **options}
    results_file(path, **options)  # type: ignore[arg-type]
    with Store(path) as store, store.transaction() as connection:
        connection.execute("UPDATE samples SET question = ? WHERE task = 'qasper' AND position = 1", [question])
    return path


def exported(results: Path, form: str, folder: Path) -> Path:
    """The folder with every run of a results file."""
    with Store(results, read_only=True) as store:
        runs = [word for (run,) in store.query("SELECT run_id FROM runs ORDER BY ALL").rows for word in ("--run", run)]
    Lbx().ok("export", form, results, *runs, "-o", folder)
    return folder


def numbers_of(results: Path) -> Mapping[str, Numbers]:
    """{run: {benchmark/task: {metric: (score, standard error)}}} of metrics that score single answers."""
    numbers: dict[str, Numbers] = {}
    with Store(results, read_only=True) as store:
        for run, benchmark, task, metric, score, se in store.query(
            "SELECT run_id, benchmark, task, metric, score, se FROM task_results "
            "SEMI JOIN scores USING (run_id, benchmark, task, metric) WHERE metric <> 'empty'"
        ).rows:
            numbers.setdefault(run, {}).setdefault(f"{benchmark}/{task}", {})[metric] = (score, se)
    return numbers
