r"""OpenAI GraphWalks (2025): graphs of up to 1 million tokens, and a set of nodes that an operation returns.

Source: the dataset's card, with the code that reads and grades answers,
https://huggingface.co/datasets/openai/graphwalks/blob/f338bb265735a56a79f4b0f5def722c9c3268ead/README.md (MIT). The
prompts are in the rows of two parquet files, one for short graphs and one for long ones:

    {"prompt": "You will be given a graph as a list of directed edges. ...\n\nOperation:\nFind the parents of node ...",
     "answer_nodes": ["1679091c5a", "c9f0f895fb"], "prompt_chars": 2638, "problem_type": "parents",
     "date_added": "02-27-2026"}

A task is an operation on short or long graphs: bfs (nodes at a depth of a breadth-first search) or parents.

The card's code makes two mistakes. It keeps "Final Answer: [" in front of the first node, so this node is never right.
And it gives 1 instead of 0 to an answer without a right node, or not in the required format. ``f1`` corrects both, like
other programs that run this benchmark. ``f1_card`` is the card's code to the letter.

The table shows operations by length of the graph.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from lbx.base.bundle_folder import Bundle
from lbx.base.columns import Column, number_column
from lbx.base.number import OVERALL, Number, NumberKey, group_number, task_number
from lbx.base.records import (
    Chunk,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    Task,
    Truncation,
    sha256_text,
)
from lbx.benchmarks.base.aggregates import Average, task_score
from lbx.benchmarks.base.benchmark import Benchmark, TaskCatalogue, with_unique_ids
from lbx.benchmarks.base.data_files import DataRow, cached_by_mtime, damaged_file_error
from lbx.benchmarks.base.paper_tables import MODE, Board, BoardPart, Boards, LineChart, Paper, TableCell
from lbx.benchmarks.base.sources import DataSource, Parquet
from lbx.options.asking import PLAIN, Mode

OPERATIONS = ("bfs", "parents")
LEVELS = {"128k": "graphwalks_128k_and_shorter.parquet", "1m": "graphwalks_256k_to_1mil.parquet"}
"""{level in the name of a task: file}. The levels are in tokens, as the authors count them."""

TASKS = tuple(f"{operation}_{level}" for level in LEVELS for operation in OPERATIONS)
_HEADINGS = {"128k": "128k and shorter", "1m": "256k to 1M"}
_ALL = "all"


def split_task(task: str) -> tuple[str, str]:
    """Split a task into operation and level: ("bfs", "128k") for "bfs_128k"."""
    operation, _, level = task.partition("_")
    return operation, level


def _table_cell(key: NumberKey) -> TableCell | None:
    if not key.grouping:
        operation, level = split_task(key.name)
        return TableCell("operations", operation, level)
    if key.grouping == "operation":
        return TableCell("operations", key.name, "average")
    return TableCell("operations", _ALL, "average" if key.grouping == OVERALL else key.name)


PAPER = Paper({"operations": "OpenAI GraphWalks: operations by length"}, _table_cell, averages=(("operations", _ALL),))

_OVERALL = group_number(OVERALL, metric="average")


def _part(name: str, average: NumberKey, levels: dict[str, NumberKey]) -> BoardPart:
    return BoardPart({"average": average, **levels}, texts={"operation": name})


BOARDS = Boards(
    {
        "board_graphwalks": Board(
            "OpenAI GraphWalks: F1 by operation and length in tokens (percent)",
            (
                MODE,
                number_column("average", "Average"),
                *(number_column(level, _HEADINGS[level], across=True) for level in LEVELS),
            ),
            [
                _part(_ALL, _OVERALL, {level: group_number("length", level, metric="average") for level in LEVELS}),
                *(
                    _part(
                        name,
                        group_number("operation", name, metric="average"),
                        {level: task_number(f"{name}_{level}") for level in LEVELS},
                    )
                    for name in OPERATIONS
                ),
            ],
            leading_columns=(Column("operation", "operation"),),
            order_number=_OVERALL,
            charts=[
                LineChart("OpenAI GraphWalks: {}, percent, by length", "Two lengths", _HEADINGS, split_by="operation")
            ],
            small_charts=True,
        )
    }
)


REPO = "openai/graphwalks"
DATA = DataSource("bundle/graphwalks.toml", (REPO,), licences="MIT", real_rows="no")
METRICS = ("f1", "f1_card", "answered")

_QUESTION = "Operation:\n"
"""Beginning of the question, which follows the graph. The examples before the graph contain it, too."""

_PREFIX = re.compile(r"Final Answer: ?(?=\[)")
_NEW_TOKENS, _NEW_TOKENS_PER_NODE = 4096, 12
"""Tokens of an answer, and per node. The card sets no limit. An answer lists up to 7,000 nodes of ten digits."""

_ID_LENGTH = 16


class GraphWalks(Benchmark):
    name = "graphwalks"
    metric_version = 1
    data = DATA
    catalogue = TaskCatalogue(TASKS, open_tasks=(), length_groups={task: split_task(task)[0] for task in TASKS})
    paper = PAPER
    boards = BOARDS

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        counts = {}
        for task in TASKS:
            if (names is None or task in names) and (path := _data(bundle, task)):
                counts[task] = _count_operations(path)[split_task(task)[0]]
        return [Task(self.name, task, METRICS, count) for task, count in counts.items() if count]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield a task's samples. An id is a hash of the prompt, so it stays when other rows are replaced."""
        path = _data(bundle, task)
        if path is None:
            raise self.data.missing_data_error(bundle, f"{REPO}, {task}")
        rows = (row for row in Parquet((path,)).rows() if _operation(row) == split_task(task)[0])
        yield from with_unique_ids(_sample(task, row) for row in rows)

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Prompt of the row, which is never cut. Decoding is greedy, because the card sets no sampling."""
        return Prompt(
            before="",
            document=sample.context,
            after=sample.question,
            max_new_tokens=_NEW_TOKENS + _NEW_TOKENS_PER_NODE * len(sample.references),
            truncation=Truncation.REFUSE,
            source=REPO,
        )

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score an output by F1 of the sets of nodes, by the card's code, and by whether the format is right."""
        nodes, truth = read_nodes(output), set(sample.references)
        extracted = "" if nodes is None else ", ".join(nodes)
        f1 = 0.0 if nodes is None else _f1(set(nodes), truth, without_overlap=float(not nodes and not truth))
        f1_card = _f1(set(_split_nodes(_find_answer(output) or "")), truth, without_overlap=1.0)
        values = zip(METRICS, (f1, f1_card, float(nodes is not None)), strict=True)
        return [Score(metric, value, extracted) for metric, value in values]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        """Average F1, in percent with one decimal as OpenAI publishes it, and the other metrics."""
        return [
            score for metric in METRICS for score in task_score(metric, rows, metric, 1 if metric == "f1" else None)
        ]

    def headline(self, task: str, rows: Sequence[ScoredSample]) -> Number | None:
        return next(iter(task_score("f1", rows, "f1", 1)), None)

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Average the tasks overall, by operation and by length. These are lbx's averages, official if complete."""
        scores = {task: score for task, rows in tasks.items() if (score := self.headline(task, rows))}
        members = {("overall", "all"): TASKS}
        for grouping, names, part in (("operation", OPERATIONS, 0), ("length", tuple(LEVELS), 1)):
            for name in () if averages_only else names:
                members[grouping, name] = tuple(task for task in TASKS if split_task(task)[part] == name)
        groups = []
        for group, names in members.items():
            found = [scores[task] for task in names if task in scores]
            if average := Average.of(found, complete=len(found) == len(names)):
                groups.append(average.to_group_number(*group))
        return groups


