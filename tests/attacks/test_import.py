"""Predictions from somebody else: pipes, names and contents that steer a terminal, JSON that is too deep."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from results_parts import PRED, lbx, process, refused, tree

TITLE = "\x1b]0;owned\x07\x9b31m\u202e"


def steers(text: str) -> bool:
    return any(sign in text for sign in "\x1b\x07\x9b\u202e\r")


def test_a_pipe_in_the_folder_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "pred"
    folder.mkdir()
    os.mkfifo(folder / "qasper.jsonl")
    os.mkfifo(tmp_path / "model.jsonl")
    out = tmp_path / "results.duckdb"
    refused(process("import", "longbench", folder, "--model", "m", "-o", out), "a pipe")
    refused(lbx("import", "longbench_v2", tmp_path / "model.jsonl", "--model", "m", "-o", out), "a pipe")
    refused(lbx("import", "longbench_pro", "/dev/zero", "--model", "m", "-o", out), "a device")
    assert not out.exists()


@pytest.mark.parametrize("log", [True, False])
def test_pipes_named_like_other_inputs(tmp_path: Path, log: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    if log:
        (tmp_path / "bundle").mkdir()
        (tmp_path / "m.jsonl").write_text('{"key": "*", "text": "x"}\n')
        command = ("run", "-b", "bundle", "-m", "m.jsonl", "-t", "all", "-o", "r.duckdb", "--log", pipe)
        refused(process(*command, cwd=tmp_path))
    else:
        (tmp_path / "qasper.jsonl").write_text(json.dumps(PRED))
        results = tmp_path / "r.duckdb"
        assert lbx("import", "longbench", tmp_path / "qasper.jsonl", "--model", "m", "-o", results).code == 0
        refused(lbx("report", results, "paper", "--reference", pipe), "a pipe")


def test_errors_do_not_repeat_what_steers(tmp_path: Path) -> None:
    folder = tmp_path / "pred"
    folder.mkdir()
    (folder / f"{TITLE}.jsonl").write_text(json.dumps(PRED))
    out = tmp_path / "results.duckdb"
    said = lbx("import", "longbench", folder, "--model", "m", "-o", out)
    refused(said)
    assert not steers(said.all)
    assert r"\x1b]0;owned\x07\x9b31m\u202e" in said.err.replace("\n", "")
    for arguments in (
        ("import", "longbench", tmp_path / f"no{TITLE}", "--model", "m", "-o", out),
        ("import", f"format{TITLE}", folder, "--model", "m", "-o", out),
        ("import", "longbench", folder, f"--option{TITLE}"),
        (f"command{TITLE}",),
        ("report", "a", "b", f"c{TITLE}"),
    ):
        said = lbx(*arguments)
        assert said.code
        assert not steers(said.all)


def test_names_and_notes_of_what_was_taken(tmp_path: Path) -> None:
    folder = tmp_path / "pred"
    folder.mkdir()
    (folder / f"other{TITLE}.txt").write_text("left alone")
    (folder / "qasper.jsonl").write_text(json.dumps(PRED | {"pred": None}))
    said = lbx("import", "longbench", folder, "--model", f"m{TITLE}", "-o", tmp_path / "r.duckdb")
    assert said.code == 0, said.err
    assert not steers(said.all)


CONTENTS = {
    "too deep": b"[" * 100_000,
    "too deep in a row": b'{"pred": ' + b"[" * 100_000,
    "a number of many digits": b'{"pred": "a", "answers": ["a"], "all_classes": null, "length": ' + b"9" * 5000 + b"}",
    "no text": bytes(range(128, 256)),
    "a key that steers": json.dumps({TITLE: 1}).encode(),
    "nothing but zeros": bytes(10_000),
}


@pytest.mark.parametrize("what", CONTENTS)
def test_contents_that_cannot_be_taken(tmp_path: Path, what: str) -> None:
    path = tmp_path / "qasper.jsonl"
    path.write_bytes(CONTENTS[what])
    said = lbx("import", "longbench", path, "--model", "m", "-o", tmp_path / "r.duckdb")
    refused(said)
    assert not steers(said.all)
    assert list(tree(tmp_path)) == [path.name]


def test_surrogates_and_steering_in_answers_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "qasper.jsonl"
    line = json.dumps(PRED | {"pred": TITLE + "\ud800 =1+1"})
    path.write_text(line + "\n")
    results = tmp_path / "r.duckdb"
    done = lbx("import", "longbench", path, "--model", "m", "--name", "r1", "-o", results)
    assert done.code == 0, done.err
    assert lbx("export", "longbench", results, "--run", "r1", "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "pred" / "m" / path.name).read_text() == line + "\n"
