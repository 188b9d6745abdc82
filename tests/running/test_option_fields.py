"""One option of a run is one field: the command line, a spec's JSON, its checks and a run's settings are made of it."""

import json
import re
from dataclasses import dataclass, fields
from typing import Annotated, Literal

import duckdb
import pytest
from rich.markup import escape
from typer.exceptions import TyperException

from lbx.backends.cards import KINDS
from lbx.base.errors import UsageError
from lbx.base.records import Prompt, Sampling, Truncation
from lbx.cli import command_builder
from lbx.cli.command_builder import CommandSpec, SpecValues
from lbx.cli.main import COMMANDS, load_command
from lbx.cli.spec_options import SpecOptions
from lbx.opinions.judge_spec import JudgeSpec
from lbx.options.asking import ASKING, LENGTH_OPTIONS, MODES, view_labels
from lbx.options.option import CardOption, Option, fields_of
from lbx.options.run_spec import InputOptions, RunSettings, RunSpec

GIVEN = {"bundle": "b", "model": "m", "tasks": ("needle",)}


def shown(command: str) -> dict[str, object]:
    return {one.name: one for one in load_command(command).params if one.param_type_name == "option"}


@dataclass(frozen=True, kw_only=True)
class WithMore(RunSpec):
    """A run with options that nobody has."""

    glow: Annotated[bool, Option("Glow meanwhile.", panel="How it runs")] = True
    shine: Annotated[int | None, Option("So many times.", "N", panel="How it runs")] = None
    colour: Annotated[Literal["red", "blue"], Option("In which.", "NAME", ("--colour", "-c"), panel="How it runs")] = (
        "red"
    )


@pytest.mark.parametrize("command", ["run", "plan", "prompts"])
def test_each_field_of_a_spec_is_an_option_of_the_command_line(command: str) -> None:
    for name, field in fields_of(RunSpec).items():
        option, made = field.option, shown(command)[name]
        assert option is not None, f"{name} says nothing of its option"
        assert (made.help, made.rich_help_panel, made.metavar) == (  # type: ignore[attr-defined]
            escape(option.help),
            option.panel,
            option.metavar or made.metavar,  # type: ignore[attr-defined]
        )
        names = [one for text in field.names for one in text.split("/")]
        assert [*made.opts, *made.secondary_opts] == names  # type: ignore[attr-defined]


def test_a_judge_has_its_own_options_and_those_that_say_so() -> None:
    of_judges = {name for name, field in fields_of(JudgeSpec).items() if field.option}
    taken = {name for name, field in fields_of(RunSpec).items() if field.option and field.option.judges}
    offered = of_judges & shown("judge").keys()
    assert offered == taken | (JudgeSpec.__annotations__.keys() - {"answers"})
    refused = [field for field in fields_of(RunSpec).values() if field.option and field.option.judges is False]
    assert refused
    for field in refused:
        value = not field.default if isinstance(field.default, bool) else 1
        with pytest.raises(UsageError, match=re.escape(field.option_name)):
            JudgeSpec(bundle="b", model="m", answers="a.duckdb", runs="r", **{field.name: value})


def test_no_option_is_declared_twice() -> None:
    for cls in (RunSpec, RunSettings):
        assert not (ASKING.keys() | InputOptions.__annotations__.keys()) & cls.__annotations__.keys()
    assert ASKING.keys() < {field.name for field in fields(RunSettings)}
    assert {*MODES} < ASKING.keys() >= {*LENGTH_OPTIONS}


def test_the_same_option_of_several_commands_is_one_declaration() -> None:
    rows = [row for command in COMMANDS.values() for row in (command.parts or {"": command}).values()]
    declared: dict[Option, tuple[Option, str]] = {}
    for row in rows:
        for field, _ in command_builder.option_fields(command_builder.import_object(row.options)):
            assert field.option is not None
            first, place = declared.setdefault(field.option, (field.option, row.options))
            assert first is field.option, f"{field.option_name} of {row.options} repeats that of {place}"


