"""OpenAI MRCR (2025): conversations of 4 thousand to 1 million tokens, and a request to repeat one of the answers.

Source: the dataset's card, with the code that asks and grades,
https://huggingface.co/datasets/openai/mrcr/blob/f4c69fae7cf81f7ca26b9fee34b392a50f6b8a1d/README.md (MIT). The prompts
are messages in the rows of parquet files, 2needle/2needle_0.parquet and so on:

    {"prompt": "[{"role": "user", "content": "Here are some examples of ..."},
                 {"role": "user", "content": "write a poem about tapirs"},
                 {"role": "assistant", "content": "..."}, ...,
                 {"role": "user", "content": "Prepend aYooSG8CQg to the 2nd (1 indexed) poem about ..."}]",
     "answer": "aYooSG8CQg...", "random_string_to_prepend": "aYooSG8CQg", "n_needles": 2, "desired_msg_index": 5,
     "total_messages": 60, "n_chars": 37000, "date_added": "04-12-2025"}

A task is a number of needles, which are equal requests in a conversation. The first two messages are both the user's:
examples, and the first request. lbx joins them into one message with a blank line, because many chat templates refuse
two messages of the same role in a row. The card's code sends them separately.

The card groups rows by tokens of GPT-4o's tokenizer. Here they are grouped by characters, with about the same limits.

The table shows the number of needles by length of the conversation.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from cydifflib import SequenceMatcher  # type: ignore[import-untyped]

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
from lbx.benchmarks.base.aggregates import Average, ScoredRows, numbers_by_task, task_score
from lbx.benchmarks.base.benchmark import Benchmark, TaskCatalogue, with_unique_ids
from lbx.benchmarks.base.data_files import DataRow, damaged_file_error
from lbx.benchmarks.base.paper_tables import MODE, Board, BoardPart, Boards, LineChart, Paper, TableCell
from lbx.benchmarks.base.sources import DataSource, Parquet
from lbx.options.asking import PLAIN, Mode

TASKS = ("2needle", "4needle", "8needle")
_STARTS = (0, *(40_000 * 2**step for step in range(7)))
LENGTHS = {
    **{f"{least // 1000}-{end // 1000}k": range(least, end) for least, end in pairwise(_STARTS)},
    f"{_STARTS[-1] // 1000}k+": range(_STARTS[-1], sys.maxsize),
}
"""{name of a group: lengths in characters}.

The card defines eight groups from 4,096 to 1,048,576 tokens of GPT-4o, each twice as long as the one before. A token of
these texts is almost five characters long.
"""

_ALL = "all"


def _table_cell(key: NumberKey) -> TableCell | None:
    column = "average"
    if key.grouping:
        return TableCell("needles", _ALL, column if key.grouping == OVERALL else key.name)
    return TableCell("needles", key.name, key.metric or column)


PAPER = Paper({"needles": "OpenAI MRCR: needles by length in characters"}, _table_cell, averages=(("needles", _ALL),))


def _part(name: str, average: NumberKey, lengths: dict[str, NumberKey]) -> BoardPart:
    return BoardPart({"average": average, **lengths}, texts={"needles": name})


_COLUMNS = {name: name for name in LENGTHS}
_OVERALL = group_number(OVERALL, metric="average")

BOARDS = Boards(
    {
        "board_mrcr": Board(
            "OpenAI MRCR: by needles and length in characters (percent)",
            (MODE, number_column("average", "Average"), *(number_column(name, name, across=True) for name in LENGTHS)),
            [
                _part(_ALL, _OVERALL, {name: group_number("characters", name, metric="average") for name in LENGTHS}),
                *(
                    _part(task, task_number(task), {name: task_number(task, name) for name in LENGTHS})
                    for task in TASKS
                ),
            ],
            leading_columns=(Column("needles", "needles"),),
            order_number=_OVERALL,
            charts=[LineChart("OpenAI MRCR: {}, percent, by length", "Eight lengths", _COLUMNS, split_by="needles")],
            small_charts=True,
        )
    }
)


REPO = "openai/mrcr"
DATA = DataSource("bundle/mrcr.toml", (REPO,), licences="MIT", real_rows="no")
METRICS = ("ratio", "prefix")

_NEW_TOKENS = 4096
"""Tokens of an answer. The card sets no limit. Answers are texts by GPT-4o of up to about two thousand tokens."""

_ROLES = {"user": "u", "assistant": "a"}
_CONVERSATION = re.compile("u+(au)+")
"""Pattern of the messages' roles: messages of the user, then assistant and user in turn."""

_LABELS = ("User: ", "Assistant: ")
_GAP = "\n\n"
_ID_LENGTH = 16


