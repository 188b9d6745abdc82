"""Preparation of judge runs: finding runs and published answers by name, and building rounds."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.base.records import Sample
from lbx.base.tables import entry_error, read_table
from lbx.base.units import format_count
from lbx.benchmarks.base.rubric import PAIR, Rubric, parse_rubric_table
from lbx.benchmarks.judge import JudgeBenchmark
from lbx.benchmarks.registry import (
    BENCHMARKS,
    RATING_RUBRICS,
    official_judge,
    official_rubric,
    rating_rubric,
    rating_texts,
    rubric_file,
)
from lbx.exchange.importing import import_published_run
from lbx.opinions.judge_spec import OFFICIAL, JudgeSpec
from lbx.opinions.rounds import (
    JudgedModel,
    QuestionChoice,
    Rounds,
    RunAnswers,
    has_length_hint,
    judged_models,
    make_rounds,
    matches_task,
    read_answers,
)
from lbx.options.option import fields_of
from lbx.results import Store
from lbx.results.file.texts import require_texts
from lbx.results.scoring.aggregation import recompute_completed_samples
from lbx.results.scoring.reading import log_snapshot

log = logging.getLogger("lbx")


def judge_spec(fields: Mapping[str, Any]) -> JudgeSpec:
    """Build a judge spec. Raises UsageError if a field is missing or out of range."""
    if not fields.get("runs"):
        raise UsageError(
            "No run to judge.",
            fix="Pass --run with a run of the results file, or with a model that has published answers in the bundle. "
            "To calibrate the judge on published answers, pass --calibrate.",
        )
    return JudgeSpec(**fields)


def calibration_spec(fields: Mapping[str, Any]) -> JudgeSpec:
    """Build a judge spec for the published answers with known win rates of the official judge."""
    for name in ("runs", "against", "questions", "rubric", "tasks", "orders"):
        if name in fields:
            raise UsageError(
                f"--calibrate judges the published answers to {official_judge.TITLE} with official settings; it cannot "
                f"be combined with {fields_of(JudgeSpec)[name].option_name}.",
                fix="Remove one of them.",
            )
    return JudgeSpec(**fields, runs=tuple(official_judge.PUBLISHED_RUNS.values()), against=official_judge.BASELINE_RUN)


def rubric_of(spec: JudgeSpec, bundle: Bundle) -> Rubric:
    """Read the rubric that a spec names.

    Raises:
        BundleError: the bundle lacks the official rubric.
        UsageError: a file is missing or invalid.
    """
    if spec.rubric in RATING_RUBRICS:
        return rating_rubric(bundle, spec.rubric)
    if spec.rubric != OFFICIAL:
        return read_rubric(Path(spec.rubric))
    try:
        return official_rubric(bundle)
    except BundleError as exc:
        if bundle.file(official_judge.SCRIPT) is not None:
            raise
        fix = (
            "Pass your own rubric with --rubric FILE.toml (see docs/judges.md). For the official rubric, give a bundle "
            f"with {official_judge.TITLE}."
        )
        raise BundleError(exc.cause, fix=fix) from exc


def read_rubric(path: Path) -> Rubric:
    """Read a rubric from a rubric file or from the definition of a custom benchmark.

    Raises:
        UsageError: the rubric is invalid. The message names the file and the key.
    """
    if not path.exists():
        raise UsageError(
            f"There is no rubric {str(path)!r}: it is neither a file nor {OFFICIAL}, {', '.join(RATING_RUBRICS)}.",
            fix="Pass a rubric's TOML file, or your benchmark.toml if it has a [rubric] (docs/judges.md).",
        )
    table, _ = read_table(path)
    reserved = {OFFICIAL: f"the official rubric of {official_judge.TITLE}"}
    reserved |= {name: f"a rubric of {family.name}" for name, family in RATING_RUBRICS.items()}
    if "task" not in table:
        return parse_rubric_table(table, str(path), path.name, reserved)
    if not isinstance(rubric := table.get("rubric"), dict):
        raise entry_error(path, "the definition has no [rubric]", "Add [rubric], or pass a rubric's own file.")
    return parse_rubric_table(rubric, f"{path}, [rubric]", path.name, reserved)


@dataclass(frozen=True, slots=True)
class _StoredRuns:
    """Runs of several results files.

    Attributes:
        length_hints: {run that is not a judge: whether the prompts gave the length of the reference}, from the first
            file with the run.
        models: {model: runs}, without published answers.
    """

    length_hints: Mapping[str, bool]
    models: Mapping[str, Sequence[str]]

    def match(self, name: str, bundle: Bundle) -> str:
        """Find the run with a name, else the only run of a model with the name, or whose own name begins with it.

        Any other name, such as that of a published model, is returned unchanged.

        Raises:
            UsageError: several runs match, including published answers.
        """
        if name in self.length_hints:
            return name
        published = any(name in _published_models(bundle, length_hint=hint) for hint in (True, False))
        runs = self.models.get(name) or [run for run in self.length_hints if not published and run.startswith(name)]
        candidates = [*runs, *([official_judge.PUBLISHED + name] if published else [])]
        if len(candidates) > 1:
            raise UsageError(f"{name!r} is ambiguous: it matches {' and '.join(candidates)}.", fix="Give one of these.")
        return runs[0] if runs else name


def import_published_models(spec: JudgeSpec, output: Path, *, quiet: bool = False) -> JudgeSpec:
    """Return the spec with runs in place of the names of published models. Missing answers are imported.

    Args:
        output: results file for the imported answers.
        quiet: whether to import without a log message, because ``output`` is temporary.

    Raises:
        UsageError: a name matches no run and no published model, or the runs used different protocols.
        BundleError: the bundle lacks published answers.
    """
    bundle = Bundle(Path(spec.bundle))
    answers = [path for path in dict.fromkeys([*spec.answers, str(output)]) if Path(path).is_file()]
    with _open_stores(answers) as stores:
        stored = _stored_runs(stores)
        spec = replace(
            spec,
            runs=tuple(stored.match(name, bundle) for name in spec.runs),
            against=stored.match(spec.against, bundle) if spec.against else None,
        )
        spec = _with_bundled_rubric(spec, bundle, stores)
    rubric_of(spec, bundle)  # fail before writing anything
    hints = {stored.length_hints[name] for name in spec.runs if name in stored.length_hints}
    length_hint = hints != {False}
    run_ids = {
        name: _run_id(name, spec, bundle, stored.length_hints, length_hint=length_hint) for name in _run_names(spec)
    }
    if missing := [name for name, run_id in run_ids.items() if run_id not in stored.length_hints]:
        with Store(output) as store:
            for name in missing:
                model = name.removeprefix(official_judge.PUBLISHED)
                run_ids[name] = import_published_run(store, bundle, model, length_hint=length_hint)
                if not quiet:
                    log.info(f"Copied the published answers of {model} into {output} as {run_ids[name]}.")
            recompute_completed_samples(store, BENCHMARKS)
        answers = list(dict.fromkeys([*answers, str(output)]))
    against = run_ids[spec.against] if spec.against else None
    return replace(
        spec, answers=tuple(answers), runs=tuple(dict.fromkeys(run_ids[name] for name in spec.runs)), against=against
    )


def _with_bundled_rubric(spec: JudgeSpec, bundle: Bundle, stores: Sequence[Store]) -> JudgeSpec:
    """Use a rubric of the answers' benchmark if none is chosen and no answer is of the default rubric's benchmark.

    That is the rubric of a custom benchmark's definition, or a benchmark's rubric for the tasks of the answers.

    Raises:
        UsageError: several rubrics apply.
    """
    if spec.rubric != OFFICIAL:
        return spec
    query = "SELECT DISTINCT benchmark, task FROM generations WHERE list_contains(?, run_id) ORDER BY ALL"
    answered = dict.fromkeys(tuple(row) for store in stores for row in store.query(query, [list(spec.runs)]).rows)
    judged = [key for key in answered if any(matches_task(key[0], key[1], name) for name in spec.tasks)]
    if any(benchmark == OFFICIAL for benchmark, _ in judged):
        return spec
    names = dict.fromkeys(benchmark for benchmark, _ in judged)
    rubrics = {name: path for name in names if name in BENCHMARKS and (path := rubric_file(name, bundle))}
    choices = {name: (str(path), f"--tasks {name}") for name, path in rubrics.items()}
    for rubric, family in RATING_RUBRICS.items():
        if not spec.against and any(
            benchmark == family.name and task in family.rubrics.tasks[rubric] for benchmark, task in judged
        ):
            choices[rubric] = (rubric, f"--rubric {rubric}")
    if len(choices) > 1:
        raise UsageError(
            f"{' and '.join(choices)} have different rubrics, but a judge can use only one.",
            fix=f"Choose one, for example {next(iter(choices.values()))[1]}.",
        )
    if not choices:
        return spec
    ((name, (rubric, _)),) = choices.items()
    tasks = (name,) if name in rubrics and "all" in spec.tasks else spec.tasks
    return replace(spec, rubric=rubric, tasks=tasks)


def _stored_runs(stores: Sequence[Store]) -> _StoredRuns:
    sql = "SELECT run_id, model FROM runs ANTI JOIN judges ON run_id = judge_id WHERE NOT starts_with(run_id, ?)"
    models: dict[str, list[str]] = {}
    runs = {tuple(row) for store in stores for row in store.query(sql, [official_judge.PUBLISHED]).rows}
    for run_id, model in sorted(runs):
        models.setdefault(model, []).append(run_id)
    return _StoredRuns(_length_hints(stores), models)


def _length_hints(stores: Sequence[Store]) -> dict[str, bool]:
    sql = "SELECT run_id, settings FROM runs ANTI JOIN judges ON run_id = judge_id ORDER BY ALL"
    rows = [row for store in reversed(stores) for row in store.query(sql).rows]
    return {run_id: has_length_hint(settings) for run_id, settings in rows}


def _run_id(name: str, spec: JudgeSpec, bundle: Bundle, length_hints: Mapping[str, bool], *, length_hint: bool) -> str:
    """Return the id of a stored run, or the id that the import of a published model's answers gives or will give."""
    if name in length_hints:
        return name
    model = name.removeprefix(official_judge.PUBLISHED)
    run_id = official_judge.published_run_id(model, length_hint=length_hint)
    published = _published_models(bundle, length_hint=length_hint)
    if run_id in length_hints or model in published:
        return run_id
    without = "" if length_hint else ", asked without the reference's length like the judged run"
    if absent := [path for path in spec.answers if not Path(path).is_file()]:
        raise UsageError(
            f"The results file {absent[0]} does not exist.",
            fix="Give the file with the answers, written by `lbx run -o`.",
        )
    raise UsageError(
        f"No run {name!r} in {' or '.join(spec.answers)}, and no published answers of a model with this name{without}.",
        fix=f"Available runs: {', '.join(length_hints) or 'none'}. Models with published answers in the bundle: "
        f"{', '.join(published) or 'none'}.",
    )