def test_a_new_field_is_an_option_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the command line, in the JSON, with its check and its default."""
    seen, nothing_given = [], SpecValues(WithMore)

    @dataclass(frozen=True, kw_only=True)
    class Options(SpecOptions):
        """Options of a command."""

        spec_values: SpecValues[WithMore] = nothing_given

    monkeypatch.setattr(
        command_builder, "import_object", {"options": Options, "work": lambda made: seen.append(made.spec)}.get
    )
    program = command_builder.build_command("try", CommandSpec("", "Try it.", "options", "work"))
    needed = ["-b", "b", "-m", "m", "-t", "needle"]
    program([*needed, "--no-glow", "--shine", "3", "-c", "blue"], standalone_mode=False)
    assert seen == [WithMore(**GIVEN, glow=False, shine=3, colour="blue")]
    program(needed, standalone_mode=False)
    assert seen[1].to_json() == RunSpec(**GIVEN).to_json(), "what is as by default is not said"
    for wrong in (["--shine", "0"], ["--colour", "green"]):
        with pytest.raises(TyperException) as refused:
            program([*needed, *wrong], standalone_mode=False)
        assert refused.value.exit_code == 2
    assert WithMore.from_json(seen[0].to_json(), "run.json") == seen[0]
    with pytest.raises(UsageError, match="has an unknown key: colour"):
        RunSpec.from_json(seen[0].to_json(), "run.json")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"glow": 1}, "--glow must be true or false, not 1."),
        ({"shine": True}, "--shine must be a whole number, not True."),
        ({"shine": 0}, "--shine must be at least 1, not 0."),
        ({"rag": -1}, "--rag must be at least 0, not -1."),
        ({"colour": 3}, "--colour must be text, not 3."),
        ({"ids": [3]}, "--ids must be a list of texts, not (3,)."),
        ({"backend": 3}, "--backend must be text, not 3."),
        ({"iterations": 0}, "--iterations must be at least 1"),
        ({"sampling": "hot"}, "--sampling must be"),
    ],
)
def test_values_are_checked_by_their_fields(value: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        WithMore(**{**GIVEN, **value})


def test_settings_hold_what_is_asked_and_nothing_else_of_a_spec() -> None:
    spec = RunSpec(**GIVEN, rag=2, cot=True, length_hint=False, limit=3, workers=2, retriever="bm25-characters")
    row = spec.settings.to_json()
    assert row == {
        "sampling": "official", "model_sampling": None, "chat": True, "seed": 0, "rag": 2, "cot": True,
        "length_hint": False,
    }  # fmt: skip
    mode = spec.settings.mode(0)
    assert (mode.rag, mode.cot, mode.length_hint, mode.no_context) == (2, True, False, False)


def test_sampling_is_the_benchmarks_unless_asked_otherwise() -> None:
    prompt = Prompt("", "", "", 1, Truncation.REFUSE, temperature=0.1)
    card = Sampling(temperature=0.6, top_p=0.95)
    assert RunSettings(model_sampling=card).sampling_for(prompt, 2) == Sampling(temperature=0.1, seed=2)
    by_card = RunSettings(model_sampling=card, sampling="model", seed=5).sampling_for(prompt, 2)
    assert by_card == Sampling(temperature=0.6, top_p=0.95, seed=7)


@pytest.mark.parametrize("backend", KINDS)
def test_options_of_cards_are_fields_with_their_checks(backend: str) -> None:
    options = KINDS[backend].options
    for name, field in fields_of(options).items():
        assert isinstance(field.option, CardOption) and field.option.help, name
        wrong: list[tuple[object, str]] = []
        if field.minimum is not None:
            wrong += [(field.minimum - 1, f"{name} must be at least {field.minimum}")]
            wrong += [(2**31, f"{name} must be at most ")] if field.value_type is int else []
        if field.option.choices:
            wrong.append(("x", f"{name} must be .*{field.option.choices[-1]}, not 'x'"))
        for value, said in wrong:
            with pytest.raises(UsageError, match=said):
                options(**{"url": "http://a/v1", name: value} if "url" in fields_of(options) else {name: value})


def test_views_label_options_by_their_fields() -> None:
    labels = ", ".join(view_labels("s"))
    settings = RunSettings(rag=2, cot=True, length_hint=False, reasoning_effort="low").to_json()
    with duckdb.connect() as connection:
        for stored, expected in ((settings, "effort low cot no length hint rag 2"), (RunSettings().to_json(), "")):
            query = f"SELECT concat_ws(' ', {labels}) FROM (SELECT ?::JSON AS s)"
            assert connection.execute(query, [json.dumps(stored)]).fetchall() == [(expected,)]
