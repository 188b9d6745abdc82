"""A tiny random decoder in sentence-transformers' format, built like Qwen3-Embedding: last token, EOS at the end."""

from __future__ import annotations

import json
from pathlib import Path

PROMPT = "Instruct: find what answers\nQuery: "


def make_decoder(folder: Path) -> Path:
    import torch
    from tokenizers import processors
    from transformers import Qwen3Config, Qwen3Model

    from tests.backends.tiny import make_tokenizer

    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer.pad_token = "<s>"
    torch.manual_seed(5)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=1024,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=1,
    )
    Qwen3Model(config).float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    written = json.loads(settings.read_text())
    written |= {"tokenizer_class": "Qwen2Tokenizer", "model_max_length": 4096}
    settings.write_text(json.dumps(written))
    _write_modules(folder)
    return folder


def _write_modules(folder: Path) -> None:
    names = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [
        {"idx": n, "name": str(n), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for n, (place, kind) in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 64, "pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    prompts = {"prompts": {"query": PROMPT, "document": ""}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
