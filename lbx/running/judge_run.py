"""A judge over stored answers: runs and published baselines found by name, rounds made of them, asked as any run is."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lbx.base.counts import counted
from lbx.base.errors import BundleError, UsageError
from lbx.base.layout import Bundle
from lbx.base.records import Sample
from lbx.benchmarks import BENCHMARKS, official_judge, official_rubric
from lbx.benchmarks.base.rubric import PAIR, Rubric
from lbx.benchmarks.judge import Judging
from lbx.exchange.importing import published_run
from lbx.judging.rounds import Questions, Rounds, RunAnswers, make_rounds, protocol, read_answers
from lbx.judging.rubrics import read_rubric
from lbx.judging.same_family import judged_models
from lbx.planning.option import fields_of
from lbx.planning.selection import select_samples
from lbx.running.judge_spec import OFFICIAL, JudgeSpec
from lbx.running.resolved import ResolvedRun
from lbx.scoring.adding_up import add_up_completed
from lbx.scoring.reading import say_moment
from lbx.store import Store

log = logging.getLogger("lbx")


def judge_spec(fields: Mapping[str, Any]) -> JudgeSpec:
    """What was said of a judge as a spec. Raises UsageError where something is missing or out of range."""
    if not fields.get("runs"):
        raise UsageError(
            "Give the run to judge with --run: a run of the results file, or a model whose published answers are in "
            "the bundle.",
            fix="Or calibrate the judge on published answers: --calibrate.",
        )
    return JudgeSpec(**fields)


def calibrating(fields: Mapping[str, Any]) -> JudgeSpec:
    """The same over the published answers that GPT-4's win rates are known of."""
    for name in ("runs", "against", "questions", "rubric", "tasks", "orders"):
        if name in fields:
            raise UsageError(
                f"--calibrate judges the published answers to {official_judge.TITLE} in the official way; it cannot be "
                f"combined with {fields_of(JudgeSpec)[name].spelled}.",
                fix="Remove one of them.",
            )
    return JudgeSpec(**fields, runs=tuple(official_judge.PUBLISHED_RUNS.values()), against=official_judge.BASELINE_RUN)


def rubric_of(spec: JudgeSpec, bundle: Bundle) -> Rubric:
    """The rubric that a spec names.

    Raises:
        BundleError: the bundle lacks the official one.
        UsageError: a file is not there, or wrong.
    """
    if spec.rubric != OFFICIAL:
        return read_rubric(Path(spec.rubric))
    try:
        return official_rubric(bundle)
    except BundleError as exc:
        if bundle.file(official_judge.SCRIPT) is not None:
            raise
        fix = (
            "Give a rubric of your own (docs/judges.md): --rubric FILE.toml. Or, for the official one, give the bundle "
            f"of {official_judge.TITLE}."
        )
        raise BundleError(exc.cause, fix=fix) from exc


def with_baselines(spec: JudgeSpec, output: Path, *, quiet: bool = False) -> JudgeSpec:
    """The spec with the runs' own names in place of published models'; their answers are imported where they lack.

    Args:
        output: the results file that they are imported into.
        quiet: say nothing of it, because the file is not kept.

    Raises:
        UsageError: no run and no published model has such a name, or runs were asked by different protocols.
        BundleError: the bundle lacks published answers.
    """
    bundle = Bundle(Path(spec.bundle))
    answers = [path for path in dict.fromkeys([*spec.answers, str(output)]) if Path(path).is_file()]
    with _opened(answers) as stores:
        held, models = _protocols(stores), _models(stores)
        spec = replace(
            spec,
            runs=tuple(_by_model(name, held, models, bundle) for name in spec.runs),
            against=_by_model(spec.against, held, models, bundle) if spec.against else None,
        )
        spec = _with_own_rubric(spec, bundle, stores)
    rubric_of(spec, bundle)  # what can be refused is refused before anything is written
    hints = {held[name] for name in spec.runs if name in held} or {True}
    hint = hints.pop() if len(hints) == 1 else True
    names = {name: _name_of(name, spec, bundle, held, length_hint=hint) for name in _runs(spec)}
    missing = {name: run_id for name, run_id in names.items() if run_id not in held}
    if missing:
        with Store(output) as store:
            for name in missing:
                model = name.removeprefix(official_judge.PUBLISHED)
                run_id = published_run(store, bundle, model, length_hint=hint)
                if not quiet:
                    log.info(f"{output} now holds the published answers of {model}, as {run_id}.")
                names[name] = run_id
            add_up_completed(store, BENCHMARKS)
        answers = list(dict.fromkeys([*answers, str(output)]))
    against = names[spec.against] if spec.against else None
    return replace(
        spec, answers=tuple(answers), runs=tuple(dict.fromkeys(names[name] for name in spec.runs)), against=against
    )