class Mrcr(Benchmark):
    name = "mrcr"
    metric_version = 1
    data = DATA
    catalogue = TaskCatalogue(TASKS, open_tasks=())
    paper = PAPER
    boards = BOARDS

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        sources = {task: source for task in TASKS if (source := _data(bundle, task))}
        return [Task(self.name, task, METRICS, source.count()) for task, source in sources.items()]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield a task's samples. An id is a hash of the prompt, so it stays when other rows are replaced."""
        source = _data(bundle, task)
        if source is None:
            raise self.data.missing_data_error(bundle, f"{REPO}, {task}")
        yield from with_unique_ids(_sample(task, row) for row in source.rows())

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Prompt of the conversation, which is never cut. Decoding is greedy, because the card sets no sampling."""
        first, *others = _messages(sample)
        return Prompt(
            before="",
            document=first,
            after="",
            turns=(*others, sample.question),
            max_new_tokens=_NEW_TOKENS,
            truncation=Truncation.REFUSE,
            source=REPO,
        )

    def evidence(self, sample: Sample) -> Sequence[str]:
        """Text that the model has to repeat."""
        return [answer.removeprefix(sample.meta["prefix"]) for answer in sample.references]

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score an output by similarity to the answer, 0 without the random prefix, and by whether the prefix is there.

        The card's text says that answers are stripped, but the card's code does not strip them. lbx follows the code.
        """
        prefix = sample.meta["prefix"]
        ratio = max((grade(output, answer, prefix) for answer in sample.references), default=0.0)
        return [Score("ratio", ratio), Score("prefix", float(output.startswith(prefix)))]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        """Average the ratio overall and by length, in percent with one decimal as OpenAI publishes it, then prefix."""
        columns = ScoredRows.of(rows)
        by_length = [
            score
            for name, lengths in LENGTHS.items()
            for score in task_score(f"ratio/{name}", _with_length(columns, lengths), "ratio", 1)
        ]
        return [*task_score("ratio", rows, "ratio", 1), *by_length, *task_score("prefix", rows, "prefix", None)]

    def headline(self, task: str, rows: Sequence[ScoredSample]) -> Number | None:
        return next(iter(task_score("ratio", rows, "ratio", 1)), None)

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Average the tasks overall and by length in characters. The averages are those of lbx."""
        numbers = numbers_by_task(self.aggregate, tasks)
        parts = {("overall", "all"): "ratio"}
        if not averages_only:
            parts |= {("characters", name): f"ratio/{name}" for name in LENGTHS}
        scores = {
            part: [found[metric] for found in numbers.values() if metric in found] for part, metric in parts.items()
        }
        averages = {part: Average.of(found, complete=len(found) == len(TASKS)) for part, found in scores.items()}
        return [average.to_group_number(*part) for part, average in averages.items() if average]


def grade(response: str, answer: str, prefix: str) -> float:
    """Similarity of response and answer after the prefix, or 0 if the response does not start with the prefix."""
    if not response.startswith(prefix):
        return 0.0
    return float(SequenceMatcher(None, response.removeprefix(prefix), answer.removeprefix(prefix)).ratio())


def _with_length(rows: ScoredRows, lengths: range) -> ScoredRows:
    return rows.filter(lambda row: row.sample.length in lengths)


def _data(bundle: Bundle, task: str) -> Parquet | None:
    """Find the shards of a task, or the only file in the dataset's first release."""
    folder = DATA.folder(bundle)
    if folder is None:
        return None
    shards = sorted(folder.glob(f"{task}/*.parquet")) or sorted(folder.glob(f"{task}.parquet"))
    return Parquet(tuple(shards)) if shards else None


def _sample(task: str, row: DataRow) -> Sample:
    text, answer, prefix = (row.get(name, str) for name in ("prompt", "answer", "random_string_to_prepend"))
    if not prefix or not answer.startswith(prefix):
        raise damaged_file_error(row.location, "the answer does not start with random_string_to_prepend")
    *messages, question = _read_messages(row.location, text)
    labelled = (_LABELS[number % 2] + message for number, message in enumerate(messages))
    return Sample(
        benchmark=Mrcr.name,
        task=task,
        sample_id=sha256_text(text)[:_ID_LENGTH],
        context=_GAP.join(labelled),
        question=question,
        references=(answer,),
        length=sum(map(len, (*messages, question))),
        length_unit="characters",
        meta={"prefix": prefix, "message_lengths": [len(message) for message in messages]},
    )


def _read_messages(location: str, text: str) -> list[str]:
    """Parse the messages of a conversation, with the first messages of the user joined. Raises BundleError."""
    try:
        messages: Any = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise damaged_file_error(location, f"the field 'prompt' is not JSON ({exc})") from exc
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise damaged_file_error(location, "the field 'prompt' is not a list of messages")
    fields = [(message.get("role"), message.get("content")) for message in messages]
    roles = "".join(_ROLES.get(str(role), "?") if isinstance(content, str) else "?" for role, content in fields)
    if not _CONVERSATION.fullmatch(roles):
        reason = "the messages of 'prompt' must be the user's and the assistant's in turn, and end with the user's"
        raise damaged_file_error(location, reason)
    first = roles.index("a")
    return [_GAP.join(content for _, content in fields[:first]), *(content for _, content in fields[first:])]


def _messages(sample: Sample) -> list[str]:
    """Split a sample's conversation into the messages before the question."""
    messages, at = [], 0
    for number, length in enumerate(sample.meta["message_lengths"]):
        at += len(_LABELS[number % 2])
        messages.append(sample.context[at : at + length])
        at += length + len(_GAP)
    return messages
