"""Building of a judge's rounds from stored answers.

The rounds of a question are consecutive, starting with rounds that show the opponent's answer first. The prompts of all
models then share the text before the model's own answer. On published answers, a judge thereby computes only a third of
the prompt tokens.

For a sample without a question, the official prompt with a placeholder for the document is shown. Judges from a judged
model's family are detected, because judges prefer answers like their own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.base.records import Sample, canonical_json, sha256_text
from lbx.benchmarks.base.benchmark import MARKS, MARKS_BY_NAME, copy_pairs, has_copies, marks_in, needs_model
from lbx.benchmarks.base.rubric import PAIR, Rubric, RubricTexts, TextMaker
from lbx.benchmarks.judge import JudgeBenchmark, Round
from lbx.benchmarks.registry import BENCHMARKS, official_judge
from lbx.engine.prompter import Tokenizer
from lbx.results import RunRow, Store
from lbx.results.rows import stored_sample

_PROBE = (
    "The quick brown fox, aged 1,234.5 years, doesn't re-read naïve façades… \n\n\tdef f(x):\n        return x**2\n"
    "Übergrößenträger 文章の要約をしてください。这是一个测试 Привет, мир! مرحبا بالعالم नमस्ते 안녕하세요 ∑∫√ 🙂🙃"
)
"""Text that tokenizers split differently."""


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """A model with judged answers. Facts that the run does not record are ""."""

    run_id: str
    model: str
    weights: str = ""
    architecture: str = ""
    tokenizer: str = ""


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """Compute the hash of a tokenizer's output for a text in many scripts, which is independent of file formats."""
    return sha256_text(canonical_json(tokenizer.encode(_PROBE, special=False)))


def judged_models(store: Store, run_ids: Sequence[str]) -> list[JudgedModel]:
    """Read the models of runs in a results file."""
    query = "SELECT model, settings, hardware FROM runs WHERE run_id = ?"
    return [
        _judged_model(run_id, model, json.loads(settings), json.loads(hardware))
        for run_id in run_ids
        for model, settings, hardware in store.query(query, [run_id]).rows
    ]


def same_family_runs(judge: RunRow, models: Sequence[JudgedModel]) -> list[str]:
    """List the runs of the judge's model, or of a model with the same architecture and tokenizer."""
    judge_model = _judged_model(judge.run_id, judge.model, judge.settings, judge.hardware)
    return [model.run_id for model in models if _is_same_family(judge_model, model)]


def _judged_model(run_id: str, model: str, settings: Mapping[str, Any], hardware: Mapping[str, Any]) -> JudgedModel:
    weights = canonical_json(settings["backend.weights"]) if settings.get("backend.weights") else ""
    return JudgedModel(
        run_id, model, weights, str(hardware.get("architecture", "")), str(hardware.get("tokenizer_sha256", ""))
    )


def _is_same_family(model: JudgedModel, other: JudgedModel) -> bool:
    if model.model == other.model or (model.weights and model.weights == other.weights):
        return True
    return bool(model.tokenizer) and (model.architecture, model.tokenizer) == (other.architecture, other.tokenizer)


_DOCUMENT = "[...]"
_QUESTION = "{the question}"


def task_text(bundle: Bundle | None, sample: Sample, document: str) -> str:
    """Return a stored sample's question, or else the official prompt, which may ask for a summary.

    Returns "" if the bundle lacks the prompt, or if the question is unknown, as for an import without data.

    Args:
        document: hash of the sample's document, or "" if unknown.
    """
    family = BENCHMARKS.get(sample.benchmark)
    known = family is not None and family.catalogue.has_task(sample.task) and not needs_model(family)
    if sample.question.strip() or bundle is None or family is None or not known:
        return sample.question
    try:
        prompt = family.prompt(bundle, replace(sample, context="", question=_QUESTION))
    except BundleError:
        return ""
    parts = (text.strip() for text in (prompt.system, prompt.before, _DOCUMENT, prompt.after))
    text = "\n".join(part for part in parts if part)
    return "" if _QUESTION in text and not document else text.replace(_QUESTION, "")


