"""Writes a BERT embedding model of Hugging Face's format as GGUF, for the tests that hold llama.cpp against it."""

from __future__ import annotations

import json
from pathlib import Path

_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
_LAYER_NAMES = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def write_bert(folder: Path, out: Path) -> Path:
    """All numbers stay float32; the vocabulary becomes llama.cpp's: a mark at word starts, none inside words."""
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(out, "bert")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    _write_vocabulary(writer, folder, config)
    for name, tensor in load_file(folder / "model.safetensors").items():
        stem, _, part = name.rpartition(".")
        if stem in _NAMES:
            writer.add_tensor(f"{_NAMES[stem]}.{part}", tensor)
        elif stem.startswith("encoder.layer."):
            number, _, rest = stem.removeprefix("encoder.layer.").partition(".")
            writer.add_tensor(f"blk.{number}.{_LAYER_NAMES[rest]}.{part}", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def _write_vocabulary(writer, folder: Path, config: dict) -> None:
    import gguf

    words = (folder / "vocab.txt").read_text("utf-8").splitlines()
    assert len(words) == config["vocab_size"]
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    writer.add_tokenizer_model("bert")
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_token_list([w if w in special else w[2:] if w.startswith("##") else "\u2581" + w for w in words])
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if w in special else normal for w in words])
    writer.add_bos_token_id(words.index("[CLS]"))
    writer.add_eos_token_id(words.index("[SEP]"))
    writer.add_sep_token_id(words.index("[SEP]"))
    writer.add_unk_token_id(words.index("[UNK]"))
    writer.add_pad_token_id(words.index("[PAD]"))
    writer.add_mask_token_id(words.index("[MASK]"))
