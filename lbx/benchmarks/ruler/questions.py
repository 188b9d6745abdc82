"""Generator of question tasks (qa_1, qa_2): questions of SQuAD and HotpotQA on paragraphs among many others."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.benchmarks.base.data_files import DataRow, damaged_file_error, read_json, read_json_array
from lbx.benchmarks.ruler.generator import Candidate, Generator, SampleBudget, UnusableDrawError
from lbx.benchmarks.ruler.tasks import DATA, SCRIPTS, document_text


def question_file(dataset: str) -> str:
    """Path of a dataset in a bundle."""
    return f"{SCRIPTS}/synthetic/json/{dataset}.json"


@dataclass(frozen=True, slots=True)
class Question:
    """Question on documents, which are indices in ``QuestionSet.documents``.

    Attributes:
        answers: accepted answers, repetitions included.
        answer_documents: documents that contain the answer.
        other_documents: other paragraphs of the same article.
    """

    text: str
    answers: tuple[str, ...]
    answer_documents: tuple[int, ...]
    other_documents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions of a dataset, and the dataset's distinct paragraphs in code-point order."""

    questions: Sequence[Question]
    documents: Sequence[str]


def read_questions(bundle: Bundle, dataset: str) -> QuestionSet:
    """Read the questions of a dataset. Raises BundleError if the file is missing or damaged."""
    path = DATA.official_file(bundle, question_file(dataset))
    stat = path.stat()
    return _read_questions(path, dataset, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=2)
def _read_questions(path: Path, dataset: str, _mtime_ns: int, _size: int) -> QuestionSet:
    try:
        questions = _read_squad(path) if dataset == "squad" else _read_hotpotqa(path)
    except (KeyError, TypeError, AttributeError, ValueError) as exc:
        raise damaged_file_error(str(path), f"it is not a file of {dataset} ({type(exc).__name__}: {exc})") from exc
    if not questions.questions:
        raise damaged_file_error(str(path), "it has no questions")
    return questions


def _read_squad(path: Path) -> QuestionSet:
    articles = read_json(path)["data"]
    documents = sorted({_text(paragraph["context"]) for article in articles for paragraph in article["paragraphs"]})
    index = {document: number for number, document in enumerate(documents)}
    questions = []
    for article in articles:
        numbers = [index[paragraph["context"]] for paragraph in article["paragraphs"]]
        for own, paragraph in zip(numbers, article["paragraphs"], strict=True):
            more = tuple(number for number in numbers if number != own)
            questions += [
                Question(_text(row["question"]), _answer_texts(row), (own,), more)
                for row in paragraph["qas"]
                if not row["is_impossible"]
            ]
    return QuestionSet(questions, documents)


def _answer_texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    if not row["answers"]:
        raise ValueError("a question without answers")
    return tuple(_text(answer["text"]) for answer in row["answers"])


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__}, not a text")
    return value


def _read_hotpotqa(path: Path) -> QuestionSet:
    rows = [(row.get("question", str), row.get("answer", str), [*_contexts(row)]) for row in read_json_array(path)]
    documents = sorted({document for _, _, contexts in rows for document in contexts})
    index = {document: number for number, document in enumerate(documents)}
    questions = [
        Question(question, (answer,), tuple(index[document] for document in contexts))
        for question, answer, contexts in rows
    ]
    return QuestionSet(questions, documents)


def _contexts(row: DataRow) -> Iterator[str]:
    for title, sentences in row.get("context", list):
        yield f"{_text(title)}\n{''.join(sentences)}"


class QuestionTexts(Generator):
    """Generator of a question task."""

    def __init__(self, bundle: Bundle, dataset: str, template: str, budget: SampleBudget, seed: int) -> None:
        self.budget = budget
        self._set = read_questions(bundle, dataset)
        self._document = document_text(bundle)
        self._template = template
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - the authors' draws

    def draw(self, size: int, number: int) -> Candidate:
        if number >= len(self._set.questions):
            raise UsageError(
                f"{self.budget.name} has {number:,} questions and cannot make more samples. NVIDIA's script would try "
                "for ever.",
                fix=f"Pass --limit {number}, or set samples = {number} in ruler/ruler.toml of the recipe.",
            )
        question = self._set.questions[number]
        documents = self._choose_documents(question, size)
        random.Random(self._seed).shuffle(documents)  # noqa: S311 - the same permutation in every sample
        context = "\n\n".join([self._document.format(i=i, document=text) for i, text in enumerate(documents, 1)])
        return Candidate(self._template.format(context=context, query=question.text), question.answers, question.text)

    def _choose_documents(self, question: Question, size: int) -> list[str]:
        documents, own, more = self._set.documents, question.answer_documents, question.other_documents
        if size >= len(documents):
            return ([*documents] * -(-size // len(documents)))[:size]
        n_others = size - len(own)
        if n_others > len(more):
            related = {*own, *more}
            others = [number for number in range(len(documents)) if number not in related]
            chosen = [*own, *more, *self._random.sample(others, max(0, n_others - len(more)))]
        else:
            if n_others < 0:
                raise UnusableDrawError("the question has more documents than the sample")
            chosen = [*own, *self._random.sample(more, n_others)]
        return [documents[number] for number in chosen]
