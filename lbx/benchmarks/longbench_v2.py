"""LongBench v2 (THUDM, 2024): 503 multiple-choice questions on documents of 8 thousand to 2 million words.

Source: https://github.com/THUDM/LongBench/tree/2e00731f8d0bff23dc4325161044d0ed8af94c1e (pred.py, result.py); data
and prompt come from the bundle. One object of data.json's array:

    {"_id": "66ec...", "domain": "Multi-Document QA", "sub_domain": "Legal", "difficulty": "hard", "length": "short",
     "question": "...", "choice_A": "...", ..., "choice_D": "...", "answer": "C", "context": "..."}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lbx.benchmarks.aggregates import mean
from lbx.benchmarks.base import Benchmark, ScoredSample
from lbx.benchmarks.files import Row, read_text
from lbx.benchmarks.sources import Source, find_json_array
from lbx.benchmarks.templates import fill_marks
from lbx.errors import BundleError
from lbx.layout import Bundle
from lbx.metrics.multiple_choice import chosen_letter
from lbx.records import PLAIN, Chunk, Mode, Prompt, Sample, Score, Task, TaskScore, Truncation

REPO = "THUDM/LongBench-v2"
PROMPT = "THUDM/LongBench/prompts/0shot.txt"
TASK = "mcq"
LETTERS = ("A", "B", "C", "D")

_GROUPS: dict[str, Callable[[Sample], bool]] = {
    # As result.py sorts them: what is not easy is hard, what is neither short nor medium is long.
    "easy": lambda sample: sample.meta["difficulty"] == "easy",
    "hard": lambda sample: sample.meta["difficulty"] != "easy",
    "short": lambda sample: sample.meta["length"] == "short",
    "medium": lambda sample: sample.meta["length"] == "medium",
    "long": lambda sample: sample.meta["length"] not in ("short", "medium"),
}


class LongBenchV2(Benchmark):
    """The benchmark family "longbench_v2": one task, asked without a chain of thought."""

    name = "longbench_v2"
    metric_version = 1
    known_tasks = (TASK,)

    def tasks(self, bundle: Bundle) -> list[Task]:
        """The one task, where data.json is there."""
        source = _data(bundle)
        if source is None:
            return []
        return [Task(self.name, TASK, ("accuracy", "compensated", "empty"), source.count())]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """See ``Benchmark.samples``. ``length`` counts characters; the paper's bucket is ``meta["length"]``."""
        source = _data(bundle)
        if source is None:
            raise BundleError(f"The bundle at {bundle.root} does not hold {REPO}, data.json.")
        return (_sample(task, row) for row in source.rows())

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """0shot.txt with every field stripped."""
        path = bundle.file(PROMPT)
        if path is None:
            raise BundleError(
                f"The bundle at {bundle.root} has no data/files/{PROMPT}, the official prompt of LongBench v2.",
                fix="Bundle it with the data.",
                command="lbx bundle bundle/longbench_v2.toml",
            )
        marks = {"$Q$": sample.question.strip()}
        marks |= {f"$C_{letter}$": sample.meta["choices"][letter].strip() for letter in LETTERS}
        before, document, after = fill_marks(read_text(path), ("$DOC$", sample.context.strip()), marks)
        return Prompt(
            before=before,
            document=document,
            after=after,
            max_new_tokens=128,
            truncation=Truncation.MIDDLE_FLOOR,
            temperature=0.1,
            limits={131072: 120000},
            source=PROMPT,
        )

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """accuracy; compensated, where no letter at all counts a quarter; empty, whether nothing was said.

        The official run drops a question with an empty output: it scores 0 here and is left out by ``aggregate``.
        """
        letter = chosen_letter(output)
        right = float(letter in sample.references)
        return [
            Score("accuracy", right, letter),
            Score("compensated", 0.25 if letter is None else right, letter),
            Score("empty", float(output == "")),
        ]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        """result.py's row, percent with one decimal: accuracy, accuracy/easy, ... /long, then the same compensated.

        Empty outputs are no part of these; ``accuracy_all`` is over every row, empty ones wrong, and ``empty`` is
        their share. A group without questions, over which the official script stumbles, is left out.
        """
        said = [row for row in rows if not row.scores.get("empty")]
        found = []
        for metric in ("accuracy", "compensated"):
            found += _task_score(metric, said, metric)
            for group, belongs in _GROUPS.items():
                found += _task_score(f"{metric}/{group}", [row for row in said if belongs(row.sample)], metric)
        return found + _task_score("accuracy_all", rows, "accuracy") + _task_score("empty", rows, "empty")


def _task_score(name: str, rows: Sequence[ScoredSample], metric: str) -> list[TaskScore]:
    values = [row.scores[metric] for row in rows if metric in row.scores]
    if not values:
        return []
    return [TaskScore(name, len(values), mean(values), round(mean(values, 100), 1))]


def _data(bundle: Bundle) -> Source | None:
    return find_json_array(bundle.snapshot("dataset", REPO), "data.json", key="_id", config="default")


def _sample(task: str, row: Row) -> Sample:
    context = row.get("context", str)
    return Sample(
        benchmark=LongBenchV2.name,
        task=task,
        sample_id=row.get("_id", str),
        context=context,
        question=row.get("question", str),
        references=(row.get("answer", str),),
        length=len(context),
        length_unit="characters",
        meta={
            **{name: row.get(name, str) for name in ("difficulty", "length", "domain", "sub_domain")},
            "choices": {letter: row.get(f"choice_{letter}", str) for letter in LETTERS},
        },
    )