QuestionKey = tuple[str, str, str]
"""(benchmark, task, sample id)"""


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A stored sample with the hash of the document, or "" if the document is unknown."""

    sample: Sample
    document: str

    @property
    def key(self) -> QuestionKey:
        return self.sample.key[:3]

    @property
    def marks(self) -> tuple[str, ...]:
        return marks_in(self.sample.meta)


@dataclass(slots=True)
class RunAnswers:
    """Answers of a run for a judge.

    Attributes:
        questions: answered questions, in the data's order.
        texts: {question: {iteration: answer}}, without failed answers.
    """

    run_id: str
    questions: dict[QuestionKey, StoredQuestion] = field(default_factory=dict)
    texts: dict[QuestionKey, dict[int, str]] = field(default_factory=dict)

    def has_repetitions(self) -> bool:
        """Whether a question was asked several times. The second of two equal questions in the data does not count."""
        return any(len(texts) > 1 for key, texts in self.texts.items() if not has_copies(self.questions[key].marks))


@dataclass(frozen=True, slots=True)
class QuestionChoice:
    """Choice of questions to judge.

    Attributes:
        questions: "llm", "human", "both" or "open".
        tasks: names and patterns of tasks.
        limit: maximum number of questions of each task.
        both_orders: whether each pair is shown in both orders.
        rated_tasks: (benchmark, task) of the answers that the rubric is for, or None for all.
    """

    questions: str
    tasks: Sequence[str] = ("all",)
    limit: int | None = None
    both_orders: bool = True
    rated_tasks: Sequence[tuple[str, str]] | None = None

    def includes(self, question: StoredQuestion) -> bool:
        sample = question.sample
        if not any(matches_task(sample.benchmark, sample.task, name) for name in self.tasks):
            return False
        if self.rated_tasks is not None and (sample.benchmark, sample.task) not in self.rated_tasks:
            return False
        if self.questions == "open":
            family = BENCHMARKS.get(sample.benchmark)
            return family is None or family.catalogue.is_open(sample.task)
        return any(mark in question.marks for mark in MARKS_BY_NAME[self.questions])


@dataclass(slots=True)
class Rounds:
    """Rounds of a judge, and counts for messages.

    Attributes:
        questions: number of judged questions.
        missing: {run: number of missing or failed answers to the judged questions}.
        empty: {run: number of answers of only white space, which are judged unchanged}.
        without_task: number of questions without a text or a prompt in the bundle.
    """

    rounds: list[Round] = field(default_factory=list)
    questions: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    empty: Counter[str] = field(default_factory=Counter)
    without_task: int = 0


def read_answers(store: Store, run_id: str) -> RunAnswers:
    answers = RunAnswers(run_id)
    tasks = store.query(
        "SELECT DISTINCT benchmark, task FROM generations WHERE run_id = ? AND benchmark <> ? ORDER BY ALL",
        [run_id, JudgeBenchmark.name],
    ).rows
    for benchmark, task in sorted(tasks, key=_task_order):
        for row in store.samples(run_id, benchmark, task):
            question = StoredQuestion(stored_sample(benchmark, task, row), row["document"])
            answers.questions.setdefault(question.key, question)
            answers.texts.setdefault(question.key, {})[row["iteration"]] = row["output"] or ""
    return answers


def make_rounds(
    rubric: Rubric,
    judged_runs: Sequence[RunAnswers],
    against: RunAnswers | None,
    choice: QuestionChoice,
    bundle: Bundle | None = None,
    *,
    make_texts: TextMaker | None = None,
) -> Rounds:
    """Make the rounds of a judge.

    Args:
        bundle: source of the prompts of samples without a question.
        make_texts: makes the texts of a family's rubric.

    Raises:
        UsageError: no question can be judged, or the rubric does not fit ``against``.
    """
    _check_kind(rubric, against)
    result, counts = Rounds(), Counter[tuple[str, str]]()
    questions: dict[QuestionKey, StoredQuestion] = {}
    for run in (*judged_runs, *((against,) if against else ())):
        for key, question in run.questions.items():
            questions.setdefault(key, question)
    for key, question in sorted(questions.items(), key=lambda entry: _task_order(entry[0])):
        if not choice.includes(question) or (choice.limit and counts[key[:2]] >= choice.limit):
            continue
        counts[key[:2]] += 1
        text = question.sample.question
        if rubric.shows_question:
            text = task_text(bundle, question.sample, question.document)
            result.without_task += not text.strip()
        question_with_text = replace(question, sample=replace(question.sample, question=text))
        rounds = _question_rounds(question_with_text, judged_runs, against, choice, result)
        if make_texts is not None:
            rounds = [_with_texts(round_, make_texts(question.sample, round_.answer)) for round_ in rounds]
        result.questions += bool(rounds)
        result.rounds += sorted(rounds, key=lambda round_: (round_.answer_first, round_.against_iteration))
    if not result.rounds:
        raise _no_rounds_error(
            judged_runs, against, choice, has_marks=any(question.marks for question in questions.values())
        )
    return result


def _question_rounds(
    question: StoredQuestion,
    judged_runs: Sequence[RunAnswers],
    against: RunAnswers | None,
    choice: QuestionChoice,
    counts: Rounds,
) -> list[Round]:
    key, sample = question.key, question.sample
    rounds: list[Round] = []
    opponents = against.texts.get(key, {}) if against else {0: ""}
    if against and not opponents:
        counts.missing[against.run_id] += 1
    for run in judged_runs:
        answers = run.texts.get(key, {})
        if not answers:
            counts.missing[run.run_id] += 1
        for i, j, marks in _iteration_pairs(question, run, against, choice) if answers and opponents else ():
            round_ = Round(
                *key, sample.question, sample.references, run.run_id, answers[i], i,
                language=sample.language, document_sha256=question.document, marks=marks,
            )  # fmt: skip
            counts.empty[run.run_id] += not round_.answer.strip()
            if against:
                round_ = replace(round_, against_run_id=against.run_id, against_iteration=j, against=opponents[j])
                counts.empty[against.run_id] += not round_.against.strip()
            rounds.append(round_)
            if against and choice.both_orders:
                rounds.append(replace(round_, answer_first=False))
    return rounds


def _with_texts(round_: Round, texts: RubricTexts) -> Round:
    return replace(round_, references=texts.references, texts=texts.values)


def _iteration_pairs(
    question: StoredQuestion, run: RunAnswers, against: RunAnswers | None, choice: QuestionChoice
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield (iteration, opponent's iteration, marks) of each pair. Answers to copies of a question pair by copy."""
    answers = run.texts[question.key]
    opponents = against.texts[question.key] if against else {0: ""}
    runs = (run, against) if against else (run,)
    if not has_copies(question.marks) or all(side.has_repetitions() for side in runs):
        for i in sorted(answers):
            yield i, i if i in opponents else min(opponents), question.marks
        return
    selected_marks = MARKS_BY_NAME.get(choice.questions, MARKS)
    for (i, j), marks in copy_pairs(question.marks, answers, opponents).items():
        if any(mark in selected_marks for mark in marks):
            yield i, j, marks


