"""Attestations and results files from somebody else: refused in a sentence, or every difference named."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.base.records import canonical_json
from lbx.benchmarks.registry import BENCHMARKS
from lbx.bundle.signing.signature import NAMESPACE, RESULTS_NAMESPACE, sign
from lbx.results import Store
from lbx.results.attesting.attestation import attestation_path, encode_attestation
from lbx.results.scoring.aggregation import aggregate_scores
from lbx.results.views import VIEWS
from tests.attacks.attack_parts import main, refused
from tests.attacks.results_parts import changed, results_file
from tests.attesting.attested_file import attest, changed_rows, check, make_key

EVIL = "r\x1b]0;owned\x07\u202e\n$(touch owned)"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with r.duckdb, its attestation, and two keys."""
    folder = tmp_path_factory.mktemp("made")
    path = results_file(folder / "r.duckdb")
    with Store(path) as store:
        aggregate_scores(store, "r1", BENCHMARKS["longbench"])
    attest(path, make_key(folder))
    make_key(folder, "other")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def lines_of(folder: Path) -> list[bytes]:
    """Statement, signature and rows of the attestation."""
    return gzip.decompress(attestation_path(folder / "r.duckdb").read_bytes()).splitlines(keepends=True)


def write(folder: Path, lines: list[bytes]) -> None:
    """Replace the attestation."""
    attestation_path(folder / "r.duckdb").write_bytes(gzip.compress(b"".join(lines)))


def resign(folder: Path, change: Callable[[dict[str, Any]], object] = lambda _: None, *, key: str = "key") -> None:
    """Sign a changed statement again, in the right namespace."""
    statement, _, *rows = lines_of(folder)
    document = json.loads(statement)
    change(document)
    sign_text(folder, canonical_json(document).encode() + b"\n", rows, key=key)


def sign_text(
    folder: Path, text: bytes, rows: list[bytes], *, key: str = "key", namespace: str = RESULTS_NAMESPACE
) -> None:
    """Replace the attestation by a signed text and rows."""
    content = encode_attestation(text, sign(text, folder / key, namespace), gzip.compress(b"".join(rows)))
    attestation_path(folder / "r.duckdb").write_bytes(content)


def verify(folder: Path, *options: object) -> Any:
    """The command, with the key trusted."""
    return main("verify", folder / "r.duckdb", "--trust", folder / "key.pub", *options)


def test_the_attestation_holds(folder: Path) -> None:
    assert verify(folder).code == 0
    resign(folder)
    assert verify(folder).code == 0


@pytest.mark.parametrize("place", range(4))
def test_no_changed_byte_passes(folder: Path, place: int) -> None:
    """In the statement, the signature, the first row and the last."""
    lines = lines_of(folder)
    at = (0, 1, 2, len(lines) - 1)[place]
    line = bytearray(lines[at])
    for digit in range(len(line) - 10, len(line) - 3):
        changed_line = bytes([*line[:digit], line[digit] ^ 1, *line[digit + 1 :]])
        write(folder, [*lines[:at], changed_line, *lines[at + 1 :]])
        refused(verify(folder))


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda lines: lines[:-1], "truncated"),
        (lambda lines: lines[:2], "truncated"),
        (lambda lines: lines[:1], "truncated"),
        (lambda lines: [], "truncated"),
        (lambda lines: [*lines, b"\n"], "extra lines"),
        (lambda lines: [*lines[:2], *reversed(lines[2:])], "not in order"),
        (lambda lines: [*lines[:3], *lines[2:-1]], "not in order"),
        (lambda lines: [lines[0], b'{"signature": 5}\n', *lines[2:]], "not a signature"),
        (lambda lines: [lines[0], b'["signature"]\n', *lines[2:]], "not a signature"),
        (lambda lines: [lines[0], b"[" * 100_000 + b"\n", *lines[2:]], "not a signature"),
        (lambda lines: [lines[0], b'{"signature": ""}\n', *lines[2:]], "is not signed"),
        (lambda lines: [lines[0], b'{"signature": "\\ud800"}\n', *lines[2:]], "not an SSH signature"),
        (lambda lines: [*lines[:2], lines[2][:-1] + b" " * (1 << 21) + b"\n", *lines[3:]], "too long"),
    ],
)  # fmt: skip
def test_a_spoilt_attestation_is_refused(folder: Path, spoil: Callable[[list[bytes]], list[bytes]], text: str) -> None:
    write(folder, spoil(lines_of(folder)))
    refused(verify(folder), text)


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"", "truncated"), (b"{}\n", "Not a gzipped file"), (b"\x1f\x8b\x08" + bytes(60), "damaged")],
)
def test_a_file_that_is_no_attestation_is_refused(folder: Path, content: bytes, text: str) -> None:
    attestation_path(folder / "r.duckdb").write_bytes(content)
    refused(verify(folder), text)


