"""RULER (NVIDIA, 2024): needles, variable tracking, word counts and questions at any length.

Source: https://github.com/NVIDIA/RULER/tree/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a, the paper arXiv:2404.06654. The
samples depend on the model's tokenizer. lbx makes the samples of the authors' ``prepare.py --tokenizer_type hf``. The
name of a task is the authors' name and a length in tokens, "vt_32768". A prompt is a sample followed by an answer
prefix, which the answer continues:

    {"index": 0, "input": "...", "outputs": ["ABCDE"], "length": 4062, "answer_prefix": " Answer: ..."}

The tables show models by length as in RULER's README, tasks by length, and published scores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.columns import Column, number_column
from lbx.base.errors import UsageError
from lbx.base.number import OVERALL, Number, NumberKey, group_number
from lbx.base.records import (
    Chunk,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    Task,
    Truncation,
)
from lbx.benchmarks.base.benchmark import (
    AskingProtocol,
    Benchmark,
    ScoringRules,
    TaskCatalogue,
    UnloadedModel,
    no_model_error,
)
from lbx.benchmarks.base.paper_tables import (
    MODE,
    Board,
    BoardEntry,
    BoardPart,
    Boards,
    LineChart,
    Paper,
    PublishedScoreFormat,
    TableCell,
    cell_by_grouping,
    first_value,
)
from lbx.benchmarks.ruler.aggregates import (
    AVERAGE,
    EFFECTIVE,
    FALLING,
    LABELS,
    RISING,
    aggregate,
    cluster_of,
    effective_length,
    groups,
    headline,
    length_label,
    metrics_of,
    score,
)
from lbx.benchmarks.ruler.results import PREDICTIONS, RESULTS, split_names
from lbx.benchmarks.ruler.samples import SampleSet, required_files
from lbx.benchmarks.ruler.tasks import (
    CONSTANTS,
    DATA,
    LENGTHS,
    LONGEST,
    STANDARD_TASKS,
    TASKS,
    RulerSettings,
    is_task,
    split_task,
    task_texts,
)
from lbx.options.asking import CARD_TEMPLATE, PLAIN, Mode

LENGTH_MEANS = {length: group_number("length", LABELS[length], metric=AVERAGE) for length in LENGTHS}
HEADINGS = {AVERAGE: "Avg", RISING: "wAvg (inc)", FALLING: "wAvg (dec)", EFFECTIVE: "effective (k)"}
_OVERALL = {metric: group_number(OVERALL, metric=metric) for metric in HEADINGS}

PUBLISHED = PublishedScoreFormat(
    means=[(_OVERALL[AVERAGE], dict.fromkeys(LENGTH_MEANS.values(), 1))],
    lengths=LENGTH_MEANS,
)
"""Checks of published scores. Columns of lbx/benchmarks/published/ruler.csv are lines of the report ``paper``."""


def _table_cell(key: NumberKey) -> TableCell | None:
    if key.grouping == "length":
        return TableCell("lengths", "", key.group)
    if key.grouping == OVERALL and key.metric in HEADINGS:
        return TableCell("lengths", "", HEADINGS[key.metric])
    task = next(split_names([key.task]), None)
    if key.grouping or task is None:  # foreign files may have others
        return cell_by_grouping(key)
    return TableCell("tasks", task.base, length_label(task.length))


PAPER = Paper(
    {"lengths": "RULER: mean of the 13 tasks by length", "tasks": "RULER: tasks by length"},
    _table_cell,
    averages=(("lengths", ""),),
)


def _effective(entry: BoardEntry) -> str | None:
    """Format the effective length by the official averages of an entry, as in the README: "<4k", "32k", ">128k"."""
    averages = {
        length: entry.numbers[key]
        for length, key in LENGTH_MEANS.items()
        if key in entry.numbers and key not in entry.unofficial
    }
    if not averages:
        return None
    longest = effective_length(averages)
    if longest == LENGTHS[-1]:
        return f">{LABELS[longest]}"
    return LABELS.get(longest) or f"<{LABELS[LENGTHS[0]]}"


def _claimed_length(entry: BoardEntry) -> object:
    return entry.fact("context") or entry.window


_COLUMNS: Sequence[Column] = (
    MODE,
    Column("claimed", "claimed", value=first_value(_claimed_length), optional=True, rank=2),
    Column("effective", "effective", value=first_value(_effective), optional=True),
    *(number_column(label, label, across=True) for label in LABELS.values()),
    *(number_column(metric, HEADINGS[metric]) for metric in (AVERAGE, RISING, FALLING)),
)

BOARDS = Boards(
    {
        "board_ruler": Board(
            "RULER: mean of the 13 tasks by length (percent)",
            _COLUMNS,
            [
                BoardPart(
                    {LABELS[length]: key for length, key in LENGTH_MEANS.items()}
                    | {metric: _OVERALL[metric] for metric in (AVERAGE, RISING, FALLING)}
                )
            ],
            order_number=_OVERALL[AVERAGE],
            charts=[
                LineChart(
                    "RULER: mean of the 13 tasks by length, percent",
                    "Six lengths",
                    {label: label for label in LABELS.values()},
                )
            ],
            note="Published models (*) answered samples of older generators (2024), which differ from a run's.",
        )
    }
)


def _check_mode(task: str, mode: Mode) -> None:
    if mode.thinking and mode.template != CARD_TEMPLATE:
        raise UsageError(
            f"Reasoning needs the model's chat template, but ruler/{task} sends bare text.",
            fix=f"Pass --prompt-template {CARD_TEMPLATE}, or remove the option.",
        )


class Ruler(Benchmark):
    """RULER for one model, or without a model, and then without samples."""

    name = "ruler"
    metric_version = 1
    data = DATA
    catalogue = TaskCatalogue(
        STANDARD_TASKS,
        accepts=is_task,
        open_tasks=(),
        length_groups={task: split_task(task)[0] for task in STANDARD_TASKS},
    )
    protocol = AskingProtocol(frozenset({"template"}), check_mode=_check_mode)
    scoring = ScoringRules(
        average_of="mean of lengths", cluster_name="question", is_of_any_tasks=lambda key: key.metric == EFFECTIVE
    )
    predictions = PREDICTIONS
    results = RESULTS
    paper = PAPER
    boards = BOARDS
    published_scores = PUBLISHED

    def __init__(self, model: UnloadedModel | None = None, mode: Mode = PLAIN) -> None:
        self._model = model
        self._mode = mode
        self._sample_set: SampleSet | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the tokenizer out of the pickled state, because each process loads it."""
        return {**self.__dict__, "_sample_set": None}

    def for_model(self, model: UnloadedModel, mode: Mode) -> Ruler:
        return Ruler(model, mode)

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return the tasks at the named or the standard lengths with all files in the bundle.

        Lengths beyond the model's context window are left out.

        Raises:
            UsageError: tasks are named, and all of them are longer than the window.
        """
        longest = LONGEST if self._window is None else self._window - self._mode.thinking_tokens
        fitting = [name for name in (STANDARD_TASKS if names is None else names) if split_task(name)[1] <= longest]
        if names and not fitting:
            raise self._short_window_error(names)
        samples = RulerSettings.from_bundle(bundle).samples if fitting else 0
        available = {
            task for task in TASKS if all(bundle.file(file) is not None for file in required_files(bundle, task))
        }
        return [
            Task(self.name, name, metrics_of(name), samples) for name in fitting if split_task(name)[0] in available
        ]

    @property
    def _window(self) -> int | None:
        return self._model.context_window if self._model else None

    def _short_window_error(self, names: Collection[str]) -> UsageError:
        window, reasoning = self._window or 0, self._mode.thinking_tokens
        longest = window - reasoning
        tasks = f"ruler/{next(iter(names))} does" if len(names) == 1 else "These tasks of RULER do"
        share = f", {reasoning:,} of them for reasoning" if reasoning else ""
        advice = f"Choose a length of at most {longest:,}, e.g. --tasks ruler/vt_{longest}"
        if longest <= 0:
            advice = "Give a smaller --thinking-tokens"
        return UsageError(
            f"{tasks} not fit into the model's context window of {window:,} tokens{share}.",
            fix=f"{advice}, or use a model or a card with a larger context window. Prompts of RULER are never cut.",
        )

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield the authors' samples for the model's tokenizer.

        Raises:
            UsageError: there is no model, no sample fits into the length, or there are too few questions.
            BundleError: the bundle lacks a file, or a file is damaged.
        """
        if self._model is None:
            raise no_model_error(self.name)
        return self._open_set(bundle, self._model).samples(self.name, task)

    def _open_set(self, bundle: Bundle, model: UnloadedModel) -> SampleSet:
        if self._sample_set is None or self._sample_set.bundle.root != bundle.root:
            loaded = model.load_tokenizer()
            self._sample_set = SampleSet(
                bundle=bundle,
                settings=RulerSettings.from_bundle(bundle),
                tokenizer_sha256=loaded.sha256,
                count=loaded.count,
                adds_bos=bool(loaded.tokenizer.prefix_ids),
                template=self._mode.template,
                wrapping_tokens=loaded.wrapping_tokens,
            )
        return self._sample_set

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Prompt of the sample and the answer prefix. A model that reasons gets no prefix."""
        task, _ = split_task(sample.task)
        budget = task_texts(bundle, task).answer_tokens
        if (
            sample.length == mode.context_window
            and not mode.thinking
            and (self._model is None or self._open_set(bundle, self._model).adds_bos)
        ):
            budget -= 1  # the length excludes BOS
        return Prompt(
            before="",
            document=sample.context,
            after="",
            answer_prefix="" if mode.thinking else str(sample.meta["answer_prefix"]),
            max_new_tokens=budget,
            truncation=Truncation.REFUSE,
            chat=mode.template == CARD_TEMPLATE,
            reads_control_tokens=mode.template not in ("", CARD_TEMPLATE),
            source=f"data/files/{CONSTANTS}",
        )

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        return score(sample, output)

    def cluster(self, sample: Sample, document: str) -> str:
        """Cluster of a sample: a question of qa, which recurs at every length, or the sample itself."""
        return cluster_of(sample)

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        return aggregate(task, rows)

    def headline(self, task: str, rows: Sequence[ScoredSample]) -> Number | None:
        return headline(task, rows)

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        return groups(tasks, averages_only=averages_only)
