"""Files with a rubric of one's own (``lbx.benchmarks.base.rubric_table``)."""

from __future__ import annotations

from pathlib import Path

from lbx.base.tables import read_table, wrong
from lbx.benchmarks import official_judge
from lbx.benchmarks.base.rubric import Rubric
from lbx.benchmarks.base.rubric_table import rubric_in


def read_rubric(path: Path) -> Rubric:
    """The rubric in a file, or in the definition of a benchmark of one's own.

    Raises:
        UsageError: something is wrong with it; names the file and the key.
    """
    table, _ = read_table(path)
    taken = {official_judge.BENCHMARK: f"the official rubric of {official_judge.TITLE}"}
    if "task" not in table:
        return rubric_in(table, str(path), path.name, taken)
    if not isinstance(rubric := table.get("rubric"), dict):
        raise wrong(path, "this definition has no [rubric]")
    return rubric_in(rubric, f"{path}, [rubric]", path.name, taken)
