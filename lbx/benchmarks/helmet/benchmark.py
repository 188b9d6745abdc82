"""HELMET (Princeton, 2024): seven categories of long-context tasks, from recall to summaries, at 8k to 128k tokens.

Source: https://github.com/princeton-nlp/HELMET/tree/4526dfbdc512bd9ff721da336bff4e3e75ecfd27 (data.py, model_utils.py,
eval.py, eval_alce.py, scripts/collect_results.py), the paper arXiv:2410.02694. No real row was seen: the formats are
those that the code reads. A row of kilt/nq-dev-multikilt_1000_k50_dep6.jsonl:

    {"question": "...", "answers": ["..."], "ctxs": [{"title": "...", "text": "..."}], "depth": 0.2}

Recall, RAG, re-ranking and in-context learning send bare text that ends with the beginning of the answer ("Answer:").
The stored answer contains this beginning, which the score counts. The other categories use the model's chat template,
without it, or bare text for models without a template. Chat servers get messages without it in every category.

Long documents are first cut by Llama 2's tokenizer, the same for every model. The model's own tokenizer then cuts the
end of the documents, so that prompt and answer fill the length in the task's name.

Categories average their datasets, and the mean of the seven categories is the average at a length. Citations need an
NLI model, which is missing here, stories and summaries the judge GPT-4o: averages without them are not official. Any
judge rates them by the authors' rubrics (``lbx.benchmarks.helmet.judge``), apart from the averages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import NoDataError
from lbx.base.number import Number
from lbx.base.records import Chunk, Prompt, Sample, Score, ScoredSample, Task
from lbx.benchmarks.base.aggregates import Average, task_score
from lbx.benchmarks.base.benchmark import Benchmark, ScoringRules, TaskCatalogue, with_unique_ids
from lbx.benchmarks.base.predictions import ResultFormat
from lbx.benchmarks.helmet.draws import DrawnRow
from lbx.benchmarks.helmet.files import count_rows, draw_rows
from lbx.benchmarks.helmet.judge import RUBRICS
from lbx.benchmarks.helmet.predictions import HelmetFormat, write_averages
from lbx.benchmarks.helmet.tables import BOARDS, DIGITS, PAPER, PUBLISHED
from lbx.benchmarks.helmet.tasks import (
    CATEGORIES,
    DATA,
    DATASETS,
    LENGTHS,
    NAME,
    SCRIPT,
    SELECTIONS,
    TASKS,
    DatasetSettings,
    dataset_of,
    prompt_limit,
    split_task,
)
from lbx.benchmarks.helmet.texts import Texts
from lbx.benchmarks.metrics import helmet as metrics
from lbx.benchmarks.metrics.f1 import english_tokens, substring_match
from lbx.benchmarks.metrics.loose_match import is_loose_match, matched_choice, named_letters
from lbx.benchmarks.metrics.ruler import string_match_all
from lbx.options.asking import PLAIN, Mode

SERVER_MARGIN = 108
"""Tokens that the authors keep free in prompts for servers: 100, and the words around a message that they count, too.

