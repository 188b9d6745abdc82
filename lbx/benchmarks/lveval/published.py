"""What is published of LV-Eval. Other files have a dataset and level a row:

benchmark,model,dataset,level,score_percent
"""

from __future__ import annotations

from pathlib import Path

from lbx.benchmarks.base.published import PublishedFigures, Row


def _figures(row: Row) -> list[tuple[str, str, str]]:
    return [(row["model"], f"{row['dataset']}_{row['level']}", row["score_percent"])]


PUBLISHED = PublishedFigures(
    Path(__file__).with_suffix(".csv"), columns=("dataset", "level", "score_percent"), figures=_figures
)
