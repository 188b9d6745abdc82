"""The command line is learnt once: groups, a help of one screen, one name for one idea, names as people know them."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lbx.base.errors import StoreError
from lbx.base.records import Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.cli import cluster, shell_completion
from lbx.cli.command_builder import import_object, option_fields
from lbx.cli.main import COMMANDS, load_command
from lbx.opinions.judge_spec import JudgeSpec
from lbx.options.meanings import MEANINGS, RELATED
from lbx.options.option import Argument, fields_of
from lbx.options.run_spec import RunSpec
from lbx.results import GenerationRow, SampleRow, Store
from lbx.results.file.imports import refuse_other_content
from tests.command_line import Lbx, fails
from tests.results.store_rows import RUN

ROWS = {name: row for command, top in COMMANDS.items() for name, row in (top.parts or {command: top}).items()}
WORDS = {name: (command, name) if top.parts else (name,) for command, top in COMMANDS.items()
         for name in top.parts or {command: top}}  # fmt: skip
"""{command: its words on the command line}."""
NARROW = {**os.environ, "COLUMNS": "80"}  # TERMINAL_WIDTH would hold for the rest of the process: Typer reads it once
GROUPS = {
    "The six steps of the main job": "bundle verify unpack plan run report",
    "Measure": "doctor tasks models prompts parity",
    "Read": "check show browse sql",
    "Judges and people": "judge rate annotate",
    "Exchange": "import export score merge runs attest",
    "Cluster": "submit status",
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Runs alpha-1 and alpha-2 of the model small, and beta of the model large, that answered two questions each."""
    path = tmp_path / "r.duckdb"
    with Store(path) as store:
        for name, model in (("alpha-1", "small"), ("alpha-2", "small"), ("beta", "large")):
            store.begin_run(replace(RUN, run_id=name, model=model, benchmark_versions={"leval": 1, "longbench": 1}))
            for benchmark, task in (("leval", "tpo"), ("longbench", "qasper")):
                one = Sample(benchmark, task, "q", "text", "?", ("it",))
                store.write(samples=[SampleRow(one, 0)], generations=[GenerationRow(name, *one.key, output="it")])
            store.finish_run(name, "done")
    return path


def test_help_shows_the_commands_in_groups(lbx: Lbx) -> None:
    for arguments in ((), ("--help",), ("-h",)):
        done = lbx.process(*arguments, environment=NARROW)
        panels = re.split(r"╭─ (.+?) ─+╮", done.stdout + done.stderr)
        shown = dict(zip(panels[1::2], panels[2::2], strict=True))
        assert [group for group in shown if group in GROUPS] == [*GROUPS], arguments
        for group, commands in GROUPS.items():
            assert re.findall(r"^│ (\w+) ", shown[group], re.MULTILINE) == commands.split(), arguments


@pytest.mark.parametrize("command", ROWS)
def test_every_help_fits_a_screen(lbx: Lbx, command: str) -> None:
    words = WORDS[command]
    shown = lbx(*words, "--help", environment=NARROW).stdout
    assert "--help" in shown and len(shown.splitlines()) <= 40
    assert f"Example: lbx {' '.join(words)}" in " ".join(shown.split())
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    assert not re.findall(r"<(?:path|str|bool|list)", shown)


def test_an_option_means_one_thing_in_every_command() -> None:
    """Its help and kind of value are the same everywhere, or the table of meanings has what they have in common."""
    helps, metavars, long_names = defaultdict(set), defaultdict(set), defaultdict(set)
    for row in ROWS.values():
        for field, _ in option_fields(import_object(row.options)):
            if field.option and not isinstance(field.option, Argument):
                helps[field.option_name].add(field.option.help)
                metavars[field.option_name].add(field.option.metavar or "")
                for short in field.names[1:]:
                    long_names[short].add(field.option_name)
    differing = {name for name in helps if len(helps[name]) > 1 or len(metavars[name]) > 1}
    assert differing == {*MEANINGS}, "an option has a second meaning, or the table has one that is not needed"
    for name in differing:
        assert metavars[name] == {*MEANINGS[name].metavars.split(" ")}, name
    assert {short: names for short, names in long_names.items() if len(names) > 1} == {}
    assert {name for names in RELATED for name in names} <= {*helps}


