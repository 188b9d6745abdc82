"""Data files read in pieces, and what is said of damaged ones."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.errors import BundleError
from lbx.benchmarks.base import data_files
from tests.profiles import examples

values = st.dictionaries(
    st.text(max_size=5), st.none() | st.integers() | st.text(max_size=20) | st.lists(st.text()), max_size=4
)


@settings(max_examples=examples(60))
@given(st.lists(values, max_size=6), st.sampled_from([None, 0, 2]), st.booleans(), st.integers(1, 40))
def test_an_array_read_in_pieces(
    rows: list[dict[str, object]], indent: int | None, ascii_only: bool, chunk: int
) -> None:
    text = json.dumps(rows, indent=indent, ensure_ascii=ascii_only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "_CHUNK", chunk)
        got = list(data_files._Array(io.BytesIO(text.encode("utf-8", "surrogatepass")), "x").rows())
    assert [row.values for row in got] == rows


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ('{"a": 1}', "line 1", "must start with"),
        ('[{"a": 1}\n{"a": 2}]', "line 2", "should follow"),
        ('[\n{"a": 1},\n{"a": ?}]', "line 3", "Expecting value"),
        ('[\n{"a": 1},\n{"a":', "line 3", "Expecting value"),
        ('[\n{"a": 1}\n', "line 3", "too early"),
        ('[\n{"a": 1}\n]\n[{"a": 2}]', "line 4", "text follows the array"),
        ('[]\n[{"a": 2}]', "line 2", "text follows the array"),
        ('[{"a": 1}] {"a": 2}', "line 1", "text follows the array"),
        ('[{"a": 1}]]', "line 1", "text follows the array"),
        ('[{"a": 1},\n{"a": {"b": 1, "b": 2}}]', "line 2", "the field 'b' appears twice in one object"),
        ("[\n1]", "line 2", "JSON int"),
        ("", "line 1", "must start with"),
        (b"[\xff]", "", "UTF-8"),
    ],
)
def test_a_damaged_array(tmp_path: Path, text: str | bytes, where: str, what: str) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BundleError) as caught:
        list(data_files.read_json_array(path))
    message = str(caught.value)
    assert all(part in message for part in (str(path), where, what, "lbx verify")), message


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (b'{"a": 1}\n{"a": \n', "line 2", "Expecting value"),
        (b'{"a": 1}\n\n"a"\n', "line 3", "JSON str"),
        (b'{"a": 1}\n{"a": 1, "b": 2, "a": 3}\n', "line 2", "the field 'a' appears twice in one object"),
        (b'{"a": 1}\n{"a": 1} {"a": 3}\n', "line 2", "Extra data"),
        (b'{"a": "\xff"}', "line 1", "UTF-8"),
    ],
)
def test_a_damaged_line(tmp_path: Path, text: bytes, where: str, what: str) -> None:
    path, archive = tmp_path / "data.jsonl", tmp_path / "data.zip"
    path.write_bytes(text)
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("data/x.jsonl", text)
    for read in (lambda: data_files.read_jsonl(path), lambda: data_files.read_zip_jsonl(archive, "data/x.jsonl")):
        with pytest.raises(BundleError) as caught:
            list(read())
        assert where in str(caught.value)
        assert what in str(caught.value)


def test_a_damaged_zip(tmp_path: Path) -> None:
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("data/x.jsonl", "\n".join(json.dumps({"n": n, "text": str(n) * 50}) for n in range(500)))
    whole = path.read_bytes()
    with pytest.raises(BundleError, match=r"no item named.*y\.jsonl"):
        list(data_files.read_zip_jsonl(path, "data/y.jsonl"))
    path.write_bytes(whole[:-30])
    with pytest.raises(BundleError, match=r"data\.zip is damaged: File is not a zip file"):
        data_files.zip_members(path)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    with pytest.raises(BundleError, match=r"data\.zip, data/x\.jsonl"):
        list(data_files.read_zip_jsonl(path, "data/x.jsonl"))


def test_counting_does_not_parse(tmp_path: Path) -> None:
    rows = [{"_id": str(n), "text": 'a "_id": in a text, and \\"_id\\":'} for n in range(7)]
    path = tmp_path / "data.json"
    for indent in (None, 2):
        path.write_text(json.dumps(rows, indent=indent), "utf-8")
        assert data_files.count_keys(path, "_id") == 7


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"a": 1}')
    assert data_files.read_json(path) == {"a": 1}
    path.write_text('{"a": 22}')
    assert data_files.read_json(path) == {"a": 22}


def test_fields(tmp_path: Path) -> None:
    row = data_files.DataRow("x, line 3", {"a": 1})
    assert row.get("a", int) == 1
    with pytest.raises(BundleError, match="x, line 3 is damaged: the field 'b' is missing"):
        row.get("b", str)
    with pytest.raises(BundleError, match="the field 'a' is int, not str"):
        row.get("a", str)


# What somebody has made to fill the memory: refused by its name, with the limit, and without filling it


def refused(read: Callable[[], object], *words: str) -> None:
    """``read`` names these words, and has never held much more than a few of the (lowered) limits."""
    tracemalloc.start()
    try:
        with pytest.raises(BundleError) as caught:
            read()
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert all(word in message for word in words), message


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A limit of 1 MiB for one record."""
    monkeypatch.setattr(data_files, "_LIMIT", 1 << 20)
    monkeypatch.setattr(data_files, "_CHUNK", 1 << 16)
    yield 1 << 20


