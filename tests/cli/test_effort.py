"""``--reasoning-effort``: what of it reaches the model, is refused, and is kept; beside the switch for thinking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.options.run_spec import RunSettings, RunSpec
from tests.command_line import Lbx, fails

MESSAGES = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant"
# As gpt-oss's: any word is taken, and the marks of its channels stand in it.
CHANNELS = (
    "{% macro opening() %}{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}"
    "Reasoning: {{ reasoning_effort }}{% endmacro %}<|start|>system<|message|>{{ opening() }}<|end|>"
    f"{MESSAGES}{{% if false %}}<|channel|>analysis<|message|><|channel|>final<|message|>{{% endif %}}"
)
# A switch, and levels that are checked; medium says nothing.
CHECKED = (
    "{% set level = reasoning_effort | default('xhigh') %}{% if enable_thinking is undefined or enable_thinking %}"
    "{% if level not in ('xhigh', 'medium', 'low') %}{{ raise_exception('no such level: ' ~ level) }}{% endif %}"
    "{% if level != 'medium' %}Effort {{ level }}.{% endif %}{% endif %}" + MESSAGES
)
# Levels that are compared: any other word is passed over.
COMPARED = "{% if thinking_effort == 'high' %}Long.{% elif thinking_effort == 'low' %}Short.{% endif %}" + MESSAGES
SWITCH = "{% if enable_thinking %}<think>{% endif %}" + MESSAGES
SAID = "<|channel|>analysis<|message|>The fog, then the ship.<|end|><|start|>assistant<|channel|>final<|message|>(B)"


def test_the_budget_that_nobody_gave_is_named(lbx: Lbx, bundle: Path, card, tmp_path: Path) -> None:
    model = card(SWITCH)
    model.write_text(f"context_window = 2048\n{model.read_text()}")
    told = "Each answer may use 512 additional tokens for reasoning. Change this with --thinking-tokens N."
    for command, more in (("run", ["-o", tmp_path / "r.duckdb"]), ("plan", []), ("prompts", [])):
        assert told in asked(lbx, bundle, model, "--thinking", *more, command=command)[1], command
    assert (
        "additional tokens for reasoning"
        not in asked(lbx, bundle, model, "--thinking-tokens", 100, command="prompts")[1]
    )
    assert "additional tokens for reasoning" not in asked(lbx, bundle, model, "--no-thinking", command="prompts")[1]


@pytest.fixture
def card(tmp_path: Path):
    def write(template: str = "", *, said: str = SAID, more: str = "") -> Path:
        (tmp_path / "answers.jsonl").write_text(json.dumps({"*": said}))
        chat = f"\n[chat]\ntemplate = {json.dumps(template)}\n{more}\n" if template else ""
        (tmp_path / "m.toml").write_text(f'backend = "scripted"\n[weights]\npath = "answers.jsonl"\n{chat}')
        return tmp_path / "m.toml"

    return write


def asked(lbx: Lbx, bundle: Path, card: Path, *more: object, command: str = "run") -> tuple[int, str]:
    done = lbx(command, "-b", bundle, "-m", card, "-t", "needle", "--limit", 1, *more)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_run_from_effort_to_answer(lbx: Lbx, bundle: Path, card, tmp_path: Path) -> None:
    out = tmp_path / "r.duckdb"
    for more in ([], ["--reasoning-effort", "low"], ["--reasoning-effort", "high"]):
        code, said = asked(lbx, bundle, card(CHANNELS), "-o", out, *more)
        assert code == 0, said
        assert ("Pass --reasoning-effort low or medium or high" in said) is (not more)
    rows = json.loads(
        lbx("sql", out, "SELECT settings->>'reasoning_effort' AS effort, output, reasoning, reasoning_closed, run_id, "
            "prompt_sha256 FROM generations JOIN runs USING (run_id)", "-f", "json").stdout
    )  # fmt: skip
    assert {row["effort"] for row in rows} == {None, "low", "high"}
    told = {(row["output"], row["reasoning"], row["reasoning_closed"]) for row in rows if row["effort"]}
    assert told == {("(B)", "The fog, then the ship.", True)}
    assert len({row["run_id"] for row in rows}) == 3, "two efforts are two runs"
    modes = lbx("sql", out, "SELECT DISTINCT mode FROM leaderboard ORDER BY 1", "-f", "csv").stdout.split("\n")
    assert {"thinking effort high", "thinking effort low"} <= set(modes)


def test_what_is_cut_off_inside_the_analysis_has_no_answer(lbx: Lbx, bundle: Path, card, tmp_path: Path) -> None:
    out = tmp_path / "r.duckdb"
    code, said = asked(lbx, bundle, card(CHANNELS), "-o", out, "--reasoning-effort", "low", "--thinking-tokens", 40)
    assert code == 0, said
    assert "budget ran out inside the reasoning" in said
    assert "--reasoning-effort low" in said
    query = "SELECT DISTINCT output, reasoning, reasoning_closed, finish_reason FROM generations"
    (row,) = lbx.rows(out, query)
    assert row == {"output": "", "reasoning": "The fog, t", "reasoning_closed": False, "finish_reason": "length"}


@pytest.mark.parametrize("command", ["prompts", "plan"])
def test_other_commands_take_it(lbx: Lbx, bundle: Path, card, command: str) -> None:
    code, said = asked(lbx, bundle, card(CHANNELS), "--reasoning-effort", "high", command=command)
    assert code == 0, said
    assert command == "plan" or "Reasoning: high<|end|>" in said


def test_the_option_is_stronger_than_the_card(lbx: Lbx, bundle: Path, card) -> None:
    file = card(CHANNELS, more='kwargs = { reasoning_effort = "low" }')
    assert "Reasoning: low<" in asked(lbx, bundle, file, command="prompts")[1]
    assert "Reasoning: high<" in asked(lbx, bundle, file, "--reasoning-effort", "high", command="prompts")[1]


def test_levels_that_a_template_checks_or_passes_over(lbx: Lbx, bundle: Path, card) -> None:
    low = ("--reasoning-effort", "low")
    assert "Effort low." in asked(lbx, bundle, card(CHECKED), *low, command="prompts")[1]
    assert "Effort" not in asked(lbx, bundle, card(CHECKED), "--reasoning-effort", "medium", command="prompts")[1]
    assert "Short.<" in asked(lbx, bundle, card(COMPARED), *low, command="prompts")[1]


@pytest.mark.parametrize(
    ("template", "options", "words"),
    [
        (CHECKED, ["--reasoning-effort", "high"], ["--reasoning-effort high", "It supports low and medium", "kwargs"]),
        (COMPARED, ["--reasoning-effort", "medium"], ["It supports low and high", "thinking_effort"]),
        (
            SWITCH,
            ["--reasoning-effort", "low"],
            ["does not support reasoning_effort", "Pass --thinking or --no-thinking, which it supports"],
        ),
        (
            MESSAGES,
            ["--reasoning-effort", "low"],
            ["does not support reasoning_effort", "Remove the option: the model behaves as trained"],
        ),
        ("", ["--reasoning-effort", "low"], ["does not reach the model", "its prompts have no chat template"]),
        (CHANNELS, ["--reasoning-effort", "low", "--no-chat"], ["does not reach the model"]),
        (CHANNELS, ["--reasoning-effort", "low", "--no-thinking"], ["--no-thinking exclude each other"]),
        (CHANNELS, ["--reasoning-effort", "most"], ["low", "medium", "high"]),
    ],
)
def test_what_would_do_nothing_is_refused(lbx: Lbx, bundle: Path, card, tmp_path, template, options, words) -> None:
    out = tmp_path / "r.duckdb"
    fails(lbx("run", "-b", bundle, "-m", card(template), "-t", "needle", "-o", out, *options), 2, *words)
    assert not out.exists()


def test_without_reasoning_a_template_of_channels_names_the_least(lbx: Lbx, bundle: Path, card, tmp_path: Path) -> None:
    code, said = asked(lbx, bundle, card(CHANNELS), "-o", tmp_path / "r.duckdb", "--no-thinking")
    assert code == 0
    assert "cannot disable reasoning" in said
    assert "--reasoning-effort low" in said


LONG = "<think>" + "The fog, then the ship. " * 3 + "</think>(B)"
LEVELS = (  # as Hy3's: no reasoning unless a level asks for it, and marks that no list has
    "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'no_think' %}{% endif %}"
    + MESSAGES.replace(
        "{{ m.content }}", "{{ '<think:x>' ~ m.reasoning ~ '</think:x>' if m.reasoning }}{{ m.content }}"
    )
    + "{% if add_generation_prompt %}<think:x>{{ '</think:x>' if reasoning_effort not in ['low', 'high'] }}{% endif %}"
)


def _modes(lbx: Lbx, out: Path) -> set[str]:
    return set(lbx("sql", out, "SELECT DISTINCT mode FROM leaderboard", "-f", "csv").stdout.split("\n")[1:-1])


@pytest.mark.parametrize(
    ("template", "said", "options", "mode"),
    [
        (MESSAGES, "(B)", ["--thinking-tokens", 50], "no thinking"),
        (MESSAGES, "(B)", ["--thinking"], "no thinking"),
        (MESSAGES, LONG, ["--thinking-tokens", 99], "thinking"),
        (MESSAGES, LONG, ["--no-thinking"], "thinking"),
        (MESSAGES, "<think></think>(B)", ["--no-thinking"], "no thinking"),
        (SWITCH, "(B)", ["--thinking"], "no thinking"),
        (SWITCH, "(B)", [], ""),
        (LEVELS, "three</think:x>(B)", ["--thinking"], "thinking"),
        (LEVELS, "(B)", ["--no-thinking"], "no thinking"),
        (CHANNELS, SAID, ["--reasoning-effort", "low"], "thinking effort low"),
    ],
)
def test_a_run_is_called_by_what_its_answers_show(
    lbx: Lbx, bundle: Path, card, tmp_path: Path, template: str, said: str, options: list[object], mode: str
) -> None:
    out = tmp_path / "r.duckdb"
    code, told = asked(lbx, bundle, card(template, said=said), "-o", out, *options)
    assert code == 0, told
    assert _modes(lbx, out) == {mode or '""'} or _modes(lbx, out) == {mode}
    wanted = bool(options) and options[0] != "--no-thinking"
    assert ("None of 6 answers contains reasoning" in told) is (wanted and mode == "no thinking")


@pytest.mark.parametrize(
    ("option", "end", "value"),
    [("--thinking", "<think:x>", "high"), ("--no-thinking", "<think:x></think:x>", "no_think")],
)
def test_a_switch_of_levels_is_set_and_named(lbx: Lbx, bundle: Path, card, option: str, end: str, value: str) -> None:
    told = asked(lbx, bundle, card(LEVELS), option, command="prompts")[1]
    assert f"{option} sets reasoning_effort = '{value}' in the model's chat template." in told
    assert f"<|start|>assistant{end} ---" in told
    assert "sets the reasoning effort" not in told


@pytest.mark.parametrize(
    ("template", "more", "unknown"),
    [
        ("{% if enable_thinking %}Deliberate.{% endif %}" + MESSAGES, "", True),
        ("{{ reasoning_strength or 'high' }}" + MESSAGES, "", True),
        ("{% if enable_thinking %}Deliberate.{% endif %}" + MESSAGES, 'reasoning = ["<a>", "</a>"]', False),
        (SWITCH, "", False),
        (CHANNELS, "", False),
        (MESSAGES, "", False),
    ],
)
def test_marks_that_are_unknown_are_announced(
    lbx: Lbx, bundle: Path, card, template: str, more: str, unknown: bool
) -> None:
    told = asked(lbx, bundle, card(template, more=more), command="prompts")[1]
    assert ("found no reasoning tags" in told) is unknown
    told = asked(lbx, bundle, card(template, more=more), "--no-thinking", command="prompts")[1]
    assert "found no reasoning tags" not in told


def test_a_spec_has_it() -> None:
    spec = RunSpec(bundle="b", model="m", tasks=("needle",), reasoning_effort="low", both_kinds=True)
    assert RunSpec.from_json(spec.to_json(), "run.json") == spec
    assert [(one.thinking, one.reasoning_effort) for _, one in spec.variants] == [(True, "low"), (False, None)]
    assert RunSettings(reasoning_effort="low").reasoning_budget(65536) == 8192
    with pytest.raises(UsageError, match="--reasoning-effort must be one of low, medium, high, not 'most'"):
        RunSpec(bundle="b", model="m", tasks=("needle",), reasoning_effort="most")
