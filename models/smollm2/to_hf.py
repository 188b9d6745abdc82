"""Write a Llama-architecture GGUF file with a byte-level BPE tokenizer as a Hugging Face folder.

    python models/smollm2/to_hf.py SmolLM2-135M-Instruct.Q4_1.gguf smollm2-hf

The other direction of models/demo/export_gguf.py. What transformers then reads is what llama.cpp reads, to the token:

    weights     dequantised as gguf does it, which is exact in float32, and stored so: bfloat16 and float16 would round
                them once more. The rows of the query and key matrices are put back from llama.cpp's order (neighbours
                rotate together) to transformers' (halves do)
    tokenizer   vocabulary, merges and control tokens are the file's; how a text is split before, it only names
    the rest    chat template, context window, rope, norm, BOS and EOS from the file's header
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from lbx.base.errors import LbxError, UsageError

Floats = NDArray[np.float32]
Header = Mapping[str, Any]

_CONTROL = int(gguf.TokenType.CONTROL)


def to_hf(path: Path, folder: Path) -> Path:
    """Write the model in a GGUF file into a new folder: config, weights, tokenizer, generation settings.

    Raises:
        UsageError: it is of another architecture, or its tokenizer of another kind.
    """
    import torch
    from transformers import LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    reader = gguf.GGUFReader(path)
    header = {name: field.contents() for name, field in reader.fields.items()}
    _check(header, path)
    config = _config(header, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    weights = _weights(reader, config, set(model.state_dict()))
    model.load_state_dict({name: torch.from_numpy(values) for name, values in weights.items()}, assign=True)
    model.tie_weights()
    model.generation_config.update(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    model.save_pretrained(folder)
    _tokenizer(header).save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors writes for its own user alone
    return folder


def _check(header: Header, path: Path) -> None:
    architecture = header["general.architecture"]
    kind, split = header.get("tokenizer.ggml.model"), header.get("tokenizer.ggml.pre")
    if architecture != "llama" or any(".rope.scaling" in key for key in header):
        raise UsageError(f"{path} is not a plain Llama model (architecture {architecture}, rope unscaled).")
    if kind != "gpt2" or split not in _SPLITS:
        raise UsageError(
            f"{path} has a tokenizer {kind}, split as {split}; this script writes gpt2's, split as "
            f"{' or '.join(_SPLITS)}."
        )


def _config(header: Header, *, tied: bool) -> Any:
    from transformers import LlamaConfig

    heads, width = header["llama.attention.head_count"], header["llama.embedding_length"]
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        dtype="float32",
        vocab_size=len(header["tokenizer.ggml.tokens"]),
        hidden_size=width,
        intermediate_size=header["llama.feed_forward_length"],
        num_hidden_layers=header["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=header.get("llama.attention.head_count_kv", heads),
        head_dim=header.get("llama.attention.key_length", width // heads),
        max_position_embeddings=header["llama.context_length"],
        rms_norm_eps=float(np.float32(header["llama.attention.layer_norm_rms_epsilon"])),
        rope_parameters={"rope_type": "default", "rope_theta": header["llama.rope.freq_base"]},
        tie_word_embeddings=tied,
        bos_token_id=header["tokenizer.ggml.bos_token_id"],
        eos_token_id=header["tokenizer.ggml.eos_token_id"],
        pad_token_id=header.get("tokenizer.ggml.padding_token_id"),
    )


def _weights(reader: gguf.GGUFReader, config: Any, wanted: set[str]) -> dict[str, Floats]:
    """The model's tensors by transformers' names, float32."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    found: dict[str, Floats] = {}
    for name in wanted:
        stem = name.removesuffix(".weight")
        tensor = stored.get("token_embd.weight" if stem == "lm_head" and config.tie_word_embeddings else "")
        tensor = tensor or stored[f"{names.get_name(stem)}.weight"]
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if count := heads.get(stem.rpartition(".")[2]):
            values = _halves(values, count)
        found[name] = np.ascontiguousarray(values)
    return found


def _halves(weight: Floats, heads: int) -> Floats:
    """Rows (head, pair, half) in the order (head, half, pair): (heads * d, width) to the same shape."""
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def _split_smollm() -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _split_gpt2()])


def _split_gpt2() -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


_SPLITS = {"gpt-2": _split_gpt2, "smollm": _split_smollm}


def _tokenizer(header: Header) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, processors
    from transformers import PreTrainedTokenizerFast

    tokens, types = header["tokenizer.ggml.tokens"], header["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in header["tokenizer.ggml.merges"]]
    inner = Tokenizer(models.BPE({text: i for i, text in enumerate(tokens)}, merges))
    inner.pre_tokenizer = _SPLITS[header["tokenizer.ggml.pre"]]()
    inner.decoder = decoders.ByteLevel()
    controls = [text for text, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    inner.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in controls])
    if header.get("tokenizer.ggml.add_bos_token"):
        bos = header["tokenizer.ggml.bos_token_id"]
        inner.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {f"{name}_token": header.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_max_length=header["llama.context_length"],
        clean_up_tokenization_spaces=False,
        **{name: tokens[i] for name, i in ids.items() if i is not None},
    )
    tokenizer.chat_template = header.get("tokenizer.chat_template")
    return tokenizer


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    try:
        print(to_hf(args.gguf, args.folder))
    except LbxError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return exc.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
