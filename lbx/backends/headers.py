"""Headers of model files, read without a model library: context windows, and offsets and types of tensors.

GGUF: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: magic, version, numbers of tensors and of keys, then
key, type and value of each key, then name, shape, type and offset of each tensor. Safetensors: the length of a JSON
table, the table, the tensors' bytes.

The package gguf is too slow: for a header with a vocabulary of 150,000 tokens and 280,000 merges it takes 10 s and
785 MB (here 0.16 s and 20 MB), and it reads for more than a minute if 50 MB claim an array of 2^40 texts.

A declared context window is a number of positions, and the rope scaling that multiplies it.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeGuard, TypeVar

from lbx.base.inputs import SMALL, open_input, read_input
from lbx.base.limits import CONTEXT_TOKENS

T = TypeVar("T")

_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
_MULTIPLIED = ("yarn", "linear", "dynamic")
"""Types of rope scaling that are defined by a factor of the window. ``max_position_embeddings`` of models with others
(llama3, longrope) is the scaled window.
"""
_SCALED_ALREADY = "gemma3"
"""Family whose ``max_position_embeddings`` includes the linear factor."""


@dataclass(frozen=True, slots=True)
class DeclaredWindow:
    """Context window that a model's files declare.

    Attributes:
        positions: ``max_position_embeddings`` of a config.json, or ``context_length`` of a GGUF header.
        scaling: type of the rope scaling that multiplies the window, or "" if there is none.
        original: positions before scaling, or 0 if the files do not name them.
    """

    positions: int
    scaling: str = ""
    factor: float = 1.0
    original: int = 0

    @property
    def base_tokens(self) -> int:
        """Context window in tokens, without the rope scaling."""
        return self.original or self.positions

    @property
    def tokens(self) -> int:
        """Context window in tokens, with the rope scaling."""
        return int(self.base_tokens * self.factor)

    def note(self, name: str) -> str:
        """Sentence on a context window that differs from ``positions``, or "" if it does not."""
        if self.tokens == self.positions:
            return ""
        note = (
            f"{name} scales its positions ({self.scaling}, factor {self.factor:g}): its context window is "
            f"{self.base_tokens:,} x {self.factor:g} = {self.tokens:,} tokens"
        )
        if self.original:
            return f"{note}, although its files also declare {self.positions:,}."
        return f"{note}. If {self.positions:,} already includes the factor, set context_window = {self.positions}."


def window_in_config(config: object) -> DeclaredWindow | None:
    """Read the context window in a config.json, which multimodal models nest in the text model's configuration."""
    if not isinstance(config, Mapping):
        return None
    sizes: Iterator[Any] = (config.get(name) for name in _POSITIONS)
    positions = next((int(value) for value in sizes if _is_size(value)), None)
    if positions is None:
        return window_in_config(config.get("text_config"))
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    table = rope if isinstance(rope, Mapping) else {}
    tables = [layers for layers in table.values() if isinstance(layers, Mapping)] or [table]
    windows = [
        _apply_scaling(
            positions,
            str(config.get("model_type")),
            "" if layers.get("alpha") else layers.get("rope_type") or layers.get("type"),  # alpha fixes the base
            layers.get("factor"),
            layers.get("original_max_position_embeddings"),
        )
        for layers in tables
    ]
    return max(windows, key=lambda window: window.tokens)


def window_in_header(values: Mapping[str, Any]) -> DeclaredWindow | None:
    """Read the context window in the keys of a GGUF header."""
    family = str(values.get("general.architecture"))
    scaling = f"{family}.rope.scaling"
    positions: Any = values.get(f"{family}.context_length")
    if not _is_size(positions):
        return None
    return _apply_scaling(
        int(positions),
        family,
        values.get(f"{scaling}.type", "linear"),
        values.get(f"{scaling}.factor") or values.get(f"{family}.rope.scale_linear"),
        values.get(f"{scaling}.original_context_length"),
    )


def _apply_scaling(positions: int, family: str, kind: Any, factor: Any, original: Any) -> DeclaredWindow:
    included = kind == "linear" and family.startswith(_SCALED_ALREADY)
    if kind not in _MULTIPLIED or included or type(factor) not in (int, float) or not 1 < factor < math.inf:
        return DeclaredWindow(positions)
    has_original = _is_size(original) and kind != "dynamic"  # dynamic scaling begins at max_position_embeddings
    return DeclaredWindow(positions, kind, factor, int(original) if has_original else 0)


