"""A GGUF file written again with something changed, by gguf's own reader and writer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


def gguf_copy(
    path: Path,
    to: Path,
    *,
    architecture: str = "",
    tokens: int | None = None,
    whole: bool = False,
    added: Mapping[str, float | str | list[int]] | None = None,
    without: Collection[str] = (),
    swapped: tuple[int, int] | None = None,
    tensors: Mapping[str, Any] | None = None,
) -> Path:
    """The same model under another architecture's name, fewer or two swapped tokens, other keys, or dequantised."""
    import gguf

    reader = gguf.GGUFReader(path)
    own = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(to, architecture or own)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name in without or name in (added or {}):
            continue
        kind, value = field.types[0], field.contents()
        if tokens and name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
            value = value[:tokens]
        if swapped and name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores"):
            value = _swap(list(value), *swapped)
        renamed = name.replace(f"{own}.", f"{architecture or own}.", 1) if name.startswith(f"{own}.") else name
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(renamed, value, kind, sub_type=inner)
    for key, value in (added or {}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add.get(type(value), writer.add_array)(key, value)
    for tensor in reader.tensors:
        if whole:
            writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
        else:
            swaps = swapped and tensor.name in ("token_embd.weight", "output.weight")
            data = _swap(tensor.data, *swapped) if swaps else tensor.data
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    for name, numbers in (tensors or {}).items():
        writer.add_tensor(name, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to


def quantised(path: Path, to: Path, name: str) -> Path:
    """The model with weights of another type, made by llama.cpp: "F16", "Q8_0"."""
    from lbx.backends.llama.library import load_llama_cpp

    llama_cpp = load_llama_cpp()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name}")
    assert llama_cpp.llama_model_quantize(str(path).encode(), str(to).encode(), params) == 0
    return to


def _swap(rows: Any, first: int, second: int) -> Any:
    order = list(range(len(rows)))
    order[first], order[second] = second, first
    return rows[order] if hasattr(rows, "dtype") else [rows[at] for at in order]
