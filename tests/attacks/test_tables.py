"""TOML files of strangers that are small, and cost much: definitions of benchmarks, recipes and cards of models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.attacks.jail import Jail

PARTS = ".a" * 20_000
OWN = (
    'name = "mine"\n[[task]]\nname = "one"\ndata = "one.jsonl"\nprompt = "{document}{question}"\n'
    'metrics = ["f1"]\nmax_new_tokens = 8\n'
)
FILES = {
    "benchmark.toml": (OWN, ("bundle", "benchmark.toml", "-o", "out", "--dry-run")),
    "recipe.toml": ('name = "b"\n', ("bundle", "recipe.toml", "-o", "out", "--dry-run")),
    "card.toml": (
        'backend = "scripted"\n', ("run", "-b", "bundle", "-m", "card.toml", "-t", "needle", "-o", "out/r.duckdb"),
    ),
}  # fmt: skip
COSTS = {
    "a key of many parts": (f"a{PARTS} = 1\n", "a key has more than 64 parts"),
    "a key of many quoted parts": ('"a b"' + ".'c d'" * 20_000 + " = 1\n", "a key has more than 64 parts"),
    "a table of many parts": (f"[a{PARTS}]\n", "a key has more than 64 parts"),
    "a key of many parts inside": (f"a = {{ b{PARTS} = 1 }}\n", "a key has more than 64 parts"),
    "tables in tables": ("a = " + "{ a = " * 5_000 + "1" + " }" * 5_000 + "\n", "is not valid TOML"),
    "lists in lists": ("a = " + "[" * 100_000 + "]" * 100_000 + "\n", "is not valid TOML"),
    "a long key": ("a" * 1_000_000 + " = 1\n", "has no setting 'aaa"),
    "a long word in quotes": (f'b = "{"a" * 8_000_000}"\n', "has no setting 'b'"),
    "many keys": ("".join(f"k{at} = {at}\n" for at in range(100_000)), "has no setting 'k0'"),
    "a long value of another type": (f"name_ = {list(range(100_000))}\n", "has no setting 'name_'"),
}


@pytest.fixture
def place(small: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    (folder / "out").mkdir(parents=True)
    (folder / "bundle").symlink_to(small / "bundle")
    (folder / "one.jsonl").write_text('{"id": "a", "document": "d", "question": "q", "references": ["r"]}\n')
    shutil.copy(small / "oracle.jsonl", folder)
    return folder


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("cost", COSTS)
def test_a_table_that_costs_more_than_its_size(name: str, cost: str, place: Path, jail: Jail) -> None:
    text, command = FILES[name]
    more, words = COSTS[cost]
    (place / name).write_text(more + text)
    ended = jail(place, *command)
    assert ended.refused and not ended.fault(may_leave=("out/", ".cache")), ended
    assert words in " ".join(ended.err.split())
    assert len(ended.err) < 2_000


EXPRESSIONS = ("(a*)*b", "(a|aa)+$", "(.*)*(.*)*x", "(?:a?){400}a{400}", "((a{30}){30})*")


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_of_a_definition_takes_time_by_the_text(expression: str, place: Path, jail: Jail) -> None:
    """As stop string it is a text, and as ``extract`` an expression that never goes back."""
    (place / "benchmark.toml").write_text(f"{OWN}extract = '{expression}'\nstop = ['{expression}']\n")
    (place / "model.jsonl").write_text('{"key": "*", "text": "%s!"}\n' % ("a" * 200_000))
    for command in (
        ("bundle", "benchmark.toml", "-o", "out"),
        ("unpack", "out/mine.tar", "--allow-unsigned", "--to", "out/own"),
        ("run", "-b", "out/own", "-m", "model.jsonl", "-t", "mine", "--no-plan", "-o", "out/r.duckdb"),
    ):
        ended = jail(place, *command)
        assert ended.code == 0 and not ended.fault(may_change=("out",), may_leave=(".cache",)), ended