def _is_size(value: object) -> TypeGuard[float]:
    return type(value) in (int, float) and 0 < value < math.inf and not value % 1  # type: ignore[operator]


_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_LONGEST = 1 << 20
"""Maximum number of keys or tensors of a file, and of texts of an array. A file that claims more is damaged."""
_LONGEST_GGUF, _LONGEST_JSON = 1 << 27, 1 << 25
"""Maximum bytes before the first tensor. A vocabulary of a million tokens takes 40 MB, 100,000 tensors 12 MB."""
_MOST_DIMENSIONS = 8
_LONGEST_VALUE = 40
_TOKENIZER = "tokenizer.ggml."
_TOKENS = f"{_TOKENIZER}tokens"
_DROPPED_KEYS = ("split.", "general.name")
"""Keys to drop: a vocabulary is no split file, and llama.cpp treats certain tokens by the model's name (Phi-3)."""
_ALIGNMENT = "general.alignment", 32
_SETTLED_S = 2.0
"""Age in seconds above which a change of a file always changes its modification time."""
_DAMAGED = (OSError, ValueError, OverflowError, RecursionError, struct.error)


def declared_window(path: Path) -> DeclaredWindow | None:
    """Read the context window that a .gguf file or a folder's config.json declares, or None if it is invalid."""
    try:
        if path.is_dir():
            window = window_in_config(json.loads(read_input(path / "config.json", SMALL)))
        else:
            window = window_in_header(header_values(path))
    except _DAMAGED:
        return None
    return window


def header_values(path: Path) -> dict[str, int | float | str | None]:
    """Read {key: value} of a .gguf file, with None for arrays, or {} if the header cannot be read."""
    try:
        return dict(_read_once(_values_of_file, path))
    except _DAMAGED:
        return {}


class NumberRange(NamedTuple):
    """Range of a number in a model's files."""

    minimum: float
    maximum: float
    is_integer: bool = True

    def problem(self, value: object) -> str:
        """Clause on a value that is not a number in the range, or "" if it is."""
        shown = f"{value!r}"[:_LONGEST_VALUE]
        is_number = type(value) is int or type(value) is float
        if is_number and value > self.maximum:  # type: ignore[operator]
            return f"{shown}, more than any model"
        if not is_number or (self.is_integer and value % 1) or not value >= self.minimum:  # type: ignore[operator]
            kind = "a whole number" if self.is_integer else "a number"
            return f"{shown}, but it must be {kind} from {self.minimum:,} to {self.maximum:,}"
        return ""


PARTS, SIZES = NumberRange(1, 100_000), NumberRange(1, 1 << 26)
"""Ranges of counts (layers, heads, experts, which libraries list before they read a weight) and of sizes of vectors."""
POSITIONS = NumberRange(1, CONTEXT_TOKENS)
FACTORS, BASES = NumberRange(0.001, 1 << 16, is_integer=False), NumberRange(0.001, 1e18, is_integer=False)
"""Factors by which positions are stretched, and bases of rotary embeddings."""
_GGUF_RANGES = {
    "context_length": POSITIONS._replace(minimum=0),
    "rope.scaling.original_context_length": POSITIONS._replace(minimum=0),
    "attention.sliding_window": POSITIONS._replace(minimum=0),
    "rope.scaling.factor": FACTORS._replace(minimum=0),
    "rope.scale_linear": FACTORS._replace(minimum=0),
    "rope.freq_base": BASES._replace(minimum=0),
    "block_count": PARTS,
    **dict.fromkeys(("attention.head_count", "attention.head_count_kv", "expert_count"), PARTS._replace(minimum=0)),
    **dict.fromkeys(("embedding_length", "attention.key_length", "attention.value_length", "vocab_size"), SIZES),
}
"""{key without the architecture: range of the value}. In ranges that start at 0, 0 stands for a missing value."""


