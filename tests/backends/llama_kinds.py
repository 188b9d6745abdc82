"""Writes tiny random GGUF models of kinds that the demo's exporter does not know, with the tiny model's tokenizer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WIDTH, INNER = 64, 128


def _gemma3() -> tuple[dict[str, tuple[int, ...]], dict[str, object]]:
    """Five layers whose attention slides over 64 tokens, and one that sees all."""
    layer = {
        "attn_norm": (WIDTH,),
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (WIDTH // 2, WIDTH),
        "attn_v": (WIDTH // 2, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "attn_q_norm": (16,),
        "attn_k_norm": (16,),
        "post_attention_norm": (WIDTH,),
        "ffn_norm": (WIDTH,),
        "ffn_gate": (INNER, WIDTH),
        "ffn_up": (INNER, WIDTH),
        "ffn_down": (WIDTH, INNER),
        "post_ffw_norm": (WIDTH,),
    }
    keys = {
        "block_count": 6,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 16,
        "attention.value_length": 16,
        "attention.sliding_window": 64,
        "rope.freq_base": 10000.0,
    }
    return {f"blk.{n}.{name}.weight": shape for n in range(6) for name, shape in layer.items()}, keys


def _mamba() -> tuple[dict[str, tuple[int, ...]], dict[str, object]]:
    state, rank, kernel = 16, 4, 4
    layer = {
        "attn_norm.weight": (WIDTH,),
        "ssm_in.weight": (2 * INNER, WIDTH),
        "ssm_conv1d.weight": (INNER, kernel),
        "ssm_conv1d.bias": (INNER,),
        "ssm_x.weight": (rank + 2 * state, INNER),
        "ssm_dt.weight": (INNER, rank),
        "ssm_dt.bias": (INNER,),
        "ssm_a": (INNER, state),
        "ssm_d": (INNER,),
        "ssm_out.weight": (WIDTH, INNER),
    }
    keys = {
        "block_count": 2,
        "attention.head_count": 0,
        "ssm.conv_kernel": kernel,
        "ssm.inner_size": INNER,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
    }
    return {f"blk.{n}.{name}": shape for n in range(2) for name, shape in layer.items()}, keys


KINDS = {"gemma3": _gemma3, "mamba": _mamba}


def write_kind(name: str, tokenizer_from: Path, out: Path, **more: int) -> Path:
    """A model of that architecture; its tokenizer is copied from another GGUF file.

    Args:
        more: keys of the header besides, two underscores for each dot.
    """
    import gguf

    shapes, keys = KINDS[name]()
    writer = gguf.GGUFWriter(out, name)
    vocabulary = _copy_tokenizer(writer, tokenizer_from)
    common = {
        "context_length": 2048,
        "embedding_length": WIDTH,
        "feed_forward_length": INNER if name == "gemma3" else 0,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    besides = {key.replace("__", "."): value for key, value in more.items()}
    for key, value in (common | keys | besides).items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(f"{name}.{key}", value)
    rng = np.random.default_rng(3)
    for tensor, shape in {"token_embd.weight": (vocabulary, WIDTH), "output_norm.weight": (WIDTH,), **shapes}.items():
        writer.add_tensor(tensor, _numbers(tensor, shape, rng))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def _numbers(tensor: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if tensor.endswith("norm.weight") or tensor.endswith("ssm_d"):
        return np.ones(shape, np.float32)
    if tensor.endswith("ssm_a"):
        return -np.ones(shape, np.float32)
    return (0.2 * rng.standard_normal(shape)).astype(np.float32)


def _copy_tokenizer(writer, source: Path) -> int:
    import gguf

    fields = gguf.GGUFReader(source).fields
    said = {key.removeprefix("tokenizer.ggml."): field.contents() for key, field in fields.items() if "ggml" in key}
    writer.add_tokenizer_model(said["model"])
    writer.add_tokenizer_pre(said["pre"])
    writer.add_token_list(said["tokens"])
    writer.add_token_types(list(said["token_type"]))
    writer.add_token_merges(said["merges"])
    writer.add_bos_token_id(said["bos_token_id"])
    writer.add_eos_token_id(said["eos_token_id"])
    return len(said["tokens"])
