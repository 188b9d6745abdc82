"""A GGUF file written again with something changed, by gguf's own reader and writer."""

from __future__ import annotations

from pathlib import Path


def gguf_copy(path: Path, to: Path, *, architecture: str = "", tokens: int | None = None, whole: bool = False) -> Path:
    """The same model under another architecture's name, with the first tokens only, or dequantised to float32."""
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
    for tensor in reader.tensors:
        if whole:
            writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to