def read_nodes(response: str) -> list[str] | None:
    """Parse the nodes in the last line of a response, "Final Answer: [a, b]", or return None for another format."""
    answer = _find_answer(response)
    return None if answer is None else _split_nodes(_PREFIX.sub("", answer, count=1))


def _find_answer(response: str) -> str | None:
    r"""Match the card's "Final Answer: ?\[.*\]" in the last line, in time proportional to the line's length."""
    line = response.rpartition("\n")[2]
    start, end = _PREFIX.search(line), line.rfind("]")
    return line[start.start() : end + 1] if start and end >= start.end() else None


def _split_nodes(text: str) -> list[str]:
    return [node.strip() for node in text.strip("[]").split(",") if node.strip()]


def _f1(nodes: set[str], truth: set[str], *, without_overlap: float) -> float:
    overlap = len(nodes & truth)
    if not overlap:
        return without_overlap
    recall, precision = overlap / len(truth), overlap / len(nodes)
    return 2 * (recall * precision) / (recall + precision)


def _data(bundle: Bundle, task: str) -> Path | None:
    folder = DATA.folder(bundle)
    path = folder / LEVELS[split_task(task)[1]] if folder else None
    return path if path and path.is_file() else None


@cached_by_mtime
def _count_operations(path: Path) -> Counter[str]:
    return Counter(_operation(row) for row in Parquet((path,)).rows())


def _operation(row: DataRow) -> str:
    operation = row.get("problem_type", str)
    if operation not in OPERATIONS:
        raise damaged_file_error(row.location, f"the field 'problem_type' is {operation!r}, not bfs or parents")
    return operation


def _sample(task: str, row: DataRow) -> Sample:
    prompt, nodes = row.get("prompt", str), row.get("answer_nodes", list)
    if not all(isinstance(node, str) for node in nodes):
        raise damaged_file_error(row.location, "the field 'answer_nodes' is not a list of texts")
    context = prompt.rpartition(_QUESTION)[0] or prompt
    return Sample(
        benchmark=GraphWalks.name,
        task=task,
        sample_id=sha256_text(prompt)[:_ID_LENGTH],
        context=context,
        question=prompt.removeprefix(context),
        references=tuple(nodes),
        length=len(context),
        length_unit="characters",
    )
