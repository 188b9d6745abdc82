"""A tiny Llama with random weights, made here: safetensors and tokenizer, and the same numbers as GGUF."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

EXPORTER = Path(__file__).parents[2] / "models" / "demo" / "export_gguf.py"
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


def make_model(folder: Path, window: int = 2048, width: int = 64) -> Path:
    """A model folder whose weights are exact in float16, so that every format holds the same numbers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
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


def export_gguf(folder: Path, out: Path, kind: str) -> Path:
    """By the demo's exporter."""
    spec = importlib.util.spec_from_file_location("demo_export_gguf", EXPORTER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.export_gguf(folder, out, kind)


def make_gguf(folder: Path, out: Path) -> Path:
    """The same model as GGUF, by the demo's exporter; the chat template is added with gguf's own tool."""
    plain = export_gguf(folder, out.with_name("plain.gguf"), "f16")
    tool = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--chat-template", CHAT]
    subprocess.run([*tool, str(plain), str(out)], check=True, capture_output=True)
    return out


def with_tokens(tmp_path: Path, texts: list[str]) -> tuple[Path, Path]:
    """The tiny model with further control tokens, in both formats; its end of sequence is ``</s>``."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": texts}, replace_extra_special_tokens=False)
    torch.manual_seed(3)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
            max_position_embeddings=256, bos_token_id=0, eos_token_id=1, tie_word_embeddings=False,
        )
    )  # fmt: skip
    folder = tmp_path / "hf"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, export_gguf(folder, tmp_path / "model.gguf", "f32")
