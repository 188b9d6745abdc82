"""Benchmark "judge", whose samples ask a judge for the better of two stored answers, or for the quality of one.

A judge is a run. The prompts are *rounds*: samples of the benchmark "judge", with the rubric's name as task. So a judge
is continued, shared among workers, merged and counted like any run.

The id of a round is a hash of the prompt and of both runs. A changed answer makes another round, and earlier judgements
stay unchanged. Each round stores the rules for parsing a verdict, so that stored texts can be read without the rubric.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError
from lbx.base.number import Number
from lbx.base.records import (
    JUDGE,
    Chunk,
    JudgedAnswer,
    Prompt,
    RoundSample,
    Sample,
    Score,
    ScoredSample,
    Task,
    Truncation,
    canonical_json,
    sha256_text,
)
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.base.rubric import PAIR, Rubric, judgement
from lbx.benchmarks.base.sources import fill_format
from lbx.options.asking import PLAIN, Mode

NAME = JUDGE
_ID_LENGTH = 24

DocumentLoader = Callable[[Bundle, str, str], Iterator[Sample]]
"""Function that reads the samples of a bundle's benchmark and task. It is sent to worker processes."""


@dataclass(frozen=True, slots=True)
class Round:
    """Prompt for a judge on a stored answer, by itself or compared with another answer.

    Attributes:
        benchmark, task, sample_id, question, references, language: the judged sample.
        run_id, iteration, answer: the judged answer.
        against_run_id, against_iteration, against: the other answer, or None, 0 and "" in a rating.
        answer_first: whether the judge reads the judged answer first.
        document_sha256: hash of the judged sample's document, or "" if unknown.
        marks: marks of the question's copies that the round counts for, once for each.
        texts: texts for the placeholders of a family's rubric, in place of ``fields``. The other attributes determine
            them, so that they are not part of the round's id.
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
    texts: Mapping[str, str] = field(default_factory=dict)

    def round_id(self, rubric_sha256: str) -> str:
        """Id of the round's sample, for a rubric."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "texts"}
        return sha256_text(canonical_json({**values, "rubric": rubric_sha256}))[:_ID_LENGTH]

    def sample(self, rubric: Rubric, document: str = "") -> RoundSample:
        """Make the round's sample of the benchmark "judge", without the texts of the answers.

        Args:
            document: text of the judged sample's document, if the rubric shows it.
        """
        is_pair, has_rival = rubric.kind == PAIR, self.against_run_id is not None
        judged = JudgedAnswer(
            kind=rubric.kind,
            benchmark=self.benchmark,
            task=self.task,
            sample_id=self.sample_id,
            run_id=self.run_id,
            iteration=self.iteration,
            against_run_id=self.against_run_id,
            against_iteration=self.against_iteration if has_rival else 0,
            answer_first=self.answer_first if has_rival else None,
            document_sha256=self.document_sha256,
            marks=self.marks,
            answer_sha256=sha256_text(self.answer),
            answer_words=len(self.answer.split()),
            against_sha256=sha256_text(self.against) if has_rival else None,
            against_words=len(self.against.split()) if has_rival else None,
            verdicts=rubric.verdicts if is_pair else None,
            pattern=None if is_pair else rubric.pattern.replace("{points}", self.texts.get("points", "{points}")),
            scale_low=None if is_pair else rubric.low,
            scale_high=None if is_pair else rubric.high,
        )
        return RoundSample(
            benchmark=NAME,
            task=rubric.name,
            sample_id=self.round_id(rubric.sha256),
            context=document,
            question=self.question,
            references=self.references,
            language=self.language,
            length=len(document.split()),
            subject=judged,
        )

    @property
    def fields(self) -> dict[str, str]:
        """Texts for the placeholders of a rubric, except {document}."""
        if self.texts:
            return dict(self.texts)
        first, second = (self.answer, self.against) if self.answer_first else (self.against, self.answer)
        values = {"question": self.question, "reference": "\n".join(map(str, self.references))}
        return {**values, "answer": self.answer, "a": first, "b": second}


def _no_documents(_bundle: Bundle, _benchmark: str, _task: str) -> Iterator[Sample]:
    return iter(())


