"""``lbx attest`` and ``lbx verify`` on results files, as people use them, and the signature checked by ssh-keygen."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from lbx.cli.attesting import _number_lines
from lbx.results import Store
from lbx.results.attesting import checking
from lbx.results.attesting.attestation import attestation_path
from tests.attesting.attested_file import attest, changed_rows, check, make_key, results_to_attest
from tests.command_line import Lbx, fails, holding
from tests.doc_commands import blocks
from tests.page_parts import results_file

ANSWER = ("longbench", "qasper", "extra 0", 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with results.duckdb, its attestation, and the signer's key."""
    folder = tmp_path_factory.mktemp("made")
    attest(results_to_attest(folder / "results.duckdb"), make_key(folder))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


@pytest.fixture
def lbx() -> Lbx:
    return Lbx()


def change(path: Path, *statements: str) -> None:
    """Run another program's SQL on a file."""
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_file_is_attested_and_verified(lbx: Lbx, folder: Path) -> None:
    attestation_path(folder / "results.duckdb").unlink()
    done = lbx.ok("attest", "results.duckdb", "--sign", "key", cwd=folder)
    assert "3 runs, 107 rows" in done.stdout
    command = done.stderr.partition("has changed: lbx ")[2].split()
    first, signature, attested, *runs, tables, numbers = lbx.ok(*command, cwd=folder).stdout.splitlines()
    assert first == "results.duckdb: verified. 3 runs with 107 attested rows; signed by a trusted key"
    assert "key@lab (trusted), ssh-ed25519 SHA256:" in signature
    assert "of lbx: " in attested
    assert [line.split()[1] for line in runs] == ["first:", "second:", "umpire:"]
    assert (tables, numbers) == (
        "  tables     sessions, embeddings, depth_pairs, depth_parity: never attested, not checked",
        "  numbers    30 numbers computed again from the rows: all equal",
    )
    evidence = json.loads(lbx.ok("verify", "results.duckdb", "--trust", "key.pub", "--json", cwd=folder).stdout)
    assert (evidence["result"], evidence["signatures"][0]["trusted"], evidence["changes"]) == ("verified", True, [])
    facts = {run["name"]: run["facts"] for run in evidence["runs"]}["first"]
    assert (facts["weights"], facts["bundleDigest"], facts["settings"]["dtype"]) == ("cd", "ab" * 32, "bf16")


