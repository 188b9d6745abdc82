"""Write a Llama-architecture Hugging Face folder with a byte-level BPE tokenizer as one GGUF file.

    python models/demo/export_gguf.py models/demo/hf demo.gguf --dtype f16

What llama.cpp then reads is what transformers reads, to the token. Three things are easily got wrong:

    rope        llama.cpp rotates neighbours (2i, 2i + 1), transformers rotates halves (i, i + d/2): the rows of
                the query and key matrices are put in the other order, head by head
    norms       stay F32, as llama.cpp expects; matrices are stored in the asked type
    tokenizer   ByteLevel(use_regex=True) is GPT-2's splitting: model "gpt2", pre-tokenizer "gpt-2"; a BOS that
                the post-processor writes is llama.cpp's add_bos_token
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from lbx.base.errors import LbxError, UsageError

Floats = NDArray[np.float32]

_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def export_gguf(model_dir: Path, out: Path, dtype: Literal["f16", "f32"] = "f16") -> Path:
    """Write the model in ``model_dir`` as GGUF.

    Args:
        model_dir: config.json, model.safetensors (one file) and tokenizer.json of a Llama model.
        out: the file to write; an existing one is replaced, once the new one is complete.
        dtype: of the matrices.

    Returns:
        ``out``.

    Raises:
        UsageError: a file is missing, or the model or its tokenizer is of a kind this exporter does not know.
    """
    if dtype not in ("f16", "f32"):
        raise UsageError(f'GGUF type "{dtype}" is not known here.', fix='Give "f16" or "f32".')
    config = _json(model_dir / "config.json")
    tokenizer = _json(model_dir / "tokenizer.json")
    _check_config(config, model_dir)
    _check_tokenizer(tokenizer, model_dir)
    partial = out.with_name(out.name + ".part")
    out.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(partial, "llama")
    _write_config(writer, config, dtype)
    _write_tokenizer(writer, tokenizer, config)
    for name, tensor in _tensors(model_dir, config):
        matrix = tensor.ndim > 1 and dtype == "f16"
        writer.add_tensor(name, tensor.astype(np.float16) if matrix else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return partial.replace(out)


def _json(path: Path) -> dict[str, Any]:
    try:
        loaded: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as exc:
        raise UsageError(f"{path} cannot be read: {exc}.", fix="Give the folder of a Hugging Face model.") from exc
    return loaded


def _check_config(config: Mapping[str, Any], folder: Path) -> None:
    fine = (
        config.get("model_type") == "llama"
        and not config.get("attention_bias")
        and not config.get("mlp_bias")
        and config.get("hidden_act") == "silu"
        and _rope(config).get("rope_type", "default") == "default"
    )
    if not fine:
        raise UsageError(
            f"{folder} is not a plain Llama model (no biases, SiLU, unscaled rope).",
            fix="Convert it with llama.cpp's own converter.",
        )


def _check_tokenizer(tokenizer: Mapping[str, Any], folder: Path) -> None:
    before = tokenizer.get("pre_tokenizer") or {}
    fine = (
        tokenizer.get("normalizer") is None
        and tokenizer["model"].get("type") == "BPE"
        and not tokenizer["model"].get("ignore_merges")
        and before.get("type") == "ByteLevel"
        and before.get("use_regex") is True
        and before.get("add_prefix_space") is False
    )
    if not fine:
        raise UsageError(
            f"{folder}/tokenizer.json is not a plain byte-level BPE with GPT-2's splitting.",
            fix="Convert the model with llama.cpp's own converter.",
        )


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    rope: Mapping[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return rope


def _head_dim(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _write_config(writer: gguf.GGUFWriter, config: Mapping[str, Any], dtype: str) -> None:
    kinds = {"f16": gguf.LlamaFileType.MOSTLY_F16, "f32": gguf.LlamaFileType.ALL_F32}
    heads, head_dim = config["num_attention_heads"], _head_dim(config)
    writer.add_name("lbx demo")
    writer.add_file_type(kinds[dtype])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(float(_rope(config).get("rope_theta") or config.get("rope_theta") or 10000.0))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _write_tokenizer(writer: gguf.GGUFWriter, tokenizer: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    vocab: dict[str, int] = dict(tokenizer["model"]["vocab"])
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    vocab.update({token["content"]: token["id"] for token in added.values()})
    by_id = {i: text for text, i in vocab.items()}
    tokens, types = [], []
    for i in range(config["vocab_size"]):
        tokens.append(by_id.get(i, f"[PAD{i}]"))
        kind = gguf.TokenType.NORMAL if i in by_id else gguf.TokenType.UNUSED
        if i in added:
            kind = gguf.TokenType.CONTROL if added[i]["special"] else gguf.TokenType.USER_DEFINED
        types.append(int(kind))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(_adds(tokenizer, config["bos_token_id"], first=True))
    writer.add_add_eos_token(_adds(tokenizer, config["eos_token_id"], first=False))


def _adds(tokenizer: Mapping[str, Any], token: int, *, first: bool) -> bool:
    """Whether the post-processor puts the token before (or after) a text."""
    processor = tokenizer.get("post_processor") or {}
    single = processor.get("single") or []
    if not single or "SpecialToken" not in single[0 if first else -1]:
        return False
    name = single[0 if first else -1]["SpecialToken"]["id"]
    return bool(processor["special_tokens"][name]["ids"] == [token])


def _tensors(folder: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, Floats]]:
    """GGUF name and values of every tensor, float32; tied output weights are written once, as the embedding."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise UsageError(f"{path} is missing.", fix="Give a folder whose weights are one safetensors file.")
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, tensor in sorted(load_file(path).items()):
        stem = name.removesuffix(".weight")
        if stem == "lm_head" and config.get("tie_word_embeddings"):
            continue
        values = tensor.astype(np.float32)
        if count := heads.get(stem.rpartition(".")[2]):
            values = _interleave(values, count)
        yield _gguf_name(stem, path) + ".weight", np.ascontiguousarray(values)


def _gguf_name(stem: str, path: Path) -> str:
    if stem in _NAMES:
        return _NAMES[stem]
    _, _, rest = stem.partition("model.layers.")
    number, _, part = rest.partition(".")
    if part not in _LAYER_NAMES:
        raise UsageError(f"{path} holds {stem}, which a plain Llama model has not.")
    return f"blk.{number}.{_LAYER_NAMES[part]}"


def _interleave(weight: Floats, heads: int) -> Floats:
    """Rows (head, half, pair) in the order (head, pair, half): (heads * d, width) to the same shape."""
    rows, width = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", choices=["f16", "f32"], default="f16")
    args = parser.parse_args()
    try:
        print(export_gguf(args.model_dir, args.out, args.dtype))
    except LbxError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return exc.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