def zipped(path: Path, size: int, stored: bool = False) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/qasper.jsonl", b'{"a": "' + b"x" * (size - 10) + b'"}\n')
    return path


def test_a_zip_bomb_is_refused_when_it_is_read(tmp_path: Path) -> None:
    bomb = zipped(tmp_path / "data.zip", 24 << 20)
    words = ("data.zip is damaged", "would unpack to 25,165,824, a zip bomb", "more than 200 times its size")
    for read in (
        lambda: data_files.zip_members(bomb),
        lambda: data_files.count_zip_lines(bomb, "data/qasper.jsonl"),
        lambda: list(data_files.read_zip_jsonl(bomb, "data/qasper.jsonl")),
    ):
        refused(read, *words)


@pytest.mark.parametrize("claim", [100, (1 << 32) - 2])
def test_a_zip_that_lies_about_a_size_gives_no_more_than_it_says(tmp_path: Path, claim: int) -> None:
    """The same bomb, its size in the directory and before the member set to what would pass, or to far more."""
    true = (24 << 20) - 1
    path = zipped(tmp_path / "data.zip", true)
    lie, size = path.read_bytes(), struct.pack("<I", true)
    assert lie.count(size) == 2
    path.write_bytes(lie.replace(size, struct.pack("<I", claim)))
    said = "a zip bomb" if claim > 100 else "Bad CRC-32"
    refused(lambda: list(data_files.read_zip_jsonl(path, "data/qasper.jsonl")), "data.zip", "damaged", said)
    refused(lambda: data_files.count_zip_lines(path, "data/qasper.jsonl"), "data.zip", "damaged", said)


def test_an_endless_line_is_refused(tmp_path: Path, low: int) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "')
    with path.open("r+b") as file:
        file.truncate(1 << 30)  # of which the disk holds a page, and no line ends
    limit = ("data.jsonl, line 2", f"more than {low:,} bytes")
    refused(lambda: list(data_files.read_jsonl(path)), *limit)
    long = zipped(tmp_path / "data.zip", 24 << 20, stored=True)
    for read in (
        lambda: list(data_files.read_zip_jsonl(long, "data/qasper.jsonl")),
        lambda: data_files.count_zip_lines(long, "data/qasper.jsonl"),
    ):
        refused(read, "data.zip, data/qasper.jsonl, line 1", f"more than {low:,} bytes")


def test_an_endless_object_of_an_array_is_refused(tmp_path: Path, low: int) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(b'[{"a": 1},\n{"a": "' + b"x" * (24 << 20) + b'"}]')
    refused(lambda: list(data_files.read_json_array(path)), "data.json, line 2", f"more than {low:,} characters")


def test_a_small_file_that_is_large_is_refused(tmp_path: Path, low: int) -> None:
    path = tmp_path / "dataset2prompt.json"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(1 << 34)
    for read in (lambda: data_files.read_json(path), lambda: data_files.read_text(path)):
        refused(read, "dataset2prompt.json", "17,179,869,184 bytes", f"limit for such a file is {low:,}")


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 200_000], ids=["digits", "brackets"])
def test_json_that_python_will_not_read_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(f'[{{"a": {value}')
    refused(lambda: list(data_files.read_json_array(path)), "data.json", "cannot parse its JSON")
    path.write_text(f'{{"a": {value}')
    refused(lambda: list(data_files.read_jsonl(path)), "data.json", "cannot parse its JSON")


def test_a_text_in_a_zip_is_never_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_LIMIT", 5)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("short.txt", "12345")
        archive.writestr("long.txt", "123456")
    assert data_files.read_zip_text(tmp_path / "a.zip", "short.txt") == "12345"
    with pytest.raises(BundleError, match=r"long\.txt is damaged: it has more than 5 bytes"):
        data_files.read_zip_text(tmp_path / "a.zip", "long.txt")