def _with_own_rubric(spec: JudgeSpec, bundle: Bundle, stores: Sequence[Store]) -> JudgeSpec:
    """Where no answer is to a benchmark with an official rubric, the one that the bundle brings for a benchmark.

    Raises:
        UsageError: it brings several.
    """
    query = "SELECT DISTINCT benchmark FROM generations WHERE list_contains(?, run_id) ORDER BY ALL"
    answered = dict.fromkeys(row[0] for store in stores for row in store.query(query, [list(spec.runs)]).rows)
    judged = [one for one in answered if {"all", one} & {name.partition("/")[0] for name in spec.tasks}]
    if spec.rubric != OFFICIAL or official_judge.BENCHMARK in judged:
        return spec
    brought = {one: path for one in judged if one in BENCHMARKS and (path := BENCHMARKS[one].rubric_file(bundle))}
    if len(brought) > 1:
        raise UsageError(
            f"{' and '.join(brought)} have a rubric each, and a judge goes by one.",
            fix=f"Name one of them: --tasks {next(iter(brought))}.",
        )
    if not brought:
        return spec
    ((name, path),) = brought.items()
    return replace(spec, rubric=str(path), tasks=(name,) if "all" in spec.tasks else spec.tasks)


def resolve_judge(spec: JudgeSpec) -> ResolvedRun:
    """Read the answers and make rounds of them; says what is left out.

    Raises:
        UsageError: a run is not there, runs were asked by different protocols, or there is nothing to judge.
        BundleError: the bundle lacks what the rubric needs.
    """
    bundle = Bundle(Path(spec.bundle))
    rubric = rubric_of(spec, bundle)
    with _opened(spec.answers) as stores:
        for store in stores:
            say_moment(store)
        judged = [_answers(stores, name) for name in spec.runs]
        against = _answers(stores, spec.against) if spec.against else None
        _refuse_two_protocols(_protocols(stores), spec)
        models = {one.run_id: one for store in reversed(stores) for one in judged_models(store, _runs(spec))}
    wanted = Questions(spec.asked_about, spec.tasks, spec.limit, spec.orders == "both")
    rounds = make_rounds(rubric, judged, against, wanted, bundle)
    _tell(rounds, rubric)
    judging = Judging(rubric, rounds.rounds, _documents)
    tasks = judging.tasks(bundle)
    selection = select_samples(spec.choice, bundle, tasks, {judging.name: judging})
    return ResolvedRun(
        spec, bundle, tasks, selection, [spec.name], [spec.settings],
        own=judging, told=rubric.settings(spec.orders), judged=list(models.values()),
    )  # fmt: skip


def _documents(bundle: Bundle, benchmark: str, task: str) -> Iterator[Sample]:
    return BENCHMARKS[benchmark].samples(bundle, task)


def _runs(spec: JudgeSpec) -> list[str]:
    return [*spec.runs, *([spec.against] if spec.against else [])]


@contextmanager
def _opened(paths: Sequence[str]) -> Iterator[list[Store]]:
    """Results files, to read what is committed, whoever writes them."""
    with ExitStack() as files:
        yield [files.enter_context(Store(Path(path), beside_writer=True)) for path in paths]


def _protocols(stores: Sequence[Store]) -> dict[str, bool]:
    """{run that is no judge: whether its questions told how long the reference is}, by the first file that holds it."""
    sql = "SELECT run_id, settings FROM runs ANTI JOIN judges ON run_id = judge_id ORDER BY ALL"
    rows = [row for store in reversed(stores) for row in store.query(sql).rows]
    return {run_id: protocol(settings) for run_id, settings in rows}


