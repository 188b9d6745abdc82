"""What ``lbx submit`` plans: the run that its arguments mean, counted, and dealt out into shards."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.cli.choosing import choice_of, choose_samples
from lbx.cli.output import CountProgress, announce, note
from lbx.cli.planning import known_costs
from lbx.cli.run_setup import (
    Retrieval,
    check_reasoning_budget,
    choose_tasks,
    finder_for,
    load_model,
    load_to_count,
    make_run_row,
    make_work,
)
from lbx.errors import BackendError, DoesNotFitError, UsageError

if TYPE_CHECKING:
    import typer

    from lbx.cli.run_setup import Loaded
    from lbx.engine.planning.estimate import Costs
    from lbx.engine.planning.shards import ShardPlan
    from lbx.engine.selection import Selection
    from lbx.engine.settings import RunSettings
    from lbx.engine.work import Work
    from lbx.layout import Bundle
    from lbx.records import Task

_NOT_FOR_SHARDS = ("output", "log", "shards", "shard", "scratch", "copy_every", "as_json")
_IN_THE_PLAN = ("limit", "documents", "sample", "ids")
"""What chooses samples: the plan of shards has them by name."""
_TRIAL_SAMPLES = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """A run as the arguments of ``lbx run`` say it.

    Attributes:
        given: {option's name: value}, checked.
        defaults: {option's name: what it is without}.
        spelled: {option's name: (--option, --no-option or "")}.
    """

    given: Mapping[str, Any]
    defaults: Mapping[str, Any]
    spelled: Mapping[str, tuple[str, str]]

    def settings(self) -> RunSettings:
        from lbx.engine.settings import RunSettings

        names = {field.name for field in dataclasses.fields(RunSettings)}
        values = {name: value for name, value in self.given.items() if name in names and name != "retriever"}
        return RunSettings(**values)

    def arguments(self, **instead: str) -> list[str]:
        """For a job's command line: what differs from the defaults, with some values replaced or added."""
        words: list[str] = []
        for name, value in {**self.given, **instead}.items():
            if name in (*_NOT_FOR_SHARDS, *_IN_THE_PLAN) or value == self.defaults[name]:
                continue
            on, off = self.spelled[name]
            if isinstance(value, bool):
                words.append(on if value else off)
            elif isinstance(value, (list, tuple)):
                words += [word for one in value for word in (on, str(one))]
            else:
                words += [on, str(value)]
        return words


def understand(arguments: Sequence[str], context: typer.Context) -> Wanted:
    """Read arguments as ``lbx run`` would.

    Raises:
        click's UsageError, as ``lbx run`` does; UsageError for options that each shard gets from its job.
    """
    whole: Any = context.find_root().command
    run = whole.commands["run"]
    read = run.make_context("run", [*arguments, "--output", "-"], parent=context)
    known = {option.name: option for option in run.params}
    # A parser gives text where it was told to make an Enum; both compare equal to their text.
    defaults = {name: option.get_default(read) for name, option in known.items()}
    given = {name: value for name, value in read.params.items() if name in known}
    for name in _NOT_FOR_SHARDS:
        if name not in ("output", "as_json") and given[name] != defaults[name]:
            raise UsageError(
                f"{known[name].opts[0]} is each shard's own; the job script gives it.", fix="Leave it out."
            )
    spelled = {
        name: (option.opts[0], option.secondary_opts[0] if option.secondary_opts else "")
        for name, option in known.items()
    }
    return Wanted(given, defaults, spelled)


@dataclasses.dataclass(frozen=True, slots=True)
class Counting:
    """How ``lbx submit`` finds out what samples cost.

    Attributes:
        calibrate: compute for a few seconds.
        like: a results file of a run on such machines.
        tokens: False guesses tokens from characters and loads nothing.
    """

    calibrate: bool = True
    like: Path | None = None
    tokens: bool = True


def plan_shards(bundle: Bundle, wanted: Wanted, count: int, how: Counting, fallback: str) -> ShardPlan:
    """Count the run and deal it out.

    Args:
        fallback: the run's name where the arguments give none.

    Raises:
        LbxError: the tasks, the model or the data are not there.
    """
    from lbx.benchmarks import BENCHMARKS
    from lbx.cli.run_commands import asked_kinds
    from lbx.engine.planning.shards import ShardPlan, make_shards

    given = wanted.given
    settings = wanted.settings()
    name = given["name"] or fallback
    names, kinds = asked_kinds(settings, name) if given["both_kinds"] else ([name], [settings])
    tasks = choose_tasks(bundle, given["task_names"], settings)
    chosen = choice_of(*(given[name] for name in ("limit", "documents", "sample", "seed", "ids")))
    selection = choose_samples(bundle, tasks, chosen)
    _tell_of_unlike_nodes(bundle, given["model"], given["backend"])
    documents, costs, basis = _count(bundle, tasks, wanted, kinds, how, selection=selection)
    if len(documents) < count:
        note(f"There are {len(documents):,} documents, so there are as many shards, not {count}.")
    if not documents:
        raise UsageError("These tasks have no sample to ask.", fix="See what there is: lbx tasks.")
    shards = make_shards(documents, costs, [task.full_name for task in tasks], count)
    asked = {task.full_name: settings.iterations or BENCHMARKS[task.benchmark].iterations for task in tasks}
    unit = "tokens" if basis.startswith("a rule of thumb") else "s"
    return ShardPlan(bundle.digest, tuple(str(one) for one in names), asked, unit, basis, shards)


def _tell_of_unlike_nodes(bundle: Bundle, model: str, backend: str | None) -> None:
    """Each node decides by its own processor what "auto" is, and shards of two number formats are never merged."""
    from lbx.backends import resolve_model
    from lbx.backends.options import AUTO, HfOptions

    options = resolve_model(model, backend=backend, bundle=bundle).options
    if isinstance(options, HfOptions) and options.dtype == AUTO:
        note(
            "dtype = 'auto' follows each node's processor or GPU, and shards of two number formats are refused when "
            "they are merged: where nodes differ, name a dtype in the model card's [options]."
        )


def _count(
    bundle: Bundle,
    tasks: list[Task],
    wanted: Wanted,
    kinds: Sequence[RunSettings],
    how: Counting,
    *,
    selection: Selection,
) -> tuple[Sequence[Any], list[float], str]:
    """The documents, what each costs, and how that is known."""
    from lbx.benchmarks import BENCHMARKS
    from lbx.engine.planning.shards import documents_in_characters, rule_of_thumb
    from lbx.engine.work import Agenda

    loaded, calibrate = _load(bundle, tasks, wanted, how) if how.tokens else (None, False)
    if loaded is not None:
        try:
            return _count_tokens(loaded, wanted, kinds, how, selection=selection, calibrate=calibrate)
        finally:
            loaded.backend.close()
    agendas = [Agenda("", bundle, tasks, BENCHMARKS, settings, selection) for settings in kinds]
    with CountProgress("counted") as progress:
        documents = documents_in_characters(agendas, progress.count)
    return documents, [rule_of_thumb(one) for one in documents], "a rule of thumb, from characters"


def _load(bundle: Bundle, tasks: list[Task], wanted: Wanted, how: Counting) -> tuple[Loaded | None, bool]:
    """The model, whole where it is to be measured, else to count; None where it cannot be loaded here."""
    model, backend, threads = (wanted.given[name] for name in ("model", "backend", "threads"))
    measure = how.calibrate and how.like is None
    try:
        if measure:
            try:
                return load_model(bundle, tasks, model, backend, threads), True
            except DoesNotFitError as error:
                note(f"{error} Its tokens are counted all the same.")
        return load_to_count(bundle, tasks, model, backend, threads), False
    except BackendError as error:
        note(f"{error.cause} So shards are made equal by characters; that decides how even they are, nothing else.")
        return None, False


def _count_tokens(
    loaded: Loaded,
    wanted: Wanted,
    kinds: Sequence[RunSettings],
    how: Counting,
    *,
    selection: Selection,
    calibrate: bool,
) -> tuple[Sequence[Any], list[float], str]:
    from lbx.engine.planning.calibration import room_of
    from lbx.engine.planning.shards import documents_in_tokens, rule_of_thumb, seconds_of

    given = wanted.given
    finder = finder_for(
        Retrieval(given["rag"], given["retriever"], given["chunk_words"], given["threads"]), loaded.bundle
    )
    try:
        for settings in kinds:
            check_reasoning_budget(loaded, settings)
        works = [make_work(loaded, one, selection, finder.find if finder else None) for one in kinds]
        with CountProgress("counted") as progress:
            documents = documents_in_tokens(works, progress.count)
    finally:
        if finder:
            finder.close()
    costs = _costs(works, how, given["workers"], calibrate=calibrate)
    if costs is None:
        return documents, [rule_of_thumb(one) for one in documents], "a rule of thumb, from tokens"
    room = room_of(loaded.backend, batching=kinds[0].batching)
    names = [task.full_name for task in loaded.tasks]
    return documents, [seconds_of([one], names, costs, room) for one in documents], costs.basis


def _costs(works: Sequence[Work], how: Counting, workers: int, *, calibrate: bool) -> Costs | None:
    from lbx.engine.planning.calibration import calibrate as measure
    from lbx.engine.planning.plan import make_plan

    if how.like is not None:
        found = _costs_like(how.like, works[0], workers)
        if found is None:
            note(f"{how.like} says nothing of this model's speed with these options and {workers} workers.")
        return found
    if not calibrate:
        return None
    few = [dataclasses.replace(work, selection=work.selection.first(work.tasks, _TRIAL_SAMPLES)) for work in works]
    return measure(works[0].backend, make_plan(few), batching=works[0].settings.batching, say=announce)


def _costs_like(results: Path, work: Work, workers: int) -> Costs | None:
    """What a results file of another machine says: of the hardware that its newest session ran on."""
    from lbx.store import Store

    recommended = work.settings.model_sampling or work.backend.info.default_sampling
    completed = dataclasses.replace(work, settings=dataclasses.replace(work.settings, model_sampling=recommended))
    row = make_run_row(None, completed, "")
    with Store(results, read_only=True) as store:
        hardware = store.query(
            "SELECT s.hardware::VARCHAR FROM sessions s JOIN runs r USING (run_id) WHERE r.model = ? AND r.backend = ? "
            "ORDER BY s.started_at DESC LIMIT 1",
            [row.model, row.backend],
        ).rows
        if not hardware:
            return None
        return known_costs(store, dataclasses.replace(row, hardware=json.loads(hardware[0][0])), workers)
