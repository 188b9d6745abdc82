"""L-Eval's tasks, and the selection and order of questions in the data files, with copies for judges and people."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

from lbx.base.bundle_folder import Bundle
from lbx.base.records import Sample
from lbx.benchmarks.base.benchmark import MARKS
from lbx.benchmarks.base.data_files import DataRow, damaged_file_error
from lbx.benchmarks.base.sources import DataSource, JsonLines, RowSource, find_in_folder

NAME = "leval"
REPO = "L4NLP/LEval"
DATA = DataSource("bundle/leval.toml", (REPO,), licences="GPL-3.0", real_rows="some")

METRICS: dict[str, tuple[str, ...]] = {
    "choice": ("exact_match",),
    "choices": ("exact_match",),
    "math": ("exact_match",),
    "code": ("exact_match",),
    "topics": ("exact_match",),
    "statements": ("exact_match", "loyalty", "fact"),
    "f1": ("f1",),
    "rouge": ("geometric_mean", "rouge1", "rouge2", "rougeL"),
}
"""{kind of task: stored metrics}.

The geometric_mean of a sample is lbx's addition. The official one of a task combines three means.
"""

KINDS: dict[str, str] = {
    "coursera": "choices",
    "gsm100": "math",
    "quality": "choice",
    "topic_retrieval_longchat": "topics",
    "tpo": "choice",
    "codeU": "code",
    "sci_fi": "statements",
    "financial_qa": "f1",
    "legal_contract_qa": "f1",
    "multidoc_qa": "f1",
    "narrative_qa": "f1",
    "natural_question": "f1",
    "scientific_qa": "f1",
    "gov_report_summ": "rouge",
    "meeting_summ": "rouge",
    "news_summ": "rouge",
    "paper_assistant": "rouge",
    "patent_summ": "rouge",
    "review_summ": "rouge",
    "tv_show_summ": "rouge",
}
"""{task: kind}, the closed tasks first."""

OPEN = ("f1", "rouge")
"""The kinds of the open tasks."""
OPEN_TASKS = tuple(task for task, kind in KINDS.items() if kind in OPEN)

SCORED = ("exam", "f1", "rouge")
"""The marks of questions that auto_eval.py scores."""

BASELINE = "turbo-16k-0613"
"""Baseline model of the authors' comparisons by judges."""


class LEvalQuestion(NamedTuple):
    """Question of a data file.

    Attributes:
        document: number of the document's line, from 0.
        number: position of the question in the line, from 0.
        position: position of the question in the whole file, from 0.
        judged_by: marks of the question's copies.
    """

    document: int
    number: int
    position: int
    context: str
    question: str
    answer: str
    evaluation: str
    source: str
    judged_by: tuple[str, ...] = ()

    @property
    def content(self) -> tuple[str, str, str]:
        return self.context, self.question, self.answer


def read_questions(source: RowSource) -> list[LEvalQuestion]:
    """Read each question once, grouped by document, otherwise in the file's order."""
    all_questions = _all_questions(source)
    scored = [question for question in all_questions if question.evaluation in SCORED]
    index_by_content = {question.content: index for index, question in reversed(list(enumerate(scored)))}
    for question in all_questions:
        if question.evaluation in SCORED:
            continue
        if (index := index_by_content.get(question.content)) is None:
            scored.append(question)
        else:
            scored[index] = scored[index]._replace(judged_by=(*scored[index].judged_by, question.evaluation))
    documents: dict[str, int] = {}
    for question in scored:
        documents.setdefault(question.context, len(documents))
    return sorted(scored, key=lambda question: documents[question.context])


def judged_questions(source: RowSource) -> Iterator[tuple[LEvalQuestion, LEvalQuestion]]:
    """Yield each judged question in the file's order, with the question that is asked for it."""
    all_questions = _all_questions(source)
    scored = {question.content: question for question in reversed(all_questions) if question.evaluation in SCORED}
    return (
        (question, scored.get(question.content, question)) for question in all_questions if question.evaluation in MARKS
    )


def judged_samples(bundle: Bundle) -> Iterator[tuple[Sample, str]]:
    """Yield the samples of questions for a judge or people, with the mark."""
    sources = [(task, find_source(bundle, task)) for task in sorted(OPEN_TASKS)]
    if not any(source for _, source in sources):
        raise DATA.missing_data_error(bundle, f"an open task of {REPO}")
    for task, source in sources:
        for question, scored in judged_questions(source) if source else ():
            yield make_sample(task, scored), question.evaluation


def _all_questions(source: RowSource) -> list[LEvalQuestion]:
    position = count()
    return [
        question for document, row in enumerate(source.rows()) for question in _row_questions(document, row, position)
    ]


def _row_questions(document: int, row: DataRow, position: Iterator[int]) -> Iterator[LEvalQuestion]:
    questions, answers = row.get("instructions", list), row.get("outputs", list)
    if len(questions) != len(answers) or not all(isinstance(text, str) for text in questions + answers):
        raise damaged_file_error(row.location, "instructions and outputs must be lists of texts with equal lengths")
    context, evaluation = row.get("input", str), row.get("evaluation", str)
    source = str(row.values.get("source") or "")
    for number, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        yield LEvalQuestion(document, number, next(position), context, question, answer, evaluation, source)


def make_sample(task: str, question: LEvalQuestion) -> Sample:
    meta: dict[str, Any] = {
        "evaluation": question.evaluation,
        "source": question.source,
        "judged_by": list(question.judged_by),
    }
    if KINDS[task] == "topics":
        # auto_eval.py determines first, second and third topic by the row's number in the file, whatever the question.
        meta["topic"] = question.position % 3
    return Sample(
        benchmark=NAME,
        task=task,
        sample_id=f"{question.document:03d}-{question.number:02d}",
        context=question.context,
        question=question.question,
        references=(question.answer,),
        length=len(question.context.split()),
        meta=meta,
    )


def find_source(bundle: Bundle, task: str) -> RowSource | None:
    group = "Generation" if KINDS[task] in OPEN else "Exam"
    return find_in_folder(DATA.folder(bundle), f"LEval/{group}/{task}.jsonl", task, JsonLines)