def _models(stores: Sequence[Store]) -> dict[str, list[str]]:
    """{model: the runs that are of it}, judges and published answers left out."""
    sql = "SELECT model, run_id FROM runs ANTI JOIN judges ON run_id = judge_id WHERE NOT starts_with(run_id, ?)"
    models: dict[str, list[str]] = {}
    for model, run_id in sorted(
        {tuple(row) for store in stores for row in store.query(sql, [official_judge.PUBLISHED]).rows}
    ):
        models.setdefault(model, []).append(run_id)
    return models


def _by_model(name: str, held: Mapping[str, bool], models: Mapping[str, Sequence[str]], bundle: Bundle) -> str:
    """The run that a name means: one of that name, else the only one of that model or that begins so; published models
    keep theirs.

    Raises:
        UsageError: it may be any of several, published answers among them.
    """
    if name in held:
        return name
    published = any(name in _published(bundle, length_hint=hint) for hint in (True, False))
    runs = models.get(name) or [run for run in held if not published and run.startswith(name)]
    meant = [*runs, *([official_judge.PUBLISHED + name] if published else [])]
    if len(meant) > 1:
        raise UsageError(f"{name!r} is ambiguous: it may be {' or '.join(meant)}.", fix="Give one of these.")
    return runs[0] if runs else name


def _name_of(name: str, spec: JudgeSpec, bundle: Bundle, held: Mapping[str, bool], *, length_hint: bool) -> str:
    """The run that a name means: one in the files, else published answers."""
    if name in held:
        return name
    model = name.removeprefix(official_judge.PUBLISHED)
    run_id = official_judge.published_run_id(model, length_hint=length_hint)
    published = _published(bundle, length_hint=length_hint)
    if run_id in held or model in published:
        return run_id
    without = "" if length_hint else ", asked without the reference's length as the judged run was"
    if absent := [path for path in spec.answers if not Path(path).is_file()]:
        raise UsageError(
            f"There is no results file at {absent[0]}.", fix="Give the file with the answers, as `lbx run -o` wrote it."
        )
    raise UsageError(
        f"There is no run {name!r} in {' or '.join(spec.answers)}, and no published answers of a model of that name"
        f"{without}.",
        fix=f"Its runs are {', '.join(held) or 'none'}; the bundle brings the answers of "
        f"{', '.join(published) or 'nobody'}.",
    )


def _published(bundle: Bundle, *, length_hint: bool) -> Collection[str]:
    """The models whose judged answers the bundle brings."""
    return official_judge.published_files(bundle, length_hint=length_hint)


def _answers(stores: Sequence[Store], run_id: str) -> RunAnswers:
    for store in stores:
        if (answered := read_answers(store, run_id)).questions:
            return answered
    known = _protocols(stores)
    if run_id in known:
        raise UsageError(f"The run {run_id!r} has no answer that can be judged.", fix="See what it has: lbx report.")
    raise UsageError(
        f"There is no run {run_id!r} in {' or '.join(str(store.path) for store in stores)}.",
        fix=f"The runs are: {', '.join(sorted(known))}." if known else "There are no runs.",
    )


def _refuse_two_protocols(held: Mapping[str, bool], spec: JudgeSpec) -> None:
    hinted, without = ([name for name in _runs(spec) if held.get(name) is hint] for hint in (True, False))
    if hinted and without:
        raise UsageError(
            f"{', '.join(hinted)} told models how long the reference is, and {', '.join(without)} did not "
            "(--no-length-hint): their answers are not comparable.",
            fix="Compare runs of one protocol; published answers exist for both.",
        )


def _tell(found: Rounds, rubric: Rubric) -> None:
    rounds = counted(len(found.rounds), "round" if rubric.kind == PAIR else "rating")
    log.info(f"{counted(found.questions, 'question')}, {rounds} by the rubric {rubric.name!r}.")
    if found.without_task:
        log.info(
            f"{counted(found.without_task, 'question has', 'questions have')} no text, and the bundle lacks the "
            "prompts of their tasks: the judge does not see what was asked."
        )
    for run_id, count in found.missing.items():
        what = counted(count, "question is", "questions are")
        log.info(f"{what} left out: the answer of {run_id} failed or is missing.")
    for run_id, count in found.empty.items():
        if count:
            answers = counted(count, "answer holds", "answers hold")
            log.info(f"{answers} nothing but white space, of {run_id}; judged all the same.")