def test_a_bomb_is_refused_without_being_unpacked(folder: Path) -> None:
    with gzip.open(attestation_path(folder / "r.duckdb"), "wb", compresslevel=9) as file:
        for _ in range(200):
            file.write(b" " * (1 << 20))
    refused(verify(folder), "too long")


def test_a_signature_for_another_purpose_is_refused(folder: Path) -> None:
    statement, _, *rows = lines_of(folder)
    sign_text(folder, statement, rows, namespace=NAMESPACE)
    refused(verify(folder), "made for 'lbx-bundle', not for 'lbx-results'")


def test_another_signer_is_refused(folder: Path) -> None:
    resign(folder, key="other")
    refused(verify(folder), "untrusted key")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s.update(more=1), "exactly the keys"),
        (lambda s: s.pop("subject"), "exactly the keys"),
        (lambda s: s.update(_type="https://in-toto.io/Statement/v0.1"), "another type"),
        (lambda s: s.update(predicateType="https://slsa.dev/provenance/v1"), "another type"),
        (lambda s: s["predicate"].update(schemaVersion=99), "another version"),
        (lambda s: s["predicate"]["columns"]["scores"]["values"].remove("score"), "another version"),
        (lambda s: s["predicate"]["columns"].pop("scores"), "another version"),
        (lambda s: s["predicate"].update(salt=5), "no text as"),
        (lambda s: s.update(subject={}), "no list as"),
        (lambda s: s["subject"].append(s["subject"][0]), "one subject for each run"),
        (lambda s: (s["subject"].clear(), s["predicate"]["runs"].clear()), "one subject for each run"),
        (lambda s: [part.append(part[0]) for part in (s["subject"], s["predicate"]["runs"])], "twice"),
        (lambda s: s["subject"][0].update(name="other"), "not its run"),
        (lambda s: s["subject"][0].update(digest={"md5": "00"}), "exactly the keys"),
        (lambda s: s["subject"][0].update(digest={"sha256": "x" * 64}), "not a SHA-256"),
        (lambda s: s["subject"][0].update(digest={"sha256": "0" * 64}), "do not match the signed statement"),
        (lambda s: s["predicate"]["runs"][0].update(rows=0), "impossible number"),
        (lambda s: s["predicate"]["runs"][0].update(rows=True), "impossible number"),
        (lambda s: s["predicate"]["runs"][0].update(rows=10**30), "impossible number"),
        (lambda s: s["predicate"]["runs"][0].update(rows=10**11), "truncated"),
        (lambda s: s["predicate"]["runs"][0].update(rows=1), "do not match the signed statement"),
    ],
)  # fmt: skip
def test_a_statement_that_lbx_never_signs_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], text: str
) -> None:
    resign(folder, change)
    refused(verify(folder), text)