def test_standard_tools_check_the_signature_and_the_rows(folder: Path) -> None:
    """With the lines of the documentation, for a file of one run."""
    attest(folder / "results.duckdb", folder / "key", "first")
    (folder / "signers").write_text(f'lab namespaces="lbx-results" {(folder / "key.pub").read_text()}')
    page = Path(__file__).parents[2] / "docs" / "attesting.md"
    (lines,) = (block for block in blocks(page) if block.startswith("zcat "))
    done = subprocess.run(["bash", "-ec", lines], cwd=folder, capture_output=True, text=True, check=False)
    assert 'Good "lbx-results" signature for lab' in done.stdout, done.stderr
    statement = json.loads((folder / "statement.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    (subject,) = statement["subject"]
    assert subject == {"name": "first", "digest": {"sha256": done.stdout.splitlines()[-1].split()[0]}}
    for_bundles = subprocess.run(
        ["bash", "-ec", lines.replace("-n lbx-results", "-n lbx-bundle")], cwd=folder, capture_output=True, check=False
    )
    assert for_bundles.returncode != 0


def test_a_changed_row_is_named_with_its_column(lbx: Lbx, folder: Path) -> None:
    path = folder / "results.duckdb"
    change(path, "UPDATE scores SET score = score / 10 WHERE run_id = 'second' AND sample_id = 'extra 0'")
    done = lbx("verify", "results.duckdb", "--trust", "key.pub", cwd=folder)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("results.duckdb: CHANGED. ")
    assert lines[-1] == (
        "  changed    scores (run_id 'second', benchmark 'longbench', task 'qasper', sample_id 'extra 0', iteration 0, "
        "metric 'qa_f1'): score"
    )


def test_attested_numbers_that_differ_from_their_rows_are_named(lbx: Lbx, folder: Path) -> None:
    change(folder / "results.duckdb", "UPDATE numbers SET score = score / 2 WHERE run_id = 'second' AND kind = 'task'")
    lbx.ok("attest", "results.duckdb", "--sign", "key", "--force", cwd=folder)
    done = lbx("verify", "results.duckdb", "--trust", "key.pub", cwd=folder)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("results.duckdb: verified. ")
    assert re.search(r"computed again from the rows: \d+ DIFFER\n  differs    run_id 'second'", done.stdout)


def test_rows_that_were_swapped_removed_or_added_are_named(folder: Path) -> None:
    path, key = folder / "results.duckdb", folder / "key"
    change(
        path,
        "UPDATE generations SET output = CASE run_id WHEN 'first' THEN 'second: blue' ELSE 'first: blue' END "
        "WHERE sample_id = 'extra 0'",
        "DELETE FROM generations WHERE run_id = 'first' AND error IS NOT NULL",
        "INSERT INTO ratings BY NAME SELECT * REPLACE ('eve' AS rater) FROM ratings WHERE rater = 'ann'",
    )
    failed = ("first", "longbench", "qasper", "qasper-003", 0)
    rating = ("pairs", 0, "eve", "first", 0, "second", 0, 0)
    assert sorted(changed_rows(check(path, key))) == [
        ("added", "ratings", rating, ()),
        *(("changed", "generations", (run, *ANSWER), ("output",)) for run in ("first", "second")),
        ("removed", "generations", failed, ()),
        ("removed", "samples", ("longbench", "qasper", "qasper-003"), ()),
    ]


@pytest.mark.parametrize("keep", [(), ("--keep-answers",)])
def test_after_texts_were_removed_everything_else_is_verified(lbx: Lbx, folder: Path, keep: tuple[str, ...]) -> None:
    lbx.ok("runs", "extract", "results.duckdb", "--without-texts", *keep, "-o", "plain.duckdb", cwd=folder)
    path, key, attestation = folder / "plain.duckdb", folder / "key", folder / "results.duckdb.attestation.jsonl.gz"
    report = check(path, key, attestation=attestation)
    assert (report.result, report.changes) == ("verified", [])
    assert all(run.unchecked_texts for run in report.runs)
    for statement, table, column in (
        (
            "UPDATE generations SET output_words = 9 WHERE sample_id = 'extra 0'",
            "generations",
            "output_words",
        ),
        ("UPDATE scores SET extracted = NULL WHERE sample_id = 'round 0'", "scores", "extracted"),
        ("""UPDATE samples SET meta = '{"category":"other"}' WHERE sample_id = 'extra 1'""", "samples", "meta"),
        ("UPDATE samples SET question = 'Another?' WHERE sample_id = 'extra 2'", "samples", "question"),
        ("UPDATE generations SET error = NULL WHERE error IS NOT NULL AND run_id = 'second'", "generations", "error"),
    ):
        shutil.copyfile(path, folder / "changed.duckdb")
        change(folder / "changed.duckdb", statement)
        report = check(folder / "changed.duckdb", key, attestation=attestation)
        assert (table, column) in [(row[1], name) for row in changed_rows(report) for name in row[3]], statement


def test_a_file_that_claims_to_have_no_texts_is_not_believed(folder: Path) -> None:
    path = folder / "results.duckdb"
    change(path, "UPDATE runs SET texts = 'none'", "UPDATE generations SET reasoning = NULL WHERE run_id = 'first'")
    report = check(path, folder / "key", "first")
    assert changed_rows(report) == [("changed", "runs", ("first",), ("texts",))]


def test_a_run_without_the_others_is_verified_on_request(lbx: Lbx, folder: Path) -> None:
    lbx.ok("runs", "extract", "results.duckdb", "first", "-o", "one.duckdb", cwd=folder)
    options = ("--trust", "key.pub", "--attestation", "results.duckdb.attestation.jsonl.gz")
    done = lbx("verify", "one.duckdb", *options, cwd=folder)
    assert done.returncode == 1
    assert done.stdout.startswith("one.duckdb: INCOMPLETE. ")
    assert "second: NOT IN THIS FILE" in done.stdout
    assert "umpire: verified, 13 rows; 4 rows about runs that are not in this file" in done.stdout
    again = lbx.ok(*done.stderr.partition("others alone: lbx ")[2].split(), cwd=folder)
    assert again.stdout.startswith("one.duckdb: verified. 2 runs with ")


def test_parts_of_a_run_are_never_missing_unnamed(folder: Path) -> None:
    """The row of the run alone is gone, as if the run was not in the file; its answers are."""
    change(folder / "results.duckdb", "DELETE FROM runs WHERE run_id = 'second'")
    report = check(folder / "results.duckdb", folder / "key")
    assert (report.result, changed_rows(report)) == ("changed", [("removed", "runs", ("second",), ())])


def test_a_renamed_run_is_named(lbx: Lbx, folder: Path) -> None:
    tables = ("runs", "generations", "scores", "numbers")
    change(folder / "results.duckdb", *(f"UPDATE {name} SET run_id = 'new' WHERE run_id = 'second'" for name in tables))
    done = lbx("verify", "results.duckdb", "--trust", "key.pub", cwd=folder)
    assert done.returncode == 1
    assert "second: NOT IN THIS FILE; the run new has its settings and start" in done.stdout
    assert "other runs new: not attested" in done.stdout


def test_runs_that_are_added_later_are_other_runs(lbx: Lbx, folder: Path) -> None:
    results_file(folder / "more.duckdb", ("third",), ("hotpotqa",), 3)
    assert lbx("merge", "results.duckdb", "more.duckdb", "-o", "both.duckdb", cwd=folder).returncode == 3
    report = check(folder / "both.duckdb", folder / "key", attestation=folder / "results.duckdb.attestation.jsonl.gz")
    assert (report.result, report.other_runs) == ("verified", ["third"])


def test_an_earlier_attestation_is_replaced_only_with_force(lbx: Lbx, folder: Path) -> None:
    path = attestation_path(folder / "results.duckdb")
    before = path.read_bytes()
    done = lbx("attest", "results.duckdb", "--sign", "key", cwd=folder)
    fails(done, 2, "results.duckdb.attestation.jsonl.gz already exists", "-o", "--force")
    assert path.read_bytes() == before
    lbx.ok("attest", "results.duckdb", "--sign", "key", "--force", cwd=folder)
    assert path.read_bytes() != before


def test_one_run_is_attested_alone(folder: Path) -> None:
    path, key = folder / "results.duckdb", folder / "key"
    attest(path, key, "first")
    change(path, "UPDATE generations SET output = 'x' WHERE run_id = 'second'")
    report = check(path, key)
    assert (report.result, report.other_runs) == ("verified", ["second", "umpire"])


def test_an_unfinished_run_is_not_attested(lbx: Lbx, folder: Path) -> None:
    change(folder / "results.duckdb", "UPDATE runs SET status = 'running' WHERE run_id = 'second'")
    done = lbx("attest", "results.duckdb", "--sign", "key", "--force", cwd=folder)
    fails(
        done,
        2,
        "second in results.duckdb has not ended",
        "lbx attest results.duckdb --sign KEY --run first --run umpire",
    )
    assert lbx("attest", "results.duckdb", "--sign", "key", "--force", "--run", "second", cwd=folder).returncode == 2
    lbx.ok("attest", "results.duckdb", "--sign", "key", "--force", "--run", "first", cwd=folder)


def test_scores_without_numbers_are_not_attested(lbx: Lbx, folder: Path) -> None:
    change(folder / "results.duckdb", "DELETE FROM numbers WHERE run_id = 'first'")
    done = lbx("attest", "results.duckdb", "--sign", "key", "--force", cwd=folder)
    fails(done, 2, "first in results.duckdb has scores without")


def test_a_file_that_is_being_written_is_attested_from_a_snapshot(folder: Path, lbx: Lbx) -> None:
    with holding(folder / "results.duckdb"):
        lbx.ok("attest", "results.duckdb", "--sign", "key", "--force", cwd=folder)
        verified = lbx.ok("verify", "results.duckdb", "--trust", "key.pub", cwd=folder)
    assert verified.stdout.startswith("results.duckdb: verified")


@pytest.mark.parametrize(
    ("arguments", "code", "texts"),
    [
        (("verify", "results.duckdb"), 1, ("untrusted key SHA256:", "no trusted keys were given")),
        (("verify", "results.duckdb", "--trust", "other.pub"), 1, ("it is not among the trusted keys",)),
        (("verify", "results.duckdb", "--trust", "bundles"), 1, ("not trusted for the namespace lbx-results",)),
        (("verify", "results.duckdb", "--trust", "old"), 1, ("no longer valid",)),
        (("verify", "results.duckdb", "--trust", "key.pub", "--refuse-unsafe"), 2, ("is for archives",)),
        (("verify", "results.duckdb", "--trust", "key.pub", "--run", "x"), 2, ("--run x matches none of the runs",)),
        (("verify", "results.duckdb", "--attestation", "none"), 2, ("none does not exist", "lbx attest results")),
        (("verify", "results.duckdb", "--attestation", "key"), 1, ("key is damaged, or not an attestation",)),
        (("verify", "none.duckdb", "--run", "first"), 1, ("The results file none.duckdb does not exist",)),
        (("verify", "key", "--run", "first"), 2, ("are for results files, and key is not one",)),
        (("attest", "results.duckdb", "--sign", "none", "--force"), 2, ("Key none does not exist",)),
        (("attest", "none.duckdb", "--sign", "key"), 1, ("The results file none.duckdb does not exist",)),
        (("attest", "results.duckdb", "--sign", "key", "--force", "--run", "x"), 2, ("No run 'x'",)),
        (("attest", "results.duckdb", "--sign", "key", "-o", "results.duckdb"), 2, ("would be overwritten",)),
        (("attest", "results.duckdb", "--sign", "key", "-o", "key"), 2, ("is the key, and would be overwritten",)),
        (("attest", "empty.duckdb", "--sign", "key"), 2, ("empty.duckdb has no runs",)),
        (("attest", ".", "--sign", "key"), 1, (". is a folder, not a results file",)),
        (("attest", "results.duckdb", "--sign", ".", "--force"), 2, ("The key . is a folder",)),
        (("attest", "results.duckdb", "--sign", "key", "-o", "."), 2, (". is a folder. Give a file in it",)),
        (("verify", "results.duckdb.attestation.jsonl.gz", "--trust", "key.pub"), 2,
         ("is an attestation", "lbx verify results.duckdb --trust key.pub")),
    ],
)  # fmt: skip
def test_messages_name_the_problem(
    lbx: Lbx, folder: Path, arguments: tuple[str, ...], code: int, texts: tuple[str, ...]
) -> None:
    make_key(folder, "other")
    Store(folder / "empty.duckdb").close()
    public = (folder / "key.pub").read_text()
    (folder / "bundles").write_text(f'lab namespaces="lbx-bundle" {public}')
    (folder / "old").write_text(f'lab valid-before="20200101" {public}')
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    fails(lbx(*arguments, cwd=folder), code, *texts)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_untrusted_signer_is_accepted_on_request_and_named(lbx: Lbx, folder: Path) -> None:
    done = lbx.ok("verify", "results.duckdb", "--allow-unsigned", cwd=folder)
    assert done.stdout.splitlines()[0].endswith("NOT signed by a trusted key (--allow-unsigned)")


_COUNTED = """
    rowid = (SELECT min(rowid) FROM scores WHERE run_id = 'first' AND headline
             AND metric_version = (SELECT max(metric_version) FROM scores WHERE run_id = 'first'))
"""
ONE_SCORE = f"UPDATE scores SET score = 0.123 WHERE {_COUNTED}"
OTHER_NUMBERS = {
    "a changed score": (ONE_SCORE, "score is"),
    "a changed number": ("UPDATE numbers SET score = 0.9 WHERE run_id = 'first' AND kind = 'mean'", "score is 0.9"),
    "a changed end": ("UPDATE numbers SET high = 0.9 WHERE run_id = 'first' AND kind = 'mean'", "high is 0.9"),
    "a removed answer": (f"DELETE FROM scores WHERE {_COUNTED}", "from the rows"),
    "an opinion": ("UPDATE numbers SET score = 0.9 WHERE kind = 'opinion' AND judge = 'umpire'", "score is 0.9"),
    "a number of nothing": ("UPDATE numbers SET task = 'other' WHERE run_id = 'first' AND kind = 'task'", "None"),
}


@pytest.mark.parametrize("name", OTHER_NUMBERS)
def test_numbers_that_the_rows_do_not_give_are_named(folder: Path, name: str) -> None:
    path, (statement, said) = folder / "results.duckdb", OTHER_NUMBERS[name]
    assert not check(path, folder / "key").different_numbers
    change(path, statement)
    report = check(path, folder / "key")
    assert report.result == "changed"
    assert report.different_numbers
    assert any(said in line for line in _number_lines(report.numbers, report.different_numbers))


def test_verify_computes_the_numbers_again(lbx: Lbx, folder: Path) -> None:
    """With an attestation or without one, in which case nothing is verified."""
    change(folder / "results.duckdb", ONE_SCORE)
    done = lbx("verify", "results.duckdb", "--trust", "key.pub", cwd=folder)
    assert done.returncode == 1
    assert "computed again from the rows: " in done.stdout
    assert "  differs    run_id 'first', benchmark 'longbench'" in done.stdout
    assert "sessions, embeddings, depth_pairs, depth_parity: never attested, not checked" in done.stdout
    attestation_path(folder / "results.duckdb").unlink()
    done = lbx("verify", "results.duckdb", cwd=folder)
    fails(done, 2, "does not exist")
    assert "  differs    run_id 'first', benchmark 'longbench'" in done.stdout


def _damage(folder: Path) -> None:
    path = attestation_path(folder / "results.duckdb")
    path.write_bytes(path.read_bytes()[:-300])


def _of_another_file(folder: Path) -> None:
    other = results_file(folder / "other.duckdb", tasks=("qasper",), samples=3)
    shutil.move(attest(other, folder / "key"), attestation_path(folder / "results.duckdb"))


STATES: dict[str, tuple[Callable[[Path], object], str]] = {
    "unchanged": (lambda folder: None, "attested, no row has changed; signed 20"),
    "a score": (lambda folder: change(folder / "results.duckdb", ONE_SCORE), "rows that differ: 1 changed"),
    "a run more": (
        lambda folder: change(folder / "results.duckdb", "UPDATE runs SET run_id = 'third' WHERE run_id = 'first'"),
        "CHANGED since it was attested",
    ),
    "another file's": (_of_another_file, "CHANGED since it was attested"),
    "damaged": (_damage, "NOT VALID for this file"),
    "long": (lambda folder: None, "not checked here, because it has"),
}


@pytest.mark.parametrize("name", STATES)
def test_what_reports_say_of_an_attestation(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is only called attested if every row is as it was."""
    apply, said = STATES[name]
    apply(folder)
    if name == "long":
        monkeypatch.setattr(checking, "_MOST_ROWS_IN_REPORTS", 3)
    notice = checking.attestation_notice(folder / "results.duckdb").text
    assert said in notice
    assert ("attested, no row has changed" in notice) == (name == "unchanged")
    assert ("Whether this key is trusted was not checked" in notice) == (name not in ("damaged", "long"))


@pytest.mark.parametrize("words", [(), ("leaderboard",), ("--format", "markdown"), ("--format", "html")])
def test_reports_say_it(lbx: Lbx, folder: Path, words: tuple[str, ...]) -> None:
    change(folder / "results.duckdb", ONE_SCORE)
    said = " ".join(lbx.ok("report", "results.duckdb", *words, cwd=folder).stdout.split())
    assert "CHANGED since it was attested; rows that differ: 1 changed" in said


def test_a_file_without_an_attestation_has_no_notice(folder: Path) -> None:
    attestation_path(folder / "results.duckdb").unlink()
    assert checking.attestation_notice(folder / "results.duckdb") == ("", "")
