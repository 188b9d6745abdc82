"""Words of a command line that are not UTF-8: a name or text is refused by name, a file is opened or refused.

Python gives such bytes to a program as halves of surrogate pairs, which no database, JSON file or terminal takes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lbx.cli.main import COMMANDS, load_command
from tests import profiles
from tests.attacks.attack_parts import lbx, refused
from tests.attacks.jail import Jail
from tests.attacks.results_parts import results_file

BAD = "x\udcff"
RUN = ("-b", "bundle", "-m", "oracle.jsonl", "-t", "needle/single_en", "-n", "1")
JOBS = (*RUN, "--shards", "1", "-o", "out/s", "--dry-run")
BASES: dict[str, tuple[str, ...]] = {
    "tasks": ("-b", "bundle"),
    "models": ("-b", "bundle"),
    "prompts": RUN,
    "plan": (*RUN, "--no-measure-speed"),
    "run": (*RUN, "--no-plan", "-o", "out/new.duckdb"),
    "parity": ("oracle.jsonl", "oracle.jsonl", "-b", "bundle", "-t", "needle/single_en", "-n", "1"),
    "report": ("r.duckdb", "leaderboard"),
    "check": ("r.duckdb", "--at-least", "longbench=1"),
    "show": ("r.duckdb", "longbench/qasper/0000"),
    "browse": ("r.duckdb", "--port", "0"),
    "sql": ("r.duckdb", "SELECT 1"),
    "judge": ("r.duckdb", "-b", "bundle", "-j", "judge.jsonl", "--run", "r1", "--questions", "open", "--no-plan"),
    "rate": ("r.duckdb", "--port", "0", "--rater", "ann"),
    "annotate": ("data.jsonl", "--write", "-o", "out/y.jsonl"),
    "import": ("longbench", "qasper.jsonl", "--model-name", "m", "-o", "out/new.duckdb"),
    "export": ("longbench", "r.duckdb", "--run", "r1", "-o", "out/predictions"),
    "score": ("r.duckdb", "--processes", "1"),
    "merge": ("r.duckdb", "-o", "out/all.duckdb"),
    "runs list": ("r.duckdb",),
    "runs rename": ("r.duckdb", "r1", "other"),
    "runs remove": ("r.duckdb", "r1"),
    "runs note": ("r.duckdb", "r1", "a=b"),
    "runs extract": ("r.duckdb", "r1", "-o", "out/part.duckdb"),
    "runs texts": ("r.duckdb",),
    "attest": ("r.duckdb", "--sign", "key"),
    "bundle": ("small.toml", "-o", "out"),
    "verify": ("small.tar", "--allow-unsigned"),
    "unpack": ("small.tar", "--allow-unsigned", "--to", "out/bundle"),
    "submit slurm": JOBS,
    "submit pbs": JOBS,
    "submit lsf": JOBS,
    "submit kubernetes": (*JOBS, "--image", "i", "--run-claim", "c"),
    "status": ("out",),
}


@pytest.fixture(scope="module")
def model(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undecodable")
    for name in ("bundle", "needle"):
        (folder / name).symlink_to(small / name)
    for name in ("small.toml", "small.tar", "small.SHA256SUMS", "oracle.jsonl"):
        shutil.copy(small / name, folder)
    results_file(folder / "r.duckdb")
    (folder / "judge.jsonl").write_text('{"key": "*", "text": "[[3]]"}\n')
    (folder / "qasper.jsonl").write_text('{"pred": "a", "answers": ["a"], "all_classes": null, "length": 1}\n')
    (folder / "data.jsonl").write_text('{"input": "text", "instructions": ["q"], "outputs": ["a"]}\n')
    (folder / "out").mkdir()
    return folder


def spoilt(command: str) -> dict[str, tuple[str, ...]]:
    """{what is not UTF-8: command line}: each word of a right command line, and each option that names a file."""
    name, *part = command.split()
    parsed = load_command(name)
    parsed = parsed.commands[part[0]] if part else parsed  # type: ignore[attr-defined]
    base = BASES[command]
    lines = {f"word {at}": (*base[:at], BAD, *base[at + 1 :]) for at, word in enumerate(base) if word[0] != "-"}
    for option in parsed.params:
        names_file = "Path" in str(vars(option).get("type_descriptor"))
        if names_file and option.param_type_name == "option" and option.opts[0] != "--uds":  # which would serve a page
            lines[option.opts[0]] = (*base, f"{option.opts[0]}={BAD}")
    return lines


def test_every_command_is_here() -> None:
    names = {f"{name} {part}" if part else name for name, row in COMMANDS.items() for part in row.parts or ("",)}
    assert names - {"doctor"} == BASES.keys()


@pytest.mark.parametrize("command", profiles.every(2, [*BASES]))
def test_no_word_that_is_not_utf8_upsets_a_command(command: str, model: Path, tmp_path: Path, jail: Jail) -> None:
    faults = {}
    for what, words in spoilt(command).items():
        place = tmp_path / "place"
        shutil.copytree(model, place, symlinks=True)
        ended = jail(place, *command.split(), *words)
        said = ended.out + ended.err
        fault = ended.fault(may_change=("out/", "r.duckdb", "x"), may_leave=(".cache", "out/", "x"))
        if fault or "this is a bug" in said or "cannot be read (" in said:
            faults[what] = (fault, said[-400:])
        shutil.rmtree(place)
    assert not faults


TEXTS: dict[str, tuple[tuple[str, ...], str]] = {
    "a query": (("sql", "r.duckdb", "SELECT '\udcff' AS x"), "QUERY is not UTF-8: character 9 is the byte 0xff."),
    "a new name": (("runs", "rename", "r.duckdb", "r1", BAD), "NEW_NAME is not UTF-8"),
    "a fact": (("runs", "note", "r.duckdb", "r1", f"a={BAD}"), "FACTS is not UTF-8"),
    "a run": (("report", "r.duckdb", "--run", BAD), "--run is not UTF-8"),
    "the name of a run": (("run", *RUN, "--name", BAD, "-o", "n.duckdb"), "--name is not UTF-8"),
    "a rater": (("rate", "r.duckdb", "--rater", BAD), "--rater is not UTF-8"),
    "a results file": (("report", f"{BAD}.duckdb"), "does not exist"),
    "a new results file": (("merge", "r.duckdb", "-o", f"{BAD}.duckdb"), "its path is not UTF-8. Rename it."),
    "one of several results files": (("merge", "r.duckdb", f"{BAD}.db", "-o", "n.duckdb"), "its path is not UTF-8"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_what_is_not_utf8_is_named(case: str, model: Path, tmp_path: Path) -> None:
    place = shutil.copytree(model, tmp_path / "place", symlinks=True)
    (place / os.fsdecode(b"x\xff.db")).write_bytes((place / "r.duckdb").read_bytes())
    command, words = TEXTS[case]
    refused(lbx(*command, cwd=place), words)
    assert not (place / "n.duckdb").exists()


def test_another_encoding_is_named(model: Path) -> None:
    """Of a locale that somebody has set; the plain locale C is UTF-8 for Python."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    query = lbx("sql", model / "r.duckdb", "SELECT 'caf\udcc3\udca9' AS x", env=ascii_only)
    refused(query, "QUERY is not ascii: character 12 is the byte 0xc3. Set LC_ALL=C.UTF-8")
    answer = lbx("sql", model / "r.duckdb", "SELECT chr(233) AS x", "--format", "csv", env=ascii_only)
    refused(answer, "The encoding of this terminal, ascii, lacks a character of the output. Set LC_ALL=C.UTF-8")
