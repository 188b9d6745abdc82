"""Predictions from somebody else: pipes, names and contents that steer a terminal, JSON that is too deep."""

from __future__ import annotations

import json
import os
from pathlib import Path

import duckdb
import pytest

from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import PRED, lbx, process, tree

TITLE = "\x1b]0;owned\x07\x9b31m\u202e"


def steers(text: str) -> bool:
    return any(sign in text for sign in "\x1b\x07\x9b\u202e\r")


def test_a_pipe_in_the_folder_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "pred"
    folder.mkdir()
    os.mkfifo(folder / "qasper.jsonl")
    os.mkfifo(tmp_path / "model.jsonl")
    out = tmp_path / "results.duckdb"
    refused(process("import", "longbench", folder, "--model-name", "m", "-o", out), "a pipe")
    refused(lbx("import", "longbench_v2", tmp_path / "model.jsonl", "--model-name", "m", "-o", out), "a pipe")
    refused(lbx("import", "longbench_pro", "/dev/zero", "--model-name", "m", "-o", out), "a device")
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
        assert lbx("import", "longbench", tmp_path / "qasper.jsonl", "--model-name", "m", "-o", results).code == 0
        refused(lbx("report", results, "paper", "--reference", pipe), "a pipe")


def test_errors_do_not_repeat_what_steers(tmp_path: Path) -> None:
    folder = tmp_path / "pred"
    folder.mkdir()
    (folder / f"{TITLE}.jsonl").write_text(json.dumps(PRED))
    out = tmp_path / "results.duckdb"
    said = lbx("import", "longbench", folder, "--model-name", "m", "-o", out)
    refused(said)
    assert not steers(said.all)
    assert r"\x1b]0;owned\x07\x9b31m\u202e" in said.err.replace("\n", "")
    for arguments in (
        ("import", "longbench", tmp_path / f"no{TITLE}", "--model-name", "m", "-o", out),
        ("import", f"format{TITLE}", folder, "--model-name", "m", "-o", out),
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
    said = lbx("import", "longbench", folder, "--model-name", f"m{TITLE}", "-o", tmp_path / "r.duckdb")
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
    said = lbx("import", "longbench", path, "--model-name", "m", "-o", tmp_path / "r.duckdb")
    refused(said)
    assert not steers(said.all)
    assert list(tree(tmp_path)) == [path.name]


LM_EVAL = {
    "doc_id": 0, "doc": {"answers": ["a"], "length": 3}, "resps": [["a"]], "filtered_resps": ["a"],
    "metrics": ["qa_f1_score"], "qa_f1_score": 0.5,
}  # fmt: skip
LM_EVAL_FILE = "samples_longbench_qasper_2026-11-26T16-57-46.326912.jsonl"
ENTRY = {"origin_prompt": "p", "prediction": "a", "gold": ["a"]}
DIGITS = "9" * 5000
HARNESS_FILES: dict[str, tuple[str, str, bytes]] = {
    "lm_eval, too deep": ("lm_eval", LM_EVAL_FILE, b'{"doc_id": 0, "doc": ' + b"[" * 100_000),
    "lm_eval, many digits": ("lm_eval", LM_EVAL_FILE, f'{{"doc_id": {DIGITS}}}'.encode()),
    "lm_eval, no text": ("lm_eval", LM_EVAL_FILE, bytes(range(128, 256))),
    "lm_eval, steering keys": ("lm_eval", LM_EVAL_FILE, json.dumps({TITLE: 1}).encode()),
    "lm_eval, steering place": ("lm_eval", LM_EVAL_FILE, json.dumps({**LM_EVAL, "doc_id": TITLE}).encode()),
    "lm_eval, another type": ("lm_eval", LM_EVAL_FILE, json.dumps({**LM_EVAL, "filtered_resps": {"0": 1}}).encode()),
    "lm_eval, steering task": (
        "lm_eval",
        LM_EVAL_FILE.replace("longbench_qasper", TITLE),
        json.dumps(LM_EVAL).encode(),
    ),
    "opencompass, too deep": ("opencompass", "LongBench_qasper.json", b'{"0": ' + b"[" * 100_000),
    "opencompass, many digits": ("opencompass", "LongBench_qasper.json", f'{{"0": {DIGITS}}}'.encode()),
    "opencompass, no text": ("opencompass", "LongBench_qasper.json", bytes(range(128, 256))),
    "opencompass, steering keys": ("opencompass", "LongBench_qasper.json", json.dumps({TITLE: ENTRY}).encode()),
    "opencompass, a key twice": (
        "opencompass",
        "LongBench_qasper.json",
        f'{{"{"k" * 9}": 1, "{"k" * 9}": 2}}'.encode(),
    ),
    "opencompass, digits of another script": ("opencompass", "LongBench_qasper.json", '{"٠": {}}'.encode()),
    "opencompass, steering task": ("opencompass", f"LongBench_{TITLE}.json", json.dumps({"0": ENTRY}).encode()),
}


@pytest.mark.parametrize("what", HARNESS_FILES)
@pytest.mark.parametrize("folder", [True, False])
def test_files_of_harnesses_that_cannot_be_taken(tmp_path: Path, what: str, folder: bool) -> None:
    form, name, content = HARNESS_FILES[what]
    path = tmp_path / "p" / name
    path.parent.mkdir()
    path.write_bytes(content)
    for other in (form, "longbench"):
        said = lbx("import", other, path.parent if folder else path, "--model-name", "m", "-o", tmp_path / "r.duckdb")
        refused(said)
        assert not steers(said.all)
    assert list(tree(tmp_path)) == [f"p/{name}"]


@pytest.mark.parametrize("form", ["lm_eval", "opencompass"])
def test_pipes_among_files_of_harnesses_are_not_waited_for(tmp_path: Path, form: str) -> None:
    (tmp_path / "p").mkdir()
    pipe = tmp_path / "p" / (LM_EVAL_FILE if form == "lm_eval" else "LongBench_qasper.json")
    os.mkfifo(pipe)
    for path in (pipe.parent, pipe):
        refused(process("import", form, path, "--model-name", "m", "-o", tmp_path / "r.duckdb"))


def test_a_results_file_of_lm_eval_with_odd_values(tmp_path: Path) -> None:
    """Nothing in it but numbers of its own kind is used, and nothing steers a terminal."""
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / LM_EVAL_FILE).write_text(json.dumps(LM_EVAL | {"qa_f1_score": float("inf"), "metrics": [TITLE, 3]}))
    name = "longbench_qasper"
    odd = [None, True, "x" * 10_000, TITLE, [[]], {name: TITLE}, {name: {"effective": True}}, 10**400, float("nan")]
    keys = ("results", "versions", "n-samples", "n-shot", "configs", "config", "chat_template", "system_instruction",
            "max_length", "lm_eval_version")  # fmt: skip
    for number, value in enumerate(odd):
        text = json.dumps(dict.fromkeys(keys, value))
        (folder / LM_EVAL_FILE.replace(f"samples_{name}", "results").replace(".jsonl", ".json")).write_text(text)
        results = tmp_path / f"{number}.duckdb"
        said = lbx("import", "lm_eval", folder, "--model-name", f"m{TITLE}", "-o", results, "--json")
        assert said.code == 0, said.err
        (row,) = json.loads(said.out)["harness"]
        assert row["verdict"] in ("unknown", "not comparable") and row["harness_score"] is None
        for report in ("harness", "task_scores", "paper"):
            assert not steers(lbx("report", results, report).all)


