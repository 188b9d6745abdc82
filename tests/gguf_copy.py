"""A GGUF file written again with something changed, by gguf's own reader and writer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def gguf_copy(
    path: Path,
    to: Path,
    *,
    architecture: str = "",
    tokens: int | None = None,
    whole: bool = False,
    added: Mapping[str, float | str] | None = None,
    tensors: Mapping[str, Any] | None = None,
) -> Path:
    """The same model under another architecture's name, fewer tokens, dequantised, or with more keys and tensors."""
    import gguf

    reader = gguf.GGUFReader(path)
    own = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(to, architecture or own)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind, value = field.types[0], field.contents()
        if tokens and name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
            value = value[:tokens]
        renamed = name.replace(f"{own}.", f"{architecture or own}.", 1) if name.startswith(f"{own}.") else name
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(renamed, value, kind, sub_type=inner)
    for key, value in (added or {}).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(key, value)
    for tensor in reader.tensors:
        if whole:
            writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for name, numbers in (tensors or {}).items():
        writer.add_tensor(name, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to