def header_problem(path: Path) -> str:
    """Clause on the first key of a .gguf file with an impossible number, or "" if all numbers are possible."""
    values = header_values(path)
    prefix = f"{values.get('general.architecture')}."
    for key, value in values.items():
        limits = _GGUF_RANGES.get(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if limits and value is not None and (problem := limits.problem(value)):  # None is a list, one for each layer
            return f"{key} = {problem}"
    return ""


class TensorTable(NamedTuple):
    """Table of the tensors in a file.

    Attributes:
        header: number of leading bytes, which contain names, shapes and formats of the tensors.
        spans: begin and end of each tensor in the file, in the header's order.
    """

    header: int
    spans: list[tuple[int, int]]


def tensor_table(file: BinaryIO, size: int) -> TensorTable | None:
    """Read the tensor table of a .safetensors or .gguf file of ``size`` bytes, open at the start. None if invalid."""
    try:
        is_gguf = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        table = _gguf_spans(file, size) if is_gguf else _safetensors(file)
    except _DAMAGED:
        return None
    sound = all(table.header <= begin <= end <= size for begin, end in table.spans)
    return table if sound else None


def _safetensors(file: BinaryIO) -> TensorTable:
    length = int(_number(file, "Q"))
    if length > _LONGEST_JSON:
        raise ValueError(length)
    entries = json.loads(file.read(length))
    if not isinstance(entries, dict):
        raise ValueError(type(entries))  # noqa: TRY004  # the file is wrong, not the caller
    entries.pop("__metadata__", None)
    start = file.tell()
    return TensorTable(start, [_span(entry, start) for entry in entries.values()])


def _span(entry: object, start: int) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or [type(offset) for offset in offsets] != [int, int]:
        raise ValueError(offsets)
    return start + offsets[0], start + offsets[1]


class GgufTensor(NamedTuple):
    """Tensor of a .gguf file.

    Attributes:
        type: ggml's number of the storage type.
        offset: start in bytes after the header.
    """

    name: str
    type: int
    numbers: int
    offset: int


def gguf_tensors(path: Path) -> list[GgufTensor] | None:
    """Read the list of tensors of a .gguf file, or None if the header cannot be read."""
    try:
        return list(_read_once(_tensors_of_file, path))
    except _DAMAGED:
        return None


def gguf_vocabulary(path: Path, names: Mapping[int, str]) -> bytes:
    """Content of a .gguf file without tensors: the header of a file, with the tokens in ``names`` renamed.

    Raises:
        OSError, ValueError, struct.error: the header cannot be read.
    """
    parts = []
    with open_input(path) as file:
        _, keys = _gguf_counts(file)
        for _ in range(keys):
            begin = file.tell()
            key, kind = _text(file), int(_number(file, "I"))
            if key == _TOKENS:
                parts.append(_renamed_tokens(file, begin, names))
                continue
            entry = _read_key(file, begin, kind)
            if not key.startswith(_DROPPED_KEYS):
                parts.append(entry)
    return struct.pack("<4sIQQ", _MAGIC, _VERSIONS[-1], 0, len(parts)) + b"".join(parts)


def gguf_tokenizer_sha256(path: Path) -> str | None:
    """Hash of the keys and values that define the tokenizer of a .gguf file, or None if the header is damaged."""
    entries = {}
    try:
        with open_input(path) as file:
            _, keys = _gguf_counts(file)
            for _ in range(min(keys, _LONGEST)):
                begin = file.tell()
                key, kind = _text(file), int(_number(file, "I"))
                entry = _read_key(file, begin, kind)
                if key.startswith(_TOKENIZER):
                    entries[key] = entry
    except _DAMAGED:
        return None
    return hashlib.sha256(b"".join(entries[key] for key in sorted(entries))).hexdigest()


def _read_once(read: Callable[[Path], T], path: Path) -> T:
    """Read from a file's header with a cache: files that have changed, or were just written, are read again.

    A vocabulary takes tenths of a second.
    """
    state = path.stat()
    if time.time() - state.st_mtime < _SETTLED_S:
        return read(path)
    part: T = _cache_content(read, path, state.st_ino, state.st_size, state.st_mtime_ns)
    return part


@lru_cache(maxsize=8)
def _cache_content(read: Callable[[Path], T], path: Path, *_state: int) -> T:
    return read(path)


def _values_of_file(path: Path) -> dict[str, int | float | str | None]:
    with open_input(path) as file:
        _, keys = _gguf_counts(file)
        return dict(_gguf_values(file, keys))


def _tensors_of_file(path: Path) -> list[GgufTensor]:
    with open_input(path) as file:
        return _gguf_header(file)[1]


def _read_key(file: BinaryIO, begin: int, kind: int) -> bytes:
    """Read the bytes of a key with its value, from ``begin`` on. ``file`` is positioned after the value's type."""
    _value(file, kind)
    end = file.tell()
    file.seek(begin)
    return file.read(end - begin)


def _renamed_tokens(file: BinaryIO, begin: int, names: Mapping[int, str]) -> bytes:
    """Bytes of the token list with some tokens renamed. ``file`` is positioned after the value's type."""
    _number(file, "I")
    (count,) = _LENGTH.unpack(file.read(_LENGTH.size))
    start = file.tell()
    file.seek(begin)
    head = file.read(start - begin)
    texts = (_bytes_of_text(file) for _ in range(count))
    renamed = (names[i].encode() if i in names else text for i, text in enumerate(texts))
    return head + b"".join(_LENGTH.pack(len(text)) + text for text in renamed)


def _gguf_spans(file: BinaryIO, size: int) -> TensorTable:
    """Spans of the tensors of a GGUF file, which only contains starts: each tensor ends where the next starts."""
    alignment, tensors = _gguf_header(file)
    offsets = [tensor.offset for tensor in tensors]
    start = -(-file.tell() // alignment) * alignment
    ordered = sorted({*offsets, size - start})
    ends = dict(zip(ordered, ordered[1:] + ordered[-1:], strict=True))
    return TensorTable(start, [(start + offset, start + ends[offset]) for offset in offsets])


def _gguf_header(file: BinaryIO) -> tuple[int, list[GgufTensor]]:
    """Read the alignment of the first tensor, and all tensors. Leaves the file at the end of the header."""
    tensors, keys = _gguf_counts(file)
    values = dict(_gguf_values(file, keys))
    alignment = values.get(_ALIGNMENT[0], _ALIGNMENT[1])
    if tensors > _LONGEST or not isinstance(alignment, int) or alignment < 1:
        raise ValueError(tensors)
    return alignment, [_gguf_tensor(file) for _ in range(tensors)]


def _gguf_tensor(file: BinaryIO) -> GgufTensor:
    name = _text(file)
    dimensions = int(_number(file, "I"))
    if dimensions > _MOST_DIMENSIONS:
        raise ValueError(dimensions)
    *shape, kind, offset = struct.unpack(f"<{dimensions}QIQ", file.read(8 * dimensions + 12))
    return GgufTensor(name, kind, math.prod(shape), offset)


def _gguf_counts(file: BinaryIO) -> tuple[int, int]:
    """Read the numbers of tensors and of keys of a GGUF file."""
    if file.read(len(_MAGIC)) != _MAGIC or _number(file, "I") not in _VERSIONS:
        raise ValueError(_MAGIC)
    return int(_number(file, "Q")), int(_number(file, "Q"))


def _gguf_values(file: BinaryIO, keys: int) -> Iterator[tuple[str, int | float | str | None]]:
    """Yield each key with its value, or None for arrays."""
    if keys > _LONGEST:
        raise ValueError(keys)
    for _ in range(keys):
        yield _text(file), _value(file, int(_number(file, "I")))


def _number(file: BinaryIO, kind: str) -> int | float:
    (value,) = struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))
    number: int | float = value
    return number


def _text(file: BinaryIO) -> str:
    return _bytes_of_text(file).decode("utf-8", "replace")


def _bytes_of_text(file: BinaryIO) -> bytes:
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    if file.tell() + length > _LONGEST_GGUF:
        raise ValueError(length)
    return file.read(length)


def _value(file: BinaryIO, kind: int) -> int | float | str | None:
    """Read a number or a text, or None for arrays, which are skipped."""
    if kind == _STRING:
        return _text(file)
    if kind != _ARRAY:
        return _number(file, _NUMBERS[kind]) if kind in _NUMBERS else _unknown(kind)
    of, length = int(_number(file, "I")), int(_number(file, "Q"))
    if of in _NUMBERS:
        file.seek(length * struct.calcsize(f"<{_NUMBERS[of]}"), 1)
    elif of == _STRING and length <= _LONGEST:
        for _ in range(length):
            _bytes_of_text(file)
    else:
        _unknown(of)
    return None


def _unknown(kind: int) -> int:
    raise ValueError(kind)