def _published_models(bundle: Bundle, *, length_hint: bool) -> Collection[str]:
    return official_judge.published_files(bundle, length_hint=length_hint)


def _run_names(spec: JudgeSpec) -> list[str]:
    return [*spec.runs, *([spec.against] if spec.against else [])]


@contextmanager
def _open_stores(paths: Sequence[str]) -> Iterator[list[Store]]:
    """Open results files for reading committed rows, even while another process writes."""
    with ExitStack() as files:
        yield [files.enter_context(Store(Path(path), allow_writer=True)) for path in paths]


@dataclass(frozen=True, slots=True)
class ResolvedJudge:
    """Rounds of a judge run, with the settings that identify them.

    Attributes:
        rounds: the rounds as a benchmark.
        settings: settings of the run about the rubric.
        models: the models with judged answers.
    """

    rounds: JudgeBenchmark
    settings: Mapping[str, str]
    models: Sequence[JudgedModel]


def resolve_judge(spec: JudgeSpec, bundle: Bundle) -> ResolvedJudge:
    """Read the answers that a spec names, make rounds from the answers, and log omissions.

    Raises:
        UsageError: a run is missing, the runs used different protocols, or no answer can be judged.
        BundleError: the bundle lacks a file that the rubric needs.
    """
    rubric = rubric_of(spec, bundle)
    with _open_stores(spec.answers) as stores:
        for store in stores:
            log_snapshot(store)
            require_texts(store, "A judge needs questions and answers.")
        length_hints = _length_hints(stores)
        judged = [_find_answers(stores, name, length_hints) for name in spec.runs]
        against = _find_answers(stores, spec.against, length_hints) if spec.against else None
        _refuse_two_protocols(length_hints, spec)
        models = {model.run_id: model for store in reversed(stores) for model in judged_models(store, _run_names(spec))}
    choice = QuestionChoice(spec.question_set, spec.tasks, spec.limit, spec.orders == "both")
    make_texts = None
    if family := RATING_RUBRICS.get(spec.rubric):
        choice = replace(choice, rated_tasks=tuple((family.name, task) for task in family.rubrics.tasks[spec.rubric]))
        make_texts = rating_texts(bundle, spec.rubric)
    rounds = make_rounds(rubric, judged, against, choice, bundle, make_texts=make_texts)
    _log_counts(rounds, rubric)
    judging = JudgeBenchmark(rubric, rounds.rounds, _read_samples)
    return ResolvedJudge(judging, rubric.settings(spec.orders), list(models.values()))


