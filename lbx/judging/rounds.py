"""Stored answers as rounds for a judge: which questions, whose answers, which order, and what is left out.

The rounds of a question follow each other, those that begin with the opponent's answer first: all models' share them up
to their own answer. On published answers a judge so reads a third of its prompts' tokens.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.base.odd_values import refusing_odd_values
from lbx.base.records import Sample
from lbx.benchmarks import BENCHMARKS, official_judge
from lbx.benchmarks.base.judge_marks import BY_NAME, MARKS, copies_of, has_copies, marks_in
from lbx.benchmarks.base.rubric import PAIR, Rubric
from lbx.benchmarks.judge import Judging, Round
from lbx.judging.task_texts import task_text
from lbx.store import Store
from lbx.store.rows import stored_sample

Place = tuple[str, str, str]
"""(benchmark, task, sample id)."""


@dataclass(frozen=True, slots=True)
class Question:
    """A stored sample; ``document`` is its hash, "" where nobody knows it."""

    sample: Sample
    document: str

    @property
    def place(self) -> Place:
        return self.sample.key[:3]

    @property
    def marks(self) -> tuple[str, ...]:
        """Who is to judge it."""
        return marks_in(self.sample.meta)


@dataclass(slots=True)
class RunAnswers:
    """A run's answers.

    Attributes:
        questions: in the data's order.
        texts: {place: {iteration: answer}}, failed ones left out.
    """

    run_id: str
    questions: dict[Place, Question] = field(default_factory=dict)
    texts: dict[Place, dict[int, str]] = field(default_factory=dict)

    def repeats(self) -> bool:
        """Whether questions were asked several times. (Else a second answer is that to a question's second copy.)"""
        return any(len(texts) > 1 for place, texts in self.texts.items() if not has_copies(self.questions[place].marks))


@dataclass(frozen=True, slots=True)
class Questions:
    """What is to be judged.

    Attributes:
        questions: "llm", "human", "both" or "open".
        tasks: names and patterns.
        limit: the first so many questions of each task.
        both_orders: whether each pair is shown in both orders.
    """

    questions: str
    tasks: Sequence[str] = ("all",)
    limit: int | None = None
    both_orders: bool = True

    def takes(self, question: Question) -> bool:
        """Whether a question is asked."""
        sample = question.sample
        if not any(_means(name, sample) for name in self.tasks):
            return False
        if self.questions == "open":
            family = BENCHMARKS.get(sample.benchmark)
            return family is None or family.is_open(sample.task)
        return any(mark in question.marks for mark in BY_NAME[self.questions])


@dataclass(slots=True)
class Rounds:
    """Rounds, and what there is to say of them.

    Attributes:
        questions: how many are judged.
        missing: {run: how many of its answers to them are not there, or failed}.
        empty: {run: how many hold nothing but white space, and are judged as they are}.
        without_task: how many have neither a question nor a prompt in the bundle.
    """

    rounds: list[Round] = field(default_factory=list)
    questions: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    empty: Counter[str] = field(default_factory=Counter)
    without_task: int = 0


@refusing_odd_values
def read_answers(store: Store, run_id: str) -> RunAnswers:
    """What a run has answered."""
    answers = RunAnswers(run_id)
    tasks = store.query(
        "SELECT DISTINCT benchmark, task FROM generations WHERE run_id = ? AND benchmark <> ? ORDER BY ALL",
        [run_id, Judging.name],
    ).rows
    for benchmark, task in sorted(tasks, key=_task_order):
        for row in store.samples(run_id, benchmark, task):
            question = Question(stored_sample(benchmark, task, row), row["document"])
            answers.questions.setdefault(question.place, question)
            answers.texts.setdefault(question.place, {})[row["iteration"]] = row["output"] or ""
    return answers


def make_rounds(
    rubric: Rubric,
    judged: Sequence[RunAnswers],
    against: RunAnswers | None,
    wanted: Questions,
    bundle: Bundle | None = None,
) -> Rounds:
    """What the judge is asked.

    Args:
        bundle: has the prompts that say what samples without a question ask.

    Raises:
        UsageError: nothing, or the rubric is not for this.
    """
    _check(rubric, against)
    made, counts = Rounds(), Counter[tuple[str, str]]()
    every: dict[Place, Question] = {}
    for run in (*judged, *((against,) if against else ())):
        every |= {place: question for place, question in run.questions.items() if place not in every}
    for place, question in sorted(every.items(), key=lambda one: _task_order(one[0])):
        if not wanted.takes(question) or (wanted.limit and counts[place[:2]] >= wanted.limit):
            continue
        counts[place[:2]] += 1
        asked = _with_task(question, bundle) if rubric.shows_question else question
        made.without_task += rubric.shows_question and not asked.sample.question.strip()
        rounds = _of_question(asked, judged, against, wanted, made)
        made.questions += bool(rounds)
        made.rounds += sorted(rounds, key=lambda one: (one.answer_first, one.against_iteration))
    if not made.rounds:
        raise _nothing(judged, against, wanted, marked=any(question.marks for question in every.values()))
    return made


def _with_task(question: Question, bundle: Bundle | None) -> Question:
    text = task_text(bundle, question.sample, question.document)
    return replace(question, sample=replace(question.sample, question=text))


def _of_question(
    question: Question, judged: Sequence[RunAnswers], against: RunAnswers | None, wanted: Questions, rounds: Rounds
) -> list[Round]:
    place, sample = question.place, question.sample
    made: list[Round] = []
    theirs = against.texts.get(place, {}) if against else {0: ""}
    if against and not theirs:
        rounds.missing[against.run_id] += 1
    for run in judged:
        mine = run.texts.get(place, {})
        if not mine:
            rounds.missing[run.run_id] += 1
        for i, j, marks in _pairs(question, run, against, wanted) if mine and theirs else ():
            one = Round(
                *place, sample.question, sample.references, run.run_id, mine[i], i,
                language=sample.language, document_sha256=question.document, marks=marks,
            )  # fmt: skip
            rounds.empty[run.run_id] += not one.answer.strip()
            if against:
                one = replace(one, against_run_id=against.run_id, against_iteration=j, against=theirs[j])
                rounds.empty[against.run_id] += not one.against.strip()
            made.append(one)
            if against and wanted.both_orders:
                made.append(replace(one, answer_first=False))
    return made


def _pairs(
    question: Question, run: RunAnswers, against: RunAnswers | None, wanted: Questions
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """(iteration, the opponent's, marks) of each pair: where a run had two answers to a question's copies, of each."""
    mine = run.texts[question.place]
    theirs = against.texts[question.place] if against else {0: ""}
    if not any(has_copies(question.marks) and not one.repeats() for one in (run, against) if one):
        for i in sorted(mine):
            yield i, i if i in theirs else min(theirs), question.marks
        return
    chosen = BY_NAME.get(wanted.questions, MARKS)
    for (i, j), marks in copies_of(question.marks, mine, theirs).items():
        if any(mark in chosen for mark in marks):
            yield i, j, marks


def _check(rubric: Rubric, against: RunAnswers | None) -> None:
    if rubric.kind == PAIR and against is None:
        raise UsageError(f"The rubric {rubric.name!r} compares two answers.", fix="Name the other run: --against RUN.")
    if rubric.kind != PAIR and against is not None:
        raise UsageError(f"The rubric {rubric.name!r} rates one answer alone.", fix="Leave out --against.")


def _nothing(
    judged: Sequence[RunAnswers], against: RunAnswers | None, wanted: Questions, *, marked: bool
) -> UsageError:
    names = ", ".join(run.run_id for run in judged)
    who = f"{names} and {against.run_id} did not both answer" if against else f"{names} did not answer"
    marks = BY_NAME.get(wanted.questions, ())
    what = " or ".join(f'marked "{mark}"' for mark in marks) or "open"
    fix = "Choose other questions: --questions llm, human, both or open."
    if marks and not marked:
        fix = (
            f"Only {official_judge.TITLE} marks its questions. For others give a rubric of your own (docs/judges.md): "
            "--rubric FILE.toml."
        )
    return UsageError(
        f"Nothing to judge: {who} any question that is {what}"
        + (f" in {', '.join(wanted.tasks)}." if "all" not in wanted.tasks else "."),
        fix=fix,
    )


def _means(name: str, sample: Sample) -> bool:
    benchmark, _, task = name.partition("/")
    if name == "all":
        return True
    if benchmark != sample.benchmark:
        family = BENCHMARKS.get(sample.benchmark)
        return family is not None and not task and sample.task in family.selections.get(benchmark, ())
    return not task or fnmatchcase(sample.task, task)


def _task_order(place: Sequence[str]) -> tuple[int, str, int, str]:
    """The papers' order, as official files have them."""
    family, name, *_ = place
    families = list(BENCHMARKS)
    known = benchmark.known_tasks if (benchmark := BENCHMARKS.get(family)) else ()
    return (
        families.index(family) if family in families else len(families), family,
        known.index(name) if name in known else len(known), name,
    )  # fmt: skip


def protocol(settings: str) -> bool:
    """Whether a run's questions told how long the reference is: of a row's settings, as JSON."""
    return json.loads(settings).get("length_hint") is not False
