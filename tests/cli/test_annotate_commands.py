"""`lbx annotate` as a command: the page in a process of its own, its end, what it writes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.page_process import page_process
from tests.command_line import Lbx

PAGES = Path(__file__).parents[1] / "exchange/leval_pages/annotated"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes.jsonl"
    path.write_bytes((PAGES / "notes.jsonl").read_bytes())
    return path


def test_edits_survive_a_kill_and_the_end_writes(file: Path, tmp_path: Path, only_loopback: None) -> None:
    out = tmp_path / "notes.annotated.jsonl"
    with page_process("annotate", file) as (process, client):
        assert " saved." in client.post("/document/1/pair/0", data={"shape": "0", "outputs": "In 1951."}).text
        process.send_signal(signal.SIGKILL)
    assert not out.exists()
    with page_process("annotate", file) as (process, client):
        assert "In 1951." in client.get("/document/1").text
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert "3 documents, 1 of them edited" in said
    assert out.read_bytes() == file.read_bytes().replace(b"In 1950.", b"In 1951.")


def test_one_document_is_counted_as_one(lbx: Lbx, file: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    one.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    assert "1 document, 0 of them edited" in lbx("annotate", one, "-o", tmp_path / "out.jsonl", "--write").stdout


def test_write_alone_and_the_official_form(lbx: Lbx, file: Path, tmp_path: Path) -> None:
    out, official = tmp_path / "out.jsonl", tmp_path / "official"
    done = lbx.ok("annotate", file, "-o", out, "--take", PAGES, "--new-pairs", 1, "--official", official, "--write")
    assert "3 documents taken over" in done.stderr
    assert "L-Eval's format does not include evaluation, weight." in done.stderr
    assert all(json.loads(line)["evaluation"] == "f1" for line in out.read_text("utf-8").splitlines())
    for golden in [*PAGES.glob("jsons/*_cleaned.json"), PAGES / "notes.cleaned.jsonl"]:
        assert (official / golden.relative_to(PAGES)).read_bytes() == golden.read_bytes()
    assert lbx("annotate", file, "-o", out, "--write").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing.jsonl",), "missing.jsonl cannot be read"),
        ((".",), ". is a folder"),
        (("notes.jsonl", "-o", "notes.jsonl"), "is the file itself"),
        (("notes.jsonl", "--read-only", "--write"), "--read-only writes no files"),
        (("bad.jsonl", "--read-only"), "bad.jsonl, line 2: it is not JSON"),
        (("notes.jsonl", "--take", "."), "contains no N_cleaned.json"),
        (("notes.jsonl", "--host", "0.0.0.0"), "Other machines can reach"),
    ],
)
def test_what_cannot_be(lbx: Lbx, file: Path, arguments: tuple[str, ...], said: str) -> None:
    file.with_name("bad.jsonl").write_text('{"input": "d"}\n{"input": }\n')
    done = lbx("annotate", *arguments, cwd=file.parent)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert not file.with_name("notes.annotated.jsonl").exists()
