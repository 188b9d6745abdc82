"""L-Eval (OpenLMLab, 2023): 20 tasks, 508 documents, several questions on each.

Source: https://github.com/OpenLMLab/LEval/tree/cd34b050269148aed75acbbe4a599873ad0f37e9 (Evaluation/auto_eval.py,
Baselines/turbo16k-test.py); data come from the bundle. One line of LEval/{Exam,Generation}/{task}.jsonl:

    {"instructions": ["...", "..."], "outputs": ["...", "..."], "input": "the document", "source": "coursera_a",
     "evaluation": "exam"}

``evaluation`` is the mark of a document's questions. auto_eval.py scores "exam", "f1" and "rouge", and skips
questions marked "LLM" (for a judge) or "human". Nearly all of these repeat a scored question on the
same document, word for word: such a question is asked once, and ``meta["judged_by"]`` of its sample names the others.
The few that do not are separate samples, and their outputs are kept for the judge. ``score`` returns [] for them, so
they do not count in a task's number.

Prompts come from the script that asked gpt-3.5-turbo (see ``lbx.benchmarks.leval.prompts``). With ``--no-length-hint``
open questions are asked as at the founding README's date, when questions for judges and people had no hint on the
reference.

With ``--rag`` the question is asked as in Baselines/turbo4k-retrieve-test.py (see the same module).

The tables average over tasks: exact match over six closed tasks (without topic_retrieval_longchat, which the paper
shows separately), F1 over the open questions, each ROUGE over the open summaries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError
from lbx.base.number import Number
from lbx.base.records import Chunk, Prompt, Sample, Score, ScoredSample, Task
from lbx.base.visible import as_command
from lbx.benchmarks.base.aggregates import (
    Average,
    ScoredRows,
    average,
    estimate,
    mean,
    numbers_by_task,
    question_means,
    task_score,
)
from lbx.benchmarks.base.benchmark import AskingProtocol, Benchmark, ScoringRules, TaskCatalogue
from lbx.benchmarks.base.predictions import ResultFormat
from lbx.benchmarks.leval.paper_tables import BOARDS, PAPER
from lbx.benchmarks.leval.predictions import LEvalFormat, join_tables, result_files
from lbx.benchmarks.leval.prompts import (
    CONFIG,
    FOUNDING_ANSWERS,
    FOUNDING_SCRIPT,
    RETRIEVAL_SCRIPT,
    RULES,
    SCRIPT,
    STUFF,
    founding_prompt,
    official_prompt,
    read_answer_instruction,
    retrieval_prompt,
    second_prompt,
)
from lbx.benchmarks.leval.tasks import (
    DATA,
    KINDS,
    METRICS,
    OPEN,
    OPEN_TASKS,
    REPO,
    SCORED,
    find_source,
    make_sample,
    read_questions,
)
from lbx.benchmarks.metrics import exam
from lbx.benchmarks.metrics.f1 import qa_f1
from lbx.benchmarks.metrics.rouge import rouge
from lbx.options.asking import PLAIN, Mode

_TOPICS = ("first", "second", "third")
_APART = "topic_retrieval_longchat"
_NON_EVIDENCE = frozenset({"yes", "no", "unanswerable"})
"""Answers that judge the document. Such a word in the document is no evidence."""


class LEval(Benchmark):
    name = "leval"
    metric_version = 1
    data = DATA
    catalogue = TaskCatalogue(tuple(KINDS), open_tasks=OPEN_TASKS, has_marks=True)
    protocol = AskingProtocol(modes=frozenset({"rag", "length_hint"}), retrieval=RULES)
    scoring = ScoringRules(prints_all_metrics=True)
    predictions = LEvalFormat(name, catalogue.names)
    results = ResultFormat(result_files, join_tables, holds_predictions=True)
    paper = PAPER
    boards = BOARDS

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return the tasks that have a file in the bundle."""
        tasks = []
        for task, kind in KINDS.items():
            source = find_source(bundle, task) if names is None or task in names else None
            if source is not None:
                questions = read_questions(source)
                unscored = sum(question.evaluation not in SCORED for question in questions)
                tasks.append(Task(self.name, task, METRICS[kind], len(questions), unscored=unscored))
        return tasks

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield a task's samples, with the id "document-question", both counted from 0."""
        source = find_source(bundle, task)
        if source is None:
            raise self.data.missing_data_error(bundle, f"{REPO}, {task}.jsonl")
        return (make_sample(task, question) for question in read_questions(source))

    def chance(self, sample: Sample) -> float:
        return {"choice": 0.25, "choices": 0.25, "statements": 0.5}.get(KINDS.get(sample.task, ""), 0.0)

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        if mode.rag:
            return retrieval_prompt(_official_file(bundle, STUFF), self.query(sample, bundle), chunks)
        if not mode.length_hint and KINDS[sample.task] in OPEN:
            script, answers = (_official_file(bundle, file_name) for file_name in (FOUNDING_SCRIPT, FOUNDING_ANSWERS))
            return founding_prompt(script, answers, sample, mode.context_window)
        config, script = (_official_file(bundle, file_name) for file_name in (CONFIG, SCRIPT))
        return official_prompt(config, script, sample, mode.context_window)

    def later_prompts(self, bundle: Bundle, sample: Sample, mode: Mode) -> Sequence[Prompt]:
        """Prompt of sci_fi's second question, about the real world."""
        is_of_two = KINDS[sample.task] == "statements"
        return [second_prompt(_official_file(bundle, SCRIPT), sample)] if is_of_two else ()

    def next_step(self, bundle: Bundle, sample: Sample, mode: Mode, outputs: Sequence[str]) -> Prompt | str:
        """Prompt of sci_fi's second question, then both answers as the script joins them."""
        if KINDS[sample.task] != "statements":
            return outputs[-1]
        if len(outputs) == 1:
            return self.later_prompts(bundle, sample, mode)[0]
        loyal, fact = (output.strip() for output in outputs)
        return f"{loyal} [fact: {fact}]"

    def query(self, sample: Sample, bundle: Bundle) -> str:
        """Question with the script's instruction on the answer's form, which the script also retrieves by."""
        return sample.question + read_answer_instruction(_official_file(bundle, RETRIEVAL_SCRIPT), sample)

    def evidence(self, sample: Sample) -> Sequence[str]:
        """References of open questions and of topic retrieval, which are often passages of the document.

        Returns () for letters, numbers, truth values and summaries, and for answers such as "yes".
        """
        if KINDS[sample.task] not in ("f1", "topics"):
            return ()
        return [text for text in sample.references if text.strip(" .").casefold() not in _NON_EVIDENCE]

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score an output by the task's official metric, or return [] for questions marked "LLM" or "human".

        ``extracted`` is the text that auto_eval.py compares. If that script would stop with an exception, the scores
        are 0 with an ``error``.
        """
        if sample.meta.get("evaluation", "exam") not in SCORED:
            return []
        kind = KINDS[sample.task]
        if error := _official_error(kind, sample, output):
            return [Score(metric, 0.0, error=error) for metric in METRICS[kind]]
        reference = sample.references[0]
        match kind:
            case "f1":
                return [Score("f1", qa_f1(output, [reference]))]
            case "rouge":
                scores = rouge(output, [reference])
                return [
                    Score("geometric_mean", (scores.rouge1 * scores.rouge2 * scores.rouge_l) ** (1 / 3)),
                    Score("rouge1", scores.rouge1),
                    Score("rouge2", scores.rouge2),
                    Score("rougeL", scores.rouge_l),
                ]
            case "statements":
                return _statement_scores(output, reference)
        answered, expected = _exam_answers(kind, output, reference)
        return [Score("exact_match", 0.0 if expected is None else exam.exact_match(answered, expected), answered)]

    def cluster(self, sample: Sample, document: str) -> str:
        """Name of a sample's cluster: the document, or in gsm100 the question, because all share one document."""
        return f"gsm100/{sample.sample_id}" if sample.task == "gsm100" else document

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        """Aggregate a task into the numbers that auto_eval.py prints: percent with four decimals.

        topic_retrieval adds exact_match/first, /second and /third, and sci_fi adds loyalty and fact. The exact_match of
        both is the mean of the rounded numbers, and is not rounded, as printed.
        """
        kind = KINDS[task]
        if kind == "rouge":
            return _rouge_aggregate(rows)
        if kind == "topics":
            groups = {
                f"exact_match/{name}": ScoredRows.of(rows).filter(partial(_has_topic, topic_index))
                for topic_index, name in enumerate(_TOPICS)
            }
            return _with_average(
                [part for name, group in groups.items() for part in task_score(name, group, "exact_match", 4)]
            )
        if kind == "statements":
            return _with_average(task_score("loyalty", rows, "loyalty", 4) + task_score("fact", rows, "fact", 4))
        metric = METRICS[kind][0]
        return task_score(metric, rows, metric, 4)

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Averages of the paper's tables: "closed" (exact_match) and "open" (f1, rouge1, rouge2, rougeL), two decimals.

        ``official`` is None as long as a task is missing. "overall" is lbx's addition, the mean of all tasks'
        headlines.
        """
        task_numbers = numbers_by_task(self.aggregate, tasks)
        tables = [("closed", "exact_match", [t for t, kind in KINDS.items() if kind not in OPEN and t != _APART])]
        tables += [("open", "f1", [task for task, kind in KINDS.items() if kind == "f1"])]
        summaries = [task for task, kind in KINDS.items() if kind == "rouge"]
        tables += [("open", metric, summaries) for metric in METRICS["rouge"][1:]]
        scores = []
        for grouping, metric, members in tables:
            parts = [task_numbers[task][metric] for task in members if task in task_numbers]
            if average := Average.of(parts, complete=len(parts) == len(members)):
                scores.append(average.to_group_number(grouping, "all", metric, digits=2))
        heads = [task_numbers[task][METRICS[kind][0]] for task, kind in KINDS.items() if task in task_numbers]
        if average := Average.of(heads, complete=False):
            scores.append(average.to_group_number("overall", "all"))
        return scores


def _official_file(bundle: Bundle, relative_path: str) -> Path:
    """Return the path of an official file. The error for a missing file for --rag names the retrieval recipe, too."""
    if relative_path in (STUFF, RETRIEVAL_SCRIPT) and bundle.file(relative_path) is None:
        raise BundleError(
            f"The bundle at {bundle.root} does not contain {relative_path}, which L-Eval needs for --rag.",
            fix="Bundle it together with L-Eval's data on a connected machine.",
            command=as_command("lbx", "bundle", DATA.recipe, RULES.recipe),
        )
    return DATA.official_file(bundle, relative_path)


def _official_error(kind: str, sample: Sample, output: str) -> str | None:
    if not sample.references:
        return "There is no reference: the official auto_eval.py stops with an exception."
    reference = sample.references[0]
    if kind in ("choice", "choices") and exam.choice_reference(reference) is None:
        return "The reference is blank: the official auto_eval.py stops with IndexError."
    if kind == "statements":
        for what, text in (("answer", output), ("reference", reference)):
            if exam.statement_reference(text) is None:
                return f'The {what} has no "[fact:": the official auto_eval.py stops with IndexError.'
    return None


def _exam_answers(kind: str, output: str, reference: str) -> tuple[str, str | None]:
    match kind:
        case "choice" | "choices":
            return exam.choice_answer(output, several=kind == "choices"), exam.choice_reference(reference)
        case "math":
            return exam.math_answer(output), exam.math_answer(reference)
        case "code":
            return exam.code_answer(output, reference), exam.code_reference(reference)
        case _:
            return output, reference


def _statement_scores(output: str, reference: str) -> list[Score]:
    answered, expected = exam.statement_answer(output), exam.statement_reference(reference)
    if answered is None or expected is None:
        return [Score(metric, 0.0) for metric in METRICS["statements"]]
    loyalty, fact = (exam.exact_match(answer, right) for answer, right in zip(answered, expected, strict=True))
    return [
        Score("exact_match", (loyalty + fact) / 2, f"{answered[0]} [fact: {answered[1]}]"),
        Score("loyalty", loyalty, answered[0]),
        Score("fact", fact, answered[1]),
    ]


def _rouge_aggregate(rows: Sequence[ScoredSample]) -> list[Number]:
    names = METRICS["rouge"][1:]
    complete_rows = ScoredRows.of(rows)
    for metric in names:
        complete_rows, _ = complete_rows.with_metric(metric)
    if not complete_rows:
        return []
    # Officially each F becomes a percentage before the mean is computed.
    answers = {metric: complete_rows.with_metric(metric)[1] * 100 for metric in names}
    official = _with_geometric_mean({metric: mean(values) for metric, values in answers.items()})
    means_of_questions = {metric: question_means(complete_rows, values) for metric, values in answers.items()}
    rows = means_of_questions["rouge1"][0]
    means_by_metric = {metric: values for metric, (_, values) in means_of_questions.items()}
    scores = _with_geometric_mean({metric: mean(values) for metric, values in means_by_metric.items()})
    # Linearised: a row moves the geometric mean of means by the mean of its relative changes of each of them.
    relative_changes = [
        means_by_metric[metric] / scores[metric] if scores[metric] else np.zeros(len(rows)) for metric in names
    ]
    geometric_mean_estimate = estimate(
        rows, scores["geometric_mean"] / 300 * sum(relative_changes, np.zeros(len(rows))), linear=False
    )
    estimates = {metric: estimate(rows, means_by_metric[metric] / 100) for metric in names}
    return [
        Number(
            metric=metric,
            n=len(complete_rows),
            score=value / 100,
            official=round(official[metric], 4),
            estimate=estimates.get(metric, geometric_mean_estimate),
        )
        for metric, value in scores.items()
    ]


def _with_geometric_mean(means: dict[str, float]) -> dict[str, float]:
    return {"geometric_mean": (means["rouge1"] * means["rouge2"] * means["rougeL"]) ** (1 / 3), **means}


def _has_topic(topic_index: int, row: ScoredSample) -> bool:
    return bool(row.sample.meta["topic"] == topic_index)


def _with_average(parts: Sequence[Number]) -> list[Number]:
    if not parts:
        return []
    n = max(part.n for part in parts) if parts[0].metric == "loyalty" else sum(part.n for part in parts)
    score = mean([part.score for part in parts])
    official = mean([part.official for part in parts if part.official is not None])
    total = Number(
        metric="exact_match",
        n=n,
        score=score,
        official=official,
        estimate=average([part.estimate for part in parts]),
    )
    return [total, *parts]