class JudgeBenchmark(Benchmark):
    """Benchmark of a rubric's rounds. Without a rubric there is no task, and it only scores stored judgements.

    Args:
        rounds: rounds, grouped by judged task.
        documents: loader of the documents that the rubric shows.
    """

    name = NAME
    metric_version = 1

    def __init__(
        self, rubric: Rubric | None = None, rounds: Sequence[Round] = (), documents: DocumentLoader = _no_documents
    ) -> None:
        self._rubric = rubric
        self._rounds = {round_.round_id(rubric.sha256): round_ for round_ in rounds} if rubric else {}
        self._documents = documents

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return the only task, named like the rubric."""
        rubric, count = self._rubric, len(self._rounds)
        return [Task(NAME, rubric.name, (rubric.metric,), count)] if rubric and count else []

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield the samples of the rounds in order, or in the judged data's order if the rubric shows documents.

        Raises:
            BundleError: the document of a judged answer is missing in the bundle, or differs.
        """
        if self._rubric is None:
            return
        if not self._rubric.shows_document:
            yield from (round_.sample(self._rubric) for round_ in self._rounds.values())
            return
        for (benchmark, judged), rounds in groupby(self._rounds.values(), lambda r: (r.benchmark, r.task)):
            yield from self._with_documents(bundle, self._rubric, benchmark, judged, list(rounds))

    def _with_documents(
        self, bundle: Bundle, rubric: Rubric, benchmark: str, task: str, rounds: Sequence[Round]
    ) -> Iterator[Sample]:
        remaining: dict[str, list[Round]] = {}
        for round_ in rounds:
            remaining.setdefault(round_.sample_id, []).append(round_)
        for judged in self._documents(bundle, benchmark, task):
            matching = remaining.pop(judged.sample_id, [])
            if matching and matching[0].document_sha256 not in ("", sha256_text(judged.context)):
                raise _wrong_document_error(bundle, matching[0])
            yield from (round_.sample(rubric, judged.context) for round_ in matching)
            if not remaining:
                return
        raise _wrong_document_error(bundle, next(iter(remaining.values()))[0])

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Fill in the rubric's messages. Only a document may be cut, in its middle."""
        assert self._rubric is not None
        return self._prompt(self._rubric, self._rubric.user, sample)

    def later_prompts(self, bundle: Bundle, sample: Sample, mode: Mode) -> Sequence[Prompt]:
        """Fill in the rubric's further messages."""
        assert self._rubric is not None
        return [self._prompt(self._rubric, user, sample) for user in self._rubric.more_users]

    def next_step(self, bundle: Bundle, sample: Sample, mode: Mode, outputs: Sequence[str]) -> Prompt | str:
        """Return the prompt of the rubric's next message, or the reply, or the JSON list of several replies."""
        rubric = self._rubric
        assert rubric is not None
        if len(outputs) <= len(rubric.more_users):
            return self._prompt(rubric, rubric.more_users[len(outputs) - 1], sample)
        return json.dumps(list(outputs), ensure_ascii=False) if rubric.more_users else outputs[-1]

    def _prompt(self, rubric: Rubric, user: str, sample: Sample) -> Prompt:
        values = {**self._rounds[sample.sample_id].fields, "document": sample.context}
        before, document, after = fill_format(user, values, document="document", source=rubric.source)
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
        """Parse the verdict on the judged answer (1, 0.5, 0), or the rating as a fraction of the scale, or []."""
        return judgement(sample.subject, output) if isinstance(sample, RoundSample) else []

    def cluster(self, sample: Sample, document: str) -> str:
        """Document of the judged sample."""
        return sample.subject.document_sha256 if isinstance(sample, RoundSample) else ""

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        """Return [], because a judge's verdicts are numbers of the judged models."""
        return []


def _wrong_document_error(bundle: Bundle, round_: Round) -> BundleError:
    return BundleError(
        f"The bundle at {bundle.root} lacks the document of {round_.benchmark}/{round_.task}/{round_.sample_id}, and "
        "the rubric shows it to the judge.",
        fix="Pass the bundle of the original run, or a rubric without {document}.",
    )
