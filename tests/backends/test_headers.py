"""A context window and tensors from a file's first bytes, whatever these are."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.backends.headers import DeclaredWindow, GgufTensor, declared_window, gguf_tensors
from tests.profiles import examples


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """As llama.cpp's own writer makes it, with texts, numbers and arrays before the window."""
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("模型")
    writer.add_float32("x.y", 0.5)
    writer.add_array("x.words", ["a", "", "文"])
    writer.add_array("x.numbers", [1, 2, 3])
    writer.add_bool("x.z", True)
    writer.add_context_length(131_072)
    writer.add_tensor_info("x.weight", [3, 32], np.dtype("float16"), 192)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path.read_bytes()


def test_gguf(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header)
    assert declared_window(path) == DeclaredWindow(131_072)
    assert gguf_tensors(path) == [GgufTensor("x.weight", 1, 96, 0)]
    tensors = header.index(b"x.weight") - 8
    for length in range(len(header) - 1):
        path.write_bytes(header[:length])
        assert gguf_tensors(path) is None
        assert declared_window(path) is None or length >= tensors
    assert declared_window(tmp_path / "none.gguf") is None
    numbers = struct.pack("<IIQ", 9, 10, (1 << 64) - 1)  # so many that no seek reaches their end
    path.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 2, 1) + b"k" + numbers)
    assert declared_window(path) is None


@settings(max_examples=examples(300))
@given(data=st.data())
def test_damaged_gguf(header: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A number or nothing, and at once: lengths are not believed."""
    damaged = bytearray(header)
    for place in data.draw(st.lists(st.integers(4, len(header) - 1), max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(damaged)
    assert isinstance(declared_window(path), DeclaredWindow | None)
    assert isinstance(gguf_tensors(path), list | None)


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"n_positions": 1024}, 1024),
        ({"text_config": {"max_position_embeddings": 32768}}, 32768),
        ({"max_position_embeddings": "many"}, None),
        ({"max_position_embeddings": True}, None),
        ([], None),
        ({}, None),
    ],
)
def test_config(config: object, window: int | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert declared_window(tmp_path) == (window and DeclaredWindow(window))


def test_no_config(tmp_path: Path) -> None:
    assert declared_window(tmp_path) is None
    (tmp_path / "config.json").write_text("{")
    assert declared_window(tmp_path) is None


def test_a_file_that_changes_is_read_again(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for age_s, window in ((200, 131_072), (100, 65_536)):
        path.write_bytes(header.replace(struct.pack("<I", 131_072), struct.pack("<I", window)))
        os.utime(path, times=(time.time() - age_s,) * 2)
        assert [declared_window(path) for _ in range(2)] == [DeclaredWindow(window)] * 2