@pytest.mark.parametrize("command", ["run", "plan", "prompts"])
def test_help_of_a_run_fits_a_screen_and_names_the_help_of_everything(lbx: Lbx, command: str) -> None:
    brief = lbx.process(command, "--help", environment=NARROW).stdout
    assert len(brief.splitlines()) <= 36
    for name in ("--bundle", "--model", "--tasks", "--limit", "--name", "--help-all"):
        assert name in brief
    assert "--chunk-words" not in brief
    assert lbx.process(command, "-h", environment=NARROW).stdout == brief


@pytest.mark.parametrize(
    "command", [name for name, row in ROWS.items() if hasattr(import_object(row.options), "BRIEF")]
)
def test_the_help_of_everything_has_every_option(lbx: Lbx, command: str) -> None:
    words = WORDS[command]
    top = load_command(words[0])
    if len(words) > 1:
        top = top.commands[command]  # type: ignore[attr-defined]
    assert {*import_object(ROWS[command].options).BRIEF} <= {one.name for one in top.params}
    everything = lbx.ok(*words, "--help-all", environment={**NARROW, "COLUMNS": "200"})
    for option in top.params:
        if option.param_type_name == "option":
            assert option.opts[0] in everything.stdout, option.opts


@pytest.mark.parametrize(("spec", "command"), [(RunSpec, "run"), (JudgeSpec, "judge")])
def test_messages_spell_options_as_the_command_line_does(spec: type, command: str) -> None:
    names = {option.name: option.opts for option in load_command(command).params}
    checked = [field for name, field in fields_of(spec).items() if name in names]
    assert {"model", "tasks"} < {field.name for field in checked}
    for field in checked:
        assert field.option_name in names[field.name]


@pytest.mark.parametrize(
    "command", [(), *((name,) for name in COMMANDS), *(words for words in WORDS.values() if words[0] != "submit")]
)
def test_every_command_has_the_help_of_everything(lbx: Lbx, command: tuple[str, ...]) -> None:
    done = lbx(*command, "--help-all", environment=NARROW)
    assert done.returncode == 0 and "Usage: lbx" in done.stdout, done.stderr


@pytest.mark.parametrize("seed", ["0", "1"])
def test_options_of_help_are_in_one_order(lbx: Lbx, seed: str) -> None:
    """Click keeps their names in a set, whose order follows the seed of Python's hashes."""
    done = lbx.process("submit", "--help", environment={**os.environ, "PYTHONHASHSEED": seed})
    assert "--help,--help-all" in done.stdout


def test_tasks_are_named_alike(lbx: Lbx, results: Path) -> None:
    def samples(*tasks: str) -> set[str]:
        done = lbx("show", results, "--json", *(word for task in tasks for word in ("--tasks", task)))
        return {row["sample"] for row in json.loads(done.stdout)}

    both = {"leval/tpo/q", "longbench/qasper/q"}
    assert samples() == samples("all") == samples("leval,longbench") == samples("leval/tpo", "long*/*") == both
    assert samples("leval") == samples("leval/tpo") == samples("leval/t*") == samples("leval/tpo/*") == {"leval/tpo/q"}
    for name in ("leval", "leval/tpo", "tpo", "lev*/*"):
        assert lbx("report", results, "changes", "--run", "beta", "--tasks", name).returncode == 0
    fails(lbx("report", results, "changes", "--tasks", "levall"), 2, "There is no task 'levall'")


