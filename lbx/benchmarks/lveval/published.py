"""What is published of LV-Eval. Other files have a dataset and level a row:

benchmark,model,dataset,level,score_percent
"""

from __future__ import annotations

from lbx.base.number_key import NumberKey, task_number
from lbx.benchmarks.base.published import PublishedFigures, Row


def _figures(row: Row) -> list[tuple[str, NumberKey, str]]:
    return [(row["model"], task_number(f"{row['dataset']}_{row['level']}"), row["score_percent"])]


PUBLISHED = PublishedFigures(("dataset", "level", "score_percent"), _figures)