A prompt that they cut otherwise is thus cut here, too, to so few tokens that its task has no official number.
"""
_ANSWER_LABELS = {"json_kv": "corresponding value:", "icl": "label:", "multi_lexsum": "Summary:"}
"""{kind: text before the extracted answer}, for kinds with another text than "Answer:"."""


class Helmet(Benchmark):
    name = NAME
    metric_version = 1
    data = DATA
    catalogue = TaskCatalogue(
        TASKS,
        selections=SELECTIONS,
        open_tasks=tuple(task for task in TASKS if dataset_of(task).judge_metric),
        length_groups={task: split_task(task)[0] for task in TASKS},
    )
    scoring = ScoringRules(
        average_of="mean of seven categories",
        cluster_name="question",
        prompt_limits={task: prompt_limit(task) for task in TASKS},
        missing_metrics="Citation quality of the alce tasks, which needs an NLI model that is not here.",
    )
    predictions = HelmetFormat(NAME, TASKS)
    results = ResultFormat(write_averages)
    paper = PAPER
    boards = BOARDS
    published_scores = PUBLISHED
    rubrics = RUBRICS

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return the tasks with all files in the bundle. Only files with several rows for a question are parsed."""
        return [
            Task(self.name, task, dataset_of(task).metrics, count)
            for task in TASKS
            if (names is None or task in names) and bundle.file(SCRIPT) and (count := count_rows(bundle, task))
        ]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield the authors' draws of a task."""
        rows = draw_rows(bundle, task)
        texts = self._texts(bundle)
        return with_unique_ids(_sample(task, row, texts) for row in rows)

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Fill in the official prompt: a message in chat categories, or bare text with the beginning of the answer.

        Servers with a template of their own get a message in every category, as in the authors' program.
        """
        dataset = dataset_of(sample.task)
        chat = mode.server_template or (dataset.chat and mode.chat_template)
        values = {**_fields(sample), "context": sample.context, "question": sample.question}
        prompt = self._texts(bundle).prompt(template_of(sample.task), values, chat=chat, new_tokens=dataset.new_tokens)
        window = mode.context_window
        official = prompt_limit(sample.task) - SERVER_MARGIN * mode.server_template
        limit = min(official, window - dataset.new_tokens)
        can_cut = limit > 0 and mode.counted_in != "characters"
        return replace(prompt, limits={window: limit}) if can_cut else prompt

    def next_step(self, bundle: Bundle, sample: Sample, mode: Mode, outputs: Sequence[str]) -> Prompt | str:
        """Put the beginning of the answer before the answer to bare text, as the authors' program does."""
        if mode.server_template or (dataset_of(sample.task).chat and mode.chat_template):
            return outputs[-1]
        values = {**_fields(sample), "question": sample.question}
        return self._texts(bundle).answer_start(template_of(sample.task), values) + outputs[-1]

    def _texts(self, bundle: Bundle) -> Texts:
        return Texts(self.data.official_file(bundle, SCRIPT))

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score an output. Outputs for bare prompts contain the beginning of the answer."""
        dataset = dataset_of(sample.task)
        values, extracted = _scores(dataset, sample, output)
        headline = dataset.metrics[0]
        matched, others = _matched_text(dataset, sample, output), set[str]()
        said = output.removeprefix(str(sample.meta.get("answer_start", "")))
        if dataset.kind == "infbench_choice":
            letter, option = _choice(sample)
            others = named_letters(said, "ABCD", option) - {letter}
        loose = None if matched is None else is_loose_match(values[headline], said, matched, others)
        return [
            Score(metric, values[metric], extracted, loose=loose if metric == headline else None)
            for metric in dataset.metrics
        ]

    def cluster(self, sample: Sample, document: str) -> str:
        """Cluster of a sample: the question, which recurs at several depths, or the document, such as a book."""
        question = sample.meta.get("question_id")
        return f"{split_task(sample.task)[0]}/{question}" if question else document

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        """Average each metric, in percent."""
        return [number for metric in dataset_of(task).metrics for number in task_score(metric, rows, metric, DIGITS)]

    def headline(self, task: str, rows: Sequence[ScoredSample]) -> Number | None:
        metric = dataset_of(task).metrics[0]
        return next(iter(task_score(metric, rows, metric, DIGITS)), None)

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Average the datasets of each category, and the categories, at each length."""
        numbers = {
            task: number
            for task, rows in tasks.items()
            if not dataset_of(task).judge_metric and (number := self.headline(task, rows))
        }
        averages = {label: average_categories(numbers, label) for label in LENGTHS}
        means = {label: mean for label in LENGTHS if (mean := average_lengths(averages[label]))}
        groups = [mean.to_group_number("length", label, digits=DIGITS) for label, mean in means.items()]
        for category in () if averages_only else CATEGORIES:
            for label in LENGTHS:
                if average := averages[label].get(category):
                    groups.append(average.to_group_number(category, label, digits=DIGITS))
        overall = Average.of(list(means.values()), complete=False)
        return [*([overall.to_group_number("overall", "all")] if overall else []), *groups]