@pytest.mark.parametrize(
    "command",
    [
        ("show", "FILE", "--run", "RUN", "--json"),
        ("report", "FILE", "cost", "--run", "RUN", "-f", "json"),
        ("export", "longbench", "FILE", "--run", "RUN", "--json", "--force", "-o", "OUT"),
        ("runs", "note", "FILE", "RUN", "--json", "PE=no"),
        ("score", "FILE", "--run", "RUN", "--json", "--processes", 1),
    ],
)
def test_stored_runs_are_named_by_name_prefix_or_model(lbx: Lbx, results: Path, tmp_path: Path, command: Any) -> None:
    def call(run: str) -> Any:
        given = {"FILE": results, "OUT": tmp_path / "out", "RUN": run}
        return lbx(*(given.get(word, word) for word in command))

    exact = call("beta")
    assert exact.returncode == 0, exact.stderr
    for name in ("be", "large"):
        assert (call(name).returncode, call(name).stdout) == (0, exact.stdout)
    fails(call("small"), 2, "'small' is ambiguous: it matches alpha-1, alpha-2.")
    fails(call("alpha"), 2, "'alpha' is ambiguous: it matches alpha-1, alpha-2.")
    fails(call("nobody"), 2, "No run 'nobody'", "Available runs: alpha-1, alpha-2, beta.")


def test_a_new_run_is_named_by_name(lbx: Lbx, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(cluster, "submit_array", seen.append)
    common = ("submit", "slurm", "-b", "b", "-m", "m", "-t", "needle", "--shards", 2, "-o", "d")
    done = lbx(*common, "--name", "mine")
    assert (done.returncode, seen[-1].spec.name, seen[-1].job_name) == (0, "mine", None)
    fails(lbx(*common, "--run=mine"), 2, "--run selects a run of --spec RESULTS", "--name")
    assert len(seen) == 1


def test_tasks_without_a_bundle_are_those_that_lbx_knows(lbx: Lbx) -> None:
    bare = {name: value for name, value in os.environ.items() if name != "LBX_BUNDLE"}
    rows = json.loads(lbx("tasks", "--json", environment=bare).stdout)
    recipes = {row["task"]: row["recipe"] for row in rows}
    assert recipes["leval/tpo"] == "bundle/leval.toml"
    assert {task.partition("/")[0] for task in recipes} == {*BENCHMARKS}
    told = {row["task"]: (row["licences"], row["real_rows"]) for row in rows}
    assert (told["babilong/qa1_0k"], told["needle/*"]) == (("Apache-2.0", "no"), (None, None))
    assert {real_rows for _, real_rows in told.values()} == {None, "yes", "some", "no"}
    shown = lbx("tasks", environment={**bare, "COLUMNS": "200"}).stdout
    assert re.search(r"babilong +280 +bundle/babilong\.toml +Apache-2\.0 +no", shown)
    root = Path(__file__).parents[2]
    assert all((root / recipe).is_file() for recipe in recipes.values() if "/" in recipe)
    assert "fetches the data" in lbx("tasks", environment=bare).stderr


def test_the_environment_names_the_bundle(lbx: Lbx, tmp_path: Path) -> None:
    named = {**os.environ, "LBX_BUNDLE": str(tmp_path / "nowhere")}
    fails(lbx("tasks", environment=named), 1, str(tmp_path / "nowhere"))
    fails(lbx("run", "-m", "m", "-t", "needle", "-o", tmp_path / "r", environment=named), 1, str(tmp_path / "nowhere"))
    assert "LBX_BUNDLE" in lbx("run", "--help").stdout


def test_an_import_matches_no_bundle_that_the_environment_names(lbx: Lbx, tmp_path: Path) -> None:
    """Matched rows are another run; a bundle of other benchmarks refused every import."""
    rows = tmp_path / "narrativeqa.jsonl"
    rows.write_text(json.dumps({"pred": "a", "answers": ["a"], "all_classes": None, "length": 9}) + "\n")
    named = {**os.environ, "LBX_BUNDLE": str(tmp_path)}
    lbx.ok("import", "longbench", rows, "--model-name", "m", "-o", tmp_path / "r.duckdb", environment=named)


def test_a_specs_file_goes_before_the_environment(lbx: Lbx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(cluster, "submit_array", seen.append)
    spec = tmp_path / "run.json"
    spec.write_text(json.dumps({"lbx_run": 1, "bundle": "its own", "model": "m", "tasks": ["needle"]}))
    common = ("submit", "slurm", "--spec", spec, "--shards", 2, "-o", "d")
    assert lbx(*common, environment={**os.environ, "LBX_BUNDLE": "other"}).returncode == 0
    assert seen[-1].spec.bundle == "its own"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("report", "FILE", "lenght_curve"), "Did you mean length_curve"),
        (("sql", "FILE", "SELECT * FROM task_score"), "Did you mean task_scores"),
        (("sql", "FILE", "SELECT modle FROM runs"), "Did you mean model"),
    ],
)
def test_what_was_meant_is_offered(lbx: Lbx, results: Path, arguments: Any, meant: str) -> None:
    done = lbx(*(results if word == "FILE" else word for word in arguments))
    assert done.returncode
    assert meant in done.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("show FILE --limit 1", "Did you mean --rows (List at most N answers)?"),
        ("run -b b -m m -t t --history r.duckdb", "Did you mean --output (The results file; created if missing)?"),
        ("score FILE --workers 0", "Did you mean --processes"),
        ("report FILE --against GPT", "--published (Also show this published model"),
        ("run -b b -m m -t t --modle x", "Did you mean --model"),
        ("run -b b -m m -t t --print-prompts", "`lbx prompts` shows the prompts of a run"),
    ],
)
def test_an_option_of_another_command_is_told_what_this_one_has(
    lbx: Lbx, results: Path, words: str, meant: str
) -> None:
    command = words.replace("FILE", str(results)).split()
    fails(lbx.process(*command), 2, "No such option", meant, f"lbx {command[0]} --help")


