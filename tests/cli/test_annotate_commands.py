"""`lbx annotate` as a command: the page in a process of its own, its end, what it writes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from command_line import Lbx

PAGES = Path(__file__).parents[1] / "people/leval_pages/annotated"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes.jsonl"
    path.write_bytes((PAGES / "notes.jsonl").read_bytes())
    return path


@contextmanager
def _started(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], httpx2.Client]]:
    command = [Path(sys.executable).with_name("lbx"), "annotate", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"(http://127\.0\.0\.1:\d+)(/\?token=\S+)", line)
            assert found, line
            here = {"base_url": found[1], "headers": {"origin": found[1]}, "follow_redirects": True}
            with httpx2.Client(**here, trust_env=False) as client:
                assert client.get(found[2]).status_code == 200
                yield process, client
        finally:
            process.kill()


def test_edits_survive_a_kill_and_the_end_writes(file: Path, tmp_path: Path, only_loopback: None) -> None:
    out = tmp_path / "notes.annotated.jsonl"
    with _started(file) as (process, client):
        assert "is saved" in client.post("/document/1/pair/0", data={"shape": "0", "outputs": "In 1951."}).text
        process.send_signal(signal.SIGKILL)
    assert not out.exists()
    with _started(file) as (process, client):
        assert "In 1951." in client.get("/document/1").text
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert "3 documents, 1 of them edited" in said
    assert out.read_bytes() == file.read_bytes().replace(b"In 1950.", b"In 1951.")


def test_write_alone_and_the_official_form(lbx: Lbx, file: Path, tmp_path: Path) -> None:
    out, official = tmp_path / "out.jsonl", tmp_path / "official"
    done = lbx("annotate", file, "-o", out, "--take", PAGES, "--new-pairs", 1, "--official", official, "--write")
    assert done.returncode == 0, done.stderr
    assert "3 documents taken over" in done.stderr
    assert "L-Eval's form does not hold evaluation, weight." in done.stderr
    assert all(json.loads(line)["evaluation"] == "f1" for line in out.read_text("utf-8").splitlines())
    for golden in [*PAGES.glob("jsons/*_cleaned.json"), PAGES / "notes.cleaned.jsonl"]:
        assert (official / golden.relative_to(PAGES)).read_bytes() == golden.read_bytes()
    assert lbx("annotate", file, "-o", out, "--write").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing.jsonl",), "missing.jsonl cannot be read"),
        (("notes.jsonl", "-o", "notes.jsonl"), "is the file itself"),
        (("notes.jsonl", "--read-only", "--write"), "--read-only writes nothing"),
        (("bad.jsonl", "--read-only"), "bad.jsonl, line 2: it is not JSON"),
        (("notes.jsonl", "--take", "."), "holds no N_cleaned.json"),
        (("notes.jsonl", "--host", "0.0.0.0"), "can be reached from other machines"),
    ],
)
def test_what_cannot_be(lbx: Lbx, file: Path, arguments: tuple[str, ...], said: str) -> None:
    file.with_name("bad.jsonl").write_text('{"input": "d"}\n{"input": }\n')
    done = lbx("annotate", *arguments, cwd=file.parent)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