def average_categories(numbers: Mapping[str, Number], label: str) -> dict[str, Average]:
    """Average the headlines of each category's datasets at a length.

    An average is complete if no dataset is missing, and no metric of the category needs a model.

    Args:
        numbers: {task: its headline}, or {"task metric": number} of metrics that need a model.
    """
    averages = {}
    for category in CATEGORIES:
        keys = [
            key
            for name, dataset in DATASETS.items()
            if dataset.category == category
            for key in _number_keys(f"{name}_{label}", dataset)
        ]
        found = [numbers[key] for key in keys if key in numbers]
        if average := Average.of(found, complete=len(found) == len(keys)):
            averages[category] = average
    return averages


def _number_keys(task: str, dataset: DatasetSettings) -> list[str]:
    first = f"{task} {dataset.judge_metric}" if dataset.judge_metric else task
    return [first, *(f"{task} {metric}" for metric in dataset.model_metrics)]


def average_lengths(categories: Mapping[str, Average]) -> Average | None:
    """Average the categories at a length, which is complete if all seven are."""
    return Average.of(list(categories.values()), complete=len(categories) == len(CATEGORIES))


def template_of(task: str) -> str:
    """Key of a task's template in ``TEMPLATES``."""
    name, _ = split_task(task)
    kind = DATASETS[name].kind
    if kind != "ruler":
        return kind
    return "ruler_several" if name.endswith("_mv") else "ruler_niah"


def _fields(sample: Sample) -> Mapping[str, str]:
    if "fields" not in sample.meta:
        raise NoDataError(
            f"The prompt of {sample.key} is unknown: its answer was imported without the bundle.",
            fix="Import the answers with --bundle.",
        )
    fields: Mapping[str, str] = sample.meta["fields"]
    return fields


def _scores(dataset: DatasetSettings, sample: Sample, text: str) -> tuple[dict[str, float], str | None]:
    meta, references = sample.meta, sample.references
    match dataset.kind:
        case "ruler":
            return {"ruler_recall": string_match_all(text, references)}, None
        case "msmarco":
            ranking = metrics.parse_ranking(text)
            return {"NDCG@10": metrics.ndcg(ranking, meta.get("labels", {}))}, " > ".join(ranking)
        case "alce":
            answer = metrics.clean_cited_answer(text)
            measure = metrics.answered_share if dataset.metrics[0] == "str_em" else metrics.list_recall
            return {dataset.metrics[0]: measure(answer, meta.get("golds", ()))}, answer
        case "infbench_choice":
            letter, option = (*references, "", "")[:2]
            return metrics.choice_scores(text, letter, option)
        case "icl":
            answer = metrics.parse_output(text, _ANSWER_LABELS["icl"])
            return metrics.text_scores(answer, references), answer
        case kind:
            return metrics.best_text_scores(text, references, _ANSWER_LABELS.get(kind, "Answer:"))


def _choice(sample: Sample) -> tuple[str, str]:
    """Letter and text of the right option. The references are the letter, and both as "A. text"."""
    letter, option = (*sample.references, "", "")[:2]
    return letter, option.removeprefix(f"{letter}. ")


def _matched_text(dataset: DatasetSettings, sample: Sample, text: str) -> str | None:
    """Reference that the headline found in a text, "" if none is needed there, or None without such a search."""
    if dataset.kind == "infbench_choice":
        return matched_choice(text, *_choice(sample))
    if dataset.kind == "ruler":
        return "".join(sample.references)
    if dataset.metrics[0] != "substring_exact_match":
        return None
    found = [gold for gold in sample.references if english_tokens(gold) and substring_match(text, [gold])]
    return max(found, key=len, default="")


def _sample(task: str, row: DrawnRow, texts: Texts) -> Sample:
    start = texts.answer_start(template_of(task), {**row.fields, "question": row.question})
    return Sample(
        benchmark=NAME,
        task=task,
        sample_id=row.row_id,
        context=row.context,
        question=row.question,
        references=row.references,
        length=len(row.context.split()),
        meta={"fields": dict(row.fields), "question_id": row.question_id, "answer_start": start, **row.meta},
    )