def test_what_shells_offer(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*shell_completion.runs({"results": results})} == {"alpha-1", "alpha-2", "beta", "large", "small"}
    assert shell_completion.tasks({"results": results}) == ["leval", "longbench", "leval/tpo", "longbench/qasper"]
    assert {"leval", "leval/tpo", "longbench/qasper"} <= {*shell_completion.tasks({})}
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.toml").write_text('backend = "scripted"\n[weights]\npath = "x.jsonl"\n')
    monkeypatch.chdir(tmp_path)
    assert "mine" in shell_completion.models({})
    offering = {"run", "report", "show", "browse", "judge", "rate", "export", "score", "prompts", "plan"}
    for command in offering:
        params: list[Any] = list(load_command(command).params)
        shown = {option.name: option for option in params}
        for name in ({"runs", "run", "stored"} | {"tasks", "model"}) & shown.keys():
            if (command, name) not in {("show", "model"), ("browse", "model")}:
                assert shown[name]._custom_shell_complete, (command, name)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("report FILE --run a", {"alpha-1", "alpha-2"}),
        ("report FILE leaderboard --format csv --run a", {"alpha-1", "alpha-2"}),
        ("export harbour FILE --run be", {"beta"}),
        ("show FILE --tasks lev", {"leval", "leval/tpo"}),
    ],
)
def test_a_shell_is_offered_what_the_named_file_holds(lbx: Lbx, results: Path, words: str, offered: set[str]) -> None:
    """Typer completes an option without having read the arguments before it."""
    line = f"lbx {words.replace('FILE', str(results))}"
    asked = {"_LBX_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    assert {*lbx.process(environment={**os.environ, **asked}).stdout.split()} == offered


@pytest.mark.parametrize("command", ["import", "run"])
def test_a_taken_name_is_told_the_option_for_another(results: Path, command: str) -> None:
    with Store(results) as store, pytest.raises(StoreError) as raised:
        if command == "run":
            store.begin_run(replace(RUN, run_id="beta", model="other"))
        else:
            store.begin_run(replace(RUN, run_id="mine", backend="import", settings={"content_sha256": "a"}))
            refuse_other_content(store, "mine", "b")
    assert "--name NAME" in raised.value.fix and "--run" not in raised.value.fix
