"""A benchmark family that nobody has: two tasks, a board with a chart, a paper's tables, published rows, an export.

Run as a program it enters the family in ``BENCHMARKS``, the one place, and prints what every room makes of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lbx.base.bundle_folder import Bundle
from lbx.base.columns import number_column
from lbx.base.number import OVERALL, Number, NumberKey, group_number, task_number
from lbx.base.records import Chunk, Prompt, Sample, Score, ScoredSample, Task
from lbx.benchmarks import registry
from lbx.benchmarks.base.aggregates import Average, numbers_by_task, task_score
from lbx.benchmarks.base.benchmark import Benchmark, ScoringRules, TaskCatalogue
from lbx.benchmarks.base.paper_tables import (
    MODE,
    Board,
    BoardPart,
    Boards,
    LineChart,
    Paper,
    PublishedScoreFormat,
    TableCell,
    best_of,
)
from lbx.benchmarks.own.benchmark import CustomFormat
from lbx.options.asking import PLAIN, Mode

TASKS = ("warm", "cold")


def _place(key: NumberKey) -> TableCell:
    return TableCell("table", "", "mean" if key.grouping else key.name)


def made_samples(task: str) -> Iterator[Sample]:
    return (Sample("colours", task, f"{at}", f"{task} document {at}", "Which colour?", ("red",)) for at in range(4))


class Colours(Benchmark):
    """Says of a thing what colour it has."""

    name = "colours"
    metric_version = 1
    catalogue = TaskCatalogue(TASKS)
    predictions = CustomFormat("colours", TASKS)
    scoring = ScoringRules(unit=1)
    paper = Paper({"table": "Colours: warm and cold ones"}, _place, averages=(("table", ""),))
    boards = Boards(
        {
            "board_colours": Board(
                "Colours: leaderboard (percent)",
                (
                    MODE,
                    *(number_column(task, task.title(), "percent", across=True) for task in TASKS),
                    number_column("mean", "Mean", "percent"),
                ),
                [BoardPart({**{t: task_number(t) for t in TASKS}, "mean": group_number(OVERALL, metric="average")})],
                rank_by=best_of("mean"),
                charts=[LineChart("Colours: both", "Two temperatures", {task: task for task in TASKS}, scale=100)],
            )
        }
    )
    published_scores = PublishedScoreFormat(
        columns=("hot",),
        scores_of_row=lambda row: [(row["model"], task_number("warm"), row["hot"])],
        several_rows=False,
    )

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        return [Task(self.name, task, ("right",), 2) for task in TASKS]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        return made_samples(task)

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        return Prompt(before="", document=sample.context, after=sample.question, max_new_tokens=4)  # type: ignore[call-arg]

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        return [Score("right", float(output in sample.references))]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        made = task_score("right", rows, "right", 2)
        return [replace(one, official=round(one.score, 4)) for one in made]

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        heads = [found["right"] for found in numbers_by_task(self.aggregate, tasks).values()]
        mean = Average.of(heads, complete=len(heads) == len(TASKS))
        if mean is None:
            return []
        return [replace(mean.to_group_number(OVERALL, "all"), official=mean.score)]


def main(folder: Path) -> None:
    """What the rooms make of the family, of files below a folder."""
    registry.BENCHMARKS = registry._Benchmarks(*registry.BENCHMARKS.values(), Colours())
    from lbx.exchange.exporting import export
    from lbx.report import page
    from lbx.report.format.table_cells import sheet
    from lbx.report.query import ReportQuery
    from lbx.report.reports import REPORTS, read_report
    from lbx.report.rows.paper import sheets
    from lbx.results import Store
    from tests.report.made_runs import add_run

    answers = [
        (sample, "red" if at < right else "blue")
        for task, right in zip(TASKS, (3, 2), strict=True)
        for at, sample in enumerate(made_samples(task))
    ]
    others = folder / "others.csv"
    others.write_text("benchmark,model,hot\ncolours,Somebody,0.5\n", "utf-8")
    with Store(folder / "r.duckdb") as store:
        add_run(store, "mine", answers, model="M")
    with Store(folder / "r.duckdb", read_only=True) as store:
        wanted = ReportQuery(references=[others], with_published_models=True)
        board = sheet(REPORTS["board_colours"], read_report(store, "board_colours", wanted))
        (paper,) = sheets(read_report(store, "paper", wanted))
        html = "".join(page.pieces(store, wanted))
        export(store, "colours", "mine", folder / "out")
    print(json.dumps({
        "board": [list(row) for row in board.rows],
        "paper": [paper.title, [list(row) for row in paper.rows]],
        "page": ["Colours: leaderboard" in html, "Colours: both" in html],
        "files": sorted(file.relative_to(folder / "out").as_posix() for file in (folder / "out").rglob("*.jsonl")),
    }))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