def _check_kind(rubric: Rubric, against: RunAnswers | None) -> None:
    if rubric.kind == PAIR and against is None:
        raise UsageError(f"The rubric {rubric.name!r} compares two answers.", fix="Pass the other run: --against RUN.")
    if rubric.kind != PAIR and against is not None:
        raise UsageError(f"The rubric {rubric.name!r} rates a single answer.", fix="Leave out --against.")


def _no_rounds_error(
    judged_runs: Sequence[RunAnswers], against: RunAnswers | None, choice: QuestionChoice, *, has_marks: bool
) -> UsageError:
    names = ", ".join(run.run_id for run in judged_runs)
    runs = f"{names} and {against.run_id} did not both answer" if against else f"{names} did not answer"
    marks = MARKS_BY_NAME.get(choice.questions, ())
    kind = " or ".join(f'marked "{mark}"' for mark in marks) or "open"
    tasks = "" if "all" in choice.tasks else f" in {', '.join(choice.tasks)}"
    fix = "Choose other questions: --questions llm, human, both or open."
    if marks and not has_marks:
        fix = (
            f"Only {official_judge.TITLE} marks its questions. For other benchmarks, pass your own rubric "
            "(docs/judges.md): --rubric FILE.toml."
        )
    return UsageError(f"No questions to judge: {runs} any question that is {kind}{tasks}.", fix=fix)


def matches_task(benchmark: str, task: str, name: str) -> bool:
    """Whether a task belongs to ``name``: a benchmark, "benchmark/task", a pattern or "all"."""
    selected, _, pattern = name.partition("/")
    if name == "all":
        return True
    if selected != benchmark:
        family = BENCHMARKS.get(benchmark)
        return family is not None and not pattern and task in family.catalogue.selections.get(selected, ())
    return not pattern or fnmatchcase(task, pattern)


def _task_order(key: Sequence[str]) -> tuple[int, str, int, str]:
    """Build the sort key for the order of the papers, as in official files."""
    benchmark, task, *_ = key
    families = list(BENCHMARKS)
    tasks = family.catalogue.names if (family := BENCHMARKS.get(benchmark)) else ()
    return (
        families.index(benchmark) if benchmark in families else len(families), benchmark,
        tasks.index(task) if task in tasks else len(tasks), task,
    )  # fmt: skip


def has_length_hint(settings: str) -> bool:
    """Whether a run's prompts gave the length of the reference, according to the run's settings as JSON."""
    return json.loads(settings).get("length_hint") is not False