@pytest.mark.parametrize(
    "stored",
    [3, [], {"name": 3}, {"name": "\x1b[31m", "tasks": 3}, {"name": "x", "tasks": {"qasper": 3}},
     {"name": "x", "tasks": {"qasper": {"verdict": 3, "reasons": [3, "\x1b[31m"], "score": 1e400, "version": "a"}}}],
)  # fmt: skip
def test_a_results_file_with_an_odd_harness(tmp_path: Path, stored: object) -> None:
    path, results = tmp_path / LM_EVAL_FILE, tmp_path / "r.duckdb"
    path.write_text(json.dumps(LM_EVAL))
    assert lbx("import", "lm_eval", path, "--model-name", "m", "-o", results).code == 0
    with duckdb.connect(str(results)) as connection:
        settings = json.loads(connection.execute("SELECT settings FROM runs").fetchall()[0][0])
        connection.execute("UPDATE runs SET settings = ?", [json.dumps({**settings, "harness": stored})])
    for arguments in (("report", results), ("report", results, "harness"), ("report", results, "task_scores"),
                      ("score", results), ("export", "longbench", results, "-o", tmp_path / "out")):  # fmt: skip
        said = lbx(*arguments)
        assert said.code in (0, 1, 2) and not steers(said.all)


def test_surrogates_and_steering_in_answers_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "qasper.jsonl"
    line = json.dumps(PRED | {"pred": TITLE + "\ud800 =1+1"})
    path.write_text(line + "\n")
    results = tmp_path / "r.duckdb"
    done = lbx("import", "longbench", path, "--model-name", "m", "--name", "r1", "-o", results)
    assert done.code == 0, done.err
    assert lbx("export", "longbench", results, "--run", "r1", "-o", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "pred" / "m" / path.name).read_text() == line + "\n"
