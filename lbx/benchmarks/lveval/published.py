"""What is published of LV-Eval. Other files have a dataset and level a row:

benchmark,model,dataset,level,score_percent
"""

from __future__ import annotations

from lbx.benchmarks.base.published import PublishedFigures, Row


def _figures(row: Row) -> list[tuple[str, str, str]]:
    return [(row["model"], f"{row['dataset']}_{row['level']}", row["score_percent"])]


PUBLISHED = PublishedFigures(("dataset", "level", "score_percent"), _figures)
