"""L-Eval (OpenLMLab, 2023): 20 tasks, 508 documents, several questions on each.

Source: https://github.com/OpenLMLab/LEval/tree/cd34b050269148aed75acbbe4a599873ad0f37e9 (Evaluation/auto_eval.py,
Baselines/turbo16k-test.py); data come from the bundle. One line of LEval/{Exam,Generation}/{task}.jsonl:

    {"instructions": ["...", "..."], "outputs": ["...", "..."], "input": "the document", "source": "coursera_a",
     "evaluation": "exam"}

``evaluation`` says how a document's questions are marked. "exam", "f1" and "rouge" are what auto_eval.py scores.
Questions marked "LLM" (for a judge) or "human" it passes over. Nearly all of these repeat a scored question on the
same document, word for word: such a question is asked once, and ``meta["judged_by"]`` of its sample names the others.
The few that repeat nothing are samples of their own, whose output is kept for the judge; ``score`` gives them nothing,
so they have no part in a task's number.

Prompts are taken from the authors' published predictions, whose rows carry them (see ``_SOURCES``). Some begin with a
stray sentence about a visual assistant, which is dropped. sci_fi's was never published; it has lbx's own words.

The tables average over tasks: exact match over six closed ones (topic_retrieval_longchat, which the paper shows
apart, is not among them), F1 over the open questions, each ROUGE over the open summaries.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lbx.benchmarks.aggregates import Average, mean, numbers, task_score
from lbx.benchmarks.base import Benchmark, ScoredSample
from lbx.benchmarks.files import damaged, read_jsonl
from lbx.benchmarks.leval_predictions import LEvalFormat
from lbx.benchmarks.leval_tasks import KINDS, METRICS, OPEN, SCORED, LEvalQuestion, read_questions
from lbx.benchmarks.sources import JsonLines, Source, find
from lbx.benchmarks.templates import fill_format
from lbx.layout import Bundle
from lbx.metrics import exam
from lbx.metrics.f1 import qa_f1
from lbx.metrics.rouge_n import rouge
from lbx.records import PLAIN, Chunk, GroupScore, Mode, Prompt, Sample, Score, Task, TaskScore, Truncation

REPO = "L4NLP/LEval"
PREDICTIONS = "OpenLMLab/LEval/Predictions"
MAX_NEW_TOKENS = 512

_OPEN_SOURCE = f"{PREDICTIONS}/llm_gpt4_eval/turbo-16k-0613.pred.jsonl"
_SOURCES = {
    task: _OPEN_SOURCE if kind in OPEN else f"{PREDICTIONS}/exam_eval/turbo-16k-0613/{task}.pred.jsonl"
    for task, kind in KINDS.items()
    if task != "sci_fi"
}
_STRAY = re.compile(r"\A[^.]*\bvisual assistant\b[^.]*\.\s*")
_LENGTH_HINT = re.compile(r"\d+(?= words)")
_TOPICS = ("first", "second", "third")
_APART = "topic_retrieval_longchat"
_NOT_FOUND = frozenset({"yes", "no", "unanswerable"})
"""Answers that judge the document; where such a word stands in it says nothing."""


_SCI_FI_BEFORE = "Here is a science-fiction story. A statement about it follows after its end.\n\n"
_SCI_FI_AFTER = (
    "\n\nThe statement: {}\n\n"
    "Judge the statement twice, each time with True or False: first by the story alone, then by what is known of the "
    "real world. Answer in exactly this form and say nothing else:\n"
    "<by the story> [fact: <in the real world>]\nAnswer: "
)


@dataclass(frozen=True, slots=True)
class _Template:
    """A published prompt and the question it was published with."""

    prompt: str
    query: str


class LEval(Benchmark):
    """The benchmark family "leval"."""

    name = "leval"
    metric_version = 1
    recipe = "bundle/leval.toml"
    known_tasks = tuple(KINDS)
    predictions = LEvalFormat(name, known_tasks)

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Those whose file is there."""
        found = []
        for task, kind in KINDS.items():
            source = _data(bundle, task) if names is None or task in names else None
            if source is not None:
                found.append(Task(self.name, task, METRICS[kind], len(read_questions(source))))
        return found

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """See ``Benchmark.samples``. The id is "document-question", both counted from 0."""
        source = _data(bundle, task)
        if source is None:
            raise self.no_data(bundle, f"{REPO}, {task}.jsonl")
        return (_sample(task, question) for question in read_questions(source))

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """The published prompt around the document and the question; only the document may be cut."""
        kind = KINDS[sample.task]
        source = _SOURCES.get(sample.task, "lbx")
        if kind == "statements":
            before, document, after = _SCI_FI_BEFORE, sample.context, _SCI_FI_AFTER.format(sample.question)
        elif kind in ("math", "topics", "code"):
            template = self._template(bundle, source)
            instruction = template.prompt.removesuffix(template.query).rstrip()
            before, document, after = f"{instruction}\n\n", sample.context, f"\n\n{sample.question}"
        else:
            text = self._template(bundle, source).prompt
            if kind in OPEN:
                text = _LENGTH_HINT.sub(str(len(sample.references[0].split())), text, count=1)
            fields = {"0": sample.context, "1": sample.question}
            before, document, after = fill_format(text, fields, document="0", source=source)
        return Prompt(
            before=before,
            document=document,
            after=after,
            max_new_tokens=MAX_NEW_TOKENS,
            truncation=Truncation.DOCUMENT_START if kind == "code" else Truncation.DOCUMENT_END,
            source=source,
        )

    def _template(self, bundle: Bundle, place: str) -> _Template:
        """The first row's prompt and question: all rows have the same prompt, but for what varies by question."""
        path = self.official_file(bundle, place)
        for row in islice(read_jsonl(path), 1):
            return _Template(_STRAY.sub("", row.get("prompt", str)), row.get("query", str))
        raise damaged(str(path), "it is empty")

    def evidence(self, sample: Sample) -> Sequence[str]:
        """The references of open questions and of topic retrieval, which are pieces of the document in many rows.

        () for letters, numbers, truth values and summaries, and for answers such as "yes".
        """
        if KINDS[sample.task] not in ("f1", "topics"):
            return ()
        return [text for text in sample.references if text.strip(" .").casefold() not in _NOT_FOUND]

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """The task's official metric; nothing for questions marked "LLM" or "human".

        ``extracted`` is what auto_eval.py compares. Where that script would stop with an exception the scores are 0
        and say so.
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
                return _rouge_scores(output, reference)
            case "statements":
                return _statement_scores(output, reference)
        given, wanted = _exam_answers(kind, output, reference)
        return [Score("exact_match", 0.0 if wanted is None else exam.exact_match(given, wanted), given)]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        """What auto_eval.py prints: percent with four decimals.

        topic_retrieval adds exact_match/first, /second, /third and sci_fi loyalty and fact; their exact_match is the
        mean of these rounded figures, itself not rounded, as printed.
        """
        kind = KINDS[task]
        if kind == "rouge":
            return _rouge_aggregate(rows)
        if kind == "topics":
            groups = {
                f"exact_match/{name}": [row for row in rows if row.sample.meta["topic"] == place]
                for place, name in enumerate(_TOPICS)
            }
            return _averaged(
                [part for name, group in groups.items() for part in task_score(name, group, "exact_match", 4)]
            )
        if kind == "statements":
            return _averaged(task_score("loyalty", rows, "loyalty", 4) + task_score("fact", rows, "fact", 4))
        metric = METRICS[kind][0]
        return task_score(metric, rows, metric, 4)

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]]) -> list[GroupScore]:
        """The tables' averages: grouping "closed" (exact_match) and "open" (f1, rouge1, rouge2, rougeL), two decimals.

        ``official`` is None as long as a task is missing. "overall" is lbx's own, the mean of all tasks' headlines.
        """
        found_in = numbers(self.aggregate, tasks)
        tables = [("closed", "exact_match", [t for t, kind in KINDS.items() if kind not in OPEN and t != _APART])]
        tables += [("open", "f1", [task for task, kind in KINDS.items() if kind == "f1"])]
        summaries = [task for task, kind in KINDS.items() if kind == "rouge"]
        tables += [("open", metric, summaries) for metric in METRICS["rouge"][1:]]
        found = []
        for grouping, metric, members in tables:
            parts = [found_in[task][metric] for task in members if task in found_in]
            if average := Average.of(parts, whole=len(parts) == len(members)):
                found.append(average.group(grouping, "all", metric, digits=2))
        heads = [found_in[task][METRICS[kind][0]] for task, kind in KINDS.items() if task in found_in]
        if average := Average.of(heads, whole=False):
            found.append(average.group("overall", "all"))
        return found


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
    given, wanted = exam.statement_answer(output), exam.statement_reference(reference)
    if given is None or wanted is None:
        return [Score(metric, 0.0) for metric in METRICS["statements"]]
    loyalty, fact = (exam.exact_match(said, right) for said, right in zip(given, wanted, strict=True))
    return [
        Score("exact_match", (loyalty + fact) / 2, f"{given[0]} [fact: {given[1]}]"),
        Score("loyalty", loyalty, given[0]),
        Score("fact", fact, given[1]),
    ]


def _rouge_scores(output: str, reference: str) -> list[Score]:
    found = rouge(output, [reference])
    return [
        Score("geometric_mean", (found.rouge1 * found.rouge2 * found.rouge_l) ** (1 / 3)),
        Score("rouge1", found.rouge1),
        Score("rouge2", found.rouge2),
        Score("rougeL", found.rouge_l),
    ]


def _rouge_aggregate(rows: Sequence[ScoredSample]) -> list[TaskScore]:
    # Officially each F is a percentage before the mean is taken.
    figures = {
        metric: [row.scores[metric] * 100 for row in rows if metric in row.scores] for metric in METRICS["rouge"][1:]
    }
    if not all(figures.values()):
        return []
    means = {metric: mean(values) for metric, values in figures.items()}
    together = (means["rouge1"] * means["rouge2"] * means["rougeL"]) ** (1 / 3)
    n = len(figures["rouge1"])
    return [
        TaskScore(metric, n, value / 100, round(value, 4))
        for metric, value in {"geometric_mean": together, **means}.items()
    ]


def _averaged(parts: Sequence[TaskScore]) -> list[TaskScore]:
    if not parts:
        return []
    n = max(part.n for part in parts) if parts[0].metric == "loyalty" else sum(part.n for part in parts)
    score = mean([part.score for part in parts])
    return [
        TaskScore("exact_match", n, score, mean([part.official for part in parts if part.official is not None])),
        *parts,
    ]


def _sample(task: str, asked: LEvalQuestion) -> Sample:
    meta: dict[str, Any] = {"evaluation": asked.evaluation, "source": asked.source, "judged_by": list(asked.judged_by)}
    if KINDS[task] == "topics":
        # auto_eval.py tells first, second and third topic apart by the row's number in the file, whatever is asked.
        meta["topic"] = asked.position % 3
    return Sample(
        benchmark=LEval.name,
        task=task,
        sample_id=f"{asked.document:03d}-{asked.number:02d}",
        context=asked.context,
        question=asked.question,
        references=(asked.answer,),
        length=len(asked.context.split()),
        meta=meta,
    )


def _data(bundle: Bundle, task: str) -> Source | None:
    group = "Generation" if KINDS[task] in OPEN else "Exam"
    return find(bundle.snapshot("dataset", REPO), f"LEval/{group}/{task}.jsonl", task, JsonLines)
