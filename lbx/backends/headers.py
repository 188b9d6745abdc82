"""A model's context window by its files' own words, read in a moment and without any model library.

GGUF: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: magic, version, numbers of tensors and of keys, then
key, type and value of each key. The window stands among the first ones, before the vocabulary.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import BinaryIO

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST = 1 << 20
"""Bytes of a text, and keys of a file. What says that it has more is damaged."""
_WINDOWS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")


def context_window(place: Path) -> int | None:
    """Tokens that the model in a .gguf file or in a folder with config.json was trained for; None: it does not say."""
    try:
        if place.is_dir():
            return _of_config(json.loads((place / "config.json").read_text("utf-8")))
        with place.open("rb") as file:
            return _of_gguf(file)
    except (OSError, ValueError, struct.error):
        return None


def _of_config(config: object) -> int | None:
    """Models of pictures and text have the text's configuration inside."""
    if not isinstance(config, dict):
        return None
    for name in _WINDOWS:
        if type(value := config.get(name)) is int and value > 0:
            return value
    return _of_config(config.get("text_config"))


def _of_gguf(file: BinaryIO) -> int | None:
    if file.read(4) != _MAGIC or _number(file, "I") not in _VERSIONS:
        return None
    _number(file, "Q")
    for _ in range(min(int(_number(file, "Q")), _LONGEST)):
        key = _text(file)
        value = _value(file, int(_number(file, "I")))
        if key.endswith(".context_length") and isinstance(value, int):
            return value
    return None


def _number(file: BinaryIO, kind: str) -> int | float:
    (value,) = struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))
    found: int | float = value
    return found


def _text(file: BinaryIO) -> str:
    length = int(_number(file, "Q"))
    if length > _LONGEST:
        raise ValueError(length)
    return file.read(length).decode("utf-8", "replace")


def _value(file: BinaryIO, kind: int) -> int | float | None:
    """A number; None for texts and arrays, which are passed over."""
    if kind == _STRING:
        _text(file)
        return None
    if kind != _ARRAY:
        return _number(file, _NUMBERS[kind]) if kind in _NUMBERS else _unknown(kind)
    of, length = int(_number(file, "I")), int(_number(file, "Q"))
    if of in _NUMBERS:
        file.seek(length * struct.calcsize(f"<{_NUMBERS[of]}"), 1)
    elif of == _STRING and length <= _LONGEST:
        for _ in range(length):
            _text(file)
    else:
        _unknown(of)
    return None


def _unknown(kind: int) -> int:
    raise ValueError(kind)
