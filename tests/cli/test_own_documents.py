"""Documents of one's own benchmark in files: the same samples as with the texts in the rows, each stored once."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.benchmarks.own import rows as documents
from lbx.benchmarks.own.benchmark import read_for_bundle
from lbx.benchmarks.registry import BENCHMARKS, reserved_names
from tests.command_line import Lbx, fails

TOML = """
name = "mine"
[[task]]
name = "one"
data = "sub/rows.{kind}"
prompt = "{{document}}\\n\\n{{question}}"
metrics = ["f1"]
max_new_tokens = 8
fields = {fields}
"""
FILES = '{ document_file = "file" }'
TEXTS = {
    "texts/a.txt": b'The boat, at noon.\r\nIt brings "oil".\n',
    "texts/b.md": b"\xef\xbb\xbf" + "Der Turm hat 31 Meter. 塔。\n".encode(),
    "c": b"One line",
}
ASKED = [(f"q{n:02d}", name) for n, name in enumerate([*["texts/a.txt"] * 40, "texts/b.md", "c", "texts/a.txt"])]


def written(folder: Path, kind: str, column: str, values: list[tuple[str, str]], fields: str = FILES) -> Path:
    """A definition with a row of data for each (id, value of the column)."""
    (folder / "sub" / "texts").mkdir(parents=True)
    for name, text in TEXTS.items():
        (folder / "sub" / name).write_bytes(text)
    rows = [{"id": name, column: value, "question": f"{name}?", "references": "It."} for name, value in values]
    text = json.dumps(rows) if kind == "json" else "".join(json.dumps(row) + "\n" for row in rows)
    if kind == "csv":
        quoted = [[f'"{value.replace(chr(34), chr(34) * 2)}"' for value in row.values()] for row in rows]
        text = f"id,{column},question,references\n" + "".join(",".join(row) + "\n" for row in quoted)
    (folder / "sub" / f"rows.{kind}").write_bytes(text.encode())  # type: ignore[attr-defined]
    (folder / "benchmark.toml").write_text(TOML.format(kind=kind, fields=fields))
    return folder / "benchmark.toml"


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json"])
def test_files_are_the_texts_in_rows(lbx: Lbx, tmp_path: Path, kind: str) -> None:
    """Samples, prompts, hashes and scores are equal; the archive has each text once, byte for byte."""
    inline = [(name, TEXTS[file].decode("utf-8-sig")) for name, file in ASKED]
    written(tmp_path / "files", kind, "file", ASKED)
    written(tmp_path / "inline", kind, "document", inline, "{}")
    (tmp_path / "answers.json").write_text('{"*": "It."}')
    told = []
    for name in ("files", "inline"):
        bundle = lbx.unpacked(tmp_path / name / "benchmark.toml", tmp_path / name)
        results = tmp_path / f"{name}.duckdb"
        lbx.ok("run", "-b", bundle, "-m", tmp_path / "answers.json", "-t", "mine", "--no-plan", "-o", results)
        samples = list(BENCHMARKS["mine"].samples(Bundle(bundle), "one"))
        columns = "sample_id, s.context_sha256, s.length, s.meta, s.position, prompt_sha256, prompt_tokens, output"
        query = f"SELECT {columns} FROM samples s JOIN generations USING (benchmark, task, sample_id) ORDER BY position"
        told.append((samples, lbx.rows(results, query)))
    assert told[0] == told[1]
    with tarfile.open(tmp_path / "files" / "out" / "mine.tar") as archive:
        names = [name.partition("/benchmarks/mine/")[2] for name in archive.getnames() if "/benchmarks/" in name]
        assert sorted(names) == sorted(["benchmark.toml", f"sub/rows.{kind}", *(f"sub/{name}" for name in TEXTS)])
        stored = archive.extractfile("mine/data/files/benchmarks/mine/sub/texts/b.md")
        assert stored is not None and stored.read() == TEXTS["texts/b.md"]


def test_rows_may_have_either(tmp_path: Path) -> None:
    path = written(tmp_path / "mine", "jsonl", "file", [("a", "c")])
    with (path.parent / "sub" / "rows.jsonl").open("a") as file:
        file.write('{"id": "b", "document": "Inline.", "question": "b?", "references": "It."}\n')
    assert read_for_bundle(path, reserved_names())[1:] == (["sub/rows.jsonl"], ["sub/c"])


Plant = Callable[[Path], object]
OUTSIDE = "../secret.txt"
WRONG: dict[str, tuple[str, Plant | None, str]] = {
    "missing": ("texts/aa.txt", None, r"'texts/aa.txt', which does not exist. Paths begin at"),
    "a folder": ("texts", None, "cannot be read: it is a pipe, a folder or a device"),
    "below a file": ("c/d", None, "'c/d', which does not exist"),
    "outside": (OUTSIDE, None, "which cannot be used: it leads out of the folder"),
    "absolute": ("/etc/hostname", None, "which cannot be used: it is absolute"),
    "of Windows": ("texts\\a.txt", None, "which cannot be used: it has a backslash"),
    "a link": ("l.txt", lambda sub: (sub / "l.txt").symlink_to("c"), "which cannot be used: it is a link"),
    "a linked folder": ("l/a.txt", lambda sub: (sub / "l").symlink_to("texts"), "which cannot be used: it is a link"),
    "a pipe": ("p", lambda sub: os.mkfifo(sub / "p"), "cannot be read: it is a pipe"),
    "no UTF-8": ("u", lambda sub: (sub / "u").write_bytes("Text".encode("utf-16")), r"is not UTF-8 \(invalid start"),
    "too large": ("big", lambda sub: (sub / "big").write_bytes(b"x" * 101), "has more than 100 bytes"),
    "blank": (
        "blank",
        lambda sub: (sub / "blank").write_bytes(b"\xef\xbb\xbf \r\n"),
        "'file' must be text, and not blank",
    ),
}


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_file_is_named_with_line_and_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str, kind: str
) -> None:
    name, plant, words = WRONG[mistake]
    path = written(tmp_path / "mine", kind, "file", [("a", "c"), ("b", name)])
    (tmp_path / "mine" / "secret.txt").write_text("secret")
    if plant:
        plant(path.parent / "sub")
    monkeypatch.setattr(documents, "RECORD_BYTES", 100)
    with pytest.raises(UsageError, match=rf"line {2 + (kind == 'csv')}: the field 'file'") as caught:
        read_for_bundle(path, reserved_names())
    assert caught.match(words)


@pytest.mark.parametrize("value", [7, True, ["c"], {"a": "c"}])
def test_a_file_is_named_by_a_text(tmp_path: Path, value: object) -> None:
    path = written(tmp_path / "mine", "jsonl", "file", [("a", value)])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="line 1: the field 'file' must be the path of a text file"):
        read_for_bundle(path, reserved_names())


def test_two_readings_are_refused(tmp_path: Path) -> None:
    both = written(tmp_path / "both", "jsonl", "file", [("a", "c")])
    row = {"id": "a", "document": "Inline.", "file": "c", "question": "?", "references": "It."}
    (both.parent / "sub" / "rows.jsonl").write_text(json.dumps(row))
    with pytest.raises(UsageError, match="line 1: it has both 'document' and 'file'"):
        read_for_bundle(both, reserved_names())
    neither = written(tmp_path / "neither", "jsonl", "other", [("a", "c")], FILES + '\nignore = ["other"]')
    with pytest.raises(UsageError, match="line 1: the field 'file' is missing"):
        read_for_bundle(neither, reserved_names())
    text = written(tmp_path / "text", "csv", "file", [("a", "texts/a.txt")], '{ document = "file" }')
    with pytest.raises(UsageError, match="line 2: the field 'file' has the name of a file, not a text") as caught:
        read_for_bundle(text, reserved_names())
    assert 'set fields = { document_file = "file" }' in caught.value.fix


def test_a_bundle_without_a_file(lbx: Lbx, tmp_path: Path) -> None:
    """Known at the start, as damage of the bundle; also a link that somebody made there."""
    written(tmp_path / "mine", "csv", "file", ASKED)
    bundle = lbx.unpacked(tmp_path / "mine" / "benchmark.toml", tmp_path / "mine")
    place = bundle / "data/files/benchmarks/mine/sub/texts/b.md"
    place.unlink()
    with pytest.raises(BundleError, match="which does not exist"):
        list(BENCHMARKS["mine"].samples(Bundle(bundle), "one"))
    place.symlink_to("a.txt")
    with pytest.raises(BundleError, match="it is a link"):
        list(BENCHMARKS["mine"].samples(Bundle(bundle), "one"))


@pytest.mark.parametrize("name", ["a%.txt", "a:b.txt", "a .txt ", "u\u0308.txt", "code.py"])
def test_names_that_no_bundle_has(lbx: Lbx, tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "mine", "jsonl", "file", [("a", name)])
    (path.parent / "sub" / name).write_text("A text.")
    done = lbx("bundle", path, "-o", tmp_path / "out")
    fails(done, 2, name.strip(), "Rename it to code.py.txt" if name == "code.py" else "rename it")
