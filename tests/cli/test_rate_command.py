"""`lbx rate` as a command: what it refuses in a sentence, what it says, what it leaves."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from lbx.cli.people import describe_session
from lbx.opinions.journal import Journal, journal_of
from lbx.results import Store
from tests.command_line import Lbx, fails
from tests.opinions.rated_file import answers_file, book_of, rate_all


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return answers_file(tmp_path / "r.duckdb")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rater", "a", "--rater", "a"], "Two raters have the same name"),
        (["--rater", "a", "--raters", "2"], "--raters is 2, but --rater names 1"),
        (["--rater", "a\x1b[31m"], "'a\\x1b[31m' is not a valid rater name"),
        (["--scale", "5-1"], "'5-1' is not a scale"),
        (["--scale", "1-50"], "differ by at most 20"),
        (["--scale", "1-7", "--kind", "pair"], "--scale needs --kind score"),
        (["--run", "gamma"], "No run 'gamma'"),
        (["--questions", "llm"], "no question of the kind 'llm'"),
        (["--kind", "pair", "--run", "alpha"], "at least two runs"),
        (["--journal", "x"], "--journal needs --collect"),
        (["--host", "0.0.0.0"], "Other machines can reach"),
    ],
)
def test_bad_usage_is_a_sentence(path: Path, options: list[str], words: str) -> None:
    fails(Lbx()("rate", path, *options), 2, words)
    assert not journal_of(path).exists()


def test_there_must_be_a_file(tmp_path: Path) -> None:
    fails(Lbx()("rate", tmp_path / "none.duckdb"), 1, "none.duckdb does not exist")
    assert list(tmp_path.iterdir()) == []


def test_raters_without_questions_and_questions_of_one_rater_are_named(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raters = ("ann", "bob", "cem", "dan", "eve", "fay")
    for agreement, each, lonely, alone in ((0.0, 1, True, True), (0.0, 2, False, False), (0.5, 1, False, False)):
        with Journal(journal_of(path)) as journal:
            book = book_of(path, journal, raters, agreement=agreement, raters_per_item=each)
            describe_session(book, 0, None)
        said = capsys.readouterr().err
        idle = [rater for rater in raters if not book.queue(rater)]
        assert bool(idle) is alone, "of five documents, each dealt to one"
        assert all(f"{rater} gets no questions and no link" in said for rater in idle)
        assert "Only questions that L-Eval marks for people; pass --questions all for all questions." in " ".join(
            said.split()
        )
        assert "All raters get 0" not in said
        assert (f"Each question is assigned to {each} of the 6 raters." in said) is (agreement == 0.0)
        assert ("No two raters get the same question, so agreement cannot be computed" in said) is lonely


def test_a_taken_port_is_a_sentence(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        fails(Lbx()("rate", path, "--port", port), 2, f"Port {port} is already in use")


def test_a_missing_bundle_is_a_sentence(path: Path, tmp_path: Path) -> None:
    fails(Lbx()("rate", path, "--bundle", tmp_path / "none"), 1, "Bundle folder")


def test_collecting(path: Path, tmp_path: Path) -> None:
    other = answers_file(tmp_path / "other.duckdb")
    rate_all(path, "ann", 4)
    rate_all(other, "bob", 2)
    empty = Lbx()("report", path, "rating_results")
    before = " ".join(empty.stdout.split())
    assert "After a killed session, store them with lbx rate RESULTS --collect." in before
    assert f"Not in {path} yet: 18 ratings and revisions in {journal_of(path)}." in " ".join(empty.stderr.split())
    done = Lbx()("rate", path, "--collect", "--journal", journal_of(other))
    assert done.returncode == 0
    assert done.stderr == (
        f"{journal_of(other)} contains ratings of bob (17); lbx cannot verify who wrote them.\n"
        f"Moved into {path}: 36 ratings and revisions.\n"
    )
    fails(Lbx()("rate", path, "--collect", "--journal", tmp_path / "none"), 1, "cannot be read")
    with journal_of(path).open("wb") as file:
        file.write(b'{"ratings"')
    done = Lbx()("rate", path, "--collect")
    assert "never shown as saved, is now in" in done.stderr
    assert ": 0 ratings" in done.stderr


def test_who_has_nothing_to_rate_gets_no_link(path: Path) -> None:
    raters = [word for number in range(6) for word in ("--rater", f"r{number}")]
    options = ["--port", "0", "--agreement", "0", "--raters-per-item", "1", *raters]
    command = [Path(sys.executable).with_name("lbx"), "rate", path, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        links = dict(process.stdout.readline().split() for _ in raters[2::2])
        assert httpx2.get(links["r0"], timeout=60).status_code == 303, "it listens"
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=60)
    idle = {line.split()[0] for line in said.splitlines() if "gets no questions and no link" in line}
    assert process.returncode == 0 and len(idle) == 1, said
    assert links.keys() == {*raters[1::2]} - idle and not rest


def test_where_the_file_is_taken_at_the_end_the_journal_stays(path: Path) -> None:
    command = [Path(sys.executable).with_name("lbx"), "rate", path, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        link = process.stdout.readline().split()[-1]
        place = link.partition("?")[0]
        origin = place.removesuffix(urlsplit(link).path)
        with httpx2.Client(headers={"origin": origin}, follow_redirects=True, timeout=60) as client:
            assert client.get(link).status_code == 200
            assert "Saved" in client.post(client.get(place).url, data={"do": "rate-0-4"}).text
        fails(Lbx()("rate", path, "--port", "0"), 1, "Another `lbx rate` is writing")
        fails(Lbx()("rate", path, "--collect"), 1, "Another `lbx rate` is writing")
        with Store(path):  # as `lbx run` would
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    assert f"All ratings are safe in {journal_of(path)}" in said
    assert f"lbx rate {path} --collect" in said
    done = Lbx()("rate", path, "--collect")
    assert done.stderr == f"Moved into {path}: 1 rating or revision.\n"


def test_without_the_libraries_it_says_what_to_install(path: Path) -> None:
    code = (
        "import sys; sys.modules['starlette'] = None; sys.argv = ['lbx', 'rate', sys.argv[1]]\n"
        "from lbx.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'lbx[web]'" in done.stderr
    assert "Traceback" not in done.stderr
