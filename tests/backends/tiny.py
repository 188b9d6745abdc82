"""A tiny Llama with random weights, made here: safetensors and tokenizer, and the same numbers as GGUF."""

from __future__ import annotations

from pathlib import Path

SENTENCES = [
    "The lighthouse keeper counted seven ships before the fog came in.",
    "A small model reads a long report and answers one question about it.",
    "Which harbour did the grey ship leave, and when was it seen again?",
    "Rivers, bridges and old maps: the index lists them all, page by page.",
    "小船在清晨离开港口，傍晚才回来。",
    "def harvest(rows):\n    return [row for row in rows if row]\n",
]
SPECIALS = ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>"]
THINK = ["<think>", "</think>"]
CHAT = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_tokenizer():
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(SENTENCES * 4, trainer)
    raw.add_tokens([AddedToken(t, special=False, normalized=False) for t in THINK])
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", extra_special_tokens=SPECIALS[2:], chat_template=CHAT
    )


def make_model(folder: Path, window: int = 2048) -> Path:
    """A model folder whose weights are exact in float16, so that every format holds the same numbers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        initializer_range=0.25,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).float()
    model.load_state_dict({name: w.half().float() for name, w in model.state_dict().items()})
    model.generation_config.eos_token_id = [1, tokenizer.convert_tokens_to_ids("<|end|>")]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_gguf(folder: Path, out: Path) -> Path:
    """The same model as GGUF: matrices in float16, norms in float32."""
    import json

    import gguf
    import numpy as np
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text("utf-8"))
    tensors = load_file(folder / "model.safetensors")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    _add_tokenizer(writer, folder)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    rotary = {"q_proj.weight": heads, "k_proj.weight": kv_heads}
    for name, tensor in tensors.items():
        count = rotary.get(".".join(name.split(".")[-2:]))
        kind = np.float16 if tensor.ndim > 1 else np.float32
        rows = _interleave(tensor, count) if count else tensor
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), np.ascontiguousarray(rows, dtype=kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def _interleave(tensor, heads):
    """Rotary halves to rotary pairs: llama.cpp's order of the rows of a head."""
    rows = tensor.shape[0]
    return tensor.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(tensor.shape)


def _add_tokenizer(writer, folder: Path) -> None:
    import json

    import gguf

    parsed = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    added = {t["id"]: t for t in parsed["added_tokens"]}
    vocab = dict(parsed["model"]["vocab"]) | {t["content"]: t["id"] for t in added.values()}
    texts = sorted(vocab, key=lambda text: vocab[text])
    kinds = {True: gguf.TokenType.CONTROL, False: gguf.TokenType.USER_DEFINED}
    types = [kinds[added[n]["special"]] if n in added else gguf.TokenType.NORMAL for n in range(len(texts))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in parsed["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT)
