"""A judge's work as a benchmark: which of two stored answers is better, or how good one is, asked of any model.

A judge is a run. What it is asked are *rounds*, one prompt each; they are samples of the benchmark "judge", and their
task is the rubric's name. So a judge's work is continued, shared among workers, merged and counted as any run's.

A round's id is the hash of everything that its prompt is made of and of who is compared: an answer that has changed
makes another round, and what was judged before stays what it is.

How a verdict is read (``lbx.benchmarks.base.rubric``) goes along with each sample, so that stored texts are read again
where no rubric is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

from lbx.base.errors import BundleError
from lbx.base.layout import Bundle
from lbx.base.records import (
    PLAIN,
    Chunk,
    Mode,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    Task,
    TaskScore,
    Truncation,
    canonical_json,
    sha256_text,
)
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.base.rubric import Rubric, judgement
from lbx.benchmarks.base.templates import fill_format

NAME = "judge"
_ID_LENGTH = 24

Documents = Callable[[Bundle, str, str], Iterator[Sample]]
"""The samples of a bundle's benchmark and task, whose documents a rubric shows. It travels to worker processes."""


@dataclass(frozen=True, slots=True)
class Round:
    """One prompt for a judge: a stored answer, beside another one or alone.

    Attributes:
        benchmark, task, sample_id, question, references, language: of the judged sample.
        run_id, iteration, answer: whose answer is judged, and its text.
        against_run_id, against_iteration, against: what it is compared with; None, 0, "" where it is rated alone.
        answer_first: whether the judged answer is shown first.
        document_sha256: of the judged sample's document; "" where nobody knows.
        marks: of each copy of the question that this is about (``lbx.benchmarks.base.judge_marks``): it counts once for
            each.
    """

    benchmark: str
    task: str
    sample_id: str
    question: str
    references: tuple[str, ...]
    run_id: str
    answer: str
    iteration: int = 0
    against_run_id: str | None = None
    against_iteration: int = 0
    against: str = ""
    answer_first: bool = True
    language: str = "en"
    document_sha256: str = ""
    marks: tuple[str, ...] = ()

    def name(self, rubric: Rubric) -> str:
        """The sample's id: of whatever the prompt is made of, and of who is compared."""
        made_of = {one.name: getattr(self, one.name) for one in fields(self)}
        return sha256_text(canonical_json({**made_of, "rubric": rubric.sha256}))[:_ID_LENGTH]

    def sample(self, rubric: Rubric, document: str = "") -> Sample:
        """As a sample of the benchmark "judge"; the answers themselves are no part of it.

        Args:
            document: where the rubric shows it.
        """
        meta: dict[str, Any] = {
            "kind": rubric.kind,
            "benchmark": self.benchmark,
            "task": self.task,
            "sample_id": self.sample_id,
            "run_id": self.run_id,
            "iteration": self.iteration,
            "document_sha256": self.document_sha256,
            "marks": list(self.marks),
            "answer_sha256": sha256_text(self.answer),
            "answer_words": len(self.answer.split()),
            "verdicts": rubric.reading,
        }
        if self.against_run_id is not None:
            meta |= {
                "against_run_id": self.against_run_id,
                "against_iteration": self.against_iteration,
                "answer_first": self.answer_first,
                "against_sha256": sha256_text(self.against),
                "against_words": len(self.against.split()),
            }
        return Sample(
            benchmark=NAME,
            task=rubric.name,
            sample_id=self.name(rubric),
            context=document,
            question=self.question,
            references=self.references,
            language=self.language,
            length=len(document.split()),
            meta=meta,
        )

    @property
    def fields(self) -> dict[str, str]:
        """What a rubric's template is filled with, but for the document."""
        first, second = (self.answer, self.against) if self.answer_first else (self.against, self.answer)
        values = {"question": self.question, "reference": "\n".join(map(str, self.references))}
        return {**values, "answer": self.answer, "a": first, "b": second}


def _no_documents(_bundle: Bundle, _benchmark: str, _task: str) -> Iterator[Sample]:
    return iter(())


class Judging(Benchmark):
    """The rounds of one rubric. Without one it has no task, and reads what is stored.

    Args:
        rounds: those of a judged task follow each other.
        documents: where the documents come from that the rubric shows.
    """

    name = NAME
    metric_version = 1

    def __init__(
        self, rubric: Rubric | None = None, rounds: Sequence[Round] = (), documents: Documents = _no_documents
    ) -> None:
        self._rubric = rubric
        self._rounds = {one.name(rubric): one for one in rounds} if rubric else {}
        self._documents = documents

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """One, the rubric's."""
        rubric, count = self._rubric, len(self._rounds)
        return [Task(NAME, rubric.name, (rubric.metric,), count)] if rubric and count else []

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """The rounds as they were given; where the rubric shows documents, in the judged data's order.

        Raises:
            BundleError: the bundle holds another document than the one that was answered about, or none.
        """
        if self._rubric is None:
            return
        if not self._rubric.shows_document:
            yield from (one.sample(self._rubric) for one in self._rounds.values())
            return
        for (benchmark, judged), rounds in groupby(self._rounds.values(), lambda one: (one.benchmark, one.task)):
            yield from self._with_documents(bundle, self._rubric, benchmark, judged, list(rounds))

    def _with_documents(
        self, bundle: Bundle, rubric: Rubric, benchmark: str, task: str, rounds: Sequence[Round]
    ) -> Iterator[Sample]:
        wanted: dict[str, list[Round]] = {}
        for one in rounds:
            wanted.setdefault(one.sample_id, []).append(one)
        for judged in self._documents(bundle, benchmark, task):
            here = wanted.pop(judged.sample_id, [])
            if here and here[0].document_sha256 not in ("", sha256_text(judged.context)):
                raise _other_document(bundle, here[0])
            yield from (one.sample(rubric, judged.context) for one in here)
            if not wanted:
                return
        raise _other_document(bundle, next(iter(wanted.values()))[0])

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """The rubric's messages. Only a document may be cut, in its middle."""
        rubric, round_ = self._rubric, self._rounds[sample.sample_id]
        assert rubric is not None
        values = {**round_.fields, "document": sample.context}
        before, document, after = fill_format(rubric.user, values, document="document", source=rubric.source)
        return Prompt(
            before=before,
            document=document,
            after=after,
            max_new_tokens=rubric.max_new_tokens,
            truncation=Truncation.DOCUMENT_MIDDLE if rubric.shows_document else Truncation.REFUSE,
            system=rubric.system,
            system_gap="\n\n",
            source=rubric.source,
        )

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """The verdict from the judged answer's side (1, 0.5, 0), or the rating as a part of its scale; [] for none."""
        return judgement(sample.meta, output)

    def cluster(self, sample: Sample, document: str) -> str:
        """The judged sample's document."""
        return str(sample.meta.get("document_sha256") or "")

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        """Nothing: a judge's verdicts are numbers of the models that it judged."""
        return []


def _other_document(bundle: Bundle, one: Round) -> BundleError:
    return BundleError(
        f"The bundle at {bundle.root} does not hold the document that {one.benchmark}/{one.task}/"
        f"{one.sample_id} was answered about, and the rubric shows it to the judge.",
        fix="Give the bundle that the answers were made with, or a rubric without {document}.",
    )
