"""Whether weights are told from others of the same names and sizes, and what of them is read for that."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.backends import weights
from lbx.backends.headers import tensor_table
from lbx.backends.weights import fingerprint
from lbx.base.errors import BackendError
from tests.profiles import examples

MIB = 1 << 20
Make = Callable[[Path], Path]


def put(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def safetensors(path: Path, tensors: dict[str, int], fill: int = 0) -> Path:
    """A file with tensors of so many bytes each; ``fill`` is what they hold."""
    entries, at = {}, 0
    for name, size in tensors.items():
        entries[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(entries).encode()
    return put(path, struct.pack("<Q", len(header)) + header + bytes([fill]) * at)


def sharded(folder: Path) -> Path:
    """A model folder in two files, each of two large tensors and a small one."""
    put(folder / "config.json", b"{}")
    for n in (1, 2):
        tensors = {f"layers.{n}.big": 3 * MIB, f"layers.{n}.norm": 256, f"layers.{n}.large": 2 * MIB}
        safetensors(folder / f"model-0000{n}-of-00002.safetensors", tensors)
    return folder


def split(folder: Path) -> Path:
    """The same as a GGUF model in two parts, by gguf's own writer; gives the first."""
    folder.mkdir(parents=True, exist_ok=True)
    for n in (1, 2):
        writer = gguf.GGUFWriter(folder / f"m-0000{n}-of-00002.gguf", "llama")
        writer.add_array("tokenizer.ggml.tokens", [f"word {i}" for i in range(1000)])
        writer.add_context_length(128)
        for name, size in (("big", 3 * MIB), ("norm", 256), ("large", 2 * MIB)):
            writer.add_tensor(f"blk.{n}.{name}", np.zeros(size // 2, np.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return folder / "m-00001-of-00002.gguf"


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every model were too large to be read, and so large that its tensors have their least pieces."""
    monkeypatch.setattr(weights, "WHOLE", 0)
    monkeypatch.setattr(weights, "_PIECES", 1)


def spans(path: Path) -> list[tuple[int, int]]:
    with path.open("rb") as file:
        table = tensor_table(file, path.stat().st_size)
    assert table is not None
    return table.spans


def changed(path: Path, at: int, size: int = 1) -> None:
    """Other bytes in this place, of the same file and size."""
    with path.open("r+b") as file:
        file.seek(at)
        before = file.read(size)
        assert len(before) == size
        file.seek(at)
        file.write((np.frombuffer(before, np.uint8) ^ 0x5A).tobytes())


def test_a_fine_tune_that_differs_in_the_middle_is_another_model(demo_gguf: Path, tmp_path: Path) -> None:
    """4 kB of a real GGUF, which the first and the last MiB do not show."""
    data = demo_gguf.read_bytes()
    tuned = put(tmp_path / demo_gguf.name, data)
    assert fingerprint(tuned) == fingerprint(demo_gguf)
    changed(tuned, len(data) // 2, 4096)
    assert fingerprint(tuned) != fingerprint(demo_gguf)


def test_the_fingerprint_follows_content_not_place(tmp_path: Path) -> None:
    data = bytes(range(256)) * 12_000
    first = put(tmp_path / "a/m.gguf", data)
    same = put(tmp_path / "b/m.gguf", data)
    assert fingerprint(first) == fingerprint(same)
    middle = data[: len(data) // 2] + b"X" + data[len(data) // 2 + 1 :]
    for other in (b"X" + data[1:], data[:-1] + b"X", data + b"X", middle):
        assert fingerprint(put(same, other)) != fingerprint(first)
    folder = put(tmp_path / "hf/config.json").parent
    seen = {fingerprint(folder)}
    for name in ("chat_template.jinja", "tokenizer.json", "tokenizer.model", "merges.txt", "generation_config.json"):
        put(folder / name)
        seen.add(fingerprint(folder))
    put(folder / "README.md")
    assert fingerprint(folder) in seen and len(seen) == 6


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("make", [sharded, split])
def test_pieces_of_every_tensor_are_read(make: Make, tmp_path: Path) -> None:
    """All of a tensor's values, or two thirds of it in one block, cannot change unseen, however small its share is."""
    path = make(tmp_path / "m")
    before = fingerprint(path)
    parts = sorted(p for p in (path if path.is_dir() else path.parent).iterdir() if p.name != "config.json")
    for part in parts:
        for begin, end in spans(part):
            size = end - begin
            for at, length in ((begin, size), (begin, 2 * size // 3), (end - 2 * size // 3, 2 * size // 3)):
                changed(part, at, length)
                assert fingerprint(path) != before, (part.name, begin, length)
                changed(part, at, length)
    assert fingerprint(path) == before


@pytest.mark.usefixtures("in_pieces")
def test_names_shapes_and_formats_are_read(tmp_path: Path) -> None:
    """Of the same bytes in files of the same size."""
    path = safetensors(tmp_path / "m/model.safetensors", {"a.weight": 4 * MIB, "b.weight": 4 * MIB})
    data, seen = path.read_bytes(), {fingerprint(path.parent)}
    for old, new in ((b"a.weight", b"c.weight"), (b"BF16", b"F16 "), (b"[2097152]", b"[2097,1] ")):
        assert old in data
        put(path, data.replace(old, new, 1))
        seen.add(fingerprint(path.parent))
    assert len(seen) == 4


@settings(max_examples=examples(500))
@given(begin=st.integers(0, 1 << 40), size=st.integers(0, 1 << 34), turn=st.integers(0, 100_000), data=st.data())
def test_a_block_of_two_shares_holds_a_piece(begin: int, size: int, turn: int, data: st.DataObject) -> None:
    """Pieces are so far apart as the model's size says; what is twice as long cannot change unseen."""
    apart = data.draw(st.integers(max(weights._PIECE, size // 2000), 1 << 34))
    places = list(weights._spread_pieces(begin, begin + size, apart, turn))
    assert all(begin <= at and at + length <= begin + size for at, length in places)
    assert places == sorted(places) and sum(length for _, length in places) <= size
    ends = [at + length for at, length in places]
    gaps = [after - end for end, after in zip([begin, *ends], [at for at, _ in places] + [begin + size], strict=True)]
    assert max(gaps) < 2 * min(apart, -(-size // weights._LEAST)) or max(gaps) == 0


@pytest.mark.usefixtures("in_pieces")
def test_pieces_may_miss_a_byte_and_the_whole_does_not(tmp_path: Path) -> None:
    """What is promised of ``--hash-weights``, and what is not promised without."""
    folder = sharded(tmp_path / "m")
    path = folder / "model-00002-of-00002.safetensors"
    begin, end = spans(path)[0]
    pieces, whole = fingerprint(folder), fingerprint(folder, every_byte=True)
    missed = 0
    for at in range(begin, end, (end - begin) // 50):
        changed(path, at)
        missed += fingerprint(folder) == pieces
        assert fingerprint(folder, every_byte=True) != whole
        changed(path, at)
    assert missed > 0


def test_every_byte_of_a_small_model_is_read(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m")
    path = folder / "model-00001-of-00002.safetensors"
    before = fingerprint(folder)
    for at in range(0, path.stat().st_size, 99_991):
        changed(path, at)
        assert fingerprint(folder) != before
        changed(path, at)
    assert fingerprint(folder) == fingerprint(folder, every_byte=True) == before


def test_of_half_a_terabyte_only_pieces_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 files of 5 GB, sparse: 64 MiB at most are read of them, and every tensor's change is seen."""
    per_file, size, files = 20, 250_000_000, 100
    entries = {
        f"layers.{n}.weight": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [n * size, (n + 1) * size]}
        for n in range(per_file)
    }
    header = json.dumps(entries).encode()
    for n in range(1, files + 1):
        path = put(tmp_path / f"m/model-{n:05}-of-00100.safetensors", struct.pack("<Q", len(header)) + header)
        os.truncate(path, 8 + len(header) + per_file * size)
    read = 0

    def counted(handle: int, length: int, offset: int, pread: Callable[[int, int, int], bytes] = os.pread) -> bytes:
        nonlocal read
        read += length
        return pread(handle, length, offset)

    monkeypatch.setattr(os, "pread", counted)
    before = fingerprint(tmp_path / "m")
    assert per_file * files * weights._LEAST * weights._PIECE < read < 64 * MIB
    with path.open("r+b") as file:  # a tenth of one tensor
        file.seek(8 + len(header) + 7 * size + size // 2)
        file.write(b"\x01" * (size // 10))
    assert fingerprint(tmp_path / "m") != before


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m")
    (folder / "notes.json").mkdir()  # a folder of such a name is none of the model's files
    before = fingerprint(folder)
    for spoil in (
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("nothing"),
    ):
        path = folder / "tokenizer.json"
        spoil(path)
        with pytest.raises(BackendError, match=r"tokenizer\.json is not a regular file"):
            fingerprint(folder)
        path.unlink()
    assert fingerprint(folder) == before
    path = put(tmp_path / "elsewhere.json", b"{}")
    (folder / "tokenizer.json").symlink_to(path)  # as hub caches have them
    linked = fingerprint(folder)
    path.write_bytes(b"[]")
    assert before != linked != fingerprint(folder)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sharded(tmp_path / "m")

    def refused(path: Path, buffering: int = -1) -> BufferedReader:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(weights, "open_input", refused)
    with pytest.raises(BackendError, match=r"config\.json: Permission denied"):
        fingerprint(folder)


def table(value: object, length: int | None = None) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(data) if length is None else length) + data


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def ggufs(tensors: int, keys: int, rest: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + rest


KEY = text(b"k")
HOSTILE = {
    "nothing": b"",
    "a header of exabytes": table(b"{}", 1 << 60),
    "a header of all there is": table(b"[" * MIB),
    "numbers without end": table(b'{"w":' + b"9" * 100_000 + b"}"),
    "a list": table([]),
    "no offsets": table({"w": {"dtype": "F32"}}),
    "offsets of text": table({"w": {"data_offsets": ["0", "4"]}}),
    "offsets of true": table({"w": {"data_offsets": [False, True]}}),
    "offsets backwards": table({"w": {"data_offsets": [8, 0]}}),
    "offsets before the file": table({"w": {"data_offsets": [-(1 << 70), 4]}}),
    "offsets outside": table({"w": {"data_offsets": [0, 1 << 70]}}),
    "tensors without end": ggufs(1 << 60, 0, b""),
    "keys without end": ggufs(0, 1 << 60, b""),
    "a key of exabytes": ggufs(0, 1, text(b"", 1 << 62)),
    "an array of exabytes": ggufs(0, 2, KEY + struct.pack("<IIQ", 9, 10, (1 << 64) - 1) + KEY),
    "words without end": ggufs(0, 1, KEY + struct.pack("<IIQ", 9, 8, 1 << 60)),
    "arrays of arrays": ggufs(0, 1, KEY + struct.pack("<IIQ", 9, 9, 1)),
    "an unknown kind": ggufs(0, 1, KEY + struct.pack("<I", 99)),
    "an alignment of nothing": ggufs(1, 1, text(b"general.alignment") + struct.pack("<II", 4, 0) + KEY),
    "dimensions without end": ggufs(1, 0, KEY + struct.pack("<I", 1 << 31)),
    "an offset outside": ggufs(1, 0, KEY + struct.pack("<IQIQ", 1, 4, 0, 1 << 62)),
    "an older version": b"GGUF" + struct.pack("<III", 1, 1, 1),
}


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("suffix", ["safetensors", "gguf"])
@pytest.mark.parametrize("case", HOSTILE)
def test_a_file_without_a_table_that_holds_is_one_long_tensor(case: str, suffix: str, tmp_path: Path) -> None:
    """Its begin, and pieces all over it; nothing that the file says of itself is believed."""
    path = put(tmp_path / f"m.{suffix}", HOSTILE[case] + bytes(3 * MIB))
    before = fingerprint(path)
    share = path.stat().st_size // 3
    for at in (0, share, 2 * share):
        changed(path, at, share)
        assert fingerprint(path) != before
        changed(path, at, share)
    assert fingerprint(path) == before


@settings(max_examples=examples(300))
@given(data=st.data())
def test_a_damaged_table_is_refused_or_lies_in_its_file(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "tables"
    if not folder.exists():
        split(folder)
        safetensors(folder / "m.safetensors", {f"w{n}": 64 for n in range(9)})
    name = data.draw(st.sampled_from(["m-00001-of-00002.gguf", "m.safetensors"]))
    whole = (folder / name).read_bytes()[:20_000]
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for place in data.draw(st.lists(st.integers(0, max(len(damaged) - 1, 0)), max_size=4)) if damaged else ():
        damaged[place] = data.draw(st.integers(0, 255))
    path = put(folder / "damaged", bytes(damaged))
    with path.open("rb") as file:
        found = tensor_table(file, len(damaged))
    assert found is None or all(found.header <= begin <= end <= len(damaged) for begin, end in found.spans)