@pytest.mark.parametrize(
    "text", [b"[]", b"null", b"{", b"[" * 100_000, b'{"a": 1, "a": 2}', b'{"a": NaN}', b"\xff", b"9" * 9999]
)
def test_a_signed_text_that_is_no_statement_is_refused(folder: Path, text: bytes) -> None:
    sign_text(folder, text + b"\n", [])
    refused(verify(folder), "cannot be used: its statement")


ROW = ["scores", ["r1", "longbench", "qasper", "0000", 0, "f1"], [], "0" * 32, "0" * 24, [None, None]]


@pytest.mark.parametrize(
    "row",
    [
        [], {}, 5, ROW[:-1], ["sessions", *ROW[1:]], [["scores"], *ROW[1:]], [*ROW[:1], ["r1"], *ROW[2:]],
        [*ROW[:1], [{}, *ROW[1][1:]], *ROW[2:]], [*ROW[:2], [5], *ROW[3:]], [*ROW[:3], "x" * 32, *ROW[4:]],
        [*ROW[:3], 5, *ROW[4:]], [*ROW[:4], "00", *ROW[5:]], [*ROW[:5], [None]], [*ROW[:5], ["zz", None]], [*ROW, 1],
    ],
)  # fmt: skip
def test_a_malformed_row_is_refused_even_if_it_is_signed(folder: Path, row: object) -> None:
    line = canonical_json(row).encode() + b"\n"

    def change(statement: dict[str, Any]) -> None:
        statement["subject"][0]["digest"]["sha256"] = hashlib.sha256(line).hexdigest()
        statement["predicate"]["runs"][0]["rows"] = 1

    write(folder, [*lines_of(folder)[:2], line])
    resign(folder, change)
    refused(verify(folder), "malformed")


def test_names_cannot_act_on_a_terminal_or_a_shell(tmp_path: Path) -> None:
    key, path = make_key(tmp_path), results_file(tmp_path / "r.duckdb", run=EVIL)
    results_file(path, run="second", output="eight")
    attest(path, key)
    results = ("generations", "scores", "numbers")
    for statement in ("UPDATE scores SET score = 0", "DELETE FROM runs", *(f"DELETE FROM {name}" for name in results)):
        changed(path, statement)
        said = main("verify", path, "--trust", f"{key}.pub")
        assert said.code == 1
        assert not {"\x1b", "\x07", "\u202e"} & {*said.all}
        starts = ("  ", str(tmp_path), "Attested runs")
        assert all(line.startswith(starts) for line in said.all.splitlines())


def test_rows_without_the_tables_keys_are_named(folder: Path) -> None:
    """Somebody made the table again without its primary key, and added a second answer under the same key."""
    changed(
        folder / "r.duckdb",
        *(f"DROP VIEW IF EXISTS {name}" for name in VIEWS),
        "CREATE TABLE other AS FROM generations",
        "DROP TABLE generations",
        "ALTER TABLE other RENAME TO generations",
        "INSERT INTO generations BY NAME SELECT * REPLACE ('eight' AS output) FROM generations",
        "INSERT INTO generations BY NAME SELECT * REPLACE (NULL AS sample_id) FROM generations LIMIT 1",
    )
    report = check(folder / "r.duckdb", folder / "key")
    answer = ("r1", "longbench", "qasper", "0000", 0)
    assert [row[:3] for row in changed_rows(report)] == [
        ("added", "generations", answer),
        ("added", "generations", ("r1", "longbench", "qasper", None, 0)),
    ]


@pytest.mark.parametrize("meta", ["[]", "5", "null", '"text"', "[" * 900 + "]" * 900, '{"category": 1e999}'])
def test_an_unexpected_json_value_is_a_change_and_no_error(folder: Path, meta: str) -> None:
    changed(folder / "r.duckdb", f"UPDATE samples SET meta = '{meta}'")
    report = check(folder / "r.duckdb", folder / "key")
    assert [(row[0], row[1], row[3]) for row in changed_rows(report)] == [("changed", "samples", ("meta",))]