def _read_samples(bundle: Bundle, benchmark: str, task: str) -> Iterator[Sample]:
    return BENCHMARKS[benchmark].samples(bundle, task)


def _find_answers(stores: Sequence[Store], run_id: str, length_hints: Mapping[str, bool]) -> RunAnswers:
    for store in stores:
        if (answers := read_answers(store, run_id)).questions:
            return answers
    if run_id in length_hints:
        raise UsageError(f"The run {run_id!r} has no answer that can be judged.", fix="`lbx report` lists its results.")
    raise UsageError(
        f"No run {run_id!r} in {' or '.join(str(store.path) for store in stores)}.",
        fix=f"Available runs: {', '.join(sorted(length_hints))}." if length_hints else "The files contain no runs.",
    )


def _refuse_two_protocols(length_hints: Mapping[str, bool], spec: JudgeSpec) -> None:
    hinted, without = ([name for name in _run_names(spec) if length_hints.get(name) is hint] for hint in (True, False))
    if hinted and without:
        raise UsageError(
            f"The prompts of {', '.join(hinted)} include the reference's length, those of {', '.join(without)} do not "
            "(--no-length-hint): their answers are not comparable.",
            fix="Compare runs of the same protocol; published answers exist for both protocols.",
        )


def _log_counts(rounds: Rounds, rubric: Rubric) -> None:
    count = format_count(len(rounds.rounds), "round" if rubric.kind == PAIR else "rating")
    log.info(f"{format_count(rounds.questions, 'question')}, {count} with the rubric {rubric.name!r}.")
    if rounds.without_task:
        log.info(
            f"{format_count(rounds.without_task, 'question has', 'questions have')} no text, and the bundle lacks the "
            "prompts of their tasks: the judge does not see the question."
        )
    for run_id, number in rounds.missing.items():
        log.info(f"Skipped {format_count(number, 'question')}: the answer of {run_id} failed or is missing.")
    for run_id, number in rounds.empty.items():
        if number:
            log.info(
                f"{format_count(number, 'blank answer')} of {run_id} (white space only) will be judged like the others."
            )
